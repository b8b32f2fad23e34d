"""Which persistent properties of an environment change nothing: an attribute that its steps do not read."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
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
    `steps` steps from `starts` starts; `env` is a `PersistentEnv`, one of ours, or either in wrappers. A property with
    an effect may still miss some of what it should change.

    `env` is reset many times and not put back: the running episode is abandoned, and another system and seed are set.
    The seeds of `random` and `np.random` are fixed meanwhile, and put back.

    ValueError for an environment whose episodes differ under one system, one seed and the same actions.
    """
    steps, starts = integer("steps", steps, least=1), integer("starts", starts, least=1)
    try:
        properties: PersistentProperties = env.get_wrapper_attr("persistent_properties")
    except AttributeError:
        raise ValueError(f"without_effect needs an environment with persistent properties, got {env}") from None
    silent = list(properties.names)
    for start in range(starts):
        actions = random_actions(env.action_space, seed + start, steps)
        nominal = properties.mapping(properties.nominal)
        usual = _run(env, nominal, actions, seed + start)
        if usual != _run(env, nominal, actions, seed + start):
            raise ValueError(
                f"two episodes of {env} differ under one system, seed and actions, so that no effect of a property can "
                "be told: draw all that is random from its np_random, and set all that persists in reset"
            )
        for name in list(silent):
            p = properties[name]
            ends = [_run(env, {**nominal, name: end}, actions, seed + start) for end in (p.low, p.high)]
            if ends != [usual, usual]:  # of an even law both ends do the same
                silent.remove(name)
    return tuple(silent)


def _run(env: gym.Env[Any, Any], system: Any, actions: NDArray[Any], seed: int) -> list[Any]:
    """All that an episode shows, as bytes."""
    with _seeded(seed):
        return _shown(env, system, actions, seed)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generators at a seed, which some environments draw from; put back at the end."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _shown(env: gym.Env[Any, Any], system: Any, actions: NDArray[Any], seed: int) -> list[Any]:
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
