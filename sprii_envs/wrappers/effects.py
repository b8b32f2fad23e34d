"""Which persistent properties of an environment change nothing: an attribute that its steps do not read."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.collection.policies import random_actions
from sprii_envs.properties import PersistentProperties


def without_effect(env: gym.Env[Any, Any], *, steps: int = 64, starts: int = 4, seed: int = 0) -> tuple[str, ...]:
    """Names of the properties that change no observation, reward or ending, to the last bit, in any of some episodes.

    Every property is taken alone to both ends of its declared range, the others nominal, under random actions of
    `steps` steps from `starts` starts; `env` is a `PersistentEnv`, one of ours, or either in wrappers, and is reset. A
    property with an effect may still miss some of what it should change.
    """
    steps, starts = integer("steps", steps, least=1), integer("starts", starts, least=1)
    try:
        properties: PersistentProperties = env.get_wrapper_attr("persistent_properties")
    except AttributeError:
        raise ValueError(f"without_effect needs an environment with persistent properties, got {env}") from None
    silent = list(properties.names)
    for start in range(starts):
        actions = random_actions(env.action_space, seed + start, steps)
        for name in list(silent):
            p, nominal = properties[name], properties.mapping(properties.nominal)
            low, high = (_run(env, {**nominal, name: end}, actions, seed + start) for end in (p.low, p.high))
            if low != high:
                silent.remove(name)
    return tuple(silent)


def _run(env: gym.Env[Any, Any], system: Any, actions: NDArray[Any], seed: int) -> list[Any]:
    """All that an episode shows, as bytes."""
    observation, _ = env.reset(seed=seed, options={"system": system})
    shown = [_bytes(observation)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        shown += [_bytes(observation), _bytes(reward), bool(terminated), bool(truncated)]
        if terminated or truncated:
            break
    return shown


def _bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bytes(part) for name, part in value.items()}
    return [_bytes(part) for part in value] if isinstance(value, tuple) else np.asarray(value).tobytes()
