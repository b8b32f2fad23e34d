"""JaxMARL's OvercookedV2 as pure functions of a frozen description, compiled once for each."""

import functools
import os
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sprii_envs.arguments import check, instance, integer
from sprii_envs.dependencies import needed
from sprii_envs.overcooked.extra import quiet
from sprii_envs.properties import unknown_name

with quiet(), needed("Overcooked needs JaxMARL", "'sprii[overcooked]'", "jaxmarl"):
    from jaxmarl.environments.overcooked_v2.common import OvercookedActionsEnum
    from jaxmarl.environments.overcooked_v2.layouts import overcooked_v2_layouts
    from jaxmarl.environments.overcooked_v2.overcooked import OvercookedV2, State

AGENTS = ("agent_0", "agent_1")
ACTIONS = tuple(a.name for a in sorted(OvercookedActionsEnum, key=int))
"""Names of the six actions in the order of their codes: right, down, left, up, stay, interact."""

_PROCESS = os.getpid()
"""Where XLA runs since the imports above: its threads are in no fork of this process."""

SEEDS = 2**32
"""How many seeds there are: JAX's keys read 32 bits of one."""

STEPS, VIEW = 100_000, 100
"""The longest episode and the widest view."""

Seats = Any
"""An array whose leading axis is the two seats."""


@dataclass(frozen=True)
class Game:
    """One kitchen.

    Attributes:
        layout: name of an OvercookedV2 layout of two agents.
        max_steps: steps of an episode, after which it is truncated; nothing else ends it.
        view: cells that an agent sees in each direction; None is the whole kitchen.
    """

    layout: str = "grounded_coord_simple"
    max_steps: int = 100
    view: int | None = 2

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "layout", of=str)
        check(self, integer, "max_steps", least=1, most=STEPS)
        check(self, integer, "view", least=1, most=VIEW, optional=True)
        if self.layout not in overcooked_v2_layouts:
            raise unknown_name("layout", self.layout, overcooked_v2_layouts)
        seats = len(overcooked_v2_layouts[self.layout].agent_positions)
        if seats != len(AGENTS):
            raise ValueError(f"layout {self.layout!r} has {seats} agents; legal: layouts of 2")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and layers of an agent's observation."""
        height, width, layers = engine(self).observation_space().shape
        return int(height), int(width), int(layers)


def check_process() -> None:
    """RuntimeError in a fork of the process that imported this: without its threads XLA would wait for ever."""
    if os.getpid() != _PROCESS:
        raise RuntimeError(
            'Overcooked runs on JAX, which a forked process cannot use: start it with context="spawn", such as '
            'gym.make_vec(..., vectorization_mode="async", vector_kwargs={"context": "spawn"})'
        )


@functools.cache
def engine(game: Game) -> OvercookedV2:
    """JaxMARL's environment."""
    check_process()
    with jax.ensure_compile_time_eval():  # its constants are arrays, also when a trace is the first to ask for it
        return OvercookedV2(layout=game.layout, max_steps=game.max_steps, agent_view_size=game.view)


def reset(game: Game, key: jax.Array) -> tuple[Seats, State]:
    """Begin an episode: observations (2, H, W, C) uint8 and the state."""
    seen, state = engine(game).reset(key)
    return _stack(seen), state


def step(game: Game, key: jax.Array, state: State, actions: jax.Array) -> tuple[Seats, State, jax.Array, jax.Array]:
    """One step without autoreset.

    Args:
        actions: (2,) codes of `ACTIONS`.

    Returns:
        Observations (2, H, W, C) uint8, the next state, the team's reward, and shaped rewards (2,) float32: +20 for a
        correct delivery, −5 for a press of the recipe's button.
    """
    chosen: dict[str, jax.Array] = dict(zip(AGENTS, actions, strict=True))
    seen, state, rewards, _, info = engine(game).step_env(key, state, chosen)
    shaped = jnp.stack([info["shaped_reward"][agent] for agent in AGENTS]).astype(jnp.float32)
    return _stack(seen), state, rewards[AGENTS[0]].astype(jnp.float32), shaped


def observe(game: Game, state: State) -> Seats:
    """What both seats see in a state, (2, H, W, C) uint8: the observations that `reset` and `step` return with it."""
    return _stack(engine(game).get_obs(state))


def _stack(seen: Any) -> jax.Array:
    return jnp.stack([seen[agent] for agent in AGENTS]).astype(jnp.uint8)
