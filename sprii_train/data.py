"""From a bank to training windows: a pure function of (seed, step), so that nothing about it needs to be saved."""

import copy
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import instance, integer, integers, shown
from sprii_envs.banks import Bank, Store
from sprii_envs.relations import (
    SAME_SYSTEM,
    EpisodeTable,
    Kernel,
    PairSampler,
    Relation,
    Uniform,
    WindowPairs,
    WindowSampler,
)
from sprii_envs.relations.coercion import integer_array
from sprii_envs.relations.rows import TableRows
from sprii_envs.standardiser import Standardiser
from sprii_train.identity import plain_attributes
from sprii_train.protocol import Windows, each

Rows = NDArray[np.int64]


class Reader(Protocol):
    """Reads windows of a store's episodes."""

    bank: Store
    history: int
    horizons: tuple[int, ...]

    def read(self, episodes: Rows, starts: Rows) -> Windows: ...

    def histories(self, episodes: Rows, starts: Rows) -> Windows: ...


class WindowReader:
    """Histories, future actions and targets of a bank's episodes, read at the learner's horizons.

    Args:
        bank: a store whose windows of the columns are (n, T, …).
        history: observations in a history.
        horizons: increasing; the last one bounds the future.
        properties: names of the persistent properties given as labels, standardised by the training systems (one that
            is the same in all of them is centred and not scaled).
        image: side of the grayscale frames to read instead of states, of a bank that can draw them; 0 reads columns.
        observation: the column that is observed, or several, whose windows are then a mapping.
        action: the column of actions, one a transition; None for episodes without any, whose actions have no entries.
        still: the first difference of a history of frames is zero wherever it begins, not only in an episode's start.

    Raises:
        ValueError: for numbers that are not legal, or a property that the bank does not have.
    """

    def __init__(
        self,
        bank: Store,
        history: int = 24,
        horizons: tuple[int, ...] = (1, 4, 16),
        properties: tuple[str, ...] = (),
        image: int = 0,
        *,
        observation: str | tuple[str, ...] = "states",
        action: str | None = "actions",
        still: bool = False,
    ) -> None:
        history, image = integer("history", history, least=1), integer("image", image)
        horizons = integers("horizons", horizons, some=True)
        if list(horizons) != sorted(set(horizons)) or horizons[0] < 1:
            raise ValueError(f"horizons are {horizons}; legal: increasing steps >= 1, such as (1, 4, 16)")
        instance("bank", bank, of=Store)
        self.bank, self.history, self.horizons, self.image = bank, history, horizons, image
        if image and not isinstance(bank, Bank):
            raise ValueError(f"{bank.name} draws no frames: image is {image}; legal: 0")
        columns = _names("observation", (observation,) if isinstance(observation, str) else observation)
        for column in (*columns, *(() if action is None else (action,))):
            if column not in bank.columns:
                raise ValueError(f"{bank.name} has no column {column!r}; columns: {', '.join(bank.columns)}")
        self.properties, self.observation, self.action, self.still = properties, observation, action, still
        self._labels, self._order = None, bank.table.by_episode()
        if _names("properties", properties):
            standardise = Standardiser.fit(_columns(bank.split("train"), properties))
            self._labels = standardise(_columns(bank.table, properties))

    def read(self, episodes: Rows, starts: Rows) -> Windows:
        """Windows (n, …) of episodes (n,) beginning at observations `starts` (n,)."""
        episodes, now = self._episodes(episodes), np.asarray(starts) + self.history - 1
        histories = self.histories(episodes, starts)
        return histories._replace(
            future_observations=self._targets(episodes, now),
            future_actions=self._actions(episodes, now, self.horizons[-1]),
        )

    def histories(self, episodes: Rows, starts: Rows) -> Windows:
        """Windows without a future, for donors: (n, 0, …) targets and (n, 0, A) future actions."""
        episodes, starts = self._episodes(episodes), np.asarray(starts, np.int64)
        actions = self._actions(episodes, starts, self.history - 1)
        labels = None if self._labels is None else _tensor(self._labels[self._row(episodes)])
        if self.image:
            frames = torch.from_numpy(self._frames(episodes, starts))
            return Windows(
                frames, actions, frames.new_empty(len(frames), 0, 2, *frames.shape[2:]), actions[:, :0], labels
            )
        observed = self.columns(episodes, starts, self.history)
        return Windows(observed, actions, each(observed, lambda entries: entries[:, :0]), actions[:, :0], labels)

    def _episodes(self, episodes: Rows) -> Rows:
        """Ids of the store's episodes, of whichever of its tables they were drawn."""
        located = self.bank.table.locate(episodes)
        return located.episodes if isinstance(located, TableRows) else integer_array("episodes", located)

    def _row(self, episodes: Rows) -> Rows:
        """Where episodes (n,) stand in the store's table."""
        return self._order[np.searchsorted(self.bank.table["episode"], episodes, sorter=self._order)]

    def columns(self, episodes: Rows, starts: Rows, length: int) -> Any:
        """Windows (n, length, …) of what is observed, float32; a mapping where that is several columns."""
        if isinstance(self.observation, str):
            return _tensor(self.bank.windows(self.observation, episodes, starts, length))
        return {name: _tensor(self.bank.windows(name, episodes, starts, length)) for name in self.observation}

    def presents(self, episodes: Rows, times: Rows) -> Any:
        """What is observed at `times` (n,): (n, …); frames (n, 2, H, W) with the ones before them."""
        if self.image:
            return torch.from_numpy(self._bank.frames(episodes, np.asarray(times) - 1, 2, self.image))
        return each(self.columns(episodes, times, 1), lambda entries: entries[:, 0])

    @property
    def _bank(self) -> Bank:
        assert isinstance(self.bank, Bank)  # checked when the reader is made
        return self.bank

    def _actions(self, episodes: Rows, starts: Rows, length: int) -> Tensor:
        if self.action is None:
            return torch.zeros(len(episodes), length, 0)
        if not length:
            return _tensor(self.bank.windows(self.action, episodes, starts, 1)[:, :0])
        return _tensor(self.bank.windows(self.action, episodes, starts, length))

    def _targets(self, episodes: Rows, now: Rows) -> Any:
        times = (now[:, None] + np.asarray(self.horizons)).ravel()
        rows = np.repeat(episodes, len(self.horizons))
        if self.image:
            pairs = self._bank.frames(rows, times - 1, 2, self.image)
            return torch.from_numpy(pairs).unflatten(0, (len(now), -1))
        return each(self.columns(rows, times, 1), lambda entries: entries[:, 0].unflatten(0, (len(now), -1)))

    def _frames(self, episodes: Rows, starts: Rows) -> NDArray[np.uint8]:
        """Frames (n, 1 + history, H, W): the one before the first in front; the first itself where there is none, or
        where histories begin still."""
        first = np.full(len(starts), True) if self.still else starts == 0
        if first.all():
            frames = self._bank.frames(episodes, starts, self.history, self.image)
            return np.concatenate([frames[:, :1], frames], axis=1)
        frames = self._bank.frames(episodes, np.maximum(starts - 1, 0), self.history + 1, self.image)
        frames[first, 1:] = frames[first, :-1]
        return frames


class PairedWindows:
    """Stacked donor/recipient windows of one population: call it with a step.

    Args:
        reader: reads the windows.
        episodes: a split, or the episodes that both sides come from (a selection of the bank's table).
        relation, kernel: the pairing law; see `sprii_envs.relations`.
        pairs: pairs in a batch; recipients come from that many distinct systems.
        apart: see `WindowSampler`.
    """

    def __init__(
        self,
        reader: Reader,
        episodes: str | EpisodeTable = "train",
        *,
        relation: Relation = SAME_SYSTEM,
        kernel: Kernel = Uniform(),  # noqa: B008 (frozen and stateless)
        pairs: int = 48,
        seed: int = 0,
        apart: int | None = None,
    ) -> None:
        if not hasattr(reader, "read"):
            raise ValueError(f"reader is {shown(reader)}; legal: a WindowReader or another with read and histories")
        self.reader, self.relation, self.kernel = reader, relation, kernel
        self.count = integer("pairs", pairs, least=1)
        whole = reader.bank.split(episodes) if isinstance(episodes, str) else episodes
        self.table = instance("episodes", whole, of=EpisodeTable)
        reader.bank.table.locate(self.table.every())
        self.pairs = PairSampler(self.table, relation, kernel, seed=seed, distinct="system")
        self._own = slice(None)
        self.windows = WindowSampler(
            self.table, history=reader.history, horizon=reader.horizons[-1], seed=seed, apart=apart
        )

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        told = {
            "bank": self.reader.bank.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "sampler": self.pairs.fingerprint(),
            "relation": str(self.relation),
            "pairs": self.count,
            "seed": self.pairs.seed,
            "history": self.reader.history,
            "horizons": list(self.reader.horizons),
        }
        optional = {
            "image": getattr(self.reader, "image", 0),
            "labels": list(getattr(self.reader, "properties", ())),
            "still": getattr(self.reader, "still", False),
            "apart": self.windows.apart,
            "observation": _unless(getattr(self.reader, "observation", "states"), "states"),
            "action": _unless(getattr(self.reader, "action", "actions"), "actions"),
            "reader": self._told_of_reader(),
        }
        return told | {name: value for name, value in optional.items() if value}

    def _told_of_reader(self) -> Any:
        """What a reader of another kind depends on: what it says, or its plain attributes."""
        if type(self.reader) is WindowReader:
            return None
        own = getattr(self.reader, "identity", None)
        return own() if callable(own) else plain_attributes(self.reader)[:16]

    def shard(self, rank: int, world: int) -> "PairedWindows":
        """The same batches, of which one rank's share of the pairs is read.

        Raises:
            ValueError: if the ranks do not divide the pairs.
        """
        if self.count % world:
            raise ValueError(
                f"{self.count} pairs cannot be shared evenly by {world} ranks; legal: a multiple of {world}"
            )
        part, share = copy.copy(self), self.count // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def __call__(self, step: int) -> Windows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        w = self.draw(step)
        rows = np.concatenate([w.donor[self._own], w.recipient[self._own]])
        starts = np.concatenate([w.donor_start[self._own], w.recipient_start[self._own]])
        return self.reader.read(self.table["episode"][rows], starts)

    def draw(self, step: int) -> WindowPairs:
        """Rows of the table, and where their windows begin, of every pair of a step."""
        return self.windows.batch(step, self.pairs.batch(step, self.count), self.relation)


def _names(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{what} is {shown(value)}; legal: a tuple of names")
    return tuple(value)


def _unless(value: Any, usual: str) -> str | None:
    """None for the usual name, which identities of runs do not mention."""
    return None if value == usual else repr(value)


def _columns(table: EpisodeTable, names: tuple[str, ...]) -> NDArray[np.float64]:
    for name in names:
        if table[name].dtype.kind not in "iuf" or not np.isfinite(table[name]).all():
            raise ValueError(f"the property {name!r} is given as a label, but is not a finite number in every episode")
    return np.stack([table[name] for name in names], axis=1)


def _tensor(array: NDArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
