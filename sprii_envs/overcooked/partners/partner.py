"""A partner: what it is, its weights, and the pure function that plays it."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import WORD, check, flag, integer
from sprii_envs.overcooked.game import ACTIONS, AGENTS, Game
from sprii_envs.overcooked.partners.network import features, heads, recur, shapes
from sprii_envs.overcooked.partners.scripted import FAMILIES, OPTIONS, REFUSALS
from sprii_envs.properties import unknown_name

Act = Callable[[Any, Any, Any, jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]
"""(parameters, carry, state, observation (H, W, C), time, key) → action and carry."""

NEURAL, SAME = "ippo", "same"
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
        """ValueError naming the field and what is legal."""
        if not isinstance(self.name, str) or not self.name or self.name == SAME:
            raise ValueError(f"a partner's name is {self.name!r}; legal: text, but not {SAME!r}, which resets use")
        if self.family not in LEGAL:
            raise unknown_name("family of partners", self.family, LEGAL)
        known = {} if self.family == NEURAL else options_of(self.family)
        options = dict(self.options)
        for name, value in options.items():
            if name not in known:
                raise unknown_name(f"option of {self.family!r}", name, known)
            options[name] = OPTIONS[name](f"option {name!r} of partner {self.name!r}", value)
        object.__setattr__(self, "options", options)
        check(self, integer, "source", least=-1)
        check(self, integer, "checkpoint", most=WORD)
        check(self, flag, "held_out")
        if self.family == NEURAL:
            self._check_weights()

    def _check_weights(self) -> None:
        first = self.parameters.get("embed.w")
        if first is None or first.ndim != 2:
            raise ValueError(f"partner {self.name!r} has no matrix 'embed.w'; legal: the arrays of `network.shapes`")
        asked = shapes(first.shape[0], first.shape[1], len(ACTIONS))
        found = {name: array.shape for name, array in self.parameters.items()}
        if asked != found:
            differ = next(name for name in asked | found if asked.get(name) != found.get(name))
            raise ValueError(
                f"partner {self.name!r}: {differ!r} has shape {found.get(differ)}, expected {asked.get(differ)}"
            )
        for name, array in self.parameters.items():
            if not np.isfinite(array).all():
                raise ValueError(f"partner {self.name!r}: {name!r} holds numbers that are not finite")

    @functools.cached_property
    def reads(self) -> dict[str, Any]:
        """What its function reads as `parameters`: weights, or options as numbers.

        Partners of one family differ in these alone, so that a family is compiled once.
        """
        if self.family == NEURAL:
            return dict(self.parameters)
        return {name: _coded(value) for name, value in (options_of(self.family) | dict(self.options)).items()}

    def initial(self) -> Any:
        """The carry when an episode begins."""
        if self.family == NEURAL:
            return jnp.zeros(self.parameters["gru.h"].shape[0])
        return jnp.int32(0)

    def fits(self, game: Game) -> None:
        """ValueError unless it can play in this kitchen: its network reads the observations, its script finds all."""
        if self.family == NEURAL:
            read, shown = self.parameters["embed.w"].shape[0], int(np.prod(game.shape))
            if read != shown:
                raise ValueError(
                    f"partner {self.name!r} reads observations of {read} numbers, layout {game.layout!r} with view "
                    f"{game.view} shows {shown}; legal: partners trained there, or scripted ones"
                )
        elif self.family in REFUSALS:
            REFUSALS[self.family](game, **(options_of(self.family) | dict(self.options)))


@functools.cache
def actor(game: Game, seat: int, family: str) -> Act:
    """The function that plays all partners of a family in one seat; neural ones sample their policy."""
    if family == NEURAL:

        def act(parameters, carry, state, observation, time, key):
            carry = recur(parameters, carry, features(parameters, observation))
            return jax.random.categorical(key, heads(parameters, carry)[0]), carry

        return act
    scripted = functools.partial(FAMILIES[family], game, seat)
    return lambda parameters, carry, state, observation, time, key: scripted(carry, state, time, key, **parameters)


@functools.cache
def options_of(family: str) -> dict[str, Any]:
    """The options of a scripted family, with their defaults."""
    told = inspect.signature(FAMILIES[family]).parameters.values()
    return {each.name: each.default for each in told if each.kind is each.KEYWORD_ONLY}


def _coded(value: Any) -> np.int32:
    """None is −1, a choice of recipes the bits of their numbers."""
    if value is None:
        return np.int32(-1)
    return np.int32(sum(1 << int(i) for i in value) if isinstance(value, tuple) else value)


def seat_of(agent: str) -> int:
    """0 or 1; ValueError for another name."""
    if agent not in AGENTS:
        raise unknown_name("agent", agent, AGENTS)
    return AGENTS.index(agent)
