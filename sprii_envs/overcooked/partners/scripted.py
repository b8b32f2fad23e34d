"""Scripted partners: families that walk to an object and use it, by the kitchen's own shortest paths."""

import functools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
from jaxmarl.environments.overcooked_v2.common import DynamicObject, StaticObject
from jaxmarl.environments.overcooked_v2.overcooked import State
from numpy.typing import NDArray

from sprii_envs.overcooked.game import ACTIONS, Game, engine

_STEPS = {"right": (1, 0), "down": (0, 1), "left": (-1, 0), "up": (0, -1)}
STAY, INTERACT = ACTIONS.index("stay"), ACTIONS.index("interact")
BUTTON = int(StaticObject.BUTTON_RECIPE_INDICATOR)


@functools.cache
def towards(game: Game, target: int) -> NDArray[np.int32] | None:
    """First action on a shortest path to face the nearest `target`, (H, W), or None where the kitchen has none.

    Next to it the action turns to it, and changes nothing once the agent faces it. Cells from which none is reached
    say `stay`.
    """
    grid = np.asarray(engine(game).layout.static_objects)
    if not (grid == target).any():
        return None
    first = np.full(grid.shape, STAY, np.int32)
    queue: deque[tuple[int, int]] = deque()
    for y, x in zip(*np.nonzero(grid == target), strict=True):
        for name, (dx, dy) in _STEPS.items():
            at = (int(y) - dy, int(x) - dx)
            if _free(grid, at) and first[at] == STAY:
                first[at] = ACTIONS.index(name)
                queue.append(at)
    while queue:
        y, x = queue.popleft()
        for name, (dx, dy) in _STEPS.items():
            at = (y - dy, x - dx)
            if _free(grid, at) and first[at] == STAY:
                first[at] = ACTIONS.index(name)
                queue.append(at)
    return first


def facing(game: Game, state: State, seat: int, target: int) -> jax.Array:
    """Whether the agent looks at a `target`."""
    grid = jnp.asarray(engine(game).layout.static_objects)
    ahead = jax.tree.map(lambda leaf: leaf[seat], state.agents).get_fwd_pos()
    return grid[ahead.y, ahead.x] == target


def still(game: Game, seat: int, carry: jax.Array, state: State, time: jax.Array, key: jax.Array):
    """Stays where it is."""
    return jnp.array(STAY), carry


def walker(game: Game, seat: int, carry: jax.Array, state: State, time: jax.Array, key: jax.Array):
    """Walks at random and uses nothing."""
    return jax.random.randint(key, (), 0, INTERACT), carry


def signaller(
    game: Game,
    seat: int,
    carry: jax.Array,
    state: State,
    time: jax.Array,
    key: jax.Array,
    *,
    recipes: tuple[int, ...] | None = None,
    every: int = 0,
    waits: int = 0,
):
    """Presses the button that shows the recipe, and stands before it.

    Args:
        carry: presses so far.
        recipes: numbers of the layout's recipes that it signals; None is all.
        every: steps between presses; 0 presses once.
        waits: steps before the first.

    Raises:
        ValueError: for a kitchen without a button.
    """
    path = towards(game, BUTTON)
    if path is None:
        raise ValueError(f"layout {game.layout!r} has no recipe button, which a signaller needs")
    wanted = jnp.array(True)
    if recipes is not None:
        known = jax.vmap(DynamicObject.get_recipe_encoding)(jnp.asarray(engine(game).layout.possible_recipes))
        wanted = (known[jnp.array(recipes)] == state.recipe).any()
    due = jnp.where(time < waits, 0, 1 + ((time - waits) // every if every else 0))
    there = facing(game, state, seat, BUTTON)
    press = there & wanted & (carry < due)
    position = state.agents.pos
    move = jnp.asarray(path)[position.y[seat], position.x[seat]]
    return jnp.where(press, INTERACT, jnp.where(there, STAY, move)), carry + press


FAMILIES = {"still": still, "walker": walker, "signaller": signaller}
"""Name → (game, seat, carry, state, time, key) → action and carry, an int32 that is 0 when an episode begins."""


def _free(grid: NDArray[np.int32], at: tuple[int, int]) -> bool:
    y, x = at
    return 0 <= y < grid.shape[0] and 0 <= x < grid.shape[1] and grid[at] == StaticObject.EMPTY
