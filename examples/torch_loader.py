"""Related windows of a bank through a torch `DataLoader`: workers, ranks, a stop and an exact resume.

    python examples/torch_loader.py

Builds a small D-Clean bank and reads one epoch with no, one and two workers, as two ranks, and after a stop with
batches prefetched. Printed is a checksum of each: all are equal. Five seconds.
"""

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from sprii_envs.banks import D_CLEAN, Bank, build
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler
from sprii_train.plugins.torch_data import PairBatches, PairedWindowDataset, PairLoader

HISTORY, HORIZON = 24, 16


def loader(bank: Bank, length: int, workers: int = 0, **ranks: int) -> PairLoader:
    """Epochs of `length` batches of 48 pairs. Under `torch.distributed` the rank is found by itself."""
    train = bank.split("train")
    pairs = PairSampler(train, SAME_SYSTEM, seed=0, distinct="system")
    windows = WindowSampler(train, HISTORY, HORIZON, seed=0)
    batches = PairBatches(pairs, windows, size=48, length=length, **ranks)
    return PairLoader(PairedWindowDataset(bank, HISTORY + HORIZON), batches, num_workers=workers)


def states(batches: Iterable) -> list[torch.Tensor]:
    """What the learner sees of each batch: (48, 2, 40, 4)."""
    return [torch.stack([batch["recipient"]["states"], batch["donor"]["states"]], dim=1) for batch in batches]


def checksum(batches: list[torch.Tensor]) -> str:
    return hashlib.sha256(torch.stack(batches).numpy().tobytes()).hexdigest()[:12]


def run(bank: Bank, length: int = 60) -> dict[str, str]:
    """Checksums of one epoch, read in five ways."""
    found = {f"{workers} workers": checksum(states(loader(bank, length, workers))) for workers in (0, 1, 2)}
    two = zip(*(states(loader(bank, length, rank=rank, world_size=2)) for rank in range(2)), strict=True)
    found["two ranks, joined"] = checksum([torch.cat(slices) for slices in two])
    stopped, seen = loader(bank, length, workers=2), []
    for batch in stopped:
        seen += states([batch])
        if len(seen) == length // 3:
            break
    resumed = loader(bank, length)
    resumed.load_state_dict(stopped.state_dict())
    found[f"stopped after {len(seen)}, resumed"] = checksum(seen + states(resumed))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bank = build(D_CLEAN.replace(systems={"train": 200}), Path(folder) / "bank")
        for name, value in run(bank).items():
            print(value, name)
        index = next(iter(loader(bank, 1)))["index"]
        drag = bank.table["drag"][index[:, (0, 2)].numpy()]
        print(f"largest difference in drag between recipient and donor: {abs(drag[:, 0] - drag[:, 1]).max()}")


if __name__ == "__main__":
    main()
