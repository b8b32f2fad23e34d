"""Anything that acts, as one function of (observations, step)."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Actor = Callable[[Any, int], Any]


def actor(policy: Any, space: gym.Space[Any], seeds: Sequence[int], steps: int, *, batched: bool) -> Actor:
    """What `policy` does in the episodes of `seeds`, one of them or a batch.

    `policy` is None (uniform over `space`, of one environment, a pure function of the seeds), a model with `predict`
    as Stable-Baselines3 has it (deterministic), or a function of the observation. TypeError for anything else.
    """
    if policy is None:
        planned = [random_actions(space, seed, steps) for seed in seeds]
        if batched:
            actions = np.stack(planned)
            return lambda _, t: actions[:, t]
        return lambda _, t: planned[0][t]
    if callable(getattr(policy, "predict", None)):
        return _Predicting(policy, len(seeds))
    if callable(policy):
        return lambda observation, _: policy(observation)
    raise TypeError(
        f"policy must be None (random), a model with predict(observation), or a function of the observation, got "
        f"{type(policy).__name__}"
    )


class _Predicting:
    """A model, with the memory of recurrent ones."""

    def __init__(self, model: Any, n: int) -> None:
        self.model, self.state, self.n = model, None, n

    def __call__(self, observation: Any, t: int) -> Any:
        starts = np.full(self.n, t == 0)
        action, self.state = self.model.predict(observation, self.state, starts, deterministic=True)
        return action


def random_actions(space: gym.Space[Any], seed: int, steps: int) -> NDArray[Any]:
    """Actions (steps, *item) drawn uniformly from a space; the space's own generator is neither read nor touched."""
    if isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f" and space.is_bounded():
        # One call for all steps; the space's own sample() takes longer than a step of a fast environment.
        share = np.random.Generator(np.random.Philox(seed)).random((steps, *space.shape))
        return (space.low + share * (space.high.astype(np.float64) - space.low)).astype(space.dtype)
    own = copy.deepcopy(space)
    own.seed(seed)
    return np.stack([own.sample() for _ in range(steps)])
