"""Models of Stable-Baselines3 as agents, with the wrappers that their own environment has."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorRewardWrapper, VectorWrapper
from gymnasium.wrappers import NormalizeReward, OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers import vector as vector_wrappers
from numpy.typing import NDArray

from sprii_envs import wrappers as own_wrappers
from sprii_envs.arguments import flag, integer, shown
from sprii_envs.dependencies import needed
from sprii_envs.wrappers import RepeatSystem, VectorRepeatSystem
from sprii_train.evaluation.episodes import Episodes, wrappers_of
from sprii_train.plugins.sb3_envs import NativeVecEnv

with needed("evaluating its models needs Stable-Baselines3", "stable-baselines3", "stable_baselines3"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        SubprocVecEnv,
        VecCheckNan,
        VecEnv,
        VecEnvWrapper,
        VecFrameStack,
        VecMonitor,
        VecNormalize,
        VecTransposeImage,
    )

_SILENT = (
    Monitor,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RepeatSystem,
    TimeLimit,
    gym.RewardWrapper,
    NormalizeReward,
    VectorRepeatSystem,
    VectorRewardWrapper,
    vector_wrappers.NormalizeReward,
    vector_wrappers.RecordEpisodeStatistics,
)
"""Wrappers that change neither observations nor actions."""


class SB3Agent:
    """A model of Stable-Baselines3, or whatever has its `predict`.

    Without `wrap`, the wrappers of the model's own environment are built anew: `VecNormalize` with its statistics,
    frozen, `VecFrameStack` and `VecTransposeImage`; `VecMonitor` and `VecCheckNan` are left out.
    """

    def __init__(
        self,
        model: Any,
        *,
        wrap: Callable[[VecEnv], VecEnv] | None = None,
        deterministic: bool = True,
        seed: int = 0,
    ) -> None:
        """`wrap` makes of a vector of environments what the model observes; a `VecNormalize` in it is frozen.

        `seed` is of torch's noise where actions are sampled; torch's own state is put back afterwards.

        ValueError for what is no model, for a policy without `wrap`, a `wrap` that is no function, or another seed.
        """
        if not callable(getattr(model, "predict", None)):
            raise ValueError(f"model is {shown(model)}; legal: a model of Stable-Baselines3")
        if wrap is not None and not callable(wrap):
            raise ValueError(f"wrap is {shown(wrap)}; legal: a function of a VecEnv to a VecEnv")
        if wrap is None and isinstance(model, BasePolicy):
            raise ValueError(
                f"model is a {type(model).__name__}, which tells nothing of its wrappers; legal: the model that has "
                "it, or SB3Agent(policy, wrap=lambda venv: venv) where there were none"
            )
        self.model, self.wrap, self.deterministic = model, wrap, flag("deterministic", deterministic)
        self.seed = integer("seed", seed, most=2**63 - 1)

    def describe(self) -> str:
        """Algorithm, and whether it samples its actions."""
        return type(self.model).__name__ + ("" if self.deterministic else ", sampled")

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """ValueError unless the model has the spaces of the environment under its wrappers.

        A UserWarning where the model was loaded, and nothing says whether it had a `VecNormalize`.
        """
        inner = env
        while isinstance(inner, VectorWrapper) and not isinstance(inner, Episodes):
            inner = inner.env
        if not (isinstance(inner, Episodes) and inner.wraps) and (hidden := _hidden(getattr(self.model, "env", None))):
            raise ValueError(
                f"the model's own environment has the wrappers {', '.join(hidden)}, which cannot be taken over; give "
                f"their vector forms by evaluate_agent(..., wrap=...): {', '.join(map(_vector_form, hidden))}; or "
                "wrap=lambda env: env for none"
            )
        venv = self._wrapped(env)
        if self.wrap is None and _untold(self.model):
            warnings.warn(
                "the model was loaded, which does not tell whether it was trained under a VecNormalize; give it by "
                "SB3Agent(model, wrap=lambda venv: VecNormalize.load(path, venv)), or wrap=lambda venv: venv for none",
                stacklevel=3,
            )
        for name in ("observation_space", "action_space"):
            told, asked = getattr(self.model, name), getattr(venv, name)
            if isinstance(asked, gym.spaces.Box) and isinstance(told, gym.spaces.Box):
                # Image models keep the space after their own transposition.
                fits = told.shape == asked.shape or (
                    told.dtype == asked.dtype == np.uint8 and told.shape == (asked.shape[-1], *asked.shape[:-1])
                )
                if name == "action_space":  # the model's are scaled or clipped to its own bounds
                    fits = fits and bool((told.low == asked.low).all() and (told.high == asked.high).all())
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
        with self._noise():
            for _ in episodes.turns():
                actions, state = self.model.predict(
                    observations,
                    state=state,
                    episode_start=begins,
                    deterministic=self.deterministic,
                )
                if not np.isfinite(actions).all():
                    raise ValueError(f"the model's actions at step {episodes.time} are not finite: {actions!r}")
                observations, _, begins, _ = venv.step(actions)

    @contextmanager
    def _noise(self) -> Iterator[None]:
        """Torch's generators, seeded where actions are sampled, and put back."""
        if self.deterministic:
            yield
            return
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.seed)
            yield

    def _wrapped(self, env: VectorEnv[Any, Any, Any]) -> VecEnv:
        native = NativeVecEnv(env)
        try:
            venv = _rebuilt(getattr(self.model, "env", None), native) if self.wrap is None else self.wrap(native)
        except (AssertionError, TypeError) as error:
            raise ValueError(
                f"the model's wrappers do not take observations {shown(native.observation_space)}: {error}"
            ) from error
        if not isinstance(venv, VecEnv) or wrappers_of(native, venv) is None:
            raise ValueError(f"wrap of SB3Agent made {shown(venv)}; legal: VecEnvs around the one that it is given")
        for layer in _layers(venv):
            if isinstance(layer, VecNormalize):  # a loaded one goes on learning its statistics
                layer.training = layer.norm_reward = False
                if _unseen(layer) and getattr(self.model, "num_timesteps", 1):
                    raise ValueError(
                        "the model's VecNormalize has seen no observation, and the model was trained; legal: the one "
                        "of its training, as VecNormalize.load(path, venv)"
                    )
        return venv


def _unseen(layer: VecNormalize) -> bool:
    """Whether a `VecNormalize` would normalise observations by statistics of none."""
    if not layer.norm_obs:
        return False
    every = layer.obs_rms.values() if isinstance(layer.obs_rms, dict) else [layer.obs_rms]
    return any(each.count < 1 for each in every)


def _untold(model: Any) -> bool:
    """Whether a model has been trained, and not in the environment that it has, if any, as after `load`."""
    env = getattr(model, "env", None)
    if not getattr(model, "num_timesteps", 0) or any(isinstance(layer, VecNormalize) for layer in _layers(env)):
        return False
    return env is None or getattr(model, "_last_obs", None) is None


def _vector_form(name: str) -> str:
    """Where the vector form of a wrapper is."""
    for module in (own_wrappers, vector_wrappers):
        for form in (name, f"Vector{name}"):
            if isinstance(found := getattr(module, form, None), type) and issubclass(found, VectorWrapper):
                return f"{module.__name__}.{form}"
    if name.startswith("FrameStack"):
        return f"VecFrameStack for {name}, by SB3Agent(model, wrap=...)"
    return f"one of yours for {name}"


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
            if not isinstance(env, _SILENT):
                found.append(type(env).__name__)
            env = env.env
    elif isinstance(base, DummyVecEnv):
        env = base.envs[0]
        while isinstance(env, gym.Wrapper):
            if not isinstance(env, _SILENT):
                found.append(type(env).__name__)
            env = env.env
    elif isinstance(base, SubprocVecEnv):
        found = [kind.__name__ for kind in _known() if base.env_is_wrapped(kind, 0)[0]]
    return found


def _known() -> list[type[gym.Wrapper[Any, Any, Any, Any]]]:
    """Gymnasium's wrappers and this project's, which a worker process can be asked for: it tells of no others."""
    every = (each for module in (gym.wrappers, own_wrappers) for each in vars(module).values())
    kinds = (each for each in every if isinstance(each, type) and issubclass(each, gym.Wrapper))
    return [kind for kind in kinds if not issubclass(kind, _SILENT)]
