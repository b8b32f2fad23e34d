"""Batches of grasps: a pure function of (seed, step), with as many queries of every configuration.

A query is predicted from its first 40 samples; its donor is another grasp, of the configuration that the relation says.
"""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer
from sprii_envs.banks import Store
from sprii_envs.relations import Derangement, EpisodeTable, Kernel, Relation, Uniform
from sprii_envs.standardiser import Standardiser
from sprii_train.data import WindowReader
from sprii_train.protocol import Windows

Rows = NDArray[np.int64]


class GraspReader(WindowReader):
    """Samples of grasps, every taxel standardised by the training grasps; see `WindowReader`."""

    def __init__(self, store: Store, history: int, horizons: tuple[int, ...], *, observation: str) -> None:
        super().__init__(store, history, horizons, observation=observation, action=None)
        train = store.split("train")
        whole = int(train["length"].min())
        samples = store.windows(observation, train["episode"], np.zeros(len(train), np.int64), whole)
        self._standardise = Standardiser.fit(samples.reshape(-1, samples.shape[-1]))

    def columns(self, episodes: Rows, starts: Rows, length: int) -> Tensor:
        """Windows (n, length, taxels), float32."""
        read = self.bank.windows(str(self.observation), episodes, starts, length)
        return torch.from_numpy(self._standardise(read).astype(np.float32))


class Configurations:
    """The configurations of a table, in the order of their labels, and whose grasps may be whose donors.

    Args:
        table: of grasps, with the columns `system`, `grasp` and those of the relation.
        relation: which labels two configurations share, and which differ.

    Raises:
        ValueError: for a configuration without a related one.
    """

    def __init__(self, table: EpisodeTable, relation: Relation) -> None:
        self.names = [str(name) for name in np.unique(table["system"])]
        of = table["system"].astype(str)
        rows = [table.select(of == name) for name in self.names]
        self.episodes = [np.asarray(row["episode"], np.int64) for row in rows]
        self.grasps = [np.asarray(row["grasp"]) for row in rows]
        labels = [{c: row[c][0] for c in (*relation.shared, *relation.differ)} for row in rows]
        self.legal = [
            [
                j
                for j in np.roll(np.arange(len(rows)), -i - 1).tolist()[:-1]
                if all(own[c] == labels[j][c] for c in relation.shared)
                and all(own[c] != labels[j][c] for c in relation.differ)
            ]
            for i, own in enumerate(labels)
        ]
        for name, legal in zip(self.names, self.legal, strict=True):
            if not legal:
                raise ValueError(f"no configuration is related to {name} by {relation}; there are {self.names}")


class GraspPairs:
    """Stacked donor and recipient windows of a store's training grasps: call it with a step.

    Args:
        reader: of windows that begin at the first sample.
        table: the grasps.
        relation: of a query's configuration and its donor's; queries are dealt evenly to those that are related.
        kernel: `Uniform`, or `Derangement`: donors of one uniform derangement of the configurations, drawn anew in each
            batch, whatever the relation.
        pairs: queries, as many of every configuration.

    Raises:
        ValueError: for pairs that cannot be dealt evenly, too few grasps, or another kernel.
    """

    def __init__(
        self,
        reader: GraspReader,
        table: EpisodeTable,
        *,
        relation: Relation,
        kernel: Kernel | str = Uniform(),  # noqa: B008 (frozen and stateless)
        pairs: int = 48,
        seed: int = 0,
    ) -> None:
        if type(kernel) not in (Uniform, Derangement):
            raise ValueError(f"donors of grasps are drawn by {kernel!r}; legal: Uniform(), Derangement()")
        self.reader, self.relation, self.random = reader, relation, isinstance(kernel, Derangement)
        self.pairs, self.seed = integer("pairs", pairs, least=1), integer("seed", seed)
        self.table = table
        self.configurations = found = Configurations(table, relation)
        count = len(found.names)
        if self.random and count < 2:
            raise ValueError(f"a derangement needs two configurations, got {found.names}")
        choices = {1} if self.random else {len(legal) for legal in found.legal}
        multiple = count * int(np.lcm.reduce(list(choices)))
        if pairs % multiple:
            raise ValueError(f"pairs is {pairs}; legal: a multiple of {multiple}, so that donors are dealt evenly")
        self.each = pairs // count
        for name, episodes in zip(found.names, found.episodes, strict=True):
            if len(episodes) < max(2, self.each):
                raise ValueError(f"{name} has {len(episodes)} grasps; legal: {max(2, self.each)} or more of each")
        self._own = slice(None)

    def identity(self) -> dict[str, Any]:
        """What the batches depend on; `fit` keeps it with the run."""
        return {
            "bank": self.reader.bank.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "relation": [list(self.relation.shared), list(self.relation.differ), self.random],
            "pairs": self.pairs,
            "seed": self.seed,
            "history": self.reader.history,
            "horizons": list(self.reader.horizons),
        }

    def shard(self, rank: int, world: int) -> "GraspPairs":
        """The same batches, of which one rank's share of the rows is read."""
        part, share = copy.copy(self), self.pairs // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def draw(self, step: int) -> tuple[Rows, Rows]:
        """Episodes of the donors and of their recipients, (pairs,) each, in an order that tells nothing."""
        rng = np.random.Generator(np.random.Philox(key=np.array([self.seed, step], np.uint64)))
        found, n = self.configurations, self.each
        order = derangement(rng, len(found.names)) if self.random else None
        donors, recipients = [], []
        for i, (episodes, grasps) in enumerate(zip(found.episodes, found.grasps, strict=True)):
            legal = found.legal[i] if order is None else [int(order[i])]
            for k, row in enumerate(rng.choice(len(episodes), n, replace=False)):
                j = legal[k % len(legal)]
                others = np.flatnonzero(found.grasps[j] != grasps[row])
                recipients.append(episodes[row])
                donors.append(found.episodes[j][others[rng.integers(len(others))]])
        mixed = rng.permutation(self.pairs)  # so that ranks have like shares
        return np.array(donors)[mixed], np.array(recipients)[mixed]

    def __call__(self, step: int) -> Windows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        donors, recipients = self.draw(step)
        rows = np.concatenate([donors[self._own], recipients[self._own]])
        return self.reader.read(rows, np.zeros_like(rows))


def derangement(rng: np.random.Generator, count: int) -> Rows:
    """A uniform permutation of 0 … count − 1 that leaves nothing in its place."""
    while True:
        drawn = rng.permutation(count)
        if (drawn != np.arange(count)).all():
            return drawn
