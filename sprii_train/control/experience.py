"""What an agent has seen so far: a growing store of whole episodes, each of one known system."""

import hashlib
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer
from sprii_envs.files import read_folder, read_json, recover, write_json, written_folder
from sprii_envs.relations import EpisodeTable, TableRows
from sprii_envs.relations.coercion import integer_array
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]


class Transitions(NamedTuple):
    """All transitions of a store, episode after episode: (N, S), (N, A), (N, S) float32."""

    before: Floats
    action: Floats
    after: Floats


class Experience:
    """Episodes of observations (T + 1, S) and actions (T, A), with the persistent properties of their systems.

    Episodes are numbered in the order in which they were added. T may differ between calls of `add`.

    Args:
        observation_dim, action_dim: S and A.
        properties: names of the persistent properties; they are for evaluation and are never trained on.
    """

    def __init__(self, observation_dim: int, action_dim: int, properties: tuple[str, ...]) -> None:
        observation_dim = integer("observation_dim", observation_dim)
        action_dim = integer("action_dim", action_dim)
        self.property_names = properties
        self.observations: Floats = np.empty((0, observation_dim), np.float32)
        self.actions: Floats = np.empty((0, action_dim), np.float32)
        self.lengths: Rows = np.empty(0, np.int64)
        self.systems: NDArray[np.str_] = np.empty(0, "<U1")
        self.properties: NDArray[np.float64] = np.empty((0, len(properties)))

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    @property
    def first(self) -> Rows:
        """Number (E,) of each episode's first transition; that of its first observation is this plus the episode's."""
        return np.cumsum(self.lengths) - self.lengths

    def add(self, observations: ArrayLike, actions: ArrayLike, systems: ArrayLike, properties: ArrayLike) -> None:
        """Append episodes of one length.

        Args:
            observations, actions: (n, T + 1, S) and (n, T, A), kept as float32.
            systems: (n,) ids; equal ids are the same system, whose properties are equal to the last bit.
            properties: (n, P) in the order of `property_names`, kept as float64.

        Raises:
            ValueError: for other shapes, values that are not finite, or an id of two systems or two ids of one. The
                store is then as it was.
        """
        seen, done = np.asarray(observations, np.float32), np.asarray(actions, np.float32)
        ids, values = np.asarray(systems, np.str_), np.asarray(properties, np.float64)
        n, steps = done.shape[:2] if done.ndim == 3 else (0, 0)
        wanted = {
            "actions": (done, (n, steps, self.actions.shape[1])),
            "observations": (seen, (n, steps + 1, self.observations.shape[1])),
            "systems": (ids, (n,)),
            "properties": (values, (n, len(self.property_names))),
        }
        for name, (array, shape) in wanted.items():
            if array.shape != shape or not n or not steps:
                raise ValueError(f"{name} of new episodes have shape {array.shape}; legal: {shape}, of 1 step or more")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} of new episodes must be finite; {(~np.isfinite(array)).sum()} are not")
        ids, values = np.concatenate([self.systems, ids]), np.concatenate([self.properties, values])
        _check_systems(ids, values)
        self.systems, self.properties = ids, values
        self.observations = np.concatenate([self.observations, seen.reshape(-1, seen.shape[2])])
        self.actions = np.concatenate([self.actions, done.reshape(-1, done.shape[2])])
        self.lengths = np.concatenate([self.lengths, np.full(n, steps, np.int64)])

    def transitions(self) -> Transitions:
        """Every transition, in the order of `actions`."""
        at = np.arange(len(self.actions)) + np.repeat(np.arange(len(self)), self.lengths)
        return Transitions(self.observations[at], self.actions, self.observations[at + 1])

    def windows(self, episodes: Rows, starts: Rows, length: int) -> tuple[Floats, Floats]:
        """Observations (n, length, S) from `starts` (n,) on, and the actions (n, length − 1, A) between them.

        Raises:
            ValueError: for an episode that is not there, a window that is not inside its episode, and rows of the table
                of another store.
        """
        length = integer("length", length, least=1)
        if isinstance(episodes, TableRows):
            episodes = np.asarray(self.table().locate(episodes))
        episodes, starts = integer_array("episodes", episodes), integer_array("starts", starts)
        if len(wrong := episodes[(episodes < 0) | (episodes >= len(self))]):
            raise ValueError(f"episodes names {wrong[0]}; legal: integers >= 0 and below {len(self)}")
        over = (starts < 0) | (starts + length > self.lengths[episodes] + 1)
        if over.any():
            i = int(over.argmax())
            raise ValueError(
                f"a window of {length} observations from {starts[i]} leaves episode {episodes[i]}, which has "
                f"{self.lengths[episodes[i]] + 1}"
            )
        begin = self.first[episodes] + starts
        steps = np.arange(length)
        return (
            self.observations[(begin + episodes)[:, None] + steps],
            self.actions[begin[:, None] + steps[:-1]],
        )

    def table(self) -> EpisodeTable:
        """The episodes as relations read them, `rollout` numbering those of a system.

        A property is a column of its name, or `property_length` where that is a column of every table.
        """
        _, system, counts = np.unique(self.systems, return_inverse=True, return_counts=True)
        rollout = np.empty(len(self), np.int64)
        rollout[np.argsort(system, kind="stable")] = np.arange(len(self)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        columns = {"episode": np.arange(len(self)), "system": self.systems, "rollout": rollout}
        columns["length"] = self.lengths + 1
        taken = set(columns)
        for name, values in zip(self.property_names, self.properties.T, strict=True):
            columns[f"property_{name}" if name in taken else name] = values
        return EpisodeTable(columns)

    def digest(self) -> str:
        """SHA-256 (hex) of all data."""
        digest = hashlib.sha256(repr((self.property_names, self.systems.tolist())).encode())
        for array in (self.observations, self.actions, self.lengths, self.properties):
            little = array.astype(array.dtype.newbyteorder("<"))
            digest.update(f"{little.dtype.str}{little.shape}".encode() + little.tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the folder `path` whole, `episodes.safetensors` and `experience.json`, in place of what was there."""
        arrays = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _ARRAYS}
        described = {"properties": self.property_names, "systems": self.systems.tolist(), "sha256": self.digest()}
        with written_folder(path) as folder:
            write_tensors(folder / "episodes.safetensors", arrays)
            write_json(folder / "experience.json", described)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            CheckpointError: naming the file that is missing, damaged or does not fit its hash.
        """
        recover(path)
        return read_folder(path, lambda: cls._read(Path(path)), CheckpointError)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        described = read_json(folder / "experience.json", CheckpointError)
        arrays = read_tensors(folder / "episodes.safetensors")
        try:
            store = cls(0, 0, tuple(described["properties"]))
            store.systems = np.asarray(described["systems"], np.str_)
            for name in _ARRAYS:
                setattr(store, name, arrays[name].numpy())
            same = store.digest() == described["sha256"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder / 'experience.json'} does not hold experience: {error!r}") from None
        if not same:
            raise CheckpointError(f"{folder / 'episodes.safetensors'} is not what {folder / 'experience.json'} is of")
        return store


_ARRAYS = ("observations", "actions", "lengths", "properties")


def _check_systems(ids: NDArray[np.str_], values: NDArray[np.float64]) -> None:
    """ValueError unless ids and property values name the same systems."""
    names, first, by_id = np.unique(ids, return_index=True, return_inverse=True)
    wrong = (values != values[first][by_id]).any(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"system {str(ids[i])!r} has properties {values[first[by_id[i]]].tolist()} and {values[i].tolist()}; "
            "legal: one assignment for each id"
        )
    distinct, back = np.unique(values[first], axis=0, return_inverse=True)
    if len(distinct) < len(names):
        twin = np.flatnonzero(back == np.bincount(back.ravel()).argmax())[:2]
        raise ValueError(
            f"systems {str(names[twin[0]])!r} and {str(names[twin[1]])!r} have the same properties "
            f"{values[first[twin[0]]].tolist()}; legal: one id for each assignment"
        )
