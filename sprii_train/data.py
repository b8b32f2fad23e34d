"""From a bank to training windows: a pure function of (seed, step), so that nothing about it needs to be saved."""

import copy
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Bank
from sprii_envs.fields import integer, integers
from sprii_envs.relations import (
    SAME_SYSTEM,
    EpisodeTable,
    Kernel,
    PairSampler,
    Relation,
    Uniform,
    WindowSampler,
)
from sprii_envs.relations.coercion import integer_array
from sprii_envs.standardiser import Standardiser
from sprii_train.protocol import Windows

Rows = NDArray[np.int64]


class Reader(Protocol):
    """Reads windows of a bank's episodes."""

    bank: Bank
    history: int
    horizons: tuple[int, ...]

    def read(self, episodes: Rows, starts: Rows, anchors: Rows | None = None) -> Windows: ...

    def histories(self, episodes: Rows, starts: Rows) -> Windows: ...


class WindowReader:
    """Histories, future actions and targets of a bank's episodes, read at the learner's horizons.

    Args:
        bank: with columns `states` (E, T, S) and `actions` (E, T−1, A).
        history: observations in a history.
        horizons: increasing; the last one bounds the future.
        properties: names of the persistent properties given as labels, standardised by the training systems (one that
            is the same in all of them is centred and not scaled).
        image: side of the grayscale frames to read instead of states; 0 reads states.

    Raises:
        ValueError: for numbers that are not legal, or a property that the bank does not have.
    """

    def __init__(
        self,
        bank: Bank,
        history: int = 24,
        horizons: tuple[int, ...] = (1, 4, 16),
        properties: tuple[str, ...] = (),
        image: int = 0,
    ) -> None:
        history, image = integer("history", history, least=1), integer("image", image)
        horizons = integers("horizons", horizons, some=True)
        if list(horizons) != sorted(set(horizons)) or horizons[0] < 1:
            raise ValueError(f"horizons are {horizons}; legal: increasing steps >= 1, such as (1, 4, 16)")
        self.bank, self.history, self.horizons, self.image = bank, history, horizons, image
        self.properties = properties
        self._labels = None
        if properties:
            standardise = Standardiser.fit(_columns(bank.split("train"), properties))
            self._labels = standardise(_columns(bank.table, properties))

    def read(self, episodes: Rows, starts: Rows, anchors: Rows | None = None) -> Windows:
        """Windows (n, …) of episodes (n,) beginning at observations `starts` (n,).

        With `anchors` (n,), entries of the history, the future begins at them and not at the history's end; actions
        of the history are then given up to its end all the same.
        """
        last = self.history - 1 if anchors is None else np.asarray(anchors)
        episodes, now = self._episodes(episodes), np.asarray(starts) + last
        histories = self.histories(episodes, starts)
        return histories._replace(
            future_observations=self._targets(episodes, now),
            future_actions=_tensor(self.bank.windows("actions", episodes, now, self.horizons[-1])),
            anchors=None if anchors is None else torch.from_numpy(np.asarray(anchors, np.int64)),
        )

    def histories(self, episodes: Rows, starts: Rows) -> Windows:
        """Windows without a future, for donors: (n, 0, …) targets and (n, 0, A) future actions."""
        episodes, starts = self._episodes(episodes), np.asarray(starts, np.int64)
        actions = _tensor(self.bank.windows("actions", episodes, starts, self.history - 1))
        labels = None if self._labels is None else _tensor(self._labels[episodes])
        if self.image:
            frames = torch.from_numpy(self._frames(episodes, starts))
            return Windows(
                frames, actions, frames.new_empty(len(frames), 0, 2, *frames.shape[2:]), actions[:, :0], labels
            )
        states = _tensor(self.bank.windows("states", episodes, starts, self.history))
        return Windows(states, actions, states[:, :0], actions[:, :0], labels)

    def _episodes(self, episodes: Rows) -> Rows:
        """Episodes of the bank, of whichever of its tables they were drawn."""
        return integer_array("episodes", self.bank.table.locate(episodes))

    def _targets(self, episodes: Rows, now: Rows) -> Tensor:
        times = (now[:, None] + np.asarray(self.horizons)).ravel()
        rows = np.repeat(episodes, len(self.horizons))
        if self.image:
            pairs = self.bank.frames(rows, times - 1, 2, self.image)
            return torch.from_numpy(pairs).unflatten(0, (len(now), -1))
        return _tensor(self.bank.windows("states", rows, times, 1)[:, 0]).unflatten(0, (len(now), -1))

    def _frames(self, episodes: Rows, starts: Rows) -> NDArray[np.uint8]:
        """Frames (n, 1 + history, H, W): the one before the first in front, the first itself where there is none."""
        first = starts == 0
        if first.all():
            frames = self.bank.frames(episodes, starts, self.history, self.image)
            return np.concatenate([frames[:, :1], frames], axis=1)
        frames = self.bank.frames(episodes, np.maximum(starts - 1, 0), self.history + 1, self.image)
        frames[first, 1:] = frames[first, :-1]
        return frames


class PairedWindows:
    """Stacked donor/recipient windows of one population: call it with a step.

    Args:
        reader: reads the windows.
        episodes: a split, or the episodes that both sides come from (a selection of the bank's table).
        relation, kernel: the pairing law; see `sprii_envs.relations`.
        pairs: pairs in a batch; recipients come from that many distinct systems.
        shortest: None: windows of `reader.history` observations that begin anywhere. A number: a window is a whole
            episode of `reader.history` observations, offered whole to recipients, and predicted from its first
            `shortest` observations or more (`Windows.anchors`), uniformly.
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
        shortest: int | None = None,
    ) -> None:
        self.reader, self.relation, self.kernel, self.count, self.shortest = reader, relation, kernel, pairs, shortest
        self.table = reader.bank.split(episodes) if isinstance(episodes, str) else episodes
        reader.bank.table.locate(self.table.every())
        self.pairs = PairSampler(self.table, relation, kernel, seed=seed, distinct="system")
        self._own = slice(None)
        observed = reader.history if shortest is None else shortest
        self.windows = WindowSampler(self.table, history=observed, horizon=reader.horizons[-1], seed=seed)
        if shortest is not None and (self.table["length"] != reader.history).any():
            raise ValueError(
                f"whole episodes of {reader.history} observations are asked for, but some have "
                f"{sorted(set(self.table['length'].tolist()) - {reader.history})}"
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
            "shortest": self.shortest,
        }
        return told | {name: value for name, value in optional.items() if value}

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
        w = self.windows.batch(step, self.pairs.batch(step, self.count), self.relation)
        rows = np.concatenate([w.donor[self._own], w.recipient[self._own]])
        starts = np.concatenate([w.donor_start[self._own], w.recipient_start[self._own]])
        episodes = self.table["episode"][rows]
        if self.shortest is None:
            return self.reader.read(episodes, starts)
        return self.reader.read(episodes, np.zeros_like(starts), starts + self.shortest - 1)


def _columns(table: EpisodeTable, names: tuple[str, ...]) -> NDArray[np.float64]:
    return np.stack([table[name] for name in names], axis=1)


def _tensor(array: NDArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
