"""Related windows from a TorchRL replay buffer of transitions, beside TorchRL's own random slices.

    python examples/torchrl_replay.py

Puts a small D-Clean bank's transitions into a memory-mapped `ReplayBuffer`, one episode after the other, and compares
what two samplers give: the share of pairs that are of one system, and how far the drag of the two is apart. A few
seconds.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyMemmapStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import Sampler, SliceSampler

from sprii_envs.banks import D_CLEAN, Bank, build
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler, episode_runs
from sprii_train.plugins.torchrl import RelationSampler

WINDOW, PAIRS = 24, 48


def transitions(bank: Bank) -> TensorDict:
    """Every transition of a bank of equally long episodes, flat, with what it belongs to."""
    episodes, steps = bank["actions"].shape[:2]
    columns = {
        "observation": bank["states"][:, :-1],
        "action": bank["actions"],
        **{name: np.repeat(bank.table[name], steps).reshape(episodes, steps) for name in ("episode", "system", "drag")},
    }
    return TensorDict({k: torch.tensor(v).flatten(0, 1) for k, v in columns.items()}, batch_size=[episodes * steps])


def buffer(data: TensorDict, sampler: Sampler, batch_size: int) -> ReplayBuffer:
    made = ReplayBuffer(storage=LazyMemmapStorage(len(data)), sampler=sampler, batch_size=batch_size)
    made.extend(data)
    return made


def report(name: str, recipient: TensorDictBase, donor: TensorDictBase) -> float:
    """Print and return the share of pairs of one system."""
    same = (recipient["system"] == donor["system"])[:, 0].float().mean().item()
    apart = (recipient["drag"] - donor["drag"])[:, 0].abs().mean().item()
    print(f"{name}: {same:4.0%} of one system, mean difference in drag {apart:.2f}; windows {tuple(donor.shape)}")
    return same


def run(bank: Bank) -> list[float]:
    data = transitions(bank)
    table, first = episode_runs(np.asarray(data["episode"]), np.asarray(data["system"]))
    pairs = PairSampler(table, SAME_SYSTEM, seed=0, distinct="system")
    related = buffer(data, RelationSampler(pairs, WindowSampler(table, WINDOW, horizon=0), first), PAIRS)
    recipient, donor = related.sample()
    saved = related.sampler.state_dict()
    later = related.sample()
    related.sampler.load_state_dict(saved)
    print("the sample after a saved state comes again:", bool((related.sample() == later).all()))
    slices = SliceSampler(slice_len=WINDOW, traj_key="episode")
    halves = buffer(data, slices, 2 * PAIRS * WINDOW).sample().reshape(2, PAIRS, WINDOW)
    return [report("RelationSampler", recipient, donor), report("SliceSampler   ", halves[0], halves[1])]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(build(D_CLEAN.replace(systems={"train": 200}), Path(folder) / "bank"))
