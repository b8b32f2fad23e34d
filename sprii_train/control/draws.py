"""Which systems episodes are of, and where they start: pure functions of a key, so that all methods meet the same."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.fields import flag, instance, integer
from sprii_envs.properties import content_ids, unknown_name
from sprii_envs.world import Array
from sprii_train.control.pendulum import WORLD

COLLECTION, EVALUATION, ASSAY = 0, 1, 2
"""Streams of the draws, the first number of a key."""


class Drawn(NamedTuple):
    """E episodes to come.

    Attributes:
        values: mass in kg and length in m, (E, 2) float64.
        ids: of the systems by content, (E,).
        states: (θ, θ̇) at the start, (E, 2) float64.
    """

    values: Array
    ids: NDArray[np.str_]
    states: Array

    def digest(self) -> str:
        """SHA-256 (hex) of systems and starts."""
        little = np.concatenate([self.values, self.states], axis=1).astype("<f8")
        return hashlib.sha256(little.tobytes()).hexdigest()


def draw(group: str, episodes: int, key: Sequence[int], *, cloned: bool = False) -> Drawn:
    """Independent systems of a group and independent starts.

    Args:
        group: a name of `sprii_envs.envs.pendulum.GROUPS`.
        key: non-negative integers; equal keys give equal draws.
        cloned: all episodes are of one system and begin in one state, as in the published code, which copies its
            environments with their random states.

    Raises:
        ValueError: for an unknown group, another number of episodes or another key.
    """
    episodes, cloned = integer("episodes", episodes, least=1), flag("cloned", cloned)
    key = [integer(f"key[{i}]", part) for i, part in enumerate(key)]
    if instance("group", group, of=str) not in GROUPS:
        raise unknown_name("group of systems", group, GROUPS)
    rng = np.random.default_rng(tuple(key))
    values = GROUPS[group].from_uniforms(rng.random((episodes, len(WORLD.properties))))
    states = WORLD.initial(rng.random((episodes, WORLD.start_draws)), values, None)
    if cloned:
        values, states = np.repeat(values[:1], episodes, axis=0), np.repeat(states[:1], episodes, axis=0)
    return Drawn(values, content_ids(WORLD.properties.names, values), np.ascontiguousarray(states))
