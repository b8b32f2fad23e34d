"""From a bank of fields to training windows of a condition and a trajectory: a pure function of (seed, step)."""

import copy
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import WORD, choice, integer
from sprii_envs.banks import Store
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, Kernel, PairSampler, Relation, Uniform
from sprii_envs.relations.streams import WINDOWS, below, stream
from sprii_train.devices import moved
from sprii_train.protocol import each

Rows = NDArray[np.int64]
Condition = Literal["other", "self"]

COLUMN = "field"
"""Of a bank of fields, an entry a frame."""


class FieldWindows(NamedTuple):
    """What `fit` calls windows: whole trajectories of B cases, and the one of the same system that conditions each."""

    conditions: Tensor  # (B, T, *field) float32
    fields: Tensor  # (B, T, *field) float32, predicted from its first frame

    @property
    def actions(self) -> Tensor:
        """(B, 0): nothing acts."""
        return self.fields.flatten(1)[:, :0]

    def to(self, device: torch.device | str) -> "FieldWindows":
        """The same windows on a device."""
        return each(self, lambda tensor: moved(tensor, device))


class PairedFields:
    """Stacked donor and recipient windows: call it with a step.

    The pairing law draws the CONDITIONS, whose codes are aligned or exchanged. What a window predicts is another case
    of its condition's system, neither its own condition nor its partner's, or, with `condition="self"`, the condition
    itself.

    Args:
        store: of fields.
        table: the episodes that both sides come from, a selection of the store's.
        relation, kernel: the pairing law; see `sprii_envs.relations`.
        pairs: in a batch of twice as many windows; recipients come from as many distinct systems while there are
            enough.
        condition: whose history conditions a window.

    Raises:
        ValueError: for a system with fewer cases than that needs, or episodes of unlike lengths.
    """

    def __init__(
        self,
        store: Store,
        table: EpisodeTable,
        *,
        relation: Relation = SAME_SYSTEM,
        kernel: Kernel = Uniform(),  # noqa: B008 (frozen and stateless)
        pairs: int = 4,
        seed: int = 0,
        condition: Condition = "other",
    ) -> None:
        self.store, self.table, self.count = store, table, integer("pairs", pairs, least=1)
        self.seed, self.relation, self.kernel = integer("seed", seed, most=WORD), relation, kernel
        self.condition = choice("condition", condition, legal=get_args(Condition))
        systems, self._group, counts = np.unique(table["system"], return_inverse=True, return_counts=True)
        least = 3 if condition == "other" else 2
        if counts.min() < least:
            raise ValueError(
                f"the system {systems[counts.argmin()]} has {counts.min()} cases; legal with condition "
                f"{condition!r}: at least {least}"
            )
        self._frames = frames_of(table)
        # Rows by system: `_members[_first[g] + k]` is the k-th case of system g, `_place` says which k a row is.
        self._members = np.argsort(self._group, kind="stable")
        self._first, self._counts = np.concatenate([[0], np.cumsum(counts)[:-1]]), counts
        self._place = np.empty(len(table), np.int64)
        self._place[self._members] = np.arange(len(table)) - np.repeat(self._first, counts)
        distinct = "system" if pairs <= len(systems) else None
        self.pairs = PairSampler(table, relation, kernel, seed=seed, distinct=distinct)
        self._own = slice(None)

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        return {
            "bank": self.store.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "sampler": self.pairs.fingerprint(),
            "relation": str(self.relation),
            "pairs": self.count,
            "seed": self.seed,
            "condition": self.condition,
        }

    def shard(self, rank: int, world: int) -> "PairedFields":
        """The same batches, of which one rank's share of the pairs is read; ValueError if ranks do not divide them."""
        if self.count % world:
            raise ValueError(f"{self.count} pairs cannot be shared by {world} ranks; legal: a multiple of {world}")
        part, share = copy.copy(self), self.count // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def rows(self, step: int) -> tuple[Rows, Rows]:
        """Rows of the table (2·pairs,): conditions, and what is predicted; 0…n−1 are the donors of n…2n−1."""
        drawn = self.pairs.batch(step, self.count)
        donor, recipient = np.asarray(drawn.donor), np.asarray(drawn.recipient)
        conditions = np.concatenate([donor, recipient])
        if self.condition == "self":
            return conditions, conditions
        partners = np.concatenate([recipient, donor])
        group = self._group[conditions]
        related = (self._group[partners] == group) & (partners != conditions)
        own, other = self._place[conditions], np.where(related, self._place[partners], self._counts[group])
        # A place among the cases that are left, moved past the ones that are not.
        place = below(stream(self.seed, step, WINDOWS), self._counts[group] - 1 - related)
        for taken in (np.minimum(own, other), np.maximum(own, other)):
            place += place >= taken
        return conditions, self._members[self._first[group] + place]

    def __call__(self, step: int) -> FieldWindows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        own = np.arange(2 * self.count).reshape(2, -1)[:, self._own].ravel()
        conditions, predicted = (rows[own] for rows in self.rows(step))
        return read_fields(self.store, self.table["episode"][conditions], self.table["episode"][predicted])


def read_fields(store: Store, conditions: Rows, predicted: Rows) -> FieldWindows:
    """Whole trajectories of episodes by their ids, (n,) each."""
    length = frames_of(store.table)
    both = (np.asarray(store.windows(COLUMN, e, np.zeros_like(e), length), np.float32) for e in (conditions, predicted))
    return FieldWindows(*map(torch.from_numpy, map(np.ascontiguousarray, both)))


def frames_of(table: EpisodeTable) -> int:
    """Frames of every episode; ValueError where they differ."""
    lengths = np.unique(table["length"])
    if len(lengths) != 1:
        raise ValueError(f"trajectories have {lengths.min()} to {lengths.max()} frames; legal: equally many")
    return int(lengths[0])


def following(table: EpisodeTable) -> Rows:
    """Row of the next case of each row's system, the first after the last, (n,): the released evaluation's conditions.

    Raises:
        ValueError: for a system with one case.
    """
    order = np.lexsort([table["case"], table["system"]])
    systems = table["system"][order]
    begins = np.flatnonzero(np.concatenate([[True], systems[1:] != systems[:-1]]))
    if (np.diff(np.append(begins, len(order))) < 2).any():
        raise ValueError("every case is conditioned by another of its system, but a system has one case")
    after = np.append(order[1:], order[0])
    after[np.append(begins[1:], len(order)) - 1] = order[begins]
    found = np.empty_like(order)
    found[order] = after
    return found
