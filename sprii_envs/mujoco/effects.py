"""Which properties of a MuJoCo world change nothing: a field that the solver clips, or one that no contact uses."""

import numpy as np

from sprii_envs.fields import integer, number
from sprii_envs.mujoco.world import MujocoWorld
from sprii_envs.randomness import uniforms
from sprii_envs.world import rollout


def without_effect(
    world: MujocoWorld, *, change: float = 1.1, steps: int = 64, starts: int = 4, seed: int = 0
) -> tuple[str, ...]:
    """Names of the properties that change no position or velocity, to the last bit, in any of some episodes.

    Every property is taken alone from its nominal value to `change` times it (or by `change` − 1 if that is 0), under
    random actions of `steps` steps from `starts` random starts.
    """
    change = number("change", change, above=1.0, most=100.0)
    steps, starts = integer("steps", steps, least=1), integer("starts", starts, least=1)
    properties, of = world.properties, world.compiled
    nominal = properties.nominal
    values = np.repeat(nominal[None], len(properties) + 1, axis=0)
    for i, value in enumerate(nominal):
        values[1 + i, i] = value * change if value else change - 1.0
    rng, silent = np.random.default_rng(seed), set(properties.names)
    keys = rng.integers(2**64, size=starts, dtype=np.uint64)
    u = uniforms(keys, np.zeros(starts, np.uint64), world.start_draws)
    for start in world.initial(u, np.repeat(nominal[None], starts, axis=0), None):
        actions = rng.uniform(-1.0, 1.0, (steps, world.action_size)).astype(np.float32)
        states = rollout(world, values, start, actions).states[:, :, : of.physical]
        silent -= {name for i, name in enumerate(properties.names) if not np.array_equal(states[0], states[1 + i])}
    return tuple(name for name in properties.names if name in silent)
