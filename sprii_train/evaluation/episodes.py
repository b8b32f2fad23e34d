"""The first episode of every slot as the native environment plays it, beneath all wrappers of an agent."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from sprii_envs.properties import System
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import Array
from sprii_train.evaluation.draws import Drawn


class Episodes(VectorWrapper[Any, Any, Any, Any, Any]):
    """Begins every slot in its system and start, and records until each has ended once.

    Whatever an agent's own wrappers do to rewards, ends or observations, what is recorded is the environment's.
    What a slot does after its first episode is not recorded.

    Attributes:
        wraps: whether the caller said what wraps it.
        rewards: (E, T) float64, zero after an episode's end.
        lengths: transitions of each episode, (E,).
        told: "is_success" of an episode's last step, (E,) float64, NaN where the environment says nothing.
        states, actions: (E, T + 1, S) and (E, T, A), if kept: after an end the last state again, and zeros.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        drawn: Drawn,
        steps: int,
        *,
        seed: int,
        keep: bool,
        report: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(env)
        self.native: SpriiVectorEnv = env.unwrapped  # type: ignore[assignment]
        properties, n = self.native.world.properties, len(drawn.values)
        systems = [System(properties.mapping(row), id=str(id)) for row, id in zip(drawn.values, drawn.ids, strict=True)]
        self._begin, self._seed, self._report = {"system": systems, "state": drawn.states}, seed, report
        self.keep, self.time = keep, 0
        self.wraps = False
        self.running = np.zeros(n, np.bool_)
        self.rewards = np.zeros((n, steps))
        self.lengths = np.zeros(n, np.int64)
        self.told = np.full(n, np.nan)
        self.states: Array = np.empty((n, steps + 1, drawn.states.shape[1]) if keep else (0, 0, 0))
        self.actions = np.zeros((n, steps, self.native.world.action_size) if keep else (0, 0, 0), np.float32)

    @property
    def over(self) -> bool:
        """Whether every episode has ended."""
        return self.time > 0 and not self.running.any()

    def turns(self) -> Iterator[int]:
        """A number a step until every episode has ended; ValueError if some go on after as many as the time limit."""
        for turn in range(limit := self.rewards.shape[1]):
            if self.over:
                return
            yield turn
        if not self.over:
            raise ValueError(
                f"after {limit} steps, the time limit, {int(self.running.sum()) if self.time else len(self.running)} "
                "episodes still run; legal: wrappers that step the environment whenever they are stepped, and reset it "
                "when they are reset"
            )

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the recorded episodes; a reset of some slots, as they end, is passed on."""
        mask = (options or {}).get("reset_mask")
        if mask is not None and (self.time or not np.all(mask)):  # Stable-Baselines3's first reset has a full mask
            return self.env.reset(seed=seed, options=options)
        found = self.env.reset(seed=self._seed, options=dict(self._begin))
        self.time, self.running[:], self.rewards[:], self.lengths[:], self.told[:] = 0, True, 0.0, 0, np.nan
        if self.keep:
            self.states[:, 0] = self.native.state
            self.actions[:] = 0.0
        return found

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step, recorded where the first episode still runs."""
        found = _, rewards, terminated, truncated, infos = self.env.step(actions)
        at, t = self.running, self.time
        if at.any():
            self.rewards[at, t], self.lengths[at] = rewards[at], t + 1
            if self.keep:
                self.states[at, t + 1] = self.native.state[at]
                self.actions[at, t] = np.asarray(actions, np.float32)[at]
            ended = at & (terminated | truncated)
            if self.keep and ended.any():
                self.states[ended, t + 2 :] = self.states[ended, t + 1, None]
            if ended.any() and "is_success" in infos:
                said = ended & np.asarray(infos.get("_is_success", ended))
                self.told[said] = np.asarray(infos["is_success"], np.float64)[said]
            self.running = at & ~ended
            self.time += 1
            if self._report is not None:
                self._report(self.time)
        return found


def wrappers_of(inner: Any, outer: Any) -> list[Any] | None:
    """What is around an environment, outermost first, in an outer one; None unless it is in there.

    Both of Gymnasium or Stable-Baselines3.
    """
    found: list[Any] = []
    while outer is not inner:
        if outer is None or any(outer is each for each in found):
            return None
        found.append(outer)
        below = getattr(outer, "venv", None)
        outer = getattr(outer, "env", None) if below is None else below
    return found


def success_told(episodes: Episodes) -> NDArray[np.bool_] | None:
    """The environment's own "is_success" of every episode; None unless it says so of all."""
    return None if np.isnan(episodes.told).any() else episodes.told.astype(np.bool_)
