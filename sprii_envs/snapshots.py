"""Saving and restoring an episode exactly, random stream and time limit included."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv


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


def _chain(env: Any) -> list[Any]:
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


_WRAPPER_STATE = {"TimeLimit": ("_elapsed_steps",), "OrderEnforcing": ("_has_reset",)}


def get_state(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """An episode through its wrappers: `unwrapped.get_state()` and the steps counted by `TimeLimit`.

    Other wrappers that remember things (frame stacks, running statistics) are not covered.
    """
    layers = _chain(env)
    wrappers = [
        {name: getattr(layer, name) for name in _WRAPPER_STATE.get(type(layer).__name__, ())} for layer in layers
    ]
    return {"episode": layers[-1].unwrapped.get_state(), "wrappers": wrappers}


def set_state(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any], saved: Mapping[str, Any]) -> None:
    """Put back what `get_state(env)` returned, into an environment wrapped alike."""
    layers = _chain(env)
    wrappers = saved["wrappers"]
    expected = [set(_WRAPPER_STATE.get(type(layer).__name__, ())) for layer in layers]
    if [set(w) for w in wrappers] != expected:
        raise ValueError(f"the saved episode has {len(wrappers)} layers that do not match those of {env}")
    inner, fresh = layers[-1].unwrapped, not layers[-1].unwrapped.running
    inner.set_state(saved["episode"])
    if fresh:  # wrappers insist on a reset before the first step, and it must not be the one to find a fault
        env.reset()
        inner.set_state(saved["episode"])
    for layer, values in zip(layers, wrappers, strict=True):
        for name, value in values.items():
            setattr(layer, name, value)
