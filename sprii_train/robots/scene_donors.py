"""Whose history a held-out query is given: of its task, and four kinds of another task."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations import EpisodeTable
from sprii_envs.standardiser import Standardiser
from sprii_train.robots.scene_pairs import before
from sprii_train.robots.scenes import ACTION, SceneReader

Rows = NDArray[np.int64]

NONE = -1
"""In place of a donor, where there is none."""
SEED = 20_261_129
"""Of donors, shared by all sources."""


class Queries(NamedTuple):
    """Windows of a table's scenes: rows of it and starts (n,), and the number of each window's task."""

    rows: Rows
    starts: Rows
    task: Rows


def queries(table: EpisodeTable, history: int, horizon: int, count: int) -> Queries:
    """`count` evenly spaced windows of each scene that leave room for a donor before them, first and last included."""
    last = np.asarray(table["length"], np.int64) - history - horizon
    starts = np.rint(np.linspace(history, last, integer("count", count, least=1), axis=1)).astype(np.int64)
    rows = np.repeat(np.arange(len(table)), count)
    _, task = np.unique(table["system"], return_inverse=True)
    return Queries(rows, starts.ravel(), task[rows])


class Donors:
    """Rows of the table that are donors of queries, (n,) or (n, K); `NONE` where there is none.

    All are pure functions of the table, the queries and a seed.

    Args:
        reader: of the commands that donors are compared by.
        table: scenes of one split.
    """

    def __init__(self, reader: SceneReader, table: EpisodeTable, asked: Queries, *, seed: int = SEED) -> None:
        self.reader, self.table, self.asked, self.seed = reader, table, asked, seed
        self.lengths = np.asarray(table["length"], np.int64)
        self.tasks, self.of = np.unique(table["system"], return_inverse=True)
        _, self.calibration = np.unique(np.asarray(table["calib"]).astype(str), return_inverse=True)

    def starts(self, donors: Rows) -> Rows:
        """Where the donors' (n,) windows begin."""
        asked, reader = self.asked, self.reader
        return before(asked.starts, self.lengths[donors], reader.history, reader.horizons[-1])

    def matched(self, count: int = 1) -> Rows:
        """`count` other scenes of the task, (n, count), drawn without replacement until there are no more."""
        return self._drawn(lambda row: (self.of == self.of[row]) & (np.arange(len(self.of)) != row), count, 0)

    def random(self, count: int = 1) -> Rows:
        """`count` scenes of other tasks, (n, count)."""
        return self._drawn(lambda row: self.of != self.of[row], count, 1)

    def calibrated(self) -> Rows:
        """A scene of another task under the calibration of the query's scene, (n,)."""
        alike = self.calibration
        return self._drawn(lambda row: (self.of != self.of[row]) & (alike == alike[row]), 1, 2)[:, 0]

    def shuffled(self) -> Rows:
        """A scene of the task that a derangement of the tasks gives to the query's task, (n,)."""
        count = len(self.tasks)
        if count < 2:
            return np.full(len(self.asked.rows), NONE)
        order = np.random.default_rng([self.seed, 3]).permutation(count)
        given = np.empty(count, np.int64)
        given[order] = np.roll(order, 1)
        return self._drawn(lambda row: self.of == given[self.of[row]], 1, 3)[:, 0]

    def commanded(self, matched: Rows) -> Rows:
        """The scene of another task, (n,), whose commands are nearest to those of the matched donor (n,) in the window.

        Of several that are equally near, one at random.
        """
        history, count = self.reader.history, len(self.table)
        longest = int(self.lengths.max())
        commands = np.zeros((count, longest))
        for length in np.unique(self.lengths):
            rows = np.flatnonzero(self.lengths == length)
            episodes = np.asarray(self.table["episode"])[rows]
            read = self.reader.bank.windows(ACTION, episodes, np.zeros(len(rows), np.int64), int(length))
            commands[rows, :length] = read[..., 0]
        commands = Standardiser(self.reader.commands.mean, self.reader.commands.scale)(commands[..., None])[..., 0]
        steps, rng = np.arange(history), np.random.default_rng([self.seed, 4])
        found = np.full(len(matched), NONE)
        for i, (own, start) in enumerate(zip(matched, self.asked.starts, strict=True)):
            legal = np.flatnonzero(self.of != self.of[self.asked.rows[i]])
            if own == NONE or not len(legal):
                continue
            begin = before(np.full(len(legal), start), self.lengths[legal], history, self.reader.horizons[-1])
            at = before(start, self.lengths[own], history, self.reader.horizons[-1])
            windows = commands[legal[:, None], begin[:, None] + steps]
            apart = np.square(windows - commands[own, at : at + history]).mean(1)
            found[i] = rng.choice(legal[apart <= apart.min() + 1e-12])
        return found

    def _drawn(self, legal, count: int, stream: int) -> Rows:
        count = integer("count", count, least=1)
        rng = np.random.default_rng([self.seed, stream])
        found = np.full((len(self.asked.rows), count), NONE)
        for i, row in enumerate(self.asked.rows):
            rows = rng.permutation(np.flatnonzero(legal(row)))
            if len(rows):
                found[i] = rows[np.arange(count) % len(rows)]
        return found
