"""Pairs as entry numbers of a flat storage of transitions, for any library that samples by index arrays.

TorchRL's and Tianshou's buffers are one long axis of transitions; an episode is a run of it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.relations import EpisodeTable, PairSampler, WindowSampler

Entries = NDArray[np.int64]


def episode_runs(
    episode: ArrayLike, system: ArrayLike, columns: Mapping[str, ArrayLike] | None = None
) -> tuple[EpisodeTable, Entries]:
    """The table of the episodes in a storage, and the entry (N,) that each begins at.

    `episode` (E,) integers, `system` (E,) and further label columns are given per entry, the last two constant over an
    episode. `length` counts entries. ValueError if an episode's entries do not follow one another or its labels change.
    """
    ids = np.asarray(episode)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise ValueError(f"episode must be integers (E,), one per entry, got {ids.dtype} of shape {ids.shape}")
    first = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    length = np.diff(first, append=len(ids))
    again, counts = np.unique(ids[first], return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"the entries of episode {again[counts.argmax()]} do not follow one another")
    labels: dict[str, NDArray[Any]] = {}
    for name, values in {"system": system, **(columns or {})}.items():
        array = np.asarray(values)
        if array.shape != ids.shape:
            raise ValueError(f"{name} must have one label per entry, {ids.shape}, got {array.shape}")
        changed = array != np.repeat(array[first], length)
        if changed.any():
            raise ValueError(f"{name} changes within episode {ids[changed.argmax()]}, at entry {changed.argmax()}")
        labels[name] = array[first]
    order = np.argsort(labels["system"], kind="stable")
    _, start, size = np.unique(labels["system"][order], return_index=True, return_counts=True)
    rollout = np.empty(len(first), np.int64)
    rollout[order] = np.arange(len(first)) - np.repeat(start, size)
    return EpisodeTable({"episode": ids[first], "rollout": rollout, "length": length, **labels}), first


class FlatPairs:
    """The pairs of a step as entry numbers.

    Parameters
    ----------
    pairs : over the episodes in the storage; any relation, kernel and law
    windows : of the same table, lengths in entries; without it a side is the first entry of its episode
    first : entry (N,) that each episode of the table begins at, from `episode_runs`; by default entry i is episode i,
        as in a storage of whole episodes

    `entries` is how many entries the storage must have.
    """

    def __init__(
        self, pairs: PairSampler, windows: WindowSampler | None = None, first: ArrayLike | None = None
    ) -> None:
        count = len(pairs.table)
        self.pairs, self.windows = pairs, windows
        self.first = np.arange(count) if first is None else np.asarray(first)
        if self.first.shape != (count,) or self.first.dtype.kind not in "iu" or self.first.min() < 0:
            raise ValueError(f"first must be entries ({count},), got {self.first.dtype} of shape {self.first.shape}")
        last = self.first
        if windows is not None:
            if first is None or len(windows.lengths) != count:
                raise ValueError("windows need the pairs' own table and the first entry of its episodes: episode_runs")
            windows.check_table(pairs.table.rows_fingerprint())
            last = last + windows.lengths - 1
        self.entries = int(last.max()) + 1

    def batch(self, step: int, n: int) -> tuple[Entries, NDArray[np.bool_]]:
        """Entries (2, n), or with windows (2, n, history), and which pairs (n,) satisfy the relation.

        Row 0 are recipients, row 1 donors: a pure function of (seed, step, n).
        """
        batch = self.pairs.batch(step, n)
        if self.windows is None:
            return self.first[np.stack([batch.recipient, batch.donor])], batch.correct
        w = self.windows.batch(step, batch, self.pairs.relation)
        starts = self.first[np.stack([w.recipient, w.donor])] + np.stack([w.recipient_start, w.donor_start])
        return starts[..., None] + np.arange(self.windows.history), batch.correct
