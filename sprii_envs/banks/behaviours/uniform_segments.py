"""Piecewise-constant actions of any number of components: a behaviour for every world."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, integer, number
from sprii_envs.world import Array, World


@dataclass(frozen=True)
class UniformSegments:
    """All components are held for a uniform number of steps in `shortest`…`longest`, each uniform in ±`largest`.

    `largest` is a fraction of the action's range. The last segment is cut off by the end of the episode.
    """

    kind: ClassVar[str] = "uniform_segments"
    episode_kinds: ClassVar[tuple[str, ...]] = ()
    shortest: int = 1
    longest: int = 8
    largest: float = 1.0

    def __post_init__(self) -> None:
        check(self, integer, "shortest", "longest", least=1)
        check(self, number, "largest", least=0, most=1)
        if self.shortest > self.longest:
            raise ValueError(f"segments need 1 ≤ shortest ≤ longest, got {self.shortest} and {self.longest}")

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> NDArray[np.float32]:
        """Open loop: the same law in every system and state; normalised actions (n, steps, A), float32."""
        n = len(values)
        count = -(-steps // self.shortest)
        lengths = rng.integers(self.shortest, self.longest, (n, count), endpoint=True)
        held = rng.uniform(-self.largest, self.largest, (n, count + 1, world.action_size))
        rows = np.arange(n)[:, None]
        # Segments that start after the end share a spare last column, which is dropped.
        begins = np.zeros((n, steps + 1), np.int64)
        begins[rows, np.minimum(np.cumsum(lengths, axis=1), steps)] = 1
        return held[rows, np.cumsum(begins[:, :steps], axis=1)].astype(np.float32)
