"""Structured errors: a donor that is wrong in exactly one factor (`app:structured-mismatch`)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex, build_index, fold
from sprii_envs.relations.kernels.base import BoundKernel
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows


@dataclass(frozen=True, repr=False)
class Mismatch:
    """The relation with one factor wrong: the donor differs in `factor` and is otherwise as the relation says.

    Every such donor is equally likely. `factor` is a column that the relation shares; "drag" also finds a
    shared "drag_level". Under a relation that shares the system instead of its factors, `equal` names the
    other factors: Mismatch("drag_level", equal=("mass_level", "stiffness_level")).

    >>> Mixture(0.5, wrong=Mismatch("drag"))   # drag-only mismatch of half of the pairs, under G3
    """

    factor: str
    equal: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.equal, str):
            raise TypeError(f"equal must be a tuple of column names; write ({self.equal!r},) for one column")
        object.__setattr__(self, "factor", str(self.factor))  # a np.str_ has another repr
        if self.equal is not None:
            object.__setattr__(self, "equal", tuple(map(str, self.equal)))
            if self.factor in self.equal:
                raise ValueError(f"no donor can both differ in {self.factor!r} and equal it")

    def __repr__(self) -> str:
        return f"Mismatch({self.factor!r}" + ("" if self.equal is None else f", equal={self.equal}") + ")"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.equal is None else (self.factor, *self.equal)

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        """ValueError if the relation does not share the factor, so that its pairs may differ in it anyway."""
        factor, equal = (self.factor, self.equal) if self.equal is not None else self._shared(relation)
        if relation.same_episode or fold(table, (*relation.shared, factor))[1] != fold(table, relation.shared)[1]:
            raise ValueError(
                f"{self!r} is no error under the relation '{relation}', whose pairs may differ in {factor!r} "
                "already; name a factor that they always share"
            )
        differ = (factor, *(name for name in relation.differ if name not in equal))
        support = Relation(equal, differ, name=f"{relation} with another {factor}")
        return _BoundMismatch(support, build_index(table, support))

    def _shared(self, relation: Relation) -> tuple[str, tuple[str, ...]]:
        for factor in (self.factor, f"{self.factor}_level"):
            if factor in relation.shared:
                return factor, tuple(name for name in relation.shared if name != factor)
        raise ValueError(
            f"Mismatch({self.factor!r}) makes one shared column of the relation wrong, and '{relation}' shares "
            f"{', '.join(map(repr, relation.shared)) or 'none'}; use a relation over the factors, such as G3, or "
            f"name those that stay equal: Mismatch({self.factor!r}, equal=(…))"
        )


@dataclass(frozen=True)
class _BoundMismatch:
    support: Relation
    index: PairIndex

    @property
    def legal(self) -> Rows:
        return self.index.legal

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.index.donor_marginal(recipient)

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        return self.index.draw(rng, recipient), np.zeros(len(recipient), bool)
