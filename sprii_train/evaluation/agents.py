"""What can be evaluated, and how it acts: callables, agents with memory, Stable-Baselines3's models."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer, shown
from sprii_envs.checks import reals
from sprii_train.evaluation.episodes import Episodes

Observations = Any
"""(N, …) of N running episodes, as the (wrapped) vector environment shows them; a mapping where it shows one."""

Wrap = Callable[[VectorEnv[Any, Any, Any]], VectorEnv[Any, Any, Any]]
"""A native vector environment → the same with wrappers."""


class Agent(Protocol):
    """An agent that remembers. Two more methods are optional.

    `check(env)` is called with the wrapped vector environment before anything runs, and raises ValueError where the
    agent does not fit (to return False is refused too); `tell(values)`, only of agents that are to know the truth, with
    the systems (N, F), before `reset`.
    """

    def reset(self, episodes: int) -> None:
        """N new episodes begin: called once, with those of all groups together, in their order."""
        ...

    def act(self, observations: Observations) -> NDArray[Any]:
        """(N, …) → (N, A), in the bounds of the actions; an episode that has ended keeps its row until all have."""
        ...


class RandomAgent:
    """Uniform actions within the bounds: low and high, (A,) each, by default the environment's."""

    def __init__(self, *, seed: int = 0, bounds: tuple[ArrayLike, ArrayLike] | None = None) -> None:
        """ValueError for a seed that is none, or bounds that are not finite with low < high."""
        self.seed = integer("seed", seed, most=2**63 - 1)
        self._bounds = self._given = None if bounds is None else _box(bounds)

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Take this environment's bounds where none were given."""
        space = env.single_action_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"actions are {space}; legal: a Box")
        self._bounds = self._given or _box((space.low, space.high))

    def reset(self, episodes: int) -> None:
        """Begin the stream anew."""
        self._rng, self._episodes = np.random.default_rng(self.seed), integer("episodes", episodes, least=1)

    def act(self, observations: Observations) -> NDArray[np.float32]:
        """Whatever is observed."""
        if self._bounds is None:
            raise ValueError("bounds is None; legal without check(env): low and high")
        low, high = self._bounds
        return self._rng.uniform(low, high, (self._episodes, *low.shape)).astype(np.float32)


def _box(bounds: tuple[ArrayLike, ArrayLike]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    try:
        low, high = bounds
        one, two = reals(low, np.float32), reals(high, np.float32)
    except (TypeError, ValueError):
        one = two = np.zeros(0, np.float32)
    if (
        one.ndim != 1
        or one.shape != two.shape
        or not (len(one) and np.isfinite([one, two]).all() and (one < two).all())
    ):
        raise ValueError(f"bounds is {shown(bounds)}; legal: low and high, (A,) each, finite, low < high")
    return one, two


class Acting:
    """An agent over Gymnasium's vector environments."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def describe(self) -> str:
        """A name for tables."""
        described = getattr(self.agent, "describe", None)
        if callable(described):
            return str(described())
        agent = self.agent.func if isinstance(self.agent, functools.partial) else self.agent
        return (getattr(agent, "__name__", None) or type(agent).__name__).strip("<>")

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """What the agent's own `check` says; ValueError where it returns False."""
        if callable(check := getattr(self.agent, "check", None)) and check(env) is False:
            raise ValueError(f"{self.describe()} does not fit: its check(env) returned False")

    def play(self, env: VectorEnv[Any, Any, Any], episodes: Episodes, values: NDArray[np.float64]) -> None:
        """Until every episode has ended."""
        if callable(tell := getattr(self.agent, "tell", None)):
            tell(values.copy())
        act, shape = self.agent, env.action_space.shape
        if has_memory(self.agent):
            self.agent.reset(env.num_envs)
            act = self.agent.act
        observations, _ = env.reset()
        for _ in episodes.turns():
            observations, *_ = env.step(_checked(act(observations), shape, episodes.time))


def has_memory(agent: Any) -> bool:
    """Whether it has `reset` and `act`."""
    return callable(getattr(agent, "reset", None)) and callable(getattr(agent, "act", None))


def tells(agent: Any) -> bool:
    """Whether an agent is told the systems."""
    return callable(getattr(agent, "tell", None))


def player(agent: Any) -> Any:
    """What plays for an agent: `Acting`, or `sb3.SB3Agent`.

    Raises:
        ValueError: for what is none of the kinds, saying which there are.
    """
    if callable(getattr(agent, "play", None)):
        return agent
    if not isinstance(agent, type):
        if has_memory(agent):
            return Acting(agent)
        if callable(getattr(agent, "predict", None)) and hasattr(agent, "observation_space"):
            from sprii_train.evaluation.sb3 import SB3Agent

            return SB3Agent(agent)
        if callable(getattr(agent, "step", None)) and callable(getattr(agent, "context", None)):
            raise ValueError(
                f"{type(agent).__name__} predicts and does not act; legal: "
                "sprii_train.control.agent.PlanningAgent(model, controller, reward)"
            )
        if callable(agent):
            return Acting(agent)
    raise ValueError(
        f"agent is {shown(agent)}; legal: a function of observations (N, …) to actions (N, A), an object with "
        "reset(n) and act(observations), a model of Stable-Baselines3, or a PlanningAgent"
    )


def _checked(actions: Any, shape: tuple[int, ...] | None, time: int) -> NDArray[Any]:
    """Actions as the environment takes them; ValueError for another shape, or what is not finite."""
    try:
        found = reals(actions, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"the agent's actions at step {time} are {shown(actions)}; legal: an array {shape}") from None
    if found.shape != shape:
        raise ValueError(f"the agent's actions at step {time} have shape {found.shape}; legal: {shape}")
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0][0])
        raise ValueError(f"the agent's action at step {time} of episode {row} is {found[row].tolist()}; legal: finite")
    return found
