"""Metres that one gait swims in an episode of 40 s, under several systems, in water and in the fluid of the bank.

    python examples/swimmer_gait.py

The gait is a wave down the body, steered by where the body heads: it knows neither masses nor dampings.
"""

import math

import numpy as np
from numpy.typing import NDArray

from sprii_envs.mujoco.swimmer import FLUIDS, Swimmer, centre
from sprii_envs.world import rollout


def gait(t: int, states: NDArray[np.float64]) -> NDArray[np.float32]:
    """Actions (N, 2) of step t, of 0.04 s, in states (N, 10): 0.8 Hz, the second joint 1.2 rad behind the first."""
    phase = 2.0 * math.pi * 0.8 * 0.04 * t - np.array([0.0, 1.2])
    heading = states[:, 2] + (2.0 * states[:, 3] + states[:, 4]) / 3.0  # the mean of the three links'
    return (np.sin(phase) + 0.3 * heading[:, None]).astype(np.float32)


def metres(fluid: str, values: NDArray[np.float64], steps: int = 1000) -> tuple[NDArray[np.float64], ...]:
    """Progress along +x, (N,) each, of the centre of mass and of the root, of systems (N, 5)."""
    states = rollout(Swimmer(fluid=fluid), values, np.zeros(10), gait, steps=steps).states
    first, last = states[:, 0], states[:, -1]
    return (centre(last, values) - centre(first, values))[:, 0], last[:, 0] - first[:, 0]


def main(steps: int = 1000, drawn: int = 256) -> None:
    """Print a table."""
    p = Swimmer.properties
    named = {"nominal": p.nominal}
    for name in p.names:
        for value in p[name].low, p[name].high:
            named[f"{name} {value:g}"] = np.where(np.array(p.names) == name, value, p.nominal)
    some = p.low + (p.high - p.low) * np.random.default_rng(0).random((drawn, len(p)))
    found = {fluid: metres(fluid, np.concatenate([*([v] for v in named.values()), some]), steps) for fluid in FLUIDS}
    print("m along +x".ljust(18), *(f"{fluid + ': centre':>16} {'root':>8}" for fluid in FLUIDS))
    for row, name in enumerate(named):
        print(name.ljust(18), *(f"{mass[row]:16.3f} {root[row]:8.3f}" for mass, root in found.values()))
    for word, of in ("mean of", np.mean), ("least of", np.min), ("most of", np.max):
        numbers = (f"{of(mass[len(named) :]):16.3f} {of(root[len(named) :]):8.3f}" for mass, root in found.values())
        print(f"{word} {drawn}".ljust(18), *numbers)


if __name__ == "__main__":
    main()
