"""A bank's episodes as pure functions of (protocol, chunk).

Each chunk has its own counter-based Philox streams, so chunks can be computed in any order, by any process,
any number of times. Initial states and actions are rounded to float32 *before* they are simulated in float64,
so the recorded start and actions reproduce the recorded states exactly.
"""

import dataclasses
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.storage import Column
from sprii_envs.properties import SystemDistribution, SystemSet, unknown_name
from sprii_envs.world import World, rollout

SYSTEMS, STARTS, ACTIONS = range(3)  # streams; never renumber: the bytes of every bank depend on it


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


def world(protocol: BankProtocol) -> World:
    """The environment's pure functions with the protocol's constants; ValueError if it is not ours or has no such."""
    try:
        entry = gym.spec(protocol.env_id).entry_point
    except gym.error.Error as error:
        raise ValueError(f"protocol {protocol.name!r}: unknown environment: {error}") from error
    module, _, env = entry.partition(":") if isinstance(entry, str) else ("", "", "")
    kind = getattr(import_module(module), env.removesuffix("Env"), None) if module else None
    if not (isinstance(kind, type) and issubclass(kind, World)):
        raise ValueError(f"protocol {protocol.name!r}: {protocol.env_id} is not one of our environments")
    legal = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    for name in protocol.constants:
        if name not in legal:
            raise unknown_name(f"constant of {kind.name} in protocol {protocol.name!r}:", name, legal)
    return kind(**protocol.constants)


def systems(protocol: BankProtocol) -> SystemSet:
    """Every system of the bank, split by split, each from its own stream. ValueError if two coincide."""
    properties = world(protocol).properties
    drawn = [
        SystemDistribution(properties).sample(count, generator(protocol.seed, SYSTEMS, index)).values
        for index, count in enumerate(protocol.systems.values())
    ]
    names = np.repeat(list(protocol.systems), list(protocol.systems.values()))
    return SystemSet(properties, np.concatenate(drawn), split=names)


def columns(protocol: BankProtocol) -> tuple[Column, ...]:
    """The arrays the bank holds."""
    kind = world(protocol)
    n, t = protocol.episodes, protocol.steps
    return (
        Column("states", "states.f32", "<f4", (n, t, len(kind.state_names)), "observation"),
        Column("actions", "actions.f32", "<f4", (n, t - 1, kind.action_size), "transition"),
        Column("rewards", "rewards.f32", "<f4", (n, t - 1), "transition"),
    )


def simulate(protocol: BankProtocol, values: NDArray[np.float64], chunk: Chunk) -> dict[str, NDArray[Any]]:
    """The columns of one chunk: name → array (episodes, entries, *item).

    `values` (systems, F) are the property values of the chunk's systems.
    """
    kind = world(protocol)
    values = np.repeat(values, protocol.rollouts, axis=0)
    uniforms = generator(protocol.seed, STARTS, chunk.number).random((len(values), kind.start_draws))
    start = kind.initial(uniforms, values, None).astype(np.float32)
    actions = protocol.behaviour.actions(
        generator(protocol.seed, ACTIONS, chunk.number), len(values), protocol.steps - 1
    )
    done = rollout(kind, values, start, actions)
    if done.ended.any():
        raise ValueError(f"protocol {protocol.name!r}: an episode ended early, which this bank cannot hold")
    return {"states": done.states, "actions": actions, "rewards": done.rewards}
