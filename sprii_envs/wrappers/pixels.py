"""Observation wrappers of pixel environments: the causal frame difference, and the state beside the pixels."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from sprii_envs.arguments import flag
from sprii_envs.core import SpriiEnv
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.wrappers.common import Array, VectorObservation

# --- the causal frame difference ---


def _pixels(space: spaces.Space[Any], wrapper: str, *, either: bool = False) -> spaces.Box:
    """The space of pixels, with `either` also as (2, H, W) floats; ValueError for any other."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        first = either and space.shape[0] == 2 and space.dtype == np.float32
        if first or space.shape[-1] == 2:
            return space
    raise ValueError(f'{wrapper} needs pixel observations (H, W, 2), obs_type="pixels", got {space}')


def _difference_space(space: spaces.Space[Any], channels_first: bool) -> spaces.Box:
    pixels = _pixels(space, "TemporalDifference")
    if pixels.dtype != np.uint8:
        raise ValueError(f"TemporalDifference needs uint8 pixels, got {pixels}")
    low = np.zeros(pixels.shape, np.float32)
    low[..., 1] = -1.0
    if channels_first:
        low = low.transpose(2, 0, 1)
    return spaces.Box(low, 1.0, low.shape, np.float32)


def temporal_difference(pixels: NDArray[np.uint8], channels_first: bool = False) -> NDArray[np.float32]:
    """(…, H, W, 2) of present and previous frame → present/255 and (present − previous)/255, float32.

    (…, 2, H, W) with `channels_first`.
    """
    *lead, height, width, _ = pixels.shape
    out = np.empty((*lead, 2, height, width) if channels_first else pixels.shape, np.float32)
    present, change = (out[..., 0, :, :], out[..., 1, :, :]) if channels_first else (out[..., 0], out[..., 1])
    present[...] = pixels[..., 0]
    np.subtract(pixels[..., 0], pixels[..., 1], out=change, dtype=np.float32)
    out /= np.float32(255.0)
    return out


class TemporalDifference(gym.ObservationWrapper[Array, Array, Array], RecordConstructorArgs):
    """The present frame and the causal frame difference, from pixel observations.

    uint8 (H, W, 2), present and previous frame, becomes float32 (H, W, 2): channel 0 present/255 in [0, 1], channel 1
    (present − previous)/255 in [−1, 1], exactly zero in the first observation of an episode. With `channels_first` it
    is (2, H, W), as PyTorch and the image policies of Stable-Baselines3 take floats. ValueError if the environment does
    not observe pixels.
    """

    def __init__(self, env: gym.Env[Any, Any], channels_first: bool = False) -> None:
        """`env` observes pixels."""
        RecordConstructorArgs.__init__(self, channels_first=channels_first)
        gym.ObservationWrapper.__init__(self, env)
        self.observation_space = _difference_space(env.observation_space, channels_first)
        self.channels_first = flag("channels_first", channels_first)

    def observation(self, observation: Array) -> Array:
        """One observation, transformed."""
        return temporal_difference(observation, self.channels_first)


class VectorTemporalDifference(VectorObservation):
    """`TemporalDifference` for vector environments: (N, H, W, 2), or (N, 2, H, W) with `channels_first`."""

    def __init__(self, env: VectorEnv[Any, Any, Any], channels_first: bool = False) -> None:
        """`env` observes pixels."""
        super().__init__(env, _difference_space(env.single_observation_space, channels_first))
        self.channels_first = flag("channels_first", channels_first)

    def observations(self, observations: Array) -> Array:
        """Observations of all slots, transformed."""
        return temporal_difference(observations, self.channels_first)

    def last(self, observations: Array, rows: NDArray[np.intp]) -> Array:
        """Last observations, transformed."""
        return temporal_difference(observations, self.channels_first)


# --- the state of a pixel environment ---


def _state_space(env: Any, pixels: spaces.Space[Any], both: bool) -> spaces.Space[Any]:
    if not isinstance(env.unwrapped, SpriiEnv | SpriiVectorEnv):
        raise ValueError(f"StateObservation needs an environment of sprii_envs (vectors: a native one), got {env}")
    _pixels(pixels, "StateObservation", either=True)
    low, high = env.unwrapped.world.observation_bounds
    state = spaces.Box(low, high, dtype=np.float32)
    return spaces.Dict({"pixels": pixels, "state": state}) if both else state


class StateObservation(gym.ObservationWrapper[Any, Array, Array], RecordConstructorArgs):
    """The state observation of an environment that observes pixels, instead of them or beside them.

    The observation is what `obs_type="state"` gives, float32 (O,); with `both=True` it is
    `{"pixels": (H, W, 2), "state": (O,)}`, the pixels as they were observed. ValueError if the
    environment does not observe pixels.
    """

    def __init__(self, env: gym.Env[Any, Any], both: bool = False) -> None:
        """`env` observes pixels, as they are or as their `TemporalDifference`."""
        RecordConstructorArgs.__init__(self, both=both)
        gym.ObservationWrapper.__init__(self, env)
        self.observation_space = _state_space(env, env.observation_space, both)
        self.both = flag("both", both)

    def observation(self, observation: Array) -> Any:
        """One observation, transformed."""
        inner: Any = self.unwrapped
        state = inner.world.observe(inner.state[None])[0]
        return {"pixels": observation, "state": state} if self.both else state


class VectorStateObservation(VectorObservation):
    """`StateObservation` for our native vector environments: (N, O), or a dict of batches."""

    def __init__(self, env: VectorEnv[Any, Any, Any], both: bool = False) -> None:
        """`env` observes pixels, as they are or as their `VectorTemporalDifference`."""
        super().__init__(env, _state_space(env, env.single_observation_space, both))
        self.both = flag("both", both)

    def observations(self, observations: Array) -> Any:
        """Observations of all slots, transformed."""
        return self._with(observations, self._inner.state)

    def last(self, observations: Array, rows: NDArray[np.intp]) -> Any:
        """Last observations, transformed."""
        return self._with(observations, self._inner.final_state[rows])

    @property
    def _inner(self) -> Any:
        return self.unwrapped

    def _with(self, observations: Array, states: Array) -> Any:
        state = self._inner.world.observe(states)
        return {"pixels": observations, "state": state} if self.both else state
