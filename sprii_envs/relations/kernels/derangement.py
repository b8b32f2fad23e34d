"""The Random control: donors dealt so that none meets its own group."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex, fold
from sprii_envs.relations.kernels.base import BoundKernel
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows, factorize


@dataclass(frozen=True)
class Derangement:
    """The Random control: each batch's own donors, dealt so that none meets its own `by` group.

    At a step the recipients and the donors are those that `Uniform` draws under the same relation, seed and
    step; only who meets whom is changed, by a permutation of the batch without a pair inside a `by` group.
    Arms that differ in the kernel alone therefore see the same histories, and the donors and the recipients
    of a batch fill the `by` groups equally. A batch needs n ≥ 2 pairs, and a group may hold at most half of it:
    `distinct="system"` sees to the latter.

    See `derangement` for how the permutation is drawn.
    """

    by: str = "system"

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", str(self.by))  # a np.str_ has another repr

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.by,)

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        codes, groups = table.codes(self.by)
        if not relation.same_episode and fold(table, (*relation.shared, self.by))[1] != fold(table, relation.shared)[1]:
            raise ValueError(
                f"Derangement(by={self.by!r}) exchanges donors between {self.by} groups, but under the "
                f"relation '{relation}' a donor may come from another group already; "
                f"use a relation that shares {self.by!r}"
            )
        if groups < 2:
            raise ValueError(f"Derangement(by={self.by!r}) needs at least two groups; the table has one")
        return _BoundDerangement(Relation(differ=(self.by,)), index, codes, table[self.by], self.by)


@dataclass(frozen=True)
class _BoundDerangement:
    support: Relation
    index: PairIndex
    codes: Rows
    names: NDArray[np.generic]
    by: str

    @property
    def legal(self) -> Rows:
        return self.index.legal

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.index.donor_marginal(recipient)

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        check_dealt(len(recipient), self.by)
        donor = self.index.draw(rng, recipient)
        try:
            donor = donor[derangement(rng, self.codes[recipient])]
        except _NoDerangementError as error:
            raise ValueError(
                f"a batch of {len(recipient)} cannot be deranged by {self.by!r}: {error.count} of its "
                f"recipients are of {self.by} {self.names[recipient[error.position]]}, more than half; "
                f"use distinct={self.by!r}, a larger batch or more groups"
            ) from None
        # Legal pairs never cross `by` groups (checked in `bind`), and these all do.
        return donor, np.zeros(len(recipient), bool)


def check_dealt(n: int, by: str) -> None:
    """ValueError for a batch of one: there is no other donor to deal."""
    if n == 1:
        raise ValueError(f"a batch of 1 cannot be deranged by {by!r}: its wrong pairs exchange donors; take n ≥ 2")


class _NoDerangementError(ValueError):
    def __init__(self, count: int, n: int, position: int) -> None:
        super().__init__(f"no derangement: {count} of {n} positions carry one label, more than half")
        self.count, self.position = count, position


_MOST_TRIES = 20_000  # some 10 ms for a batch of 48
_SWEEPS = 64


def derangement(rng: np.random.Generator, labels: Rows) -> Rows:
    """A permutation p (n,) with labels[p[i]] ≠ labels[i] for all i; ValueError if one label fills over half.

    Exactly uniform over all such permutations, by rejection: e tries on average when all labels differ,
    about exp(Σ m²/n) for multiplicities m. Where that would take more than 20,000 tries, the permutation is
    the state of a symmetric chain of swaps and rotations after 64 sweeps from a legal start: legal in every
    batch, uniform in the limit.
    """
    n = len(labels)
    for _ in range(8):  # before anything is counted: nearly always enough for distinct labels
        candidate = rng.permutation(n)
        if not np.count_nonzero(labels[candidate] == labels):
            return candidate
    labels, _ = factorize(labels)
    sizes = np.bincount(labels)
    if 2 * sizes.max() > n:
        raise _NoDerangementError(int(sizes.max()), n, int((labels == sizes.argmax()).argmax()))
    if _log_tries(sizes) > np.log(_MOST_TRIES):
        return _chain(rng, labels)
    block = np.broadcast_to(np.arange(n), (max(1, 8192 // n), n))
    while True:
        candidates = rng.permuted(block, axis=1)
        legal = (labels[candidates] != labels).all(1)
        if legal.any():
            return candidates[legal.argmax()]


def _log_tries(sizes: Rows) -> float:
    """Log of the tries that rejection needs if groups avoided themselves independently: an estimate.

    One group of m avoids itself with probability C(n − m, m) / C(n, m).
    """
    n = int(sizes.sum())
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return float((log_factorial[n] + log_factorial[n - 2 * sizes] - 2 * log_factorial[n - sizes]).sum())


def _chain(rng: np.random.Generator, labels: Rows) -> Rows:
    n = len(labels)
    # Positions by label, in random order of labels and within; rotating by at least the largest multiplicity,
    # whichever way round, leaves no position inside its own label.
    rank = rng.permutation(labels.max() + 1)
    shuffled = rng.permutation(n)
    order = shuffled[np.argsort(rank[labels[shuffled]], kind="stable")]
    most = int(np.bincount(labels).max())
    deal = np.empty(n, np.int64)
    deal[order] = np.roll(order, int(rng.integers(most, n - most + 1)))
    for _ in range(_SWEEPS):
        # Swaps alone cannot change who deals to whom among three labels; rotations of three positions can.
        # One move is left out half of the time, or two labels would keep the permutation's parity for ever.
        for size in (2, 3):
            spots = rng.permutation(n)[: size * (n // size - rng.integers(2))].reshape(size, -1)
            moved = np.roll(deal[spots], 1, axis=0)
            legal = (labels[moved] != labels[spots]).all(0)
            deal[spots[:, legal]] = moved[:, legal]
    return deal
