"""Pairs as entry numbers of a flat storage of transitions, for any library that samples by index arrays.

TorchRL's and Tianshou's buffers are one long axis of transitions; an episode is a run of it. Where the storage is a
ring, new episodes are written over old ones: a table describes what it held when the table was made.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.relations.coercion import plain_array
from sprii_envs.relations.labels import count_rollouts
from sprii_envs.relations.relation import NoLegalDonorError
from sprii_envs.relations.sampler import PairSampler
from sprii_envs.relations.table import EpisodeTable, column
from sprii_envs.relations.windows import WindowSampler

Entries = NDArray[np.int64]


class StaleError(ValueError):
    """A sampler describes entries of a storage that are no longer what they were."""

    def __init__(self) -> None:
        super().__init__(
            "the storage has been written to since the table of its episodes was made, so the pairs of this sampler "
            "may no longer be in it: make a new table (episode_runs) of what it holds now, and a new sampler"
        )


class _Runs(NamedTuple):
    table: EpisodeTable
    first: Entries  # (N,) the entry that each episode of the table begins at


class EpisodeRuns(_Runs):
    """`table, first = episode_runs(…)`; the attributes say what was left out.

    `cut` episodes (at most one) lay across the end of a ring and are in the table with the longer of their two parts;
    `dropped` episodes were shorter than asked for.
    """

    cut: int = 0
    dropped: int = 0


def episode_runs(
    episode: ArrayLike,
    system: ArrayLike,
    columns: Mapping[str, ArrayLike] | None = None,
    *,
    head: int = 0,
    shortest: int = 1,
) -> EpisodeRuns:
    """The table of the episodes in a storage, and the entry (N,) that each begins at.

    `episode` (E,) integers, `system` (E,) and further label columns are given per entry, the last two constant over an
    episode. `length` counts entries.

    `head` is for a full ring, and is where it writes next, or how many entries it was ever written: the oldest entry.
    Rows are then in the order of time, the oldest episode with what is left of it. Episodes of fewer than `shortest`
    entries are left out. See `EpisodeRuns` for how many were cut or dropped.

    ValueError if an episode's entries do not follow one another or its labels change; NoLegalDonorError if no episode
    is long enough.
    """
    ids = plain_array("episode", episode)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise ValueError(f"episode must be integers (E,), one per entry, got {ids.dtype} of shape {ids.shape}")
    entry = np.roll(np.arange(len(ids)), -(integer("head", head, most=WORD) % len(ids)))  # of each, the oldest first
    ids = ids[entry]
    begin = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    whole = np.diff(begin, append=len(ids))
    again, counts = np.unique(ids[begin], return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"the entries of episode {again[counts.argmax()]} do not follow one another; of a ring that was filled "
            "past its end, say with head= which entry is the oldest"
        )
    labels: dict[str, NDArray[Any]] = {}
    for name, values in {"system": system, **(columns or {})}.items():
        label = column(name, values)
        if label.shape != ids.shape:
            raise ValueError(f"{name} must have one label per entry, {ids.shape}, got {label.shape}")
        label = label[entry]
        changed = label != np.repeat(label[begin], whole)
        if changed.any():
            i = changed.argmax()
            raise ValueError(f"{name} changes within episode {ids[i]}, at entry {entry[i]}")
        labels[name] = label[begin]
    before = np.minimum(whole, len(ids) - entry[begin])  # entries up to the end of the storage, where a run is cut
    length = np.maximum(before, whole - before)
    first = np.where(before == length, entry[begin], 0)
    kept = length >= integer("shortest", shortest, least=1)
    if not kept.any():
        raise NoLegalDonorError(f"no episode in the buffer has {shortest} steps or more")
    columns_kept = {name: label[kept] for name, label in labels.items()}
    rollout = count_rollouts(columns_kept["system"].tolist())
    table = EpisodeTable({"episode": ids[begin][kept], "rollout": rollout, "length": length[kept], **columns_kept})
    runs = EpisodeRuns(table, first[kept])
    runs.cut, runs.dropped = int((kept & (length < whole)).sum()), int((~kept).sum())
    return runs


class FlatPairs:
    """The pairs of a step as entry numbers.

    Args:
        pairs: over the episodes in the storage; any relation, kernel and law
        windows: of the same table, lengths in entries; without it a side is the first entry of its episode
        first: entry (N,) that each episode of the table begins at, from `episode_runs`; by default entry i is
            episode i, as in a storage of whole episodes
        version: gives a value that is another once the storage has been written to, such as how many entries it was
            ever written. `batch` then raises StaleError. Without it, whoever writes over these episodes must make a
            new table.

    `entries` is how many entries the storage must have.
    """

    def __init__(
        self,
        pairs: PairSampler,
        windows: WindowSampler | None = None,
        first: ArrayLike | None = None,
        version: Callable[[], object] | None = None,
    ) -> None:
        count = len(pairs.table)
        self.pairs, self.windows = pairs, windows
        self.first = np.arange(count) if first is None else plain_array("first", first)
        if self.first.dtype.kind == "u":  # of which and signed integers NumPy makes floats
            self.first = self.first.astype(np.int64)
        if self.first.shape != (count,) or self.first.dtype.kind not in "iu" or self.first.min() < 0:
            raise ValueError(f"first must be entries ({count},), got {self.first.dtype} of shape {self.first.shape}")
        self._length = np.ones(count, np.int64)
        if windows is not None:
            if first is None or len(windows.lengths) != count:
                raise ValueError("windows need the pairs' own table and the first entry of its episodes: episode_runs")
            windows.check_table(pairs.table.rows_fingerprint())
            self._length = windows.lengths
        self.entries = int((self.first + self._length).max())
        self._version, self._described = version, None if version is None else version()

    def described(self) -> NDArray[np.bool_]:
        """Which entries (`entries`,) the pairs are drawn from."""
        bounds = np.zeros(self.entries + 1, np.int64)
        np.add.at(bounds, self.first, 1)
        np.add.at(bounds, self.first + self._length, -1)
        return bounds.cumsum()[:-1] > 0

    def layout(self) -> str:
        """SHA-256 (hex) of where in the storage which episode lies: what entry numbers mean."""
        digest = hashlib.sha256(self.pairs.table.rows_fingerprint().encode())
        for bounds in (self.first, self._length):
            digest.update(np.ascontiguousarray(bounds, "<i8").tobytes())
        return digest.hexdigest()

    def batch(self, step: int, n: int) -> tuple[Entries, NDArray[np.bool_]]:
        """Entries (2, n), or with windows (2, n, history), and which pairs (n,) satisfy the relation.

        Row 0 are recipients, row 1 donors: a pure function of (seed, step, n).
        """
        if self._version is not None and self._version() != self._described:
            raise StaleError
        batch = self.pairs.batch(step, n)
        if self.windows is None:
            return self.first[np.stack([batch.recipient, batch.donor])], batch.correct
        w = self.windows.batch(step, batch, self.pairs.relation)
        starts = self.first[np.stack([w.recipient, w.donor])] + np.stack([w.recipient_start, w.donor_start])
        return starts[..., None] + np.arange(self.windows.history), batch.correct
