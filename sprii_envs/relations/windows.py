"""Where in an episode a history starts, so that its longest prediction target still lies inside."""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.randomness import uniforms
from sprii_envs.relations.coercion import integer_array
from sprii_envs.relations.relation import SAME_SYSTEM, Relation, check_relation
from sprii_envs.relations.rows import TableRows, rows_of
from sprii_envs.relations.sampler import PairBatch
from sprii_envs.relations.streams import EVALUATION, WINDOWS, below, stream
from sprii_envs.relations.table import EpisodeTable, Rows, few


class WindowPairs(NamedTuple):
    """Pairs of histories: rows as in `PairBatch`, starts are observation indices. All (n,) int64.

    The rows know their table, so `bank.read(w, "states", 24)` reads the episodes of the bank, and so does
    `bank.windows("states", w.donor, w.donor_start, 24)`. Their ids are `w.donor.episodes`. Of pairs made by hand
    and plain lengths they are plain integers.
    """

    recipient: TableRows
    recipient_start: Rows
    donor: TableRows
    donor_start: Rows


class WindowSampler:
    """Legal windows of episodes: a pure function of (seed, step), from another stream than the pairs'.

    A window's history is observations [start, start + history). Its last observation a = start + history − 1
    leaves room for the longest horizon: a + horizon ≤ length − 1. So start ranges over
    [0, length − history − horizon], for recipients and donors alike: each half of a paired batch is
    predicted.

    Args:
        lengths: observations per episode (N,), or the EpisodeTable of the pair sampler
        history, horizon: in observations; the paper's 24 and 16 (`app:implementation`)
        apart: None, or the least number of observations by which a recipient's window begins after its donor's, under
            every relation alike, so that donors of one episode and of others differ in nothing else
            (`app:matched-control`)

    `table` is that table's `rows_fingerprint`: pairs of another table are refused, and those of one with the same
    episodes and other labels. None for plain lengths, whose rows must be the pairs'.
    """

    def __init__(
        self,
        lengths: EpisodeTable | ArrayLike,
        history: int = 24,
        horizon: int = 16,
        seed: int = 0,
        *,
        apart: int | None = None,
    ) -> None:
        self.history, self.horizon = integer("history", history, least=1), integer("horizon", horizon)
        self.seed = integer("seed", seed, most=WORD)
        self.apart = None if apart is None else integer("apart", apart, least=1)
        self._table = lengths if isinstance(lengths, EpisodeTable) else None
        if isinstance(lengths, EpisodeTable):
            self._ids: Rows = lengths["episode"]
            self.lengths: Rows = lengths["length"]
            self.table: str | None = lengths.rows_fingerprint()
        else:
            self.lengths = integer_array("lengths", lengths, 1).copy()
            if not self.lengths.size:
                raise ValueError("lengths must be 1-D integers, at least one, got none")
            self._ids = np.arange(len(self.lengths))
            self.table = None
        self._require(self.history + self.horizon, f"history {self.history} + horizon {self.horizon}")
        self._last: Rows = self.lengths - (self.history + self.horizon)

    def last_start(self, rows: ArrayLike) -> Rows:
        """The latest legal start of each episode row."""
        return self._last[self._rows(rows)]

    def batch(self, step: int, pairs: PairBatch, relation: Relation = SAME_SYSTEM) -> WindowPairs:
        """A window for both sides of every pair; `relation` is the pair sampler's.

        Starts are uniform over the legal ones, independently for recipient and donor. Under a same-episode
        relation the donor window comes first and does not overlap (donor_start + history ≤ recipient_start),
        uniform over all such combinations. With 64 observations, history 24 and horizon 16 only (0, 24) is
        legal: that control then has one window pair an episode, and its recipients are later windows than
        those of the other relations; longer episodes give it more. With `apart` both relations draw donor_start +
        apart ≤ recipient_start, uniform over all such combinations; windows of one episode may overlap. ValueError
        for pairs of a table with other episodes or another order, and if an episode is its own donor under a
        relation that is not same-episode: independent windows of it would overlap.
        """
        check_relation(relation)
        rng = stream(self.seed, integer("step", step, most=WORD), WINDOWS)
        recipient, donor = self._rows(pairs.recipient), self._rows(pairs.donor)
        known = [self._known(rows, given) for rows, given in ((recipient, pairs.recipient), (donor, pairs.donor))]
        if not relation.same_episode:
            own = recipient == donor
            if own.any():
                raise ValueError(
                    f"{int(own.sum())} of {len(own)} pairs are of one episode (row {recipient[own.argmax()]}), which "
                    f"the relation '{relation}' never draws: pass relation=SAME_ROLLOUT for windows that do not overlap"
                )
            if self.apart is None:
                starts = below(rng, self._last[recipient] + 1), below(rng, self._last[donor] + 1)
                return WindowPairs(known[0], starts[0], known[1], starts[1])
        elif (recipient != donor).any():
            raise ValueError(f"the relation '{relation}' pairs an episode with itself, but these pairs do not")
        apart = self.history if self.apart is None else self.apart
        told = (
            f"two histories of {self.history}" if self.apart is None else f"a history of {self.history}, {apart} apart"
        )
        self._require(apart + self.history + self.horizon, f"{told} + horizon {self.horizon} (relation '{relation}')")
        slack = np.minimum(self._last[recipient], self._last[donor]) - apart
        donor_start, gap = _ordered_pairs(below(rng, (slack + 1) * (slack + 2) // 2))
        return WindowPairs(known[0], gap + apart, known[1], donor_start)

    def starts(self, rows: ArrayLike, seed: int = 0) -> Rows:
        """One uniform legal start per episode row, for evaluation: a pure function of (seed, episode id).

        The ids are row numbers if the sampler was built from lengths. Which other rows are asked for, and the
        order of the table, change nothing.
        """
        rows = self._rows(rows)
        key = np.full(len(rows), integer("seed", seed, most=WORD), np.uint64)
        u = uniforms(key, self._ids[rows].astype(np.uint64), 1, EVALUATION)[:, 0]
        return (u * (self._last[rows] + 1)).astype(np.int64)

    def grid(self, rows: ArrayLike, count: int = 1) -> NDArray[np.int64]:
        """`count` evenly spaced legal starts per episode row, (n, count), first and last included.

        One is the middle; more than an episode has legal starts repeat some.
        """
        last = self.last_start(rows)
        count = integer("count", count, least=1)
        share = np.array([0.5]) if count == 1 else np.linspace(0.0, 1.0, count)
        return np.rint(last[:, None] * share).astype(np.int64)

    def check_table(self, table: str | None) -> None:
        """ValueError if the `rows_fingerprint` that pairs come with is not this sampler's; None is unknown."""
        if table != self.table and table is not None and self.table is not None:
            raise ValueError(
                f"the pairs are rows of another table than the windows' of {len(self.lengths)} episodes (other "
                "episodes or another order): make the WindowSampler from the PairSampler's table"
            )

    def _rows(self, rows: ArrayLike) -> Rows:
        if isinstance(rows, TableRows) and rows.table is not None:
            self.check_table(rows.table.rows_fingerprint())
            if self._table is not None:
                self._table.locate(rows)  # the ids are the same, the labels need not be
        array = integer_array("rows", rows, 1)
        if array.size and not (array.min() >= 0 and array.max() < len(self.lengths)):
            raise ValueError(f"rows must lie in [0, {len(self.lengths)}), got {array.min()}..{array.max()}")
        return array

    def _known(self, rows: Rows, given: ArrayLike) -> TableRows:
        """The rows with the table that they were given with, or else this sampler's; without either, as they are."""
        table = getattr(given, "table", None) or self._table
        return cast(TableRows, rows) if table is None else rows_of(rows, table)

    def _require(self, needed: int, what: str) -> None:
        short = np.flatnonzero(self.lengths < needed)
        if len(short):
            raise ValueError(
                f"{what} needs episodes of at least {needed} observations; {len(short)} of "
                f"{len(self.lengths)} are shorter: episode {self._ids[short[0]]} has "
                f"{self.lengths[short[0]]} (episodes {few(self._ids[short])}); leave them out of pairs and windows: "
                f"table, short = table.without_short({needed})"
            )


def _ordered_pairs(u: Rows) -> tuple[Rows, Rows]:
    """The u-th pair (a, b) with 0 ≤ a ≤ b in the order (0,0), (0,1), (1,1), (0,2) …"""
    # Exact below 47 million observations: 8u + 1 fits a double, and its root is 2b + 1 or clear of it.
    b = ((np.sqrt(8.0 * u + 1.0) - 1.0) / 2.0).astype(np.int64)
    return u - b * (b + 1) // 2, b
