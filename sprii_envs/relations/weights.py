"""Legal donors in proportion to a weight: cumulative integer weights make a draw exact and O(log N)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex, legal_sums, runs
from sprii_envs.relations.streams import below
from sprii_envs.relations.table import Rows

# All weights of a table in integer units: sums and one uniform of 53 bits stay exact. A row of even weight among
# a million has 2^32 of them.
_UNITS = 2.0**52


@dataclass(frozen=True)
class WeightedIndex(PairIndex):
    """A `PairIndex` whose donors are drawn in proportion to `weight`; `legal` counts those of positive weight."""

    weight: Rows  # (N,) by row, in integer units
    mass: Rows  # (N + 1,) their cumulative sum over `order`

    def donors(self, recipient: int) -> Rows:
        pool = super().donors(recipient)
        return pool[self.weight[pool] > 0]

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        total = legal_sums(self.span, self.further, self.weight)
        share = np.divide(recipient, total, out=np.zeros(len(recipient)), where=self.legal > 0)
        return self.weight * legal_sums(self.span, self.further, share)

    def _past_block(self, rng: np.random.Generator, recipient: Rows) -> Rows:
        start, size, offset, block = self.span.take(recipient, axis=0).T
        low, first = self.mass[start], self.mass[start + offset]
        excluded = self.mass[start + offset + block] - first
        u = low + below(rng, self.mass[start + size] - low - excluded)
        u += excluded * (u >= first)
        return self.order[self.mass.searchsorted(u, "right") - 1]

    def _listed(self, rng: np.random.Generator, recipient: int) -> int:
        pool = self.donors(recipient)
        mass = self.weight[pool].cumsum()
        return pool[mass.searchsorted(int(rng.random() * mass[-1]), "right")]


def weigh(index: PairIndex, weight: NDArray[np.float64]) -> WeightedIndex:
    """The index with donors drawn in proportion to finite weights ≥ 0 (N,), compared within a group only.

    Each group's weights are rounded to integers whose mean is 2^52/N: to 2·10⁻¹⁰ of it at a million rows.
    A positive weight stays positive.
    """
    ordered = weight[index.order]
    start, size = runs(index.span[index.order, 0])
    firsts = np.unique(start)
    most = np.maximum.reduceat(ordered, firsts)
    relative = ordered / np.repeat(np.where(most > 0, most, 1.0), size[firsts])
    total = np.add.reduceat(relative, firsts)
    unit = np.divide(_UNITS / len(weight) * size[firsts], total, out=np.zeros(len(total)), where=total > 0)
    units = np.rint(relative * np.repeat(unit, size[firsts])).astype(np.int64)
    units = np.maximum(units, ordered > 0)
    rows = np.empty_like(units)
    rows[index.order] = units
    legal = legal_sums(index.span, index.further, rows > 0).astype(np.int64)
    mass = np.concatenate([[0], units.cumsum()])
    return WeightedIndex(index.order, index.span, legal, index.further, index.same_episode, rows, mass)
