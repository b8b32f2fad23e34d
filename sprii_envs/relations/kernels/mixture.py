"""A share α of right pairs among wrong ones: the fidelity interventions (`app:poke-profile`)."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import choice, number
from sprii_envs.relations.index import PairIndex
from sprii_envs.relations.kernels.base import BoundKernel, Kernel, Support
from sprii_envs.relations.kernels.derangement import Derangement, check_dealt, derangement
from sprii_envs.relations.kernels.mismatch import Mismatch
from sprii_envs.relations.kernels.uniform import Uniform
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.streams import below
from sprii_envs.relations.table import EpisodeTable, Rows, factorize


@dataclass(frozen=True)
class Mixture:
    """A share `alpha` of the pairs by the `correct` kernel, the others by the `wrong` one, never right.

    mode="exact": the batch of step i holds ⌊α·n·(i+1)⌋ − ⌊α·n·i⌋ correct pairs, at positions permuted by
    (seed, step), so that any run of batches is off α by less than one pair. α is the fraction meant by the
    float: 0.1 is 1/10. mode="iid": every position independently.

    The donors of all positions are first drawn by `correct`; α changes only what becomes of them. With
    `wrong=Derangement(by)`, those at the wrong positions are dealt among these by a uniform derangement, so
    every batch holds the donors and the recipients that the correct arm sees, whatever α. A `Mismatch` draws
    other donors for the wrong positions. A recipient needs a legal donor of both kinds, whatever α; arms of
    equal seed have the same recipients where the same rows have them (`with_legal_donors` sees to it), and at
    equal α the same masks.

    A wrong part that cannot be dealt within itself, such as a single position, borrows instead: each of its
    positions takes a copy of the donor of a random position of another group of its batch, which then has one
    donor twice. The donor marginal is still that of the correct arm, exactly with `distinct=by` or groups of
    equal size. With a wrong pair to deal, a batch needs n ≥ 2, and a group may hold at most half of it.

    Raises ValueError for α outside [0, 1] or NaN, and when `correct` draws a wrong pair.
    """

    alpha: float
    correct: Kernel = Uniform()  # noqa: RUF009 (frozen and stateless)
    wrong: Derangement | Mismatch = Derangement()  # noqa: RUF009
    mode: Literal["exact", "iid"] = "exact"

    def __post_init__(self) -> None:
        alpha = float(self.alpha) if isinstance(self.alpha, Fraction) else self.alpha
        object.__setattr__(self, "alpha", float(number("alpha", alpha, least=0, most=1)))
        choice("mode", self.mode, legal=("exact", "iid"))
        if not isinstance(self.wrong, Derangement | Mismatch):
            raise TypeError(f"wrong must be Derangement(by=...) or Mismatch(factor), got {self.wrong!r}")
        if isinstance(self.correct, type | Derangement | Mismatch | Mixture) or not hasattr(self.correct, "bind"):
            raise TypeError(f"correct must be Uniform() or another kernel of right pairs, got {self.correct!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.correct.columns, *self.wrong.columns)

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        correct = self.correct.bind(table, relation, index)
        wrong = self.wrong.bind(table, relation, index)
        if isinstance(self.wrong, Derangement):
            return _Dealt(self, correct, wrong, self.wrong.by, table.codes(self.wrong.by)[0])
        return _Mixed(self, correct, wrong)


@dataclass(frozen=True)
class _Mixed:
    """With wrong donors of another kernel."""

    law: Mixture
    correct: BoundKernel
    wrong: BoundKernel

    @property
    def legal(self) -> Rows:
        return np.where(self.wrong.legal > 0, self.correct.legal, 0)

    @property
    def support(self) -> Support:
        drawn = {0.0: (self.wrong,), 1.0: (self.correct,)}.get(self.law.alpha, (self.correct, self.wrong))
        return tuple(kernel.support for kernel in drawn)

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        alpha = self.law.alpha
        return alpha * self.correct.donor_marginal(recipient) + (1.0 - alpha) * self.wrong.donor_marginal(recipient)

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        donor, right = self.correct.draw(rng, step, recipient)
        if not right.all():
            raise ValueError(f"{self.law.correct!r} drew a wrong pair: it cannot be the correct kernel of a Mixture")
        # Drawn before anything depends on the wrong kernel: arms of equal seed have equal masks.
        if self.law.mode == "exact":
            chosen = rng.permutation(len(recipient)) < correct_pairs(self.law.alpha, step, len(recipient))
        else:
            chosen = rng.random(len(recipient)) < self.law.alpha
        wrong = np.flatnonzero(~chosen)
        if len(wrong):
            donor = donor.copy()
            donor[wrong] = self._wrong(rng, step, recipient, donor, wrong)
        return donor, chosen

    def _wrong(self, rng: np.random.Generator, step: int, recipient: Rows, donor: Rows, wrong: Rows) -> Rows:
        return self.wrong.draw(rng, step, recipient[wrong])[0]


@dataclass(frozen=True)
class _Dealt(_Mixed):
    """With the correct donors of the wrong positions dealt among these."""

    by: str
    codes: Rows

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.correct.donor_marginal(recipient)

    def _wrong(self, rng: np.random.Generator, step: int, recipient: Rows, donor: Rows, wrong: Rows) -> Rows:
        check_dealt(len(recipient), self.by)
        labels = self.codes[recipient]
        try:
            return donor[wrong[derangement(rng, labels[wrong])]]
        except ValueError as error:
            if 2 * np.bincount(labels).max() <= len(labels):
                return donor[_elsewhere(rng, labels, wrong)]
            raise ValueError(
                f"the {len(wrong)} wrong pairs of a batch of {len(recipient)} cannot be deranged by {self.by!r} "
                f"({error}); use distinct={self.by!r}, a larger batch or more groups"
            ) from None


def correct_pairs(alpha: float, step: int, n: int) -> int:
    """⌊α·n·(step+1)⌋ − ⌊α·n·step⌋, in whole numbers."""
    share = _fraction(alpha)
    up, down = share.numerator * n, share.denominator
    return up * (int(step) + 1) // down - up * int(step) // down


@lru_cache
def _fraction(alpha: float) -> Fraction:
    """The simple fraction of this float value (1/3, 1/10), or else its decimal as printed."""
    simple = Fraction(alpha).limit_denominator(1_000_000)
    return simple if float(simple) == alpha else Fraction(repr(alpha))


def _elsewhere(rng: np.random.Generator, labels: Rows, positions: Rows) -> Rows:
    """A uniform position of another label for each of `positions`; no label fills all."""
    codes, _ = factorize(labels)
    order = np.argsort(codes, kind="stable")
    size = np.bincount(codes)
    start = np.cumsum(size) - size
    label = codes[positions]
    k = below(rng, len(labels) - size[label])
    return order[k + size[label] * (k >= start[label])]
