"""Donor–target landscapes: does a fixed reader fit the dynamics of the donor it is given? (`app:landscape`)

Pure functions of arrays. Grids are (..., L, L): donors in rows, targets in columns, levels in the same order on both.
Recipes are compared by their `Valley.depths`, for instance with `statistics.ALIGN_EFFECT` in a system bootstrap.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

Array = NDArray[np.float64]

POOLED = "pooled"


class Valley(NamedTuple):
    """The landscape of one property (a row of `tab:spring-functional-landscape`)."""

    grid: Array  # (L, L) mean error over systems
    depth: float  # of that grid, which is the mean of `depths`
    rho: float  # rank correlation of |donor level − target level| with the error over the cells of that grid
    depths: Array  # (n,) by system, for the paired bootstrap
    rhos: Array  # (n,) the rank correlation in the grid of every system


def grid_errors(predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Mean squared error of every donor's prediction against every target.

    Args:
        predictions: (n, L, D), the fixed reader's under each donor level.
        targets: (n, M, D), the simulator's under each target level, on the scale of the predictions.

    Returns:
        (n, L, M) float64.

    Raises:
        ValueError: for shapes that do not fit.
    """
    given, wanted = np.asarray(predictions, np.float64), np.asarray(targets, np.float64)
    if given.ndim != 3 or wanted.ndim != 3 or given.shape[::2] != wanted.shape[::2]:
        raise ValueError(
            f"predictions and targets must be (n, L, D) and (n, M, D) of equal n and D, got {given.shape} and "
            f"{wanted.shape}"
        )
    return np.square(given[:, :, None] - wanted[:, None]).mean(-1)


def valley_depth(errors: ArrayLike) -> Array:
    """Mean of the L² − L off-diagonal cells minus mean of the L diagonal ones, (...), of grids (..., L, L).

    Exactly 0 where the donor changes nothing.

    Raises:
        ValueError: for grids that are not square or have one level.
    """
    grid = _square(errors)
    count = grid.shape[-1]
    # A target's own cell is subtracted from its column before anything is summed: equal cells leave no rounding error.
    own = np.diagonal(grid, axis1=-2, axis2=-1)[..., None, :]
    return (grid - own).sum((-2, -1)) / (count * (count - 1))


def rank_correlation(errors: ArrayLike) -> Array:
    """Spearman correlation, (...), of level distance |i − j| with the error over the cells of grids (..., L, L).

    Levels are evenly spaced on their property's scale, so that the distance of their indices ranks as theirs. NaN where
    all cells are equal.

    Raises:
        ValueError: for grids that are not square or have one level.
    """
    grid = _square(errors)
    index = np.arange(grid.shape[-1])
    distance = _centred_ranks(np.abs(index[:, None] - index).reshape(-1))
    error = _centred_ranks(grid.reshape(*grid.shape[:-2], -1))
    scale = np.sqrt(np.square(error).sum(-1) * np.square(distance).sum())
    return np.divide(error @ distance, scale, out=np.full(scale.shape, np.nan), where=scale > 0)


def valley(errors: ArrayLike) -> Valley:
    """The landscape of one source: systems count equally.

    `rho` is of the mean grid: the table's pooled ρ lies outside the range of its sources' for mass, which no average of
    ρ over systems and sources does.

    Args:
        errors: (n, L, L) of n systems.

    Raises:
        ValueError: for another shape or no system.
    """
    grids = _square(errors)
    if grids.ndim != 3 or not len(grids):
        raise ValueError(f"valley needs the grids of n >= 1 systems, (n, L, L), got shape {grids.shape}")
    mean = grids.mean(0)
    depths = valley_depth(grids)
    return Valley(mean, float(depths.mean()), float(rank_correlation(mean)), depths, rank_correlation(grids))


def summary(errors: Mapping[str, ArrayLike]) -> dict[str, dict[str, Valley]]:
    """Factor → source → landscape (`tab:spring-functional-landscape`), first `"pooled"`, then `"0"`, `"1"`, ….

    Systems, then sources count equally: the pooled grids are the means over sources of each system's.

    Args:
        errors: factor → (S, n, L, L), of S sources on the same n systems.

    Raises:
        ValueError: for another shape, naming the factor.
    """
    found = {}
    for factor, given in errors.items():
        grids = np.asarray(given, np.float64)
        if grids.ndim != 4 or not len(grids):
            raise ValueError(f"errors[{factor!r}] must be (S, n, L, L) of S >= 1 sources, got shape {grids.shape}")
        found[factor] = {POOLED: valley(grids.mean(0))}
        found[factor] |= {str(source): valley(one) for source, one in enumerate(grids)}
    return found


def _square(errors: ArrayLike) -> Array:
    grid = np.asarray(errors, np.float64)
    if grid.ndim < 2 or grid.shape[-1] != grid.shape[-2] or grid.shape[-1] < 2:
        raise ValueError(f"a landscape is (..., L, L) with L >= 2 levels of donors and of targets, got {grid.shape}")
    return grid


def _centred_ranks(values: Array) -> Array:
    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(-1, keepdims=True)
