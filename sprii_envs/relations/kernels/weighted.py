"""Legal donors in proportion to a column: rarer, cleaner or more recent histories more often."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex, fold
from sprii_envs.relations.kernels.base import BoundKernel, Counts, Support
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows, factorize, few
from sprii_envs.relations.weights import WeightedIndex, weigh


@dataclass(frozen=True)
class Weighted:
    """A recipient's legal donors in proportion to their value in `column`; 0 is never drawn.

    O(log N) a draw; the donor marginal is exact. Only weights of one group (equal `shared` labels) are ever
    compared; they are rounded to 2^52/N units for an even one. A recipient whose legal donors all weigh 0 has
    none (`on_missing`).

    Raises ValueError for a column of strings, and for NaN, infinite or negative weights, naming the episodes.
    """

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        values = table[self.column]
        if values.dtype.kind not in "ifb":
            raise ValueError(f"Weighted({self.column!r}) needs a column of numbers, got {values.dtype}")
        weight = values.astype(np.float64)
        for wrong, word in ((~np.isfinite(weight), "finite"), (weight < 0, "at least 0")):
            if wrong.any():
                raise ValueError(
                    f"weights must be {word}; in column {self.column!r} not so for {int(wrong.sum())} episodes: "
                    f"{few(table['episode'][wrong])}"
                )
        if relation.same_episode:
            raise ValueError(f"under the relation '{relation}' there is one donor and nothing to weigh: use Uniform()")
        return _BoundWeighted(table, relation, weigh(index, weight))


@dataclass(frozen=True)
class _BoundWeighted:
    table: EpisodeTable
    relation: Relation
    index: WeightedIndex

    @property
    def legal(self) -> Rows:
        return self.index.legal

    @property
    def support(self) -> Support:
        if self.index.weight.all():
            return self.relation
        return Counts(_systems(self.table, self.relation, self.index), self.index.legal)

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.index.donor_marginal(recipient)

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        return self.index.draw(rng, recipient), np.ones(len(recipient), bool)


def _systems(table: EpisodeTable, relation: Relation, index: WeightedIndex) -> Rows:
    """Systems (N,) among each recipient's legal donors of positive weight."""
    system, systems = table.codes("system")
    if len(relation.differ) > 1:  # the donors depend on the labels alone
        cell, _ = fold(table, relation.columns)
        _, first = np.unique(cell, return_index=True)
        return np.array([len(np.unique(system[index.donors(int(row))])) for row in first])[cell]
    group, block = index.span[:, 0], index.span[:, 0] + index.span[:, 2]
    member, members = factorize(group * systems + system)  # one code for each system of a group
    drawn = np.flatnonzero(index.weight)
    # A system drops out of a recipient's donors if all it has of positive weight is in the recipient's block.
    _, first = np.unique(member[drawn], return_index=True)
    present = np.bincount(group[drawn[first]], minlength=len(table))[group]
    touched = np.unique(np.stack([member[drawn], block[drawn]], 1), axis=0)
    alone = touched[np.bincount(touched[:, 0], minlength=members)[touched[:, 0]] == 1, 1]
    return present - np.bincount(alone, minlength=len(table))[block]
