"""The seven kinds of episode of SpringWorld's bank."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, integer, integers, number, numbers
from sprii_envs.world import Array, World

Forces = NDArray[np.float32]


@dataclass(frozen=True)
class SpringEpisodes:
    """Open-loop forces by kind of episode (`app:spring-profile`); each kind starts as the query of its name.

    `forced`: units of a pulse, at once the opposite pulse of the same length, and a pause, from step 0 to the end; a
    unit has one direction, amplitude, length and pause. `mass`: a small push across the spring, reversed half-way
    through the episode. `free`, `glide`, `static`: no force. `cold`: nothing before its anchor, then for
    `query_length` steps a force along the world's x, one of `templates` in turn. `moving`: nothing before its anchor,
    then for as long the force `moving_push`, `moving_turn` radians from the spring's direction at the start.

    Amplitudes are fractions of the force bound (1 N), lengths, pauses and anchors are steps.
    """

    kind: ClassVar[str] = "spring_episodes"
    episode_kinds: ClassVar[tuple[str, ...]] = ("forced", "mass", "free", "glide", "static", "cold", "moving")
    amplitudes: Sequence[float] = (0.5 / 3.0, 1.0 / 3.0, 0.5)
    lengths: Sequence[int] = (2, 4, 8)
    pauses: Sequence[int] = (8, 16, 24)
    push: float = 0.08
    templates: Sequence[float] = (0.5, 0.25, 0.0)
    query_length: int = 16
    cold_anchor: int = 1
    moving_anchor: int = 95
    moving_push: float = 0.5
    moving_turn: float = 0.8

    def __post_init__(self) -> None:
        check(self, numbers, "amplitudes", "templates", least=0, most=1, some=True)
        check(self, number, "push", "moving_push", least=0, most=1)
        check(self, number, "moving_turn")
        check(self, integers, "lengths", "pauses", least=1, some=True)
        check(self, integer, "query_length", "cold_anchor", "moving_anchor", least=1)

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> Forces:
        """Every force (n, steps, 2) of n episodes of one kind; ValueError for an unknown kind."""
        n = len(start)
        if episode_kind == "forced":
            return self._pulses(rng, n, steps)
        if episode_kind == "mass":
            sign = np.where(np.arange(steps) < steps // 2, self.push, -self.push)
            return (_along(start, 0.5 * np.pi)[:, None] * sign[:, None]).astype(np.float32)
        forces = np.zeros((n, steps, 2), np.float32)
        if episode_kind == "cold":
            templates = np.array(self.templates)[np.arange(n) % len(self.templates)]
            forces[:, self.cold_anchor : self.cold_anchor + self.query_length, 0] = templates[:, None]
        elif episode_kind == "moving":
            pushed = slice(self.moving_anchor, self.moving_anchor + self.query_length)
            forces[:, pushed] = self.moving_push * _along(start, self.moving_turn)[:, None]
        elif episode_kind not in self.episode_kinds:
            raise ValueError(f"episode kind {episode_kind!r} is none of {', '.join(self.episode_kinds)}")
        return forces

    def _pulses(self, rng: np.random.Generator, n: int, steps: int) -> Forces:
        units = -(-steps // (2 * min(self.lengths) + min(self.pauses)))
        shape = (n, units)
        amplitude = rng.choice(self.amplitudes, shape)
        length, pause = rng.choice(self.lengths, shape), rng.choice(self.pauses, shape)
        angle = rng.uniform(0.0, 2.0 * np.pi, shape)
        period = 2 * length + pause
        begin = np.cumsum(period, axis=1) - period
        t = np.arange(steps)
        # The unit each step falls in: the last one that has begun.
        unit = (begin[:, :, None] <= t).sum(axis=1) - 1
        rows = np.arange(n)[:, None]
        phase, length = t - begin[rows, unit], length[rows, unit]
        sign = (phase < length) * 1.0 - ((phase >= length) & (phase < 2 * length))
        force, angle = sign * amplitude[rows, unit], angle[rows, unit]
        return np.stack((force * np.cos(angle), force * np.sin(angle)), axis=-1).astype(np.float32)


def _along(start: Array, turn: float) -> Array:
    """Unit vectors (n, 2) `turn` radians from the direction of ball 1 to ball 2 in states (n, 8)."""
    along = start[:, 2:4] - start[:, 0:2]
    angle = np.arctan2(along[:, 1], along[:, 0]) + turn
    return np.stack((np.cos(angle), np.sin(angle)), axis=1)
