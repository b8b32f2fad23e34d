"""A Minari dataset as a store: its episodes by their labels, and windows of its columns."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.banks.minari.metadata import from_minari
from sprii_envs.banks.minari.package import opened, package, reading
from sprii_envs.banks.ranges import ranges
from sprii_envs.banks.referenced import Referenced
from sprii_envs.banks.store import StoreError, sealed_names
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.coercion import integer_array
from sprii_envs.relations.rows import TableRows
from sprii_envs.relations.table import few

_STEPS = ("actions", "rewards", "terminations", "truncations")


class MinariWindows(Referenced):
    """A `Store` of a MinariDataset (or the local one of an id), of the episodes of its `table`.

    `table` is `from_minari(dataset)`, any selection from it, or one with more columns: a dataset has no splits unless
    its metadata or the table says so, and is all `train` then. `sealed` splits are by default those that an exported
    bank kept sealed. `save` keeps table and checksums in a folder, which `open_store` opens.

    Raw HDF5 is sliced, so only the chunks of a window are read; other storages, and images that Minari stored as JPEG
    (a warning says so: they are not the pixels that were recorded), are decoded a whole episode at a time. A dataset
    that is replaced or written to afterwards is refused.

    Attributes:
        name: id of the dataset, or the folder that it was opened from.
        dataset: the MinariDataset.
    """

    FORMAT, DATA = "sprii-minari", "the Minari dataset"

    def __init__(
        self,
        dataset: Any,
        table: EpisodeTable | None = None,
        *,
        sealed: tuple[str, ...] | None = None,
        name: str | None = None,
    ) -> None:
        """ValueError if `table` has episodes that the dataset does not have; StoreError for an unknown sealed split."""
        package()
        from minari.dataset.minari_storage import MinariStorage, is_image_space

        self.dataset = opened(dataset)
        table = from_minari(self.dataset) if table is None else table
        unknown = np.setdiff1d(table["episode"], self.dataset.episode_indices)
        if len(unknown):
            raise ValueError(f"the Minari dataset {self.dataset.id!r} has no episodes {few(unknown)} of the table")
        self._storage = storage = self.dataset.storage
        self._data = files.absolute(storage.data_path)
        with reading(self.dataset):
            kept = _kept_sealed(storage.metadata, table) if sealed is None else sealed_names(sealed)
            if self._data != storage.data_path:
                self._storage = MinariStorage.read(self._data)
        super().__init__(self._data, table, sealed=kept, name=self.dataset.id if name is None else name)
        order = np.argsort(table["episode"])
        self._ids, self._lengths = table["episode"][order], table["length"][order]
        spaces = (self.dataset.observation_space, self.dataset.action_space)
        self._jpeg = storage.jpeg_encoding and any(is_image_space(leaf) for space in spaces for leaf in _leaves(space))
        hdf5 = storage.FORMAT == "hdf5"
        self._place = self._data / "main_data.hdf5" if hdf5 else self._data
        self._revision = files.revision(self._place)
        self._sliced = hdf5 and not self._jpeg
        self._names: tuple[str, ...] | None = None
        if self._jpeg:
            warnings.warn(
                f"the Minari dataset {self.dataset.id!r} stores images as JPEG: these are not the recorded pixels",
                stacklevel=2,
            )

    @classmethod
    def open(cls, path: files.StrPath) -> Self:
        """What `save` wrote, with the dataset where it lay then; see `Referenced.load`."""
        return cls.load(path)

    @classmethod
    def of(cls, root: Path, table: EpisodeTable, sealed: tuple[str, ...], name: str) -> Self:
        """See `Referenced.load`."""
        return cls(root, table, sealed=sealed, name=name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the first episode; others may have more infos."""
        if self._names is None:
            self._names = self._names_of(int(self._ids[0]))
        return self._names

    def _names_of(self, episode: int) -> tuple[str, ...]:
        with reading(self.dataset):
            if not self._sliced:
                return tuple(_columns(next(iter(self._storage.get_episodes([episode])))))
            import h5py

            with h5py.File(self._place, "r") as file:
                return tuple(_datasets(file[f"episode_{episode}"]))

    @property
    def _kept(self) -> dict[str, Any]:
        kept = super()._kept
        self._check_revision()
        return kept

    def verify(self, *, checksums: bool = True) -> None:
        """As `Referenced.verify`; StoreError, too, if the dataset was replaced or written to."""
        self._check_revision()
        super().verify(checksums=checksums)

    def _check_revision(self) -> None:
        if files.revision(self._place) != self._revision:
            raise StoreError(
                f"the Minari dataset {self.dataset.id!r} was replaced or written to after its MinariWindows were "
                "made: make its table and them again"
            )

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows (n, length, *item) of a column: entries starts…starts+length−1 of each episode.

        `column` is "observations", "actions", "rewards", "terminations" or "truncations"; parts of dictionaries
        and infos are "observations/image" and "infos/contact". `episodes` are ids of the table, its `episode`
        column, or what a sampler drew of any table of the dataset; with `starts` they are (n,) integers or broadcast
        to that. ValueError for an unknown column or episode and for a window that crosses the end of its episode.
        """
        rows = self.table.locate(episodes)
        ids = np.atleast_1d(rows.episodes if isinstance(rows, TableRows) else integer_array("episodes", rows))
        rows = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
        if (wrong := self._ids[rows] != ids).any():
            raise ValueError(f"no episode {ids[wrong.argmax()]} in the table of {self.dataset.id!r}")
        fewer = column.split("/")[0] in _STEPS
        found = ranges(self._lengths, fewer, rows, starts, length, column, self._ids)
        asked = self._ids[found.rows]
        read = self._slices if self._sliced else self._decoded
        try:
            with reading(self.dataset):
                parts = read(column, asked.tolist(), found.begins.tolist(), found.length)
        finally:
            self._check_revision()
        return np.stack(parts)

    def _slices(self, column: str, episodes: list[int], starts: list[int], length: int) -> list[NDArray[Any]]:
        import h5py

        with h5py.File(self._place, "r") as file:
            parts = []
            for episode, start in zip(episodes, starts, strict=True):
                group: Any = file[f"episode_{episode}"]
                self._check_length(episode, int(group.attrs["total_steps"]))
                entry = group.get(column)
                if not isinstance(entry, h5py.Dataset):
                    raise self._unknown(column, episode, _datasets(group))
                parts.append(self._whole(np.asarray(entry[start : start + length]), column, episode, start, length))
        return parts

    def _decoded(self, column: str, episodes: list[int], starts: list[int], length: int) -> list[NDArray[Any]]:
        wanted: dict[int, list[int]] = {}
        for place, episode in enumerate(episodes):
            wanted.setdefault(episode, []).append(place)
        parts: list[Any] = [None] * len(episodes)
        for episode, data in zip(wanted, self._storage.get_episodes(list(wanted)), strict=True):
            self._check_length(episode, len(data["rewards"]))
            entry: Any = data
            for key in column.split("/"):
                if isinstance(entry, tuple) and key.startswith("_index_"):
                    entry = entry[int(key.removeprefix("_index_"))]
                elif isinstance(entry, dict) and key in entry:
                    entry = entry[key]
                else:
                    raise self._unknown(column, episode, _columns(data))
            if entry is None or isinstance(entry, dict | tuple):
                raise self._unknown(column, episode, _columns(data))
            for place in wanted[episode]:
                begin = starts[place]
                window = np.asarray(entry[begin : begin + length])
                parts[place] = self._whole(window, column, episode, begin, length)
        return parts

    def _check_length(self, episode: int, steps: int) -> None:
        """ValueError if the dataset has another episode of this number than the table."""
        if (length := self._lengths[np.searchsorted(self._ids, episode)]) != steps + 1:
            raise ValueError(
                f"episode {episode} of the Minari dataset {self.dataset.id!r} has {steps + 1} observations and "
                f"{length} in the table, which is of another dataset: give it the one of from_minari(dataset)"
            )

    def _unknown(self, column: str, episode: int, legal: list[str]) -> ValueError:
        return ValueError(
            f"episode {episode} of the Minari dataset {self.dataset.id!r} has no column {column!r}; legal: "
            f"{few(legal, 99)}"
        )

    def _whole(self, window: NDArray[Any], column: str, episode: int, start: int, length: int) -> NDArray[Any]:
        if len(window) != length:  # infos may have fewer entries than observations
            raise ValueError(
                f"window of {length} from {start} is not inside episode {episode}: {column!r} ends after "
                f"{start + len(window)} entries"
            )
        return window


def _kept_sealed(metadata: Mapping[str, Any], table: EpisodeTable) -> tuple[str, ...]:
    """The splits of a table that the bank which was exported kept sealed."""
    protocol = metadata.get("sprii_protocol")
    sealed = protocol.get("sealed_splits", ()) if isinstance(protocol, Mapping) else ()
    return tuple(split for split in sealed if "split" in table and split in table["split"].astype(str))


def _datasets(group: Any) -> list[str]:
    """Names of the columns of an episode's HDF5 group."""
    import h5py

    names: list[str] = []
    group.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _columns(data: Any, prefix: str = "") -> list[str]:
    """Names of the columns of a decoded episode, as its HDF5 groups would name them."""
    if isinstance(data, tuple):
        data = {f"_index_{i}": part for i, part in enumerate(data)}
    if not isinstance(data, dict):
        return [] if data is None else [prefix]
    parts = ((f"{prefix}/{key}" if prefix else key, part) for key, part in data.items() if prefix or key != "id")
    return [name for key, part in parts for name in _columns(part, key)]


def _leaves(space: gym.Space[Any]) -> list[gym.Space[Any]]:
    if isinstance(space, gym.spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _leaves(part)]
    if isinstance(space, gym.spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaves(part)]
    return [space]
