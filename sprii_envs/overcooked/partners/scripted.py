"""Scripted partners: families that walk to an object and use it, by the kitchen's own shortest paths."""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxmarl.environments.overcooked_v2.common import MAX_INGREDIENTS, DynamicObject, StaticObject
from jaxmarl.environments.overcooked_v2.overcooked import State
from numpy.typing import NDArray

from sprii_envs.arguments import flag, integer, integers
from sprii_envs.overcooked.game import ACTIONS, Game, engine

_STEPS = {"right": (1, 0), "down": (0, 1), "left": (-1, 0), "up": (0, -1)}
STAY, INTERACT = ACTIONS.index("stay"), ACTIONS.index("interact")
BUTTON, POT = int(StaticObject.BUTTON_RECIPE_INDICATOR), int(StaticObject.POT)


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


def facing(game: Game, state: State, seat: int, target: int | jax.Array) -> jax.Array:
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
    recipes: Any = None,
    every: Any = 0,
    waits: Any = 0,
):
    """Presses the button that shows the recipe, and stands before it.

    Args:
        carry: presses so far.
        recipes: numbers of the layout's recipes that it signals; None is all.
        every: steps between presses; 0 presses once.
        waits: steps before the first.
    """
    known = jax.vmap(DynamicObject.get_recipe_encoding)(jnp.asarray(engine(game).layout.possible_recipes))
    wanted = ((known == state.recipe) & ((recipes >> jnp.arange(len(known))) & 1 == 1)).any()
    again = jnp.where(every > 0, (time - waits) // jnp.maximum(every, 1), 0)
    due = jnp.where(time < waits, 0, 1 + again)
    there = facing(game, state, seat, BUTTON)
    press = there & wanted & (carry < due)
    position = state.agents.pos
    move = _path(game, BUTTON)[position.y[seat], position.x[seat]]
    return jnp.where(press, INTERACT, jnp.where(there, STAY, move)), carry + press


def cook(
    game: Game,
    seat: int,
    carry: jax.Array,
    state: State,
    time: jax.Array,
    key: jax.Array,
    *,
    untold: Any = None,
    heeds: Any = True,
    forgets: Any = False,
):
    """Fills the pot, plates and delivers, one dish after another; what is in its hands goes on, whatever it is told.

    Args:
        carry: 1 + the number of the recipe that it was told last, 0 for none.
        untold: number of the layout's recipe that it cooks until it is told one; None waits before the pot.
        heeds: whether it reads the lit button, while that is in its view.
        forgets: whether each delivery ends what it was told.
    """
    layout = engine(game).layout
    recipes, kinds = np.asarray(layout.possible_recipes), int(layout.num_ingredients)
    asked = jnp.argmax(jax.vmap(DynamicObject.get_recipe_encoding)(jnp.asarray(recipes)) == state.recipe)
    carry = jnp.where((heeds > 0) & _shown(game, state, seat), 1 + asked, carry).astype(jnp.int32)
    wanted = jnp.where(carry > 0, carry - 1, untold)

    (row, column), *_ = np.argwhere(np.asarray(layout.static_objects) == POT)
    _, inside, timer = state.grid[row, column]
    needs = jnp.asarray((recipes[..., None] == np.arange(kinds)).sum(1))[jnp.maximum(wanted, 0)]
    lacking = (inside >> (2 + 2 * jnp.arange(kinds))) % 4 < needs
    full = DynamicObject.ingredient_count(inside & ~DynamicObject.COOKED) >= MAX_INGREDIENTS
    cooked = (inside & DynamicObject.COOKED) != 0

    held = state.agents.inventory[seat]
    dish, plate, empty = (held & DynamicObject.COOKED) != 0, held == DynamicObject.PLATE, held == DynamicObject.EMPTY
    targets = [int(StaticObject.GOAL), POT, int(StaticObject.PLATE_PILE)]
    targets += [int(StaticObject.ingredient_pile(i)) for i in range(kinds)]
    # In order of what it does first: deliver, plate or fill, take a plate, take what the recipe lacks, wait.
    pile = len(targets) - kinds + jnp.argmax(lacking)
    choice = jnp.select([dish, ~empty, full, wanted >= 0], [0, 1, 2, pile], 1)
    useful = jnp.select([dish, plate, ~empty, full], [True, cooked, ~full & (timer == 0), True], wanted >= 0)
    there = facing(game, state, seat, jnp.asarray(targets)[choice])
    position = state.agents.pos
    path = jnp.stack([_path(game, target) for target in targets])[choice]
    move = jnp.where(there, STAY, path[position.y[seat], position.x[seat]])
    carry = jnp.where((forgets > 0) & there & dish, 0, carry)
    return jnp.where(there & useful, INTERACT, move), carry


def _no_button(game: Game, *, recipes: tuple[int, ...] | None, **options: Any) -> None:
    if towards(game, BUTTON) is None:
        raise ValueError(f"layout {game.layout!r} has no recipe button, which a signaller needs")
    count = len(engine(game).layout.possible_recipes or [])
    if recipes is not None and max(recipes) >= count:
        raise ValueError(f"recipes are {recipes}; legal: None, or recipes of {game.layout!r}, 0 to {count - 1}")


def _no_kitchen(game: Game, *, untold: int | None, **options: Any) -> None:
    layout = engine(game).layout
    pots, recipes = int((np.asarray(layout.static_objects) == POT).sum()), len(layout.possible_recipes or [])
    if pots != 1:
        raise ValueError(f"layout {game.layout!r} has {pots} pots; legal for a cook: one")
    if untold is not None and not 0 <= untold < recipes:
        raise ValueError(f"untold is {untold}; legal: None, or a recipe of {game.layout!r}, 0 to {recipes - 1}")


FAMILIES = {"still": still, "walker": walker, "signaller": signaller, "cook": cook}
"""Name → (game, seat, carry, state, time, key, **options) → action and carry, an int32 that begins an episode as 0.

Options come as the numbers that `Partner.reads` makes of them: −1 for None, bits for a choice of recipes.
"""

OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "recipes": lambda name, value: None if value is None else integers(name, value, some=True),
    "untold": lambda name, value: None if value is None else integer(name, value),
    "every": integer,
    "waits": integer,
    "heeds": flag,
    "forgets": flag,
}
"""Option → its rule, of `fields`."""

REFUSALS = {"signaller": _no_button, "cook": _no_kitchen}
"""Family → (game, **options), which raises ValueError for a kitchen where it cannot play."""


def _free(grid: NDArray[np.int32], at: tuple[int, int]) -> bool:
    y, x = at
    return 0 <= y < grid.shape[0] and 0 <= x < grid.shape[1] and grid[at] == StaticObject.EMPTY


def _path(game: Game, target: int) -> jax.Array:
    found = towards(game, target)
    grid = engine(game).layout.static_objects
    return jnp.full(grid.shape, STAY, jnp.int32) if found is None else jnp.asarray(found)


def _shown(game: Game, state: State, seat: int) -> jax.Array:
    """Whether the recipe's button is lit within the seat's view."""
    lit = (state.grid[..., 0] == BUTTON) & (state.grid[..., 2] > 0)
    if game.view is None:
        return lit.any()
    rows, columns = jnp.indices(lit.shape)
    own = state.agents.pos
    near = jnp.maximum(jnp.abs(rows - own.y[seat]), jnp.abs(columns - own.x[seat])) <= game.view
    return (lit & near).any()
