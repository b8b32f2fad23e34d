"""Offline experience of the pendulum, for models that do not collect their own: no planner and no equations acts."""

import math

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.slots import Source
from sprii_envs.world import Array, rollout
from sprii_train.control.experience import Experience
from sprii_train.control.pendulum import WORLD
from sprii_train.evaluation.draws import COLLECTION, draw

HELD = 10
"""Steps that a torque is held."""


def excited(source: Source, episodes: int, each: int, *, seed: int = 0, steps: int = 200) -> Experience:
    """Episodes that begin in any state, under torques held for 10 steps: half of them constant, half along the swing.

    Args:
        source, episodes, each: systems, see `evaluation.draws.draw`; `episodes` is that of all.
        seed: of systems, starts and torques.
        steps: of an episode.
    """
    seed, steps = integer("seed", seed), integer("steps", steps, least=1)
    drawn, rng = draw(WORLD, source, episodes, (COLLECTION, seed), each=each), np.random.default_rng(seed)
    n, limit = len(drawn.values), WORLD.speed_limit
    starts = np.stack([rng.uniform(-math.pi, math.pi, n), rng.uniform(-limit, limit, n)], axis=1)
    level, along = np.zeros(n), np.zeros(n, np.bool_)

    def torque(t: int, states: Array) -> NDArray[np.float32]:
        nonlocal level, along
        if t % HELD == 0:
            level, along = rng.uniform(-1.0, 1.0, n), rng.random(n) < 0.5
        return np.where(along, level * np.sign(states[:, 1]), level)[:, None].astype(np.float32)

    found = rollout(WORLD, drawn.values, starts, torque, steps=steps)
    observations = WORLD.observe(found.states.reshape(-1, 2)).reshape(n, steps + 1, -1)
    experience = Experience(observations.shape[-1], WORLD.action_size, tuple(WORLD.properties.names))
    experience.add(observations, found.actions, drawn.ids, drawn.values)
    return experience
