"""What a donor kernel is: a small frozen description that, bound to one table and one relation, draws."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows


@dataclass(frozen=True)
class Counts:
    """How much each row (N,) can draw from, where no relation says it."""

    systems: Rows
    histories: Rows


Support = Relation | Counts | tuple["Support", ...]
"""What a kernel can draw: all legal pairs of a relation, counts by recipient, or parts with no pair in common."""


class BoundKernel(Protocol):
    """A kernel that knows its table and relation."""

    @property
    def legal(self) -> Rows:
        """Number of donors (N,) that a recipient needs at least one of to take part."""
        ...

    @property
    def support(self) -> Support:
        """What this kernel can draw, for `audit`."""
        ...

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact probability (N,) of each row as donor, for recipients drawn with probability (N,)."""
        ...

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Donor rows (n,) for recipient rows (n,), and which of the pairs satisfy the relation."""
        ...


class Listed(NamedTuple):
    """All pairs that a kernel can draw, (m,) each, and how probable they are."""

    recipient: Rows
    donor: Rows
    correct: NDArray[np.bool_]
    probability: NDArray[np.float64]


@runtime_checkable
class ListedKernel(BoundKernel, Protocol):
    """A kernel of so few pairs that `audit` weighs all of them instead of drawing some."""

    def pairs(self, recipient: NDArray[np.float64]) -> Listed:
        """Every pair, for recipients drawn with probability (N,)."""
        ...


class Kernel(Protocol):
    """How a donor is chosen. Its `repr` must determine the law: it enters the sampler's fingerprint."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads beside the relation's."""
        ...

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel: ...
