"""Batches of trajectories for NOD-Hier: a pure function of (seed, step).

A row has a trajectory to predict, drawn uniformly from all of them, and a conditioning one of the same system, drawn
from its cases and perhaps the same. The donor of its code is the case after the conditioning one; the Random control
takes the donor of another system. All three are turned by one symmetry of the equations.
"""

import copy
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer, integers
from sprii_envs.banks import Store
from sprii_envs.fields.bank import FIELD
from sprii_envs.relations import Derangement, EpisodeTable, Kernel, Uniform
from sprii_train.learners.nod_hier import CONTEXT, ChainWindows

Array = NDArray[Any]
Rows = NDArray[np.int64]

LINKS = 4
"""Heads of a chain."""
LONGEST = 56
"""Frames that a chain spans at most."""

SYMMETRIES = 10
"""Identity, transpose, quarter turns 1 to 4 (the fourth is the identity again, as in the release), rolls by
a quarter and by three quarters along each axis."""


def chains(heads: tuple[int, ...] = (1, 3, 9, 27)) -> Rows:
    """The chains of four heads that training draws from, (26, 4), positions in `heads`.

    The published list of 26 is not at hand. Ours are the chains with small steps first, as evaluation takes them, that
    span at most 56 frames: of the 34 that fit into a trajectory, the 26 shortest.
    """
    every = combinations_with_replacement(range(len(heads)), LINKS)
    return np.array([chain for chain in every if sum(heads[i] for i in chain) <= LONGEST], np.int64)


def transformed(fields: Array, symmetry: int) -> Array:
    """Fields (…, side, side) under one of the `SYMMETRIES` of the equations, a view where it can be.

    Raises:
        ValueError: for a number of no symmetry.
    """
    symmetry = integer("symmetry", symmetry, most=SYMMETRIES - 1)
    if symmetry == 0:
        return fields
    if symmetry == 1:
        return np.swapaxes(fields, -1, -2)
    if symmetry < 6:
        return np.rot90(fields, symmetry - 1, axes=(-2, -1))
    far, axis = divmod(symmetry - 6, 2)
    return np.roll(fields, (2 * far + 1) * fields.shape[-1] // 4, axis=axis - 2)


def frames(store: Store, episodes: Rows, times: Rows) -> Array:
    """Frames (n, T, 2, side, side) of episodes (n,) at times (n, T), float32."""
    n, t = times.shape
    read = store.windows(FIELD, np.repeat(episodes, t), times.ravel(), 1)
    return np.asarray(read, np.float32).reshape(n, t, *read.shape[2:])


class PairedChains:
    """Stacked donor and recipient windows of a store's training trajectories: call it with a step.

    Args:
        store: with the column `field` and the labels `system` and `case`.
        table: the trajectories, as many cases of every system.
        kernel: `Uniform`: donors are of the recipient's system; `Derangement`: of another one.
        pairs: rows to predict. A donor's own prediction is the recipient's: nothing is learnt of it.
        stages: updates at which the stream of samples begins again, see `Stages.ends`.

    Raises:
        ValueError: for systems of unlike cases, too few systems, or another kernel.
    """

    def __init__(
        self,
        store: Store,
        table: EpisodeTable,
        *,
        kernel: Kernel | str = Uniform(),  # noqa: B008 (frozen and stateless)
        heads: tuple[int, ...] = (1, 3, 9, 27),
        pairs: int = 8,
        seed: int = 0,
        stages: tuple[int, ...] = (),
    ) -> None:
        if type(kernel) not in (Uniform, Derangement):
            raise ValueError(f"donors of fields are drawn by {kernel!r}; legal: Uniform(), Derangement()")
        self.store, self.heads, self.chains = store, heads, chains(heads)
        self.other = isinstance(kernel, Derangement)
        self.pairs, self.seed = integer("pairs", pairs, least=1), integer("seed", seed)
        self.stages = integers("stages", stages)
        self.trajectories = by_system(table)
        self._own = slice(None)
        if self.other and len(self.trajectories) < 2:
            raise ValueError("donors of another system need at least 2 systems, got 1")

    def identity(self) -> dict[str, Any]:
        """What the batches depend on; `fit` keeps it with the run."""
        return {
            "bank": self.store.fingerprint,
            "trajectories": self.trajectories.tolist(),
            "other": self.other,
            "chains": self.chains.tolist(),
            "heads": list(self.heads),
            "context": list(CONTEXT),
            "pairs": self.pairs,
            "seed": self.seed,
            "stages": list(self.stages),
        }

    def shard(self, rank: int, world: int) -> "PairedChains":
        """The same batches, of which one rank's share of the rows is read."""
        part, share = copy.copy(self), self.pairs // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def __call__(self, step: int) -> ChainWindows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        began = max((end for end in self.stages if end <= step), default=0)
        key = np.array([self.seed, step - began], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        systems, cases = self.trajectories.shape
        n, own = self.pairs, self._own
        system, case, told = rng.integers(systems, size=n), rng.integers(cases, size=n), rng.integers(cases, size=n)
        shift = rng.integers(1, systems, size=n) if systems > 1 else np.zeros(n, np.int64)
        symmetry, chain = rng.integers(SYMMETRIES, size=n), self.chains[rng.integers(len(self.chains), size=n)]
        reached = np.cumsum(np.asarray(self.heads)[chain], axis=1)
        start = rng.integers(CONTEXT[-1] - reached[:, -1] + 1)
        others = (system + shift) % systems if self.other else system
        donor = self.trajectories[others, (told + 1) % cases]
        times = start[:, None] + np.concatenate([np.zeros((n, 1), np.int64), reached], axis=1)
        context = np.broadcast_to(CONTEXT, (n, len(CONTEXT)))
        given, conditions, query = (
            _tensor(_turned(frames(self.store, episodes[own], at[own]), symmetry[own]))
            for episodes, at in (
                (donor, context), (self.trajectories[system, told], context), (self.trajectories[system, case], times),
            )
        )  # fmt: skip
        query, heads = torch.cat([query, query]), torch.from_numpy(chain[own])
        return ChainWindows(
            torch.cat([given, conditions]), query[:, 0], torch.cat([heads, heads]), query[:, 1:]
        )  # fmt: skip


def by_system(table: EpisodeTable) -> Rows:
    """Ids of episodes (systems, cases), both in order; ValueError for systems of unlike cases."""
    systems = np.unique(table["system"])
    rows = [table.select(table["system"] == system) for system in systems]
    every = [np.sort(row["case"]) for row in rows]
    for system, cases in zip(systems, every, strict=True):
        if not np.array_equal(cases, every[0]):
            raise ValueError(f"the system {str(system)!r} has the cases {cases.tolist()}, others {every[0].tolist()}")
    return np.stack([row["episode"][np.argsort(row["case"])] for row in rows]).astype(np.int64)


def _turned(fields: Array, symmetries: Rows) -> Array:
    return np.stack([transformed(row, int(symmetry)) for row, symmetry in zip(fields, symmetries, strict=True)])


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
