"""Frozen candidate lists: a few preselected donor systems for each system (`app:donor-pool-control`)."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.relations.arrays import naming, read_npz, write_npz
from sprii_envs.relations.coercion import plain_array
from sprii_envs.relations.index import PairIndex, fold
from sprii_envs.relations.kernels.base import BoundKernel, Counts
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.streams import below
from sprii_envs.relations.table import EpisodeTable, Rows, few

_FORMAT = 1
_PARTS = ("systems", "candidates", "indptr")


class Candidates:
    """A donor is a uniform one of the candidate systems of the recipient's system, then a uniform episode of it.

    Args:
        systems: (S,) distinct system ids, integers or strings
        candidates: (S, k) system ids, k for each; or all lists one after the other, (E,)
        indptr: (S + 1,) int64, only with the latter: the list of systems[i] is candidates[indptr[i]:indptr[i+1]]

    Systems that the lists do not name, or whose list is empty, have no legal donor; lists of systems that the
    table lacks are not used, so one file serves every split. Binding checks that every candidate is legal:
    ValueError if one is not in the table, is the recipient's own system or violates the relation, or if a
    column of the relation varies within a system.
    """

    columns = ("system",)

    def __init__(self, systems: ArrayLike, candidates: ArrayLike, indptr: ArrayLike | None = None) -> None:
        systems, lists = _ids("systems", systems), _ids("candidates", candidates)
        if systems.ndim != 1 or len(np.unique(systems)) != len(systems):
            raise ValueError(f"systems must be distinct ids in one dimension, got {few(systems.ravel())}")
        if indptr is None:
            if lists.ndim != 2 or len(lists) != len(systems):
                raise ValueError(
                    f"candidates must be ({len(systems)}, k), one row a system, got {lists.shape}; pass indptr for "
                    "lists of unequal length"
                )
            bounds = np.arange(len(lists) + 1) * lists.shape[1]
        else:
            bounds = plain_array("indptr", indptr)
            fits = bounds.shape == (len(systems) + 1,) and bounds.dtype.kind in "iu" and lists.ndim == 1
            if not (fits and bounds[0] == 0 and bounds[-1] == len(lists) and (np.diff(bounds) >= 0).all()):
                raise ValueError(
                    f"indptr must be {len(systems) + 1} integers that rise from 0 to {lists.size}, the number of "
                    "candidates in one dimension"
                )
        if lists.size and lists.dtype.kind != systems.dtype.kind:
            raise ValueError(f"systems are {systems.dtype} and candidates {lists.dtype}; both must be ids of systems")
        lists, bounds = lists.ravel(), bounds.astype(np.int64)
        order = np.argsort(systems, kind="stable")
        size = np.diff(bounds)[order]
        self.systems = systems[order]
        self.indptr = np.concatenate([[0], np.cumsum(size)])
        self.candidates = lists[np.repeat(bounds[:-1][order] - self.indptr[:-1], size) + np.arange(len(lists))]
        owner = np.repeat(np.arange(len(size)), size)
        by_id = np.lexsort((self.candidates, owner))
        same = (np.diff(owner[by_id]) == 0) & (self.candidates[by_id][1:] == self.candidates[by_id][:-1])
        if same.any():
            twice = np.unique(self.systems[owner[by_id][1:][same]])
            raise ValueError(f"a candidate is listed twice for the systems {few(twice)}")
        for array in (self.systems, self.candidates, self.indptr):
            array.setflags(write=False)
        digest = hashlib.sha256()
        for array in (self.systems, self.candidates, self.indptr):
            array = array.astype(array.dtype.newbyteorder("<"))
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        self._digest = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.systems)

    def __repr__(self) -> str:
        size = np.diff(self.indptr)
        each = f"{size.min()}–{size.max()}" if len(size) and size.min() < size.max() else f"{size[:1].sum()}"
        return f"Candidates({len(self)} systems, {each} each, {self._digest[:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidates) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        codes, _ = table.codes("system")
        ids, first, size = np.unique(table["system"], return_index=True, return_counts=True)
        if len(self) and ids.dtype.kind != self.systems.dtype.kind:
            raise ValueError(
                f"the candidate lists name systems as {self.systems.dtype}, the table's column 'system' is {ids.dtype}"
            )
        count, names = self._lists(ids)
        owner = np.repeat(np.arange(len(ids)), count)
        chosen = np.minimum(np.searchsorted(ids, names), len(ids) - 1)
        missing = ids[chosen] != names
        if missing.any():
            raise ValueError(
                f"{len(np.unique(names[missing]))} candidate systems are not in the table: "
                f"{few(np.unique(names[missing]))}; were the lists made from another split?"
            )
        self._check(table, relation, ids, first, owner, chosen)
        by_episode = table.by_episode()
        order = by_episode[np.argsort(codes[by_episode], kind="stable")]
        lists = np.stack([np.cumsum(count) - count, count], 1)
        return _BoundCandidates(codes, lists, chosen, order, np.stack([np.cumsum(size) - size, size], 1))

    def _lists(self, ids: NDArray[Any]) -> tuple[Rows, NDArray[Any]]:
        """Of the systems `ids` (S,): how many candidates each has, and their ids one after the other."""
        at = np.minimum(np.searchsorted(self.systems, ids), max(len(self) - 1, 0))
        listed = self.systems[at] == ids if len(self) else np.zeros(len(ids), bool)
        count = np.zeros(len(ids), np.int64)
        count[listed] = np.diff(self.indptr)[at[listed]]
        begin = np.zeros(len(ids), np.int64)
        begin[listed] = self.indptr[at[listed]]
        position = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(count.sum())
        return count, self.candidates[position]

    def _check(
        self, table: EpisodeTable, relation: Relation, ids: NDArray[Any], first: Rows, owner: Rows, chosen: Rows
    ) -> None:
        if relation.same_episode:
            raise ValueError(f"candidate lists name other systems; under the relation '{relation}' none is legal")
        faults = [("is the recipient's own system", owner == chosen)]
        for name in relation.columns:
            if fold(table, ("system", name))[1] != len(ids):
                raise ValueError(
                    f"candidate systems lend any of their episodes, but the relation '{relation}' reads {name!r}, "
                    "which varies within a system"
                )
            label = table[name][first]
            equal = label[owner] == label[chosen]
            shared = name in relation.shared
            faults.append((f"{'differs in' if shared else 'has the same'} {name!r}", equal != shared))
        for fault, wrong in faults:
            if wrong.any():
                i = int(wrong.argmax())
                raise ValueError(
                    f"{int(wrong.sum())} of {len(wrong)} candidates are not legal under the relation '{relation}': "
                    f"system {ids[chosen[i]]} {fault}, as a candidate of system {ids[owner[i]]}"
                )


@dataclass(frozen=True)
class _BoundCandidates:
    codes: Rows  # (N,) system of each row
    lists: NDArray[np.int64]  # (S, 2) of each system: position of its first candidate, number of candidates
    chosen: Rows  # (E,) candidate systems
    order: Rows  # (N,) rows by system, then episode id
    span: NDArray[np.int64]  # (S, 2) of each system: position of its first row in `order`, number of rows

    @property
    def legal(self) -> Rows:
        return self._histories[self.codes]

    @property
    def support(self) -> Counts:
        return Counts(self.lists[self.codes, 1], self.legal)

    @property
    def _histories(self) -> Rows:
        """Episodes of the candidates of each system (S,)."""
        total = np.concatenate([[0], np.cumsum(self.span[self.chosen, 1])])
        first, count = self.lists.T
        return total[first + count] - total[first]

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        count, systems = self.lists[:, 1], len(self.lists)
        each = np.bincount(self.codes, recipient, systems) / np.maximum(count, 1)
        drawn = np.bincount(self.chosen, np.repeat(each, count), systems)
        return (drawn / self.span[:, 1])[self.codes]

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        first, count = self.lists.take(self.codes[recipient], axis=0).T
        start, size = self.span.take(self.chosen[first + below(rng, count)], axis=0).T
        return self.order[start + below(rng, size)], np.ones(len(recipient), bool)


def save_candidates(path: str | os.PathLike[str], lists: Mapping[str, Candidates]) -> None:
    """Write named lists, such as those of G1 and of G2, to one npz, atomically and without pickle."""
    if not lists or not all(isinstance(name, str) and name and "/" not in name for name in lists):
        raise ValueError(f"candidate lists need names without '/', got {few(lists)}")
    arrays = {f"{name}/{part}": getattr(given, part) for name, given in lists.items() for part in _PARTS}
    write_npz(path, _FORMAT, {"names": np.array(list(lists)), **arrays})


def load_candidates(path: str | os.PathLike[str]) -> dict[str, Candidates]:
    """The lists that `save_candidates` wrote; ValueError naming the file if it is damaged or something else."""
    arrays = read_npz(path, _FORMAT, "a candidate file", ("names",))
    with naming(path, "a candidate file"):
        return {name: Candidates(*(arrays[f"{name}/{part}"] for part in _PARTS)) for name in arrays["names"].tolist()}


def _ids(name: str, values: ArrayLike) -> NDArray[Any]:
    array = plain_array(name, values)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iuU":
        raise ValueError(f"{name} must be system ids, integers or strings, got {array.dtype}")
    if array.dtype.kind == "U":
        return array.astype(f"<U{max(1, int(np.strings.str_len(array).max()))}")
    return array.astype(np.int64)
