"""Six waveforms of equal energy for two joints: the behaviour of Swimmer."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, number
from sprii_envs.world import Array, World


@dataclass(frozen=True)
class SwimmerWaves:
    """Torques that follow one of six waveforms for a whole episode (`app:swimmer-profile`).

    With s a sine, r a triangle wave and φ the phase, (a₁, a₂) is proportional to

    - `single_slow`: s(φ) on one joint, drawn at random, at `slow` Hz, and 0 on the other;
    - `single_chirp`: the same, while the frequency rises in proportion to time from `slow` to `fast` Hz;
    - `in_phase`: (s(φ), s(φ)), `quadrature`: (s(φ), s(φ − 90°)), `anti_phase`: (s(φ), s(φ − 180°)), at `middle` Hz;
    - `triangle`: (r(φ), r(φ − 120°)) at `middle` Hz.

    Phase and sign are uniform, frequencies uniform within ±`spread` (a fraction) of the one named. Each episode is
    scaled so that the mean over its steps of a₁² + a₂² is `energy`; 0.25 keeps all within ±1, however long it is.
    """

    kind: ClassVar[str] = "swimmer_waves"
    episode_kinds: ClassVar[tuple[str, ...]] = (
        "single_slow",
        "single_chirp",
        "in_phase",
        "quadrature",
        "triangle",
        "anti_phase",
    )
    slow: float = 0.3
    middle: float = 0.6
    fast: float = 1.2
    spread: float = 0.2
    energy: float = 0.25

    def __post_init__(self) -> None:
        check(self, number, "slow", "middle", "fast", above=0)
        check(self, number, "spread", least=0, below=1)
        check(self, number, "energy", above=0, most=0.5)
        if not self.slow <= self.middle <= self.fast:
            raise ValueError(f"need 0 < slow ≤ middle ≤ fast in Hz, got {self.slow}, {self.middle} and {self.fast}")

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> NDArray[np.float32]:
        """Open loop: the same law in every system and state, with time in seconds of `world`.

        ValueError for an unknown kind, or if so much energy would take an action beyond ±1.
        """
        n = len(values)
        phase = rng.uniform(0.0, 2.0 * np.pi, (n, 1))
        sign = np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0)
        factor = rng.uniform(1.0 - self.spread, 1.0 + self.spread, (n, 1))
        joint = rng.integers(0, 2, n)
        time = world.dt * np.arange(steps)
        wave = np.zeros((n, steps, 2), np.float64)
        match episode_kind:
            case "single_slow" | "single_chirp":
                last = self.slow if episode_kind == "single_slow" else self.fast
                rise = (last - self.slow) / (world.dt * steps)
                cycles = self.slow * time + 0.5 * rise * time * time
                wave[np.arange(n), :, joint] = np.sin(phase + 2.0 * np.pi * factor * cycles)
            case "in_phase" | "quadrature" | "anti_phase" | "triangle":
                lag = {"in_phase": 0.0, "quadrature": 0.5, "anti_phase": 1.0, "triangle": 2.0 / 3.0}[
                    episode_kind
                ] * np.pi
                angle = phase + 2.0 * np.pi * factor * (self.middle * time)
                for column, each in enumerate((angle, angle - lag)):
                    wave[..., column] = np.sin(each) if episode_kind != "triangle" else np.arcsin(np.sin(each))
            case _:
                raise ValueError(f"unknown waveform {episode_kind!r}; known: {', '.join(self.episode_kinds)}")
        power = (wave * wave).sum(axis=-1).mean(axis=-1)
        wave *= (sign * np.sqrt(self.energy / power)[:, None])[..., None]
        peak = float(np.abs(wave).max(initial=0.0))
        if peak > 1.0:
            raise ValueError(
                f"energy = {self.energy} takes a {episode_kind} episode of {steps} steps to {peak:.3f}: "
                "actions end at 1, so lower the energy or lengthen the episode"
            )
        return wave.astype(np.float32)
