"""Behaviour policies: which actions a bank's episodes carry. One behaviour a file; `KINDS` lists them.

A behaviour is a frozen dataclass of JSON values whose `policy` acts for a batch of episodes at once. One of your own is
made known by `sprii_envs.banks.register`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.behaviours.force_segments import ForceSegments
from sprii_envs.banks.behaviours.poke_modes import PokeModes
from sprii_envs.banks.behaviours.spring_episodes import SpringEpisodes
from sprii_envs.banks.behaviours.swimmer_waves import SwimmerWaves
from sprii_envs.banks.behaviours.uniform_segments import UniformSegments
from sprii_envs.banks.kinds import Registry, Unregistered
from sprii_envs.world import Array, Policy, World


class Behaviour(Protocol):
    """What a protocol asks of a behaviour policy."""

    kind: ClassVar[str]
    """Its name in JSON."""
    episode_kinds: ClassVar[tuple[str, ...]]
    """The kinds of episode it tells apart; () if all episodes are alike."""

    def policy(
        self, rng: np.random.Generator, world: World, values: Array, start: Array, steps: int, episode_kind: str | None
    ) -> NDArray[np.float32] | Policy:
        """What n episodes of one kind do, from property values (n, F) and initial states (n, S).

        Either every action at once (open loop), (n, steps, A) float32 in [−1, 1], or a `Policy` (t, states (n, S))
        → actions (n, A) float32 that is pure: its random numbers are drawn from `rng` before it is returned.
        """
        ...


KINDS = Registry(
    "behaviour",
    (ForceSegments, PokeModes, SpringEpisodes, SwimmerWaves, UniformSegments),
    fact="episode_kinds",
    method="policy",
)


def to_dict(behaviour: Behaviour | Unregistered) -> dict[str, Any]:
    """`behaviour` as JSON values, with its `kind`."""
    if isinstance(behaviour, Unregistered):
        return dict(behaviour.recorded)
    return KINDS.record(behaviour, dataclasses.asdict(behaviour))  # pyright: ignore[reportArgumentType]


def from_dict(data: Mapping[str, Any], *, unknown: bool = False) -> Behaviour:
    """The behaviour that `to_dict` wrote; ValueError for another kind or other parameters.

    With `unknown`, a stand-in for a behaviour of a class that is not registered here.
    """
    if unknown:
        return KINDS.known(data, lambda: from_dict(data), to_dict)
    cls, parameters = KINDS.parse(data)
    return cls(**parameters)
