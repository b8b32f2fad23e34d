"""A partner: what it is, its weights, and the pure function that plays it."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sprii_envs.overcooked.game import AGENTS, Game
from sprii_envs.overcooked.partners.network import features, heads, recur
from sprii_envs.overcooked.partners.scripted import FAMILIES
from sprii_envs.properties import unknown_name

Act = Callable[[Any, Any, Any, jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]
"""(parameters, carry, state, observation (H, W, C), time, key) → action and carry."""

NEURAL = "ippo"
LEGAL = (NEURAL, *FAMILIES)


@dataclass(frozen=True, eq=False)
class Partner:
    """One fixed partner.

    Attributes:
        name: unique among those that are used together.
        family: `ippo`, or a scripted one of `scripted.FAMILIES`.
        options: keyword arguments of a scripted family.
        parameters: arrays of `network.shapes`; empty for scripted ones.
        source: the training run it comes from; −1 for scripted ones.
        checkpoint: environment steps of that run; 0 for scripted ones.
        held_out: whether no policy may be trained with it.
    """

    name: str
    family: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    source: int = -1
    checkpoint: int = 0
    held_out: bool = False

    def __post_init__(self) -> None:
        """ValueError for an unknown family."""
        if self.family not in LEGAL:
            raise unknown_name("family of partners", self.family, LEGAL)

    @property
    def kind(self) -> tuple[str, tuple[tuple[str, Any], ...]]:
        """What `actor` compiles for: partners of one kind differ in their parameters alone."""
        return self.family, tuple(sorted(self.options.items()))

    def initial(self) -> Any:
        """The carry when an episode begins."""
        if self.family == NEURAL:
            return jnp.zeros(self.parameters["gru.h"].shape[0])
        return jnp.int32(0)

    def fits(self, game: Game) -> None:
        """ValueError unless its network reads the observations of this kitchen."""
        if self.family == NEURAL:
            read, shown = self.parameters["embed.w"].shape[0], int(np.prod(game.shape))
            if read != shown:
                raise ValueError(
                    f"partner {self.name!r} reads observations of {read} numbers, layout {game.layout!r} with view "
                    f"{game.view} shows {shown}; legal: partners trained there, or scripted ones"
                )


@functools.cache
def actor(game: Game, seat: int, kind: tuple[str, tuple[tuple[str, Any], ...]]) -> Act:
    """The function that plays all partners of a kind in one seat; neural ones sample their policy."""
    family, options = kind
    if family == NEURAL:

        def act(parameters, carry, state, observation, time, key):
            carry = recur(parameters, carry, features(parameters, observation))
            return jax.random.categorical(key, heads(parameters, carry)[0]), carry

        return act
    scripted = functools.partial(FAMILIES[family], game, seat, **dict(options))
    return lambda parameters, carry, state, observation, time, key: scripted(carry, state, time, key)


def seat_of(agent: str) -> int:
    """0 or 1; ValueError for another name."""
    if agent not in AGENTS:
        raise unknown_name("agent", agent, AGENTS)
    return AGENTS.index(agent)
