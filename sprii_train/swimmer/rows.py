"""Segments of a bank as arrays, standardised by the training systems, and the rows that bases are trained on.

A row is a system under one draw, a condition, two segments, a query and its target. The condition says how many of the
segments are seen: none (K0), the anchor (K1), the anchor and the candidate (K2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer
from sprii_envs.banks import Store
from sprii_envs.mujoco.swimmer import Swimmer
from sprii_envs.standardiser import Standardiser
from sprii_envs.swimmer import ACTED, CANDIDATES, CLEAN, HISTORIES, OBSERVED, QUERIES, SPLITS
from sprii_train.protocol import Windows

CONDITIONS = 3
H, C, Q = len(HISTORIES), len(CANDIDATES), len(QUERIES)
PAIRS = H * C * Q
ROWS = CONDITIONS * PAIRS
"""Of a system in an epoch."""


@dataclass(frozen=True, eq=False)
class SegmentTable:
    """One split: S systems under N draws; float32, standardised by columns over the training systems.

    Attributes:
        systems: (S,) ids.
        scales: (S, 5), the true ones.
        anchors, candidates: (S, N, H, 48), (S, N, C, 48): observed at the start and at four landmarks, the torques.
        queries: (S, N, Q, 16): what is observed at the start, the torques.
        targets, clean: (S, N, Q, 32): what is observed at the landmarks, and the same without noise.
        starts: (S, N, Q, 8) float64 of queries, without noise, in physical units.
    """

    systems: NDArray[np.int64]
    scales: Tensor
    anchors: Tensor
    candidates: Tensor
    queries: Tensor
    targets: Tensor
    clean: Tensor
    starts: NDArray[np.float64]

    @property
    def draws(self) -> int:
        """N."""
        return self.anchors.shape[1]


class _Raw(NamedTuple):
    systems: NDArray[np.int64]
    scales: NDArray[np.float64]
    segments: NDArray[np.float64]  # (S, N, H + C, 48)
    queries: NDArray[np.float64]
    targets: NDArray[np.float64]
    clean: NDArray[np.float64]
    starts: NDArray[np.float64]


class Standards(NamedTuple):
    """What arrays are standardised by."""

    scales: Standardiser
    segments: Standardiser
    queries: Standardiser
    targets: Standardiser


@lru_cache(maxsize=2)
def _tables(store: Store, fingerprint: str) -> tuple[Mapping[str, SegmentTable], Standards]:
    raw = {split: _read(store, split) for split in SPLITS}
    train = raw["train"]
    segments, queries, targets = (a.reshape(-1, a.shape[-1]) for a in (train.segments, train.queries, train.targets))
    standards = Standards(*map(Standardiser.fit, (train.scales, segments, queries, targets)))
    return {split: _standardised(one, standards) for split, one in raw.items()}, standards


def tables(store: Store) -> tuple[Mapping[str, SegmentTable], Standards]:
    """Every split of a bank of segments, and what they are standardised by."""
    return _tables(store, store.fingerprint)


def _standardised(raw: _Raw, by: Standards) -> SegmentTable:
    def made(standardise: Standardiser, array: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(standardise(array).astype(np.float32))

    segments = made(by.segments, raw.segments)
    return SegmentTable(
        raw.systems, made(by.scales, raw.scales), segments[:, :, :H], segments[:, :, H:],
        made(by.queries, raw.queries), made(by.targets, raw.targets), made(by.targets, raw.clean), raw.starts,
    )  # fmt: skip


def _read(store: Store, split: str) -> _Raw:
    table = store.split(split)
    order = np.lexsort((table["rollout"], table["system"]))
    systems = np.unique(table["system"])
    n, length = len(order) // len(systems), H + C + Q
    episodes, starts = table["episode"][order], np.zeros(len(order), np.int64)

    def column(name: str) -> NDArray[np.float64]:
        found = store.windows(name, episodes, starts, length).astype(np.float64)
        return found.reshape(len(systems), n, *found.shape[1:])

    observed, clean, acted = column(OBSERVED), column(CLEAN), column(ACTED)
    flat = [array.reshape(*array.shape[:3], -1) for array in (observed, acted)]
    begun, queried = np.s_[:, :, :, :8], np.s_[:, :, H + C :]
    properties = np.stack([table[name][order][::n] for name in Swimmer.properties.names], axis=1)
    return _Raw(
        systems,
        properties,
        np.concatenate(flat, axis=-1)[:, :, : H + C],
        np.concatenate([flat[0][begun], flat[1]], axis=-1)[queried],
        flat[0][:, :, H + C :, 8:],
        clean[queried].reshape(*clean.shape[:2], Q, -1)[..., 8:],
        clean[:, :, H + C :, 0],
    )


class Places(NamedTuple):
    """Where rows are: system, draw, condition, anchor, candidate and query, (n,) each."""

    system: NDArray[np.int64]
    draw: NDArray[np.int64]
    condition: NDArray[np.int64]
    anchor: NDArray[np.int64]
    candidate: NDArray[np.int64]
    query: NDArray[np.int64]


def places(rows: NDArray[np.int64], draws: NDArray[np.int64], conditions: tuple[int, ...]) -> Places:
    """Of row numbers, the query running fastest and the system slowest, each under its draw."""
    system, rest = np.divmod(rows, len(conditions) * PAIRS)
    condition, rest = np.divmod(rest, PAIRS)
    anchor, rest = np.divmod(rest, C * Q)
    return Places(system, draws, np.asarray(conditions)[condition], anchor, *np.divmod(rest, Q))


def windows(observations: Mapping[str, Tensor], target: Tensor) -> Windows:
    """Observations of rows and their targets (n, 32), as learners of segments take them."""
    none = target.new_zeros(len(target), 0, 0)
    return Windows(dict(observations), none, target[:, None], none)


def read_rows(table: SegmentTable, at: Places) -> Windows:
    """What a base sees of rows; the segment that a mask hides is handed over too."""
    s, n = at.system, at.draw
    segments = torch.stack([table.anchors[s, n, at.anchor], table.candidates[s, n, at.candidate]], dim=1)
    mask = torch.from_numpy(at.condition[:, None] > np.arange(2)).float()
    seen = {"segments": segments, "mask": mask, "query": table.queries[s, n, at.query]}
    return windows(seen, table.targets[s, n, at.query])


class Shuffled:
    """Row numbers of batches: every row once in an epoch, as far as its updates go, under a draw of its own.

    Args:
        systems, draws: S and N.
        conditions: which of K0, K1 and K2.
        batch: rows of an update.
        epoch: updates of an epoch.
    """

    def __init__(
        self, systems: int, draws: int, conditions: tuple[int, ...], batch: int, epoch: int, seed: int
    ) -> None:
        self.systems, self.draws, self.conditions = systems, draws, conditions
        self.batch, self.epoch = integer("batch", batch, least=1), integer("epoch", epoch, least=1)
        self.seed, self._at, self._order = seed, -1, np.empty(0, np.int64)

    def __call__(self, step: int) -> Places:
        """Of an update."""
        epoch, update = divmod(step, self.epoch)
        rows = self.systems * len(self.conditions) * PAIRS
        if epoch != self._at:
            self._at, self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(rows)
        chosen = np.take(self._order, np.arange(update * self.batch, (update + 1) * self.batch), mode="wrap")
        drawn = np.random.default_rng([self.seed, epoch, 1 + update]).integers(0, self.draws, len(chosen))
        return places(chosen, drawn, self.conditions)


class SegmentBatches:
    """Batches of rows, a pure function of the step: call it with one.

    Their halves are no donors and recipients of each other: learners are trained on them by their own loss alone.

    Args:
        store: a bank of segments.
        pairs: half the rows of a batch.
        epoch: updates of an epoch.
    """

    def __init__(self, store: Store, *, pairs: int, epoch: int, seed: int) -> None:
        self._table, self._fingerprint = tables(store)[0]["train"], store.fingerprint
        self.seed, self.pairs, self.epoch = seed, pairs, epoch
        self._rows = Shuffled(len(self._table.systems), self._table.draws, (0, 1, 2), 2 * pairs, epoch, seed)

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        return {"bank": self._fingerprint, "pairs": self.pairs, "epoch": self.epoch, "seed": self.seed}

    def __call__(self, step: int) -> Windows:
        """Windows of an update."""
        return read_rows(self._table, self._rows(step))


def every_row(systems: NDArray[np.int64], draws: int, conditions: tuple[int, ...]) -> Places:
    """All rows of some systems, the draws taking turns: what checkpoints are selected by."""
    each = len(conditions) * PAIRS
    rows = (systems[:, None] * each + np.arange(each)).ravel()
    return places(rows, (rows + rows // each) % draws, conditions)


def selecting(systems: int, *, halved: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of so many selection systems choose a base's checkpoint, and which those of its adapters."""
    rows = np.arange(systems)
    return (rows[::2], rows[1::2]) if halved else (rows, rows)
