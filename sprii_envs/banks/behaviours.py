"""Behaviour policies: which actions a bank's episodes carry.

A behaviour is a frozen dataclass with one method, `actions(rng, episodes, steps)`: a pure function of the
generator that returns every action of a batch of episodes at once, normalised to the action space ±1.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray


class Behaviour(Protocol):
    """What a protocol asks of a behaviour policy."""

    kind: ClassVar[str]

    def actions(self, rng: np.random.Generator, episodes: int, steps: int) -> NDArray[np.float32]:
        """Normalised actions (episodes, steps, A), float32 in [−1, 1]."""
        ...


@dataclass(frozen=True)
class ForceSegments:
    """Piecewise-constant planar forces (`app:dclean-profile`).

    A segment lasts a uniform number of steps in `shortest`…`longest`. Its force is zero with probability
    `rest`, otherwise its magnitude is uniform in [0, `largest`] and its direction uniform. `largest` is a
    fraction of the environment's force bound (1.0 is 4 N in D-Clean). The last segment is cut off by the end
    of the episode.
    """

    kind: ClassVar[str] = "force_segments"
    shortest: int = 3
    longest: int = 8
    rest: float = 0.3
    largest: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(f"segments need 1 ≤ shortest ≤ longest, got {self.shortest} and {self.longest}")
        if not 0.0 <= self.rest <= 1.0:
            raise ValueError(f"rest is a probability in [0, 1], got {self.rest}")
        if not 0.0 <= self.largest <= 1.0:
            raise ValueError(f"largest is a fraction of the force bound in [0, 1], got {self.largest}")

    def actions(self, rng: np.random.Generator, episodes: int, steps: int) -> NDArray[np.float32]:
        """Normalised forces (episodes, steps, 2), float32."""
        count = -(-steps // self.shortest)
        lengths = rng.integers(self.shortest, self.longest, (episodes, count), endpoint=True)
        pushing = rng.random((episodes, count)) >= self.rest
        magnitude = np.where(pushing, rng.uniform(0.0, self.largest, (episodes, count)), 0.0)
        angle = rng.uniform(0.0, 2.0 * np.pi, (episodes, count))
        forces = np.stack((magnitude * np.cos(angle), magnitude * np.sin(angle)), axis=-1)
        rows = np.arange(episodes)[:, None]
        # Segments that start after the end share a spare last column, which is dropped.
        begins = np.zeros((episodes, steps + 1), np.int64)
        begins[rows, np.minimum(np.cumsum(lengths, axis=1), steps)] = 1
        segment = np.cumsum(begins[:, :steps], axis=1)
        return forces[rows, segment].astype(np.float32)


KINDS: dict[str, type[ForceSegments]] = {ForceSegments.kind: ForceSegments}


def to_dict(behaviour: Behaviour) -> dict[str, Any]:
    """`behaviour` as JSON values, with its `kind`."""
    return {"kind": behaviour.kind, **dataclasses.asdict(behaviour)}  # pyright: ignore[reportArgumentType]


def from_dict(data: Mapping[str, Any]) -> Behaviour:
    """The behaviour that `to_dict` wrote; ValueError for another kind or other parameters."""
    parameters = dict(data)
    kind = parameters.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"unknown behaviour kind {kind!r}; known: {', '.join(sorted(KINDS))}")
    expected = {field.name for field in dataclasses.fields(KINDS[kind])}
    if set(parameters) != expected:
        raise ValueError(f"behaviour {kind!r} needs exactly {sorted(expected)}, got {sorted(parameters)}")
    return KINDS[kind](**parameters)
