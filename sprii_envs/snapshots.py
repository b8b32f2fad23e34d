"""Saving and restoring an episode exactly, random stream and time limit included."""

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv, VectorWrapper


def save_generator(env: Any) -> dict[str, Any]:
    generator = env._np_random
    state = None if generator is None else generator.bit_generator.state
    return {"np_random": state, "np_random_seed": env._np_random_seed}


def load_generator(env: Any, saved: Mapping[str, Any]) -> None:
    state = saved.get("np_random")
    if state is None:
        return
    generator, _ = seeding.np_random(0)
    try:
        generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError) as e:
        raise ValueError(f"saved 'np_random' is not the state of a {generator.bit_generator}") from e
    env._np_random, env._np_random_seed = generator, saved.get("np_random_seed")


_WRAPPER_STATE = {
    "TimeLimit": ("_elapsed_steps",),
    "OrderEnforcing": ("_has_reset",),
    "ContextObservation": ("_context", "_history"),
    "VectorContextObservation": ("_context", "_history", "_over"),
    "RepeatSystem": ("_begun", "_system_id"),
    "VectorRepeatSystem": ("_begun", "_ids", "_over"),
}
"""What is saved of a wrapper: attributes that are replaced, never written into."""

_MADE = {
    "TimeLimit": "_max_episode_steps",
    "ContextObservation": "context_kind",
    "VectorContextObservation": "context_kind",
    "RepeatSystem": "episodes",
    "VectorRepeatSystem": "episodes",
}
"""By what argument of a wrapper a snapshot sees whether another is made alike."""

_STATELESS = {
    "PassiveEnvChecker",
    *("ClipAction", "RescaleAction", "DiscretizeAction", "TransformAction", "VectorizeTransformAction"),
    *("FlattenObservation", "FilterObservation", "RescaleObservation", "ReshapeObservation", "ResizeObservation"),
    *("DtypeObservation", "DiscretizeObservation", "GrayscaleObservation", "AddRenderObservation"),
    *("TransformObservation", "VectorizeTransformObservation"),
    *("ClipReward", "TransformReward", "VectorizeTransformReward", "DictInfoToList", "HumanRendering"),
    *("ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"),
    *("TemporalDifference", "VectorTemporalDifference", "StateObservation", "VectorStateObservation"),
}
"""Wrappers, Gymnasium's and ours, that keep nothing from one step to the next."""


def _chain(env: Any) -> list[Any]:
    """The environment and what it wraps, outermost first; ValueError if none of them is ours."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper | VectorWrapper):
        layers.append(layers[-1].env)
    if not all(hasattr(layers[-1], name) for name in ("get_state", "set_state", "running")):
        raise ValueError(f"only environments of sprii_envs can be saved and restored, got {env}")
    return layers


def _warn(layers: list[Any]) -> None:
    names = [type(layer).__name__ for layer in layers[:-1]]
    names = [name for name in names if name not in _WRAPPER_STATE and name not in _STATELESS]
    if names:
        warnings.warn(
            f"a snapshot does not hold what these wrappers remember: {', '.join(names)}; after set_state they go on "
            "from what they hold then",
            UserWarning,
            stacklevel=3,
        )


def _check_kept(here: Any, saved: Any, what: str) -> None:
    """ValueError unless what a wrapper is given to remember is of the kind that it remembers."""
    if here is None or saved is None:  # before or after the first reset
        return
    if type(saved) is not type(here):
        raise ValueError(f"{what} must be of type {type(here).__name__}, got {saved!r}")
    if isinstance(here, np.ndarray) and (saved.shape, saved.dtype) != (here.shape, here.dtype):
        raise ValueError(f"{what} must be {here.dtype} of shape {here.shape}, got {saved.dtype} of shape {saved.shape}")


def get_state(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """An episode through its wrappers: `unwrapped.get_state()` and the steps counted by `TimeLimit`.

    Other wrappers that remember things (frame stacks, running statistics) are not covered: a UserWarning names
    them.
    """
    layers = _chain(env)
    inner = layers[-1].get_state()
    _warn(layers)
    wrappers = [
        {name: getattr(layer, name) for name in _WRAPPER_STATE.get(type(layer).__name__, ())} for layer in layers
    ]
    return {"episode": inner, "wrappers": wrappers, "made": _made(layers)}


def _made(layers: list[Any]) -> list[Any]:
    return [getattr(layer, _MADE.get(type(layer).__name__, ""), None) for layer in layers]


def set_state(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any], saved: Mapping[str, Any]) -> None:
    """Put back what `get_state(env)` returned, into an environment made and wrapped alike.

    ValueError, and no change, for anything else. A UserWarning names the wrappers that are not put back.
    """
    layers = _chain(env)
    if not isinstance(saved, Mapping) or not {"episode", "wrappers"} <= set(saved):
        got = f"a mapping of {', '.join(map(repr, saved))}" if isinstance(saved, Mapping) else repr(saved)
        raise ValueError(f"saved must be what get_state(env) returned, with 'episode' and 'wrappers'; got {got}")
    wrappers = saved["wrappers"]
    if not isinstance(wrappers, list) or not all(isinstance(w, Mapping) for w in wrappers):
        raise ValueError(f"saved 'wrappers' must be a list of mappings, got {wrappers!r}")
    expected = [set(_WRAPPER_STATE.get(type(layer).__name__, ())) for layer in layers]
    if [set(w) for w in wrappers] != expected:
        raise ValueError(f"the saved episode has {len(wrappers)} layers that do not match those of {env}")
    here, there = _made(layers), saved.get("made", _made(layers))  # none in a snapshot of an older version
    if not isinstance(there, list) or len(there) != len(here):
        raise ValueError(f"saved 'made' must be a list of {len(here)}, got {there!r}")
    for layer, own, theirs in zip(layers, here, there, strict=True):
        if own != theirs:
            name = _MADE[type(layer).__name__].strip("_")
            raise ValueError(f"the saved episode is of a {type(layer).__name__} with {name} {theirs!r}, here {own!r}")
    for layer, values in zip(layers, wrappers, strict=True):
        for name, value in values.items():
            _check_kept(getattr(layer, name), value, f"saved {name!r} of {type(layer).__name__}")
    inner, fresh = layers[-1], not layers[-1].running
    inner.set_state(saved["episode"])
    if fresh:  # wrappers insist on a reset before the first step, and it must not be the one to find a fault
        env.reset(options={"system": "same"})  # of the saved system, which a `ContextObservation` may need to know
        inner.set_state(saved["episode"])
    for layer, values in zip(layers, wrappers, strict=True):
        for name, value in values.items():
            setattr(layer, name, value)
    _warn(layers)
