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

    `forced`: pairs of opposite pulses, each pulse followed by a pause; a pair has one direction, amplitude, length and
    pause. `mass`: a small push across the spring, reversed half-way through the history. `free`, `glide`, `static`: no
    force. `cold` and `moving`: nothing up to the anchor (steps 1 and 95), then one of three templates in turn: a pulse
    of 0.5, a pulse of 0.25, rest.

    Amplitudes are fractions of the force bound (1 N), lengths and pauses are steps.
    """

    kind: ClassVar[str] = "spring_episodes"
    episode_kinds: ClassVar[tuple[str, ...]] = ("forced", "mass", "free", "glide", "static", "cold", "moving")
    amplitudes: Sequence[float] = (0.5 / 3.0, 1.0 / 3.0, 0.5)
    lengths: Sequence[int] = (2, 4, 8)
    pauses: Sequence[int] = (8, 16, 24)
    push: float = 0.08
    history: int = 96
    templates: Sequence[float] = (0.5, 0.25, 0.0)
    template_length: int = 4
    cold_anchor: int = 1
    moving_anchor: int = 95

    def __post_init__(self) -> None:
        check(self, numbers, "amplitudes", "templates", least=0, most=1)
        check(self, number, "push", least=0, most=1)
        check(self, integers, "lengths", "pauses", least=1)
        check(self, integer, "history", "template_length", "cold_anchor", "moving_anchor", least=1)

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> Forces:
        """Every force (n, steps, 2) of n episodes of one kind; ValueError for an unknown kind."""
        n = len(start)
        if episode_kind == "forced":
            return self._pulses(rng, n, steps)
        if episode_kind == "mass":
            return self._pushes(rng, start, steps)
        if episode_kind == "cold":
            return self._templates(rng, n, steps, self.cold_anchor)
        if episode_kind == "moving":
            return self._templates(rng, n, steps, self.moving_anchor)
        if episode_kind in self.episode_kinds:
            return np.zeros((n, steps, 2), np.float32)
        raise ValueError(f"episode kind {episode_kind!r} is none of {', '.join(self.episode_kinds)}")

    def _pulses(self, rng: np.random.Generator, n: int, steps: int) -> Forces:
        pairs = -(-steps // (2 * (min(self.lengths) + min(self.pauses))))
        shape = (n, pairs)
        amplitude = rng.choice(self.amplitudes, shape)
        length, pause = rng.choice(self.lengths, shape), rng.choice(self.pauses, shape)
        angle = rng.uniform(0.0, 2.0 * np.pi, shape)
        period = 2 * (length + pause)
        begin = np.cumsum(period, axis=1) - period
        t = np.arange(steps)
        # The pair each step falls in: the last one that has begun.
        pair = (begin[:, :, None] <= t).sum(axis=1) - 1
        rows = np.arange(n)[:, None]
        phase, length, pause = t - begin[rows, pair], length[rows, pair], pause[rows, pair]
        back = phase - length - pause
        sign = (phase < length) * 1.0 - ((back >= 0) & (back < length))
        force, angle = sign * amplitude[rows, pair], angle[rows, pair]
        return np.stack((force * np.cos(angle), force * np.sin(angle)), axis=-1).astype(np.float32)

    def _pushes(self, rng: np.random.Generator, start: Array, steps: int) -> Forces:
        along = start[:, 2:4] - start[:, 0:2]
        along /= np.hypot(along[:, 0], along[:, 1])[:, None]
        side = self.push * rng.choice((-1.0, 1.0), len(start))
        across = np.stack((-along[:, 1], along[:, 0]), axis=1) * side[:, None]
        t, last = np.arange(steps), self.history - 1
        sign = np.where(t < last // 2, 1.0, -1.0) * (t < last)
        return (across[:, None, :] * sign[None, :, None]).astype(np.float32)

    def _templates(self, rng: np.random.Generator, n: int, steps: int, anchor: int) -> Forces:
        amplitude = np.array(self.templates)[np.arange(n) % len(self.templates)]
        angle = rng.uniform(0.0, 2.0 * np.pi, n)
        forces = np.zeros((n, steps, 2), np.float32)
        pulse = np.stack((amplitude * np.cos(angle), amplitude * np.sin(angle)), axis=1)
        forces[:, anchor : anchor + self.template_length] = pulse[:, None, :]
        return forces
