"""Batches of manipulation: a pure function of (seed, step), with the same queries whatever the donors.

A query is a window that ends at an anchor a. Its donor is a window that ends at a − 24, of another scene of the task,
of the query's own scene, or of a scene of the query's random group.
"""

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import choice, integer
from sprii_envs.relations import EpisodeTable
from sprii_train.protocol import Windows
from sprii_train.robots.scenes import SceneReader

Rows = NDArray[np.int64]

DONORS = ("matched", "own", "random")


def random_groups(tasks: NDArray[Any], seed: int) -> Rows:
    """A group for each scene (N,), as many groups as tasks: scenes of a task are in groups apart, sizes differ by one.

    Each task in turn, in random order, gives its scenes to the smallest groups, ties broken at random.
    """
    names, of = np.unique(tasks, return_inverse=True)
    rng, sizes = np.random.default_rng([seed, len(tasks)]), np.zeros(len(names), np.int64)
    found = np.empty(len(tasks), np.int64)
    for task in rng.permutation(len(names)):
        rows = rng.permutation(np.flatnonzero(of == task))
        for part in (rows[i : i + len(names)] for i in range(0, len(rows), len(names))):
            order = np.lexsort((rng.random(len(names)), sizes))[: len(part)]
            found[part] = order
            sizes[order] += 1
    return found


def before(starts: Rows, lengths: Rows, history: int, horizon: int) -> Rows:
    """Where donors' windows begin: a history before their queries', or sooner where their scenes are too short."""
    return np.minimum(starts - history, lengths - history - horizon)


class ScenePairs:
    """Stacked donor and recipient windows of training scenes: call it with a step.

    Args:
        reader: of windows.
        table: the scenes; `system` is the task.
        donors: `matched`: another scene of the task; `own`: the query's scene; `random`: another scene of the query's
            random group.
        pairs: queries; as many of every task as can be.
        seed: of all that is drawn, and of the groups.
        joint: whether windows are of queries alone and hold their donors' histories, see `learners.multimodal`.

    Raises:
        ValueError: for scenes too short for a query behind its donor, or a group of one scene.
    """

    def __init__(
        self,
        reader: SceneReader,
        table: EpisodeTable,
        *,
        donors: str = "matched",
        pairs: int = 48,
        seed: int = 0,
        joint: bool = False,
    ) -> None:
        self.reader, self.table, self.joint = reader, table, joint
        self.donors = choice("donors", donors, legal=DONORS)
        self.pairs, self.seed = integer("pairs", pairs, least=1), integer("seed", seed)
        self.horizon = reader.horizons[-1]
        self.episodes, self.lengths = (np.asarray(table[name], np.int64) for name in ("episode", "length"))
        needed = 2 * reader.history + self.horizon
        if (short := self.lengths < needed).any():
            raise ValueError(
                f"episode {self.episodes[short][0]} has {self.lengths[short][0]} frames; legal: {needed} or more, two "
                f"histories of {reader.history} and {self.horizon} ahead"
            )
        _, task = np.unique(table["system"], return_inverse=True)
        self.tasks = [np.flatnonzero(task == i) for i in range(task.max() + 1)]
        self.group = random_groups(task, self.seed) if donors == "random" else task
        members = [np.flatnonzero(self.group == i) for i in range(self.group.max() + 1)]
        self.members = members
        if donors != "own" and (alone := [len(rows) for rows in members if len(rows) < 2]):
            raise ValueError(f"{len(alone)} groups of {donors} donors have one scene; legal: two or more in each")
        self._own = slice(None)

    def identity(self) -> dict[str, Any]:
        """What the batches depend on; `fit` keeps it with the run."""
        return {
            "bank": self.reader.bank.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "donors": [self.donors, self.joint],
            "pairs": self.pairs,
            "seed": self.seed,
            "history": self.reader.history,
            "horizons": list(self.reader.horizons),
            "pictures": self.reader.pictures,
        }

    def shard(self, rank: int, world: int) -> "ScenePairs":
        """The same batches, of which one rank's share of the pairs is read.

        Raises:
            ValueError: if the ranks do not divide the pairs.
        """
        if self.pairs % world:
            raise ValueError(f"{self.pairs} pairs cannot be shared evenly by {world} ranks")
        part, share = copy.copy(self), self.pairs // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def draw(self, step: int) -> tuple[Rows, Rows, Rows, Rows]:
        """Rows of the table and starts: of donors, then of queries, (pairs,) each."""
        rng = np.random.Generator(np.random.Philox(key=np.array([self.seed, step], np.uint64)))
        count = len(self.tasks)
        order = np.concatenate([rng.permutation(count) for _ in range(-(-self.pairs // count))])[: self.pairs]
        u = rng.random((3, self.pairs))  # queries are drawn first, and so alike for all kinds of donors
        queries = np.array([self.tasks[t][int(a * len(self.tasks[t]))] for t, a in zip(order, u[0], strict=True)])
        first, last = self.reader.history, self.lengths[queries] - self.reader.history - self.horizon
        starts = first + (u[1] * (last - first + 1)).astype(np.int64)
        if self.donors == "own":
            donors = queries
        else:
            members = [self.members[g][self.members[g] != q] for g, q in zip(self.group[queries], queries, strict=True)]
            donors = np.array([rows[int(b * len(rows))] for rows, b in zip(members, u[2], strict=True)])
        return donors, before(starts, self.lengths[donors], self.reader.history, self.horizon), queries, starts

    def __call__(self, step: int) -> Windows:
        """Rows 0…n−1 are the donors of rows n…2n−1; of a joint context, n rows, all of them queries."""
        donors, earlier, queries, starts = (each[self._own] for each in self.draw(step))
        if self.joint:
            read = self.reader.read(self.episodes[queries], starts)
            return with_donors(read, self.reader.histories(self.episodes[donors], earlier))
        rows = np.concatenate([donors, queries])
        return self.reader.read(self.episodes[rows], np.concatenate([earlier, starts]))


def with_donors(queries: Windows, donors: Windows) -> Windows:
    """Windows of queries that hold their donors' histories."""
    held = {"donor": donors.observations, "donor_actions": donors.actions}
    return queries._replace(observations=queries.observations | held)
