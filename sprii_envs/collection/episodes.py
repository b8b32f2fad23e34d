"""Collected episodes: padded columns in memory, and their table."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from sprii_envs.banks.ranges import ranges
from sprii_envs.banks.recorded import RecordedBank, Recording, StreamSpec
from sprii_envs.banks.store import WindowStore
from sprii_envs.files import StrPath
from sprii_envs.relations import EpisodeTable

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class RelatedEpisodes(WindowStore):
    """Episodes as arrays with one row per row of `table`.

    An episode of length L has L observations and L − 1 actions and rewards; what follows in its row is zero.
    """

    table: EpisodeTable
    """episode, system, rollout, length, every persistent property or context feature (as `property_length` where its
    name is one of the other columns'), and `ending`: "terminated", "truncated", or "" where collection stopped it."""
    columns: Columns
    """"observations" (E, steps+1, *item), or "observations/<key>" of dictionaries; "actions" (E, steps, *item);
    "rewards" (E, steps) float64."""
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    env_spec: EnvSpec | None = None

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.table)

    __iter__ = None  # neither over the columns' names, as a mapping's, nor over the episodes, as `len` counts

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self.columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column; ValueError naming the legal ones."""
        if name not in self.columns:
            raise ValueError(f"no column {name!r} of the collected episodes; they have {', '.join(self.columns)}")
        return self.columns[name]

    def episode(self, row: int) -> dict[str, NDArray[Any]]:
        """The columns of one episode, cut to its length."""
        length = int(self.table["length"][row])
        return {name: array[row, : length - _fewer(name)] for name, array in self.columns.items()}

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows (n, length, *item): entries starts…starts+length−1 of episodes (rows), as `Bank.windows`.

        ValueError for an unknown column and for a window that crosses the end of its episode.
        """
        array = self[column]
        rows = self.table.locate(episodes)
        found = ranges(self.table["length"], _fewer(column), rows, starts, length, column)
        return array[found.rows[:, None], found.begins[:, None] + np.arange(found.length)]

    def save(
        self,
        folder: StrPath,
        *,
        split: str | Sequence[str] | NDArray[np.str_] | None = None,
        sealed: tuple[str, ...] = (),
    ) -> RecordedBank:
        """Write them to a folder as a recorded bank and open it; `open_store(folder)` opens it again.

        Columns and table are the same, except that "observations/<key>" is "observations.<key>", as a file is named
        after it, and that the table has a `split`: `split` (E,) or one name for all, by
        default "train". Those `sealed` are kept for one
        last evaluation. A save that was killed is ended by the next of the same episodes. StoreError for a folder that
        is not empty; ValueError for splits that are not one an episode, and keys that one file would be named after.
        """
        labels = {name: self.table[name].tolist() for name in self.table.columns}
        if split is not None:
            labels["split"] = [split] * len(self) if isinstance(split, str) else [str(name) for name in split]
            if len(labels["split"]) != len(self):
                raise ValueError(f"split must name one for each of {len(self)} episodes, got {len(labels['split'])}")
        names = {name: name.replace("/", ".") for name in self.columns}
        if len(set(names.values())) != len(names):
            raise ValueError(f"two columns are named alike in files: {', '.join(names.values())}")
        streams = {
            names[name]: StreamSpec(
                array.shape[2:],
                array.dtype.str,
                per="transition" if _fewer(name) else "observation",
                finite=bool(np.isfinite(array).all()),
            )
            for name, array in self.columns.items()
        }
        origin = {
            "source": "collect_related",
            "environment": None if self.env_spec is None else self.env_spec.id,
            "observation_space": str(self.observation_space),
            "action_space": str(self.action_space),
            "episodes": self._digest(labels),
        }
        with Recording(folder, streams, origin=origin, sealed=sealed) as recording:
            for row in range(recording.done, len(self)):
                arrays = {names[name]: array for name, array in self.episode(row).items()}
                recording.append(arrays, **{name: column[row] for name, column in labels.items()})
        return RecordedBank(folder)

    def _digest(self, labels: Mapping[str, Any]) -> str:
        """SHA-256 of everything, so that a killed save is not ended with other episodes."""
        digest = hashlib.sha256(json.dumps(labels, sort_keys=True).encode())
        for name in sorted(self.columns):
            array = np.ascontiguousarray(self.columns[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.data.cast("B") if array.size else b"")
        return digest.hexdigest()

    def to_minari(self, dataset_id: str, *, about: Mapping[str, Any] | None = None) -> Any:
        """Write them to a local Minari dataset and return it; what the table tells becomes episode metadata.

        `about` and errors as in `sprii_envs.banks.minari.to_minari`. An episode that collection stopped ends in a
        truncation.
        """
        from sprii_envs.banks.minari.package import package
        from sprii_envs.banks.minari.writing import check_about, needed, write

        package()
        told = [name for name in self.table.columns if name not in ("episode", "length")]
        rows = zip(*(self.table[name].tolist() for name in told), strict=True)
        return write(
            dataset_id,
            (self._buffer(row) for row in range(len(self))),
            (dict(zip(told, row, strict=True)) for row in rows),
            spaces=(self.observation_space, self.action_space),
            env_spec=self.env_spec,
            about=check_about(about or {}),
            size=needed(sum(array.nbytes for array in self.columns.values()), len(self)),
        )

    def _buffer(self, row: int) -> Any:
        from sprii_envs.banks.minari.package import episode_buffer

        data = self.episode(row)
        last = np.zeros(len(data["rewards"]), np.bool_)
        last[-1] = True
        terminated = self.table["ending"][row] == "terminated"
        return episode_buffer(
            observations=_nested(data),
            actions=data["actions"],
            rewards=data["rewards"],
            terminations=last & terminated,
            truncations=last & ~terminated,
        )


def _fewer(column: str) -> bool:
    """Whether an episode has one entry fewer of a column than it has observations."""
    return not column.startswith("observations")


def _nested(data: Columns) -> Any:
    """The observations of an episode as their space nests them."""
    if "observations" in data:
        return data["observations"]
    nested: dict[str, Any] = {}
    for name, array in data.items():
        _, *keys = name.split("/")
        if keys:
            place = nested
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = array
    return nested
