"""Piecewise-constant planar forces: the behaviour of D-Clean."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, integer, number
from sprii_envs.world import Array, World


@dataclass(frozen=True)
class ForceSegments:
    """Piecewise-constant planar forces (`app:dclean-profile`).

    A segment lasts a uniform number of steps in `shortest`…`longest`. Its force is zero with probability
    `rest`, otherwise its magnitude is uniform in [0, `largest`] and its direction uniform. `largest` is a
    fraction of the environment's force bound (1.0 is 4 N in D-Clean). The last segment is cut off by the end
    of the episode.
    """

    kind: ClassVar[str] = "force_segments"
    episode_kinds: ClassVar[tuple[str, ...]] = ()
    shortest: int = 3
    longest: int = 8
    rest: float = 0.3
    largest: float = 1.0

    def __post_init__(self) -> None:
        check(self, integer, "shortest", "longest", least=1)
        check(self, number, "rest", "largest", least=0, most=1)
        if self.shortest > self.longest:
            raise ValueError(f"segments need 1 ≤ shortest ≤ longest, got {self.shortest} and {self.longest}")

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> NDArray[np.float32]:
        """Open loop: the same law in every world, system and state."""
        return self.actions(rng, len(values), steps)

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
