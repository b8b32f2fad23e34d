"""Who receives: P(B) of `app:relation-sampling`."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.streams import below
from sprii_envs.relations.table import EpisodeTable, Rows

Law = Literal["recipient", "pair", "balanced"]


class Recipients(Protocol):
    """A way to draw recipients."""

    def draw(self, rng: np.random.Generator, n: int) -> Rows:
        """n recipient rows."""
        ...

    def marginal(self, size: int) -> NDArray[np.float64]:
        """Probability (size,) of each row of the table, at one position of a batch."""
        ...


@dataclass(frozen=True)
class Independent:
    """Independent draws, row i with probability proportional to its integer weight.

    Rows are kept by weight, so a draw finds its weight class (there are few), then its row: exact in
    integers.
    """

    rows: Rows  # (E,) by weight, then episode id
    first: Rows  # (V,) position in `rows` of the first row of each weight
    weight: Rows  # (V,) the distinct weights
    mass: Rows  # (V + 1,) cumulative weight × number of rows

    def draw(self, rng: np.random.Generator, n: int) -> Rows:
        if len(self.weight) == 1:
            return self.rows[below(rng, np.full(n, len(self.rows)))]
        u = below(rng, np.full(n, self.mass[-1]))
        v = np.searchsorted(self.mass, u, "right") - 1
        return self.rows[self.first[v] + (u - self.mass[v]) // self.weight[v]]

    def marginal(self, size: int) -> NDArray[np.float64]:
        probability = np.zeros(size)
        counts = np.diff(self.first, append=len(self.rows))
        probability[self.rows] = np.repeat(self.weight / self.mass[-1], counts)
        return probability


@dataclass(frozen=True)
class Distinct:
    """n rows from n different groups: groups uniform without replacement, then a uniform row of each."""

    rows: Rows  # (E,) by group, then episode id
    span: Rows  # (G, 2) of each group: position in `rows` of its first row, number of rows
    by: str

    @property
    def groups(self) -> int:
        """How many groups have a row: the largest batch."""
        return len(self.span)

    def draw(self, rng: np.random.Generator, n: int) -> Rows:
        if n > self.groups:
            raise ValueError(
                f"a batch of {n} recipients from distinct {self.by} groups needs {n} groups with a legal "
                f"donor; the table has {self.groups}"
            )
        first, count = self.span.take(rng.choice(self.groups, n, replace=False), axis=0).T
        return self.rows.take(first + below(rng, count))

    def marginal(self, size: int) -> NDArray[np.float64]:
        probability = np.zeros(size)
        count = self.span[:, 1]
        probability[self.rows] = np.repeat(1.0 / (self.groups * count), count)
        return probability


def weighted(table: EpisodeTable, legal: Rows, law: Law) -> Independent:
    """Rows with a legal donor, weighted equally, or by how many they have (`"pair"`)."""
    rows = _eligible(table, legal)
    weight = legal[rows] if law == "pair" else np.ones_like(rows)
    order = np.argsort(weight, kind="stable")
    distinct, first, count = np.unique(weight[order], return_index=True, return_counts=True)
    mass = np.concatenate([[0], np.cumsum(distinct * count)])
    return Independent(rows[order], first.astype(np.int64), distinct, mass)


def distinct(table: EpisodeTable, legal: Rows, by: str) -> Distinct:
    """Rows with a legal donor, grouped by a column."""
    rows = _eligible(table, legal)
    labels = table.codes(by)[0][rows]
    order = np.argsort(labels, kind="stable")
    _, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    return Distinct(rows[order], np.stack([first, count], 1).astype(np.int64), by)


def _eligible(table: EpisodeTable, legal: Rows) -> Rows:
    by_episode = table.by_episode()
    return by_episode[legal[by_episode] > 0]
