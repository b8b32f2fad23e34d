"""Every legal donor of a recipient alike: the default kernel."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex
from sprii_envs.relations.kernels.base import BoundKernel
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows


@dataclass(frozen=True)
class Uniform:
    """Every legal donor of a recipient is equally likely."""

    columns = ()

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        return _BoundUniform(relation, index)


@dataclass(frozen=True)
class _BoundUniform:
    support: Relation
    index: PairIndex

    @property
    def legal(self) -> Rows:
        return self.index.legal

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.index.donor_marginal(recipient)

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        return self.index.draw(rng, recipient), np.ones(len(recipient), bool)
