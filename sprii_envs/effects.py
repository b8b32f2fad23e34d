"""Which properties of a world change nothing: a constant that is read nowhere, a field that MuJoCo clips."""

import numpy as np

from sprii_envs.arguments import integer, number
from sprii_envs.randomness import uniforms
from sprii_envs.world import World, rollout


def without_effect(
    world: World, *, change: float | None = 1.1, steps: int = 64, starts: int = 4, seed: int = 0
) -> tuple[str, ...]:
    """Names of the properties that change no physical component of a state and no signal, to the last bit.

    Every property is taken alone from its nominal value to `change` times it (or by `change` − 1 if that is 0), or with
    None to both ends of its range, under random actions of `steps` steps from `starts` random starts of every kind.
    """
    change = None if change is None else number("change", change, above=1.0, most=100.0)
    steps, starts = integer("steps", steps, least=1), integer("starts", starts, least=1)
    properties, nominal = world.properties, world.properties.nominal
    rows = [nominal]
    for i, (p, value) in enumerate(zip(properties, nominal, strict=True)):
        others = (p.low, p.high) if change is None else (value * change if value else change - 1.0,)
        for other in others:
            rows.append(nominal.copy())
            rows[-1][i] = other
    values, each = np.array(rows), (len(rows) - 1) // len(properties)
    rng, silent = np.random.default_rng(seed), set(properties.names)
    for query in (None, *world.queries):
        keys = rng.integers(2**64, size=starts, dtype=np.uint64)
        for u in uniforms(keys, np.zeros(starts, np.uint64), world.start_draws):
            begun = world.initial(np.repeat(u[None], len(values), axis=0), values, query)
            actions = rng.uniform(-1.0, 1.0, (steps, world.action_size)).astype(np.float32)
            done = rollout(world, values, begun[0], actions)
            seen = [begun, done.states[:, :, : world.physical], *done.signals.values()]
            for i, name in enumerate(properties.names):
                few = range(1 + i * each, 1 + (i + 1) * each)
                if not all(np.array_equal(array[0], array[row], equal_nan=True) for array in seen for row in few):
                    silent.discard(name)
    return tuple(name for name in properties.names if name in silent)
