"""A bank's episodes as pure functions of (protocol, chunk).

Each chunk has its own counter-based Philox streams, so chunks can be computed in any order, by any process,
any number of times. Initial states and actions are rounded to float32 *before* they are simulated in float64,
so the recorded start and actions reproduce the recorded states exactly.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.storage import Column
from sprii_envs.physics import inertial
from sprii_envs.properties import PersistentProperties, PersistentProperty, SystemDistribution, SystemSet

SYSTEMS, STARTS, ACTIONS = range(
    3
)  # streams of the generator; never renumber, the bytes of every bank depend on it

PROPERTIES = PersistentProperties([PersistentProperty("drag", "γ", "1/s", 0.5, 4.0, 2.0)])


class Chunk(NamedTuple):
    """Systems first…last−1 of the bank, all of one split."""

    number: int
    first: int
    last: int


def generator(seed: int, stream: int, index: int) -> np.random.Generator:
    """The generator of one stream of one chunk (or split): a pure function of its three numbers."""
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, index]))


def chunks(protocol: BankProtocol) -> list[Chunk]:
    """The units of work in episode order; none crosses a split."""
    found: list[Chunk] = []
    begin = 0
    for count in protocol.systems.values():
        for first in range(begin, begin + count, protocol.systems_per_chunk):
            found.append(Chunk(len(found), first, min(first + protocol.systems_per_chunk, begin + count)))
        begin += count
    return found


def systems(protocol: BankProtocol) -> SystemSet:
    """Every system of the bank in order of split; each split has its own stream. ValueError if two
    coincide.
    """
    distribution = SystemDistribution(PROPERTIES)
    drawn = [
        distribution.sample(count, generator(protocol.seed, SYSTEMS, index)).values
        for index, count in enumerate(protocol.systems.values())
    ]
    names = np.repeat(list(protocol.systems), list(protocol.systems.values()))
    return SystemSet(PROPERTIES, np.concatenate(drawn), split=names)


def columns(protocol: BankProtocol) -> tuple[Column, ...]:
    """The arrays the bank holds."""
    n, t = protocol.episodes, protocol.steps
    return (
        Column("states", "states.f32", "<f4", (n, t, 4), "observation"),
        Column("actions", "actions.f32", "<f4", (n, t - 1, 2), "transition"),
        Column("rewards", "rewards.f32", "<f4", (n, t - 1), "transition"),
    )


def simulate(protocol: BankProtocol, values: NDArray[np.float64], chunk: Chunk) -> dict[str, NDArray]:
    """The columns of one chunk: name → array (episodes, entries, *item) in the column's dtype.

    `values` (systems, F) are the property values of the chunk's systems.
    """
    drag = np.repeat(values[:, 0], protocol.rollouts)
    n, transitions = len(drag), protocol.steps - 1
    rng = generator(protocol.seed, STARTS, chunk.number)
    speed, angle = rng.uniform(0, 2, n), rng.uniform(0, 2 * np.pi, n)
    start = np.empty((n, 4))
    start[:, :2] = rng.uniform(-1, 1, (n, 2))
    start[:, 2:] = np.stack((speed * np.cos(angle), speed * np.sin(angle)), axis=1)
    state = start.astype(np.float32).astype(np.float64)
    actions = protocol.behaviour.actions(generator(protocol.seed, ACTIONS, chunk.number), n, transitions)
    states = np.empty((n, protocol.steps, 4), "<f4")
    rewards = np.empty((n, transitions), "<f4")
    coefficients = inertial.coefficients(drag, np.ones(n), 0.05)
    states[:, 0] = state
    for t in range(transitions):
        force = actions[:, t].astype(np.float64) * 4.0
        cost = (state[:, :2] ** 2).sum(1) + 0.1 * (state[:, 2:] ** 2).sum(1) + 0.001 * (force**2).sum(1)
        rewards[:, t] = -cost
        state = inertial.step(state, force, coefficients)
        states[:, t + 1] = state
    return {"states": states, "actions": actions.astype("<f4", copy=False), "rewards": rewards}
