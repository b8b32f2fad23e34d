"""A bank's episodes as pure functions of (protocol, chunk).

Each chunk has its own counter-based Philox streams, so chunks can be computed in any order, by any process,
any number of times. Initial states and actions are rounded to float32 *before* they are simulated in float64,
so the recorded start and actions reproduce the recorded states exactly.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.banks import populations
from sprii_envs.banks.populations import Drawn
from sprii_envs.banks.protocols import BankProtocol, Part
from sprii_envs.banks.storage import Column
from sprii_envs.properties import SystemSet, unknown_name
from sprii_envs.registration import world_of
from sprii_envs.world import World, rollout

COLUMNS = ("states", "actions", "rewards", "frames")
"""The columns of a bank beside its world's signals."""

SYSTEMS, STARTS, ACTIONS = range(3)  # streams; never renumber: the bytes of every bank depend on it


class Chunk(NamedTuple):
    """Systems first…last−1 of the bank, all of one split, and their episodes begin…end−1."""

    number: int
    split: str
    first: int
    last: int
    begin: int
    end: int


def generator(seed: int, stream: int, index: int, kind: int = 0, episode: int = 0) -> np.random.Generator:
    """The generator of one stream of one chunk (or split): a pure function of its numbers."""
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, episode, kind, index]))


def chunks(protocol: BankProtocol) -> list[Chunk]:
    """The units of work in episode order; none crosses a split."""
    found: list[Chunk] = []
    begin = episode = 0
    for split, count in protocol.counts.items():
        each = protocol.episodes_per_system(split)
        for first in range(begin, begin + count, protocol.systems_per_chunk):
            last = min(first + protocol.systems_per_chunk, begin + count)
            found.append(Chunk(len(found), split, first, last, episode, episode + (last - first) * each))
            episode = found[-1].end
        begin += count
    return found


def world(protocol: BankProtocol) -> World:
    """The environment's pure functions with the protocol's constants; ValueError if it is not ours or has no such."""
    try:
        kind = world_of(protocol.env_id)
    except gym.error.Error as error:
        raise ValueError(
            f"protocol {protocol.name!r}: unknown environment: {error} (a world of your own is known once the module "
            "that registers it is imported)"
        ) from error
    if kind is None:
        raise ValueError(f"protocol {protocol.name!r}: {protocol.env_id} is not one of our environments")
    legal = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    for name in protocol.constants:
        if name not in legal:
            raise unknown_name(f"constant of {kind.name} in protocol {protocol.name!r}:", name, legal)
    return kind(**protocol.constants)


def draw(protocol: BankProtocol) -> Drawn:
    """Every system of the bank, split by split, each split from its own stream."""
    properties = world(protocol).properties
    return populations.concatenate(
        [
            protocol.population(split).draw(properties, generator(protocol.seed, SYSTEMS, index))
            for index, split in enumerate(protocol.systems)
        ]
    )


def systems(protocol: BankProtocol, drawn: Drawn | None = None) -> SystemSet:
    """Every system of the bank, of `draw`. ValueError if two coincide, in one split or in two."""
    drawn = draw(protocol) if drawn is None else drawn
    properties = world(protocol).properties
    distinct, counts = np.unique(drawn.values, axis=0, return_counts=True)
    if len(distinct) < len(drawn.values):
        twice = properties.mapping(distinct[counts.argmax()])
        raise ValueError(f"protocol {protocol.name!r}: the system {twice} occurs {counts.max()} times in its splits")
    split = np.repeat(list(protocol.counts), list(protocol.counts.values()))
    levels = drawn.levels if (drawn.levels >= 0).any() else None
    return SystemSet(properties, drawn.values, split=split, levels=levels)


def columns(protocol: BankProtocol) -> tuple[Column, ...]:
    """The arrays the bank holds."""
    kind = world(protocol)
    n, t = protocol.episodes, protocol.steps
    found = [
        Column("states", "states.f32", "<f4", (n, t, len(kind.state_names)), "observation"),
        Column("actions", "actions.f32", "<f4", (n, t - 1, kind.action_size), "transition"),
        Column("rewards", "rewards.f32", "<f4", (n, t - 1), "transition"),
    ]
    for name, given in kind.signals.items():
        dtype = np.dtype(np.float32 if np.dtype(given).kind == "f" else given).newbyteorder("<")
        suffix = f"{dtype.kind}{8 * dtype.itemsize}"
        found.append(Column(name, f"{name}.{suffix}", dtype.str, (n, t - 1), "transition"))
    if protocol.frames is not None:
        shape = (n, t, *rendering.image_size(protocol.frames))
        found.append(Column("frames", "frames.u8", "|u1", shape, "observation"))
    return tuple(found)


OUTCOMES = ("", "ended")
"""How an episode can end whatever the world: not before its planned length, or without a reason given."""


def simulate(protocol: BankProtocol, values: NDArray[np.float64], chunk: Chunk) -> dict[str, NDArray[Any]]:
    """The columns of one chunk but its frames, and its `outcome`: name → array (episodes, entries, *item).

    `values` (systems, F) are the property values of the chunk's systems. An outcome is the length of an episode, the
    number of its states before the world ended it, and how it ended, as an index into (*OUTCOMES, *world.endings).
    Beyond that length an episode runs on as planned; beyond its planned length it is 0.
    """
    kind = world(protocol)
    n, each = len(values), protocol.episodes_per_system(chunk.split)
    out = {c.name: np.zeros((n, each, *c.shape[1:]), c.dtype) for c in columns(protocol) if c.name != "frames"}
    out["outcome"] = np.zeros((n, each, 2), np.int32)
    first = 0
    for part, starts, actions in _streams(protocol, chunk):
        rows = np.repeat(values, part.episodes, axis=0)
        query = part.kind if part.kind in kind.queries else None
        start = kind.initial(starts.random((len(rows), kind.start_draws)), rows, query)
        start = start.astype(np.float32).astype(np.float64, order="F")
        steps = part.length - 1
        policy = protocol.behaviour.policy(actions, kind, rows, start, steps, part.kind)
        done = rollout(kind, rows, start, policy, steps=steps)
        length = np.where(done.ended.any(axis=1), done.ended.argmax(axis=1) + 1, part.length)
        _check_finite(protocol, "state", done.states, length, chunk.first, part.episodes)
        place = slice(first, first + part.episodes)
        shape = (n, part.episodes)
        out["states"][:, place, : part.length] = done.states.reshape(*shape, part.length, -1)
        out["actions"][:, place, :steps] = done.actions.reshape(*shape, steps, -1)
        for name, recorded in {"rewards": done.rewards, **done.signals}.items():
            if recorded.dtype.kind == "f":
                _check_finite(protocol, name, recorded, length - 1, chunk.first, part.episodes)
            out[name][:, place, :steps] = recorded.reshape(*shape, steps)
        out["outcome"][:, place, 0] = length.reshape(shape)
        out["outcome"][:, place, 1] = _endings(kind, done.ended[:, -1], done.reasons).reshape(shape)
        first += part.episodes
    return {name: array.reshape(n * each, *array.shape[2:]) for name, array in out.items()}


def _check_finite(
    protocol: BankProtocol, name: str, recorded: NDArray[np.floating], counts: NDArray[Any], first: int, each: int
) -> None:
    """ValueError for what is not finite, (n, T, ...), among the first `counts` (n,) of an episode."""
    broken = ~np.isfinite(recorded).reshape(*recorded.shape[:2], -1).all(axis=2)
    broken &= np.arange(recorded.shape[1]) < counts[:, None]
    if broken.any():
        row, t = np.argwhere(broken)[0]
        raise ValueError(
            f"protocol {protocol.name!r}: the {name} of an episode of system {first + row // each} is not finite at "
            f"step {t}"
        )


def _streams(protocol: BankProtocol, chunk: Chunk) -> Iterator[tuple[Part, np.random.Generator, np.random.Generator]]:
    """Episodes that are simulated together, with the generators of their starts and their actions."""
    parts = protocol.parts(chunk.split)
    if not protocol.nested:
        generators = [generator(protocol.seed, stream, chunk.number) for stream in (STARTS, ACTIONS)]
        for part in parts:
            yield part, generators[0], generators[1]
        return
    kinds: tuple[str | None, ...] = protocol.behaviour.episode_kinds or (None,)
    for part in parts:
        for episode in range(part.episodes):
            numbers = (chunk.number, 1 + kinds.index(part.kind), episode)
            starts, actions = (generator(protocol.seed, stream, *numbers) for stream in (STARTS, ACTIONS))
            yield part._replace(episodes=1), starts, actions


def _endings(kind: World, ended: NDArray[np.bool_], reasons: NDArray[np.object_]) -> NDArray[np.int32]:
    """How episodes ended, (N,), as indices into (*OUTCOMES, *kind.endings)."""
    code = ended.astype(np.int32)
    known = dict(zip(kind.endings, range(len(OUTCOMES), len(OUTCOMES) + len(kind.endings)), strict=True))
    for row in np.flatnonzero(ended):
        if reasons[row] is not None:
            if reasons[row] not in known:
                raise ValueError(
                    f"{kind.name} ended an episode for {reasons[row]!r}, not one of its endings {kind.endings}"
                )
            code[row] = known[reasons[row]]
    return code
