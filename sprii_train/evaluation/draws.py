"""Which systems episodes are of, and where they start: pure functions of a key, so that all agents meet the same."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import instance, integer
from sprii_envs.properties import SystemDistribution, SystemSet, content_ids, unknown_name
from sprii_envs.slots import Source
from sprii_envs.world import Array, World

COLLECTION, EVALUATION, ASSAY = 0, 1, 2
"""Streams of the draws, the first number of a key."""

EPISODES = 10
"""Of a group, unless a caller says otherwise."""
MOST = 100_000
"""Episodes of a group, at most."""


class Drawn(NamedTuple):
    """E episodes to come.

    Attributes:
        values: of the persistent properties, (E, F) float64.
        ids: of the systems, (E,).
        states: at the start, (E, S) float64.
    """

    values: Array
    ids: NDArray[np.str_]
    states: Array

    @classmethod
    def together(cls, parts: Iterable["Drawn"]) -> "Drawn":
        """The episodes of all, one after another."""
        values, ids, states = zip(*parts, strict=True)
        return cls(np.concatenate(values), np.concatenate(ids), np.concatenate(states))

    def take(self, rows: slice | NDArray[np.intp]) -> "Drawn":
        """Some of the episodes."""
        return Drawn(self.values[rows], self.ids[rows], self.states[rows])

    def digest(self) -> str:
        """SHA-256 (hex) of systems and starts."""
        little = np.concatenate([self.values, self.states], axis=1).astype("<f8")
        return hashlib.sha256(little.tobytes()).hexdigest()


def draw(world: World, source: Source, episodes: int, key: Sequence[int], *, each: int = 1) -> Drawn:
    """Independent systems and independent starts.

    Args:
        source: a distribution, from which a system is drawn for every `each` episodes in a row, or a set, each of
            whose systems has `each` of them, in order.
        episodes: E, a multiple of `each`.
        key: non-negative integers; equal keys give equal draws.
    """
    key = [integer(f"key[{i}]", part, most=2**64 - 1) for i, part in enumerate(key)]
    rng = np.random.default_rng(tuple(key))
    if isinstance(source, SystemSet):
        values, ids = source.values, source.ids
    else:
        values = source.from_uniforms(rng.random((episodes // each, len(world.properties))))
        ids = content_ids(world.properties.names, values)
    values, ids = np.repeat(values, each, axis=0), np.repeat(ids, each)
    states = world.initial(rng.random((episodes, world.start_draws)), values, None)
    return Drawn(values, ids, np.ascontiguousarray(states))


class Plan(NamedTuple):
    """What one group's episodes are drawn from, how many there are, and how many of them share a system."""

    source: Source
    episodes: int
    each: int
    key: tuple[int, ...]


def plans(world: World, groups: Any, episodes: int | None, systems: int | None, seed: int) -> dict[str, Plan]:
    """What to draw for each group, checked; arguments and errors as of `evaluate_agent`."""
    own: dict[str, SystemDistribution] = dict(world.groups) or {"all": SystemDistribution(world.properties)}
    if groups is None:
        groups = list(own)
    if not isinstance(groups, tuple | list | Mapping) or not groups:
        raise ValueError(
            f"groups is {groups!r}; legal: a list of {', '.join(own)}, or a mapping of names to systems, not empty"
        )
    for name in groups:
        instance("a group's name", name, of=str)
    wanted = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
    if len(wanted) < len(groups):
        raise ValueError(f"groups is {groups!r}; legal: each name once")
    episodes = None if episodes is None else integer("episodes", episodes, least=1, most=MOST)
    systems = None if systems is None else integer("systems", systems, least=1, most=MOST)
    return {name: _plan(world, own, name, asked, episodes, systems, seed) for name, asked in wanted.items()}


def _plan(
    world: World,
    own: Mapping[str, SystemDistribution],
    name: Any,
    asked: Any,
    episodes: int | None,
    systems: int | None,
    seed: int,
) -> Plan:
    if asked is None or not isinstance(asked, SystemSet | SystemDistribution):
        if name not in own:
            raise unknown_name(f"group of systems of {world.name}", name, own)
        if asked is not None:
            episodes = integer(f"groups[{name!r}]", asked, least=1, most=MOST)
        asked = own[name]
    if asked.properties.names != world.properties.names:
        raise ValueError(
            f"groups[{name!r}] has properties {asked.properties.names}; legal: {world.name}'s, {world.properties.names}"
        )
    if isinstance(asked, SystemSet):
        world.properties.validate(asked.values)
        if not len(asked):
            raise ValueError(f"groups[{name!r}] is a set of no systems; legal: at least one")
    units = len(asked) if isinstance(asked, SystemSet) else systems
    if episodes is None:
        episodes = EPISODES if units is None else -(-EPISODES // units) * units
    if units is not None and episodes % units:
        raise ValueError(
            f"episodes is {episodes}, and {name!r} is of {units} systems; legal: a multiple of {units}, so that each "
            "has as many"
        )
    # By name, so that a group's episodes are the same whichever others are asked for.
    number = list(own).index(name) if name in own else 2**32 + zlib.crc32(name.encode())
    return Plan(asked, episodes, 1 if units is None else episodes // units, (EVALUATION, seed, number))
