"""Objects of CoPhy made by hand: episodes of a few slots, kinds and levels, and a law that their physics obeys."""

import numpy as np
import torch

from sprii_train.cophy.reader import Encoded, Queries, queries
from sprii_train.cophy.supports import Objects

LEVELS = np.array([[1.0, 2.0, 5.0], [0.1, 0.5, 1.0], [0.1, 0.5, 1.0]])


def objects_of(
    counts: dict[str, int], *, objects: int = 2, slots: int = 3, kinds: int = 1, levels: int = 3, absent: bool = False,
    gravities: int = 1, seed: int = 0,
) -> Objects:  # fmt: skip
    """Episodes by split, so many levels of each factor, gravity of so many values along x."""
    rng, e = np.random.default_rng(seed), sum(counts.values())
    seen = np.ones((e, objects), bool)
    if absent:
        seen[::3, -1] = False
    physics = np.stack([LEVELS[f][rng.integers(0, levels, (e, objects))] for f in range(3)], axis=-1)
    gravity = np.zeros((e, 3))
    gravity[:, 0], gravity[:, 2] = rng.integers(0, gravities, e) / 2, -10.0
    return Objects(
        slot=np.sort(np.argsort(rng.random((e, slots)), axis=1)[:, :objects], axis=1),
        kind=np.where(seen, rng.integers(0, kinds, (e, objects)), -1),
        seen=seen,
        physics=physics * seen[..., None],
        gravity=gravity,
        split=np.repeat(list(counts), list(counts.values())),
    )


def drifting(objects: Objects, *, frames: int = 8, seed: int = 0) -> Queries:
    """Objects that move at a speed, and after the third frame at twice their restitution beside it."""
    rng, (e, o) = np.random.default_rng(seed), objects.seen.shape
    start, speed = rng.standard_normal((2, e, 1, o, 3))
    time = np.arange(frames)[None, :, None, None]
    after = np.maximum(time - 2, 0)
    paths = start + 0.3 * speed * time + 2.0 * after * objects.physics[:, None, :, 2:]
    return queries(paths, paths, objects.seen, objects.kind)


def noisy(objects: Objects, *, noise: float = 0.3, seed: int = 0) -> Encoded:
    """A source that sees an object's restitution in its history, with noise, among numbers that tell nothing."""
    g = torch.Generator().manual_seed(seed)
    told = torch.from_numpy(objects.physics[..., 2:]).float()
    memory = torch.cat(
        [told + noise * torch.randn(told.shape, generator=g), torch.randn(*told.shape[:2], 3, generator=g)], -1
    )
    memory = memory * torch.from_numpy(objects.seen).unsqueeze(-1)
    query = torch.randn(*told.shape[:2], 2, generator=g)
    return Encoded(memory, query, _joined, lambda m: m[..., :1], torch.zeros_like(memory))


def _joined(memory: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return torch.cat([memory, query], -1)
