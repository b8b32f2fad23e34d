"""Pursuit, strike and drift of PokeWorld's finger: the behaviour of its banks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, integer, number
from sprii_envs.world import Array, Policy, World


@dataclass(frozen=True)
class PokeModes:
    """A finger that changes its mind (`app:poke-profile`).

    An episode is a sequence of modes of `shortest`…`longest` steps (uniform). A mode is, with probability
    `pursuit`, a pull of `approach` towards the object; with probability `strike`, a pull of `blow` towards the
    object, then, from half-way on, away from it; otherwise drift, the present part of an AR(1) process
    (`persistence`, `turbulence` a component) that runs through the episode. In every mode `damping` (s/m) times
    the finger's velocity is subtracted, so that it stays controlled, Gaussian `noise` is added to each
    component, and the sum is clipped to ±1.
    """

    kind: ClassVar[str] = "poke_modes"
    episode_kinds: ClassVar[tuple[str, ...]] = ()
    pursuit: float = 0.45
    strike: float = 0.35
    shortest: int = 4
    longest: int = 12
    approach: float = 0.35
    blow: float = 0.5
    damping: float = 0.8
    persistence: float = 0.82
    turbulence: float = 0.35
    noise: float = 0.06

    def __post_init__(self) -> None:
        """ValueError naming the first illegal field."""
        check(self, integer, "shortest", "longest", least=1)
        check(self, number, "pursuit", "strike", least=0, most=1)
        check(self, number, "persistence", least=0, below=1)
        check(self, number, "approach", "blow", "damping", "turbulence", "noise", least=0)
        if self.shortest > self.longest:
            raise ValueError(f"modes need 1 ≤ shortest ≤ longest, got {self.shortest} and {self.longest}")
        if self.pursuit + self.strike > 1.0:
            raise ValueError(f"pursuit and strike are probabilities, got {self.pursuit} and {self.strike}")

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> Policy:
        """Closed loop: directions and velocities come from the state, all the rest is drawn here."""
        pull, drive = self._plan(rng, len(values), steps)

        def act(t: int, states: Array) -> NDArray[np.float32]:
            gap = states[:, 4:6] - states[:, :2]
            distance = np.sqrt(gap[:, 0] * gap[:, 0] + gap[:, 1] * gap[:, 1])
            # Concentric discs have no direction between them.
            action = gap * (pull[:, t] / np.maximum(distance, 1e-12))[:, None]
            action -= self.damping * states[:, 2:4]
            action += drive[:, t]
            return np.clip(action, -1.0, 1.0).astype(np.float32)

        return act

    def _plan(self, rng: np.random.Generator, n: int, steps: int) -> tuple[Array, Array]:
        """Of every step: the pull towards the object (n, steps), and what is added to it (n, steps, 2)."""
        count = -(-steps // self.shortest)
        lengths = rng.integers(self.shortest, self.longest, (n, count), endpoint=True)
        choice = rng.random((n, count))
        ends = np.cumsum(lengths, axis=1)
        rows = np.arange(n)[:, None]
        # Modes that start after the end share a spare last column, which is dropped.
        begins = np.zeros((n, steps + 1), np.int64)
        begins[rows, np.minimum(ends, steps)] = 1
        mode = np.cumsum(begins[:, :steps], axis=1)
        length, choice = lengths[rows, mode], choice[rows, mode]
        age = np.arange(steps) - (ends[rows, mode] - length)
        pursuing = choice < self.pursuit
        striking = ~pursuing & (choice < self.pursuit + self.strike)
        blow = np.where(2 * age < length, self.blow, -self.blow)
        pull = np.where(pursuing, self.approach, np.where(striking, blow, 0.0))
        drift = rng.standard_normal((n, steps, 2))
        drift *= self.turbulence
        drift[:, :1] /= (1.0 - self.persistence**2) ** 0.5  # starts as it goes on
        for t in range(1, steps):
            drift[:, t] += self.persistence * drift[:, t - 1]
        drift[pursuing | striking] = 0.0
        drift += self.noise * rng.standard_normal((n, steps, 2))
        return pull, drift
