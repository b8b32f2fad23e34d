"""Models of Stable-Baselines3 as agents, with the wrappers that their own environment has."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from numpy.typing import NDArray

from sprii_envs.arguments import flag, shown
from sprii_envs.dependencies import needed
from sprii_envs.wrappers import RepeatSystem
from sprii_train.evaluation.episodes import Episodes
from sprii_train.plugins.sb3_envs import NativeVecEnv

with needed("evaluating its models needs Stable-Baselines3", "stable-baselines3", "stable_baselines3"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        VecCheckNan,
        VecEnv,
        VecEnvWrapper,
        VecFrameStack,
        VecMonitor,
        VecNormalize,
        VecTransposeImage,
    )

_SILENT = (Monitor, OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, RepeatSystem, TimeLimit)
"""Wrappers of single environments that change no observation."""


class SB3Agent:
    """A model of Stable-Baselines3, or whatever has its `predict`.

    Without `wrap`, the wrappers of the model's own environment are built anew: `VecNormalize` with its statistics,
    frozen, `VecFrameStack` and `VecTransposeImage`; `VecMonitor` and `VecCheckNan` are left out.
    """

    def __init__(
        self, model: Any, *, wrap: Callable[[VecEnv], VecEnv] | None = None, deterministic: bool = True
    ) -> None:
        """`wrap` makes of a vector of environments what the model observes; a `VecNormalize` in it is frozen.

        ValueError for what is no model, or for a `wrap` that is no function.
        """
        if not callable(getattr(model, "predict", None)):
            raise ValueError(f"model is {shown(model)}; legal: a model of Stable-Baselines3")
        if wrap is not None and not callable(wrap):
            raise ValueError(f"wrap is {shown(wrap)}; legal: a function of a VecEnv to a VecEnv")
        self.model, self.wrap, self.deterministic = model, wrap, flag("deterministic", deterministic)

    def describe(self) -> str:
        """Algorithm, and whether it samples its actions."""
        return type(self.model).__name__ + ("" if self.deterministic else ", sampled")

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """ValueError unless the model has the spaces of the environment under its wrappers."""
        inner = env
        while isinstance(inner, VectorWrapper) and not isinstance(inner, Episodes):
            inner = inner.env
        if not (isinstance(inner, Episodes) and inner.wraps) and (hidden := _hidden(getattr(self.model, "env", None))):
            raise ValueError(
                f"the model's own environment has the wrappers {', '.join(hidden)}, which cannot be taken over; give "
                "their vector forms, as evaluate_agent(..., wrap=lambda env: VectorContextObservation(env)), or "
                "wrap=lambda env: env for none"
            )
        venv = self._wrapped(env)
        for name in ("observation_space", "action_space"):
            told, asked = getattr(self.model, name), getattr(venv, name)
            if isinstance(asked, gym.spaces.Box) and isinstance(told, gym.spaces.Box):
                # Image models keep the space after their own transposition.
                fits = told.shape == asked.shape or (
                    told.dtype == asked.dtype == np.uint8 and told.shape == (asked.shape[-1], *asked.shape[:-1])
                )
            else:
                fits = told == asked
            if not fits:
                raise ValueError(
                    f"the model's {name} is {shown(told)}, the environment's {shown(asked)}; give the wrappers that it "
                    "was trained under: wrap= of evaluate_agent takes Gymnasium's vector wrappers, wrap= of SB3Agent "
                    "Stable-Baselines3's"
                )

    def play(self, env: VectorEnv[Any, Any, Any], episodes: Episodes, values: NDArray[np.float64]) -> None:
        """Until every episode has ended."""
        venv = self._wrapped(env)
        observations, state, begins = venv.reset(), None, np.ones(venv.num_envs, np.bool_)
        while not episodes.over:
            actions, state = self.model.predict(
                observations,
                state=state,
                episode_start=begins,
                deterministic=self.deterministic,
            )
            if not np.isfinite(actions).all():
                raise ValueError(f"the model's actions at step {episodes.time} are not finite: {actions!r}")
            observations, _, begins, _ = venv.step(actions)

    def _wrapped(self, env: VectorEnv[Any, Any, Any]) -> VecEnv:
        native = NativeVecEnv(env)
        venv = _rebuilt(getattr(self.model, "env", None), native) if self.wrap is None else self.wrap(native)
        for layer in _layers(venv):
            if isinstance(layer, VecNormalize):  # a loaded one goes on learning its statistics
                layer.training = layer.norm_reward = False
        return venv


def _layers(env: Any) -> Iterator[VecEnvWrapper]:
    """The wrappers of a vector, outermost first."""
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def _rebuilt(own: Any, venv: VecEnv) -> VecEnv:
    """`venv` under wrappers like those of a model's own environment."""
    for layer in reversed(list(_layers(own))):
        if isinstance(layer, VecMonitor | VecCheckNan):
            continue
        if isinstance(layer, VecNormalize):
            fresh = copy.deepcopy(layer)  # without its environment
            fresh.set_venv(venv)
            venv = fresh
        elif isinstance(layer, VecTransposeImage):
            venv = VecTransposeImage(venv, skip=layer.skip)
        elif isinstance(layer, VecFrameStack) and isinstance(layer.observation_space, gym.spaces.Box):
            stacked = layer.stacked_obs
            venv = VecFrameStack(venv, stacked.n_stack, "first" if stacked.channels_first else "last")
        else:
            raise ValueError(
                f"the model's own environment has the wrapper {type(layer).__name__}, which cannot be built anew; give "
                "SB3Agent(model, wrap=lambda venv: ...)"
            )
    return venv


def _hidden(own: Any) -> list[str]:
    """Names of the wrappers below Stable-Baselines3's own, which may change what a model observes."""
    base = own.unwrapped if isinstance(own, VecEnv) else None
    found = []
    if isinstance(base, NativeVecEnv):
        env = base.env
        while isinstance(env, VectorWrapper):
            found.append(type(env).__name__)
            env = env.env
    elif isinstance(base, DummyVecEnv):
        env = base.envs[0]
        while isinstance(env, gym.Wrapper):
            if not isinstance(env, _SILENT):
                found.append(type(env).__name__)
            env = env.env
    return found
