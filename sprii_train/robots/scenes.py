"""Windows of recorded manipulation: sensors and commands standardised by the training scenes, pictures as they are."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_envs.standardiser import Standardiser
from sprii_train.data import WindowReader
from sprii_train.protocol import Windows, each

Rows = NDArray[np.int64]

SENSORS = ("force", "tcp", "gripper")
"""Columns of an observation besides the picture, one behind the other."""
FRAMES, ACTION = "frames", "action"
FORCE, POSITION = slice(0, 6), slice(6, 9)
"""Where forces and the tool's position are in them."""
SEEN = 64
"""Training scenes that the statistics of pictures are of, evenly chosen."""


class SceneReader(WindowReader):
    """Histories, commands and targets of scenes; see `WindowReader`.

    `observations` has `sensors` (B, T, 14), float32, and with pictures `frames` (B, 1 + T, H, W), uint8, the one before
    the first in front (the first itself at the start of a scene); `future_observations` (B, K, 14) and (B, K, 2, H, W).

    Args:
        image: side of the pictures, that of the store's; 0 reads none.

    Raises:
        ValueError: for a store without these columns, or pictures of another size.
    """

    def __init__(self, store: Store, history: int, horizons: tuple[int, ...], *, image: int) -> None:
        observed = (*SENSORS, FRAMES) if image else SENSORS
        super().__init__(store, history, horizons, observation=observed, action=ACTION)
        self.pictures = image
        train = store.split("train")
        if image:
            size = store.windows(FRAMES, train["episode"][:1], np.zeros(1, np.int64), 1).shape[2:]
            if size != (image, image):
                raise ValueError(f"image is {image}; legal: 0, or {size[0]}, the side of the pictures of {store.name}")
        self.sensors = Standardiser.fit(np.concatenate([_whole(store, name, train) for name in SENSORS], axis=1))
        self.commands = Standardiser.fit(_whole(store, ACTION, train))

    def columns(self, episodes: Rows, starts: Rows, length: int) -> dict[str, Tensor]:
        """Windows (n, length, 14), and (n, 1 + length, H, W) of pictures."""
        read = [self.bank.windows(name, episodes, starts, length) for name in SENSORS]
        found = {"sensors": _tensor(self.sensors(np.concatenate(read, axis=-1)))}
        return found | ({FRAMES: self._pictures(episodes, np.asarray(starts), length)} if self.pictures else {})

    def histories(self, episodes: Rows, starts: Rows) -> Windows:
        """Windows without a future."""
        episodes, starts = self._episodes(episodes), np.asarray(starts, np.int64)
        observed = self.columns(episodes, starts, self.history)
        none = each(observed, lambda entries: entries[:, :0])
        if self.pictures:
            none[FRAMES] = none[FRAMES][:, :, None].expand(-1, -1, 2, -1, -1)
        actions = self._actions(episodes, starts, self.history - 1)
        return Windows(observed, actions, none, actions[:, :0])

    def picture_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and SD of grey values and of their differences in [0, 1], (2,) each, of training scenes."""
        train = self.bank.split("train")
        rows = np.unique(np.linspace(0, len(train) - 1, SEEN).round().astype(np.int64))
        sums = np.zeros((3, 2))
        for episode, length in zip(train["episode"][rows], train["length"][rows], strict=True):
            grey = self.bank.windows(FRAMES, episode[None], np.zeros(1, np.int64), int(length))[0] / 255.0
            for channel, values in enumerate((grey, np.diff(grey, axis=0, prepend=grey[:1]))):
                sums[:, channel] += values.size, values.sum(), np.square(values).sum()
        mean = sums[1] / sums[0]
        sd = np.sqrt(np.maximum(sums[2] / sums[0] - mean**2, 0.0))
        return _tensor(mean), _tensor(np.where(sd > 0, sd, 1.0))

    def _actions(self, episodes: Rows, starts: Rows, length: int) -> Tensor:
        read = self.bank.windows(ACTION, episodes, starts, max(1, length))[:, :length]
        return _tensor(self.commands(read))

    def _targets(self, episodes: Rows, now: Rows) -> dict[str, Tensor]:
        times = (now[:, None] + np.asarray(self.horizons)).ravel()
        read = self.columns(np.repeat(episodes, len(self.horizons)), times, 1)
        found = {"sensors": read["sensors"][:, 0]} | ({FRAMES: read[FRAMES]} if self.pictures else {})
        return each(found, lambda entries: entries.unflatten(0, (len(now), -1)))

    def _pictures(self, episodes: Rows, starts: Rows, length: int) -> Tensor:
        frames = np.array(self.bank.windows(FRAMES, episodes, np.maximum(starts - 1, 0), length + 1))
        first = starts == 0
        frames[first, 1:] = frames[first, :-1]
        return torch.from_numpy(frames)


def _whole(store: Store, name: str, table: EpisodeTable) -> NDArray[np.float64]:
    """All entries (n, d) of a column in a table's episodes."""
    parts = []
    for length in np.unique(table["length"]):
        episodes = table["episode"][table["length"] == length]
        read = store.windows(name, episodes, np.zeros(len(episodes), np.int64), int(length))
        parts.append(read.reshape(-1, read.shape[-1]))
    return np.concatenate(parts).astype(np.float64)


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
