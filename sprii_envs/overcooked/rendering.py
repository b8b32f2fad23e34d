"""Pictures of a kitchen, by JaxMARL's own visualiser."""

import functools
from typing import Any

import jax
import numpy as np
from jaxmarl.viz.overcooked_v2_visualizer import OvercookedV2Visualizer
from numpy.typing import NDArray

from sprii_envs.overcooked.game import Game, check_process

TILE = 32
"""Pixels a cell."""


@functools.cache
def _visualiser(tile: int) -> OvercookedV2Visualizer:
    return OvercookedV2Visualizer(tile_size=tile)


def picture(game: Game, state: Any, *, tile: int = TILE) -> NDArray[np.uint8]:
    """One state from above, (height, width, 3) uint8; what an agent sees is not marked."""
    check_process()
    return np.asarray(_visualiser(tile)._render_state(state, None), np.uint8)


def pictures(game: Game, states: Any, *, tile: int = TILE) -> NDArray[np.uint8]:
    """States with a leading axis of time → frames (T, height, width, 3) uint8."""
    length = len(jax.tree.leaves(states)[0])
    return np.stack([picture(game, jax.tree.map(lambda leaf: leaf[t], states), tile=tile) for t in range(length)])  # noqa: B023
