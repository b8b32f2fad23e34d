"""Related windows of a bank through a torch `DataLoader`: workers, two ranks, a stop and an exact resume.

    python examples/torch_loader.py

Builds a small D-Clean bank and reads the same stream with no, one and two workers, as two ranks, and after stopping in
mid-epoch with batches prefetched. Printed is a checksum of each: all of one stream are equal. Ten seconds.
"""

import hashlib
import tempfile
from pathlib import Path

import numpy as np

from sprii_envs.banks import D_CLEAN, Bank, build
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler
from sprii_train.plugins.torch_data import Batch, PairBatches, PairedWindowDataset, PairLoader

HISTORY, HORIZON = 24, 16


def loader(bank: Bank, length: int, workers: int = 0, rank: int = 0, ranks: int = 1) -> PairLoader:
    """Epochs of `length` batches of 48 pairs. Under `torch.distributed`, leave rank and ranks out."""
    train = bank.split("train")
    pairs = PairSampler(train, SAME_SYSTEM, seed=0, distinct="system")
    windows = WindowSampler(train, HISTORY, HORIZON, seed=0)
    batches = PairBatches(pairs, windows, size=48, length=length, rank=rank, world_size=ranks)
    return PairLoader(PairedWindowDataset(bank, HISTORY + HORIZON), batches, num_workers=workers)


def checksum(batches: list[Batch]) -> str:
    """Of everything that the learner sees."""
    digest = hashlib.sha256()
    for batch in batches:
        for side in ("recipient", "donor"):
            for column in batch[side].values():  # type: ignore[union-attr]
                digest.update(column.numpy().tobytes())
    return digest.hexdigest()[:12]


def joined(parts: tuple[Batch, ...]) -> Batch:
    """The global batch from the ranks' slices."""
    sides = {s: [part[s] for part in parts] for s in ("recipient", "donor")}
    return {s: {c: torch_cat([x[c] for x in xs]) for c in xs[0]} for s, xs in sides.items()}  # type: ignore


def run(bank: Bank, length: int = 60) -> dict[str, str]:
    """Checksums of one epoch, read in different ways."""
    found = {f"{workers} workers": checksum(list(loader(bank, length, workers))) for workers in (0, 1, 2)}
    return found
