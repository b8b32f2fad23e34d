"""Errors of forces and of the tool's position under a context of one's own, of donors, or of several averaged."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable
from sprii_train.protocol import Windows, evaluation_mode
from sprii_train.robots.scene_donors import NONE, Donors, Queries
from sprii_train.robots.scene_pairs import with_donors
from sprii_train.robots.scenes import FORCE, POSITION, SceneReader

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

CHUNK = 64
"""Windows that are encoded at a time."""


class Told(NamedTuple):
    """Standardised forces (n, K, 6) and positions (n, K, 3), predicted or true."""

    force: Array
    position: Array


class Bench:
    """Held-out queries of one split.

    Args:
        reader: of the learner's windows.
        table: the split's scenes.
    """

    def __init__(self, reader: SceneReader, table: EpisodeTable, asked: Queries) -> None:
        self.reader, self.table, self.asked = reader, table, asked
        self.donors = Donors(reader, table, asked)
        self.episodes = np.asarray(table["episode"], np.int64)
        now, future = [], []
        for i in _parts(len(asked.rows)):  # pictures of all queries may not fit in memory
            read = self._own(i)
            now.append(read.observations["sensors"][:, -1:].numpy())
            future.append(read.future_observations["sensors"].numpy())
        self.now, told = (np.concatenate(parts).astype(np.float64) for parts in (now, future))
        self.truth = Told(told[..., FORCE], told[..., POSITION])

    @property
    def last(self) -> Told:
        """What stands at the queries' last observation, at every horizon."""
        return self._alike(self.now[..., FORCE], self.now[..., POSITION])

    @property
    def mean(self) -> Told:
        """The training mean."""
        return self._alike(np.zeros(()), np.zeros(()))

    def _alike(self, force: Array, position: Array) -> Told:
        return Told(*(np.broadcast_to(a, b.shape) for a, b in zip((force, position), self.truth, strict=True)))

    @torch.no_grad()
    def codes(self, learner: Any, donors: Rows | None, *, still: bool = False) -> torch.Tensor:
        """Contexts (n, d_p) of a split or monolithic learner: of donors (n,), or of the queries themselves.

        A query without a donor gets its own. `still`: all commands are 0 in standardised units.
        """
        found = []
        with evaluation_mode(learner):
            for i in _parts(len(self.asked.rows)):
                windows = self._own(i) if donors is None else self._histories(donors, i)
                found.append(learner.encode_history(learner.prepare(_still(windows) if still else windows).history))
        return torch.cat(found)

    @torch.no_grad()
    def predicted(
        self, learner: Any, donors: Rows | None, codes: torch.Tensor | None = None, *, still: bool = False
    ) -> Told:
        """Predictions of a learner.

        Args:
            donors: (n,), read by a joint context alone.
            codes: contexts that a split learner is given; None: the queries' own.
        """
        parts: list[tuple[Array, Array]] = []
        with evaluation_mode(learner):
            for i in _parts(len(self.asked.rows)):
                own = _still(self._own(i)) if still else self._own(i)
                if donors is not None:
                    given = self._histories(donors, i)
                    own = with_donors(own, _still(given) if still else given)
                batch = learner.prepare(own)
                z_p = learner.encode_history(batch.history) if codes is None else codes[i : i + CHUNK]
                ahead = learner.parts(learner.predict(learner.encode_current(batch.current), z_p, batch.u))
                parts.append((ahead.force.double().numpy(), ahead.position.double().numpy()))
        return Told(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def averaged(self, learner: Any, donors: Rows, *, still: bool = False) -> Told:
        """Predictions from the mean of the codes of several donors (n, K) each; of a joint context, of the first."""
        if learner.config.context == "joint":
            return self.predicted(learner, donors[:, 0], still=still)
        codes = torch.stack([self.codes(learner, column, still=still) for column in donors.T]).mean(0)
        return self.predicted(learner, None, codes, still=still)

    def errors(self, found: Told) -> dict[str, Array]:
        """`force_h4`: mean squared standardised error; `tcp_h4`: distance in cm; (n,) each."""
        force = np.square(found.force - self.truth.force).mean(-1)
        scale = 100.0 * self.reader.sensors.scale[POSITION]
        tcp = np.linalg.norm((found.position - self.truth.position) * scale, axis=-1)
        return {
            f"{name}_h{h}": values[:, k]
            for name, values in (("force", force), ("tcp", tcp))
            for k, h in enumerate(self.reader.horizons)
        }

    def by_task(self, values: Array, where: NDArray[np.bool_] | None = None) -> Array:
        """Mean of each task's queries, (tasks,), of those that are asked for; NaN where a task has none."""
        where = np.ones(len(values), bool) if where is None else where
        count = len(self.donors.tasks)
        number = np.bincount(self.asked.task[where], minlength=count)
        total = np.bincount(self.asked.task[where], values[where], minlength=count)
        return np.where(number > 0, total / np.maximum(number, 1), np.nan)

    def _own(self, i: int) -> Windows:
        rows, starts = (each[i : i + CHUNK] for each in (self.asked.rows, self.asked.starts))
        return self.reader.read(self.episodes[rows], starts)

    def _histories(self, donors: Rows, i: int) -> Windows:
        given = np.where(donors == NONE, self.asked.rows, donors)
        part = slice(i, i + CHUNK)
        return self.reader.histories(self.episodes[given[part]], self.donors.starts(given)[part])


def _still(windows: Windows) -> Windows:
    return windows._replace(actions=windows.actions * 0.0, future_actions=windows.future_actions * 0.0)


def _parts(count: int) -> Sequence[int]:
    return range(0, count, CHUNK)
