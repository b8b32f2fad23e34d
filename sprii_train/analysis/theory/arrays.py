"""Arguments as float64 arrays of a stated shape, or a ValueError that names them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import arguments

Array = NDArray[np.float64]


def rows(name: str, values: ArrayLike, like: Array | None = None) -> Array:
    """A finite (n, d) float64 array with n ≥ 1; (n,) becomes (n, 1). `like` fixes the shape."""
    array = np.asarray(values, np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must be a non-empty (n, d) array, got shape {np.shape(values)}")
    if like is not None and array.shape != like.shape:
        raise ValueError(f"{name} must have shape {like.shape}, got {array.shape}")
    return _finite(name, array)


def matrix(name: str, values: ArrayLike, height: int | None = None, width: int | None = None) -> Array:
    """A finite 2-D float64 array of the given height and width."""
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or height not in (None, array.shape[0]) or width not in (None, array.shape[1]):
        wanted = f"({height or 'any'}, {width or 'any'})"
        raise ValueError(f"{name} must be a matrix of shape {wanted}, got shape {array.shape}")
    return _finite(name, array)


def number(name: str, value: float, low: float = 0.0, high: float = np.inf, *, above: bool = False) -> float:
    """A finite float in [low, high], or in (low, high] if `above`."""
    bounds = {"least": max(low, -arguments.LARGEST), "most": min(high, arguments.LARGEST)}
    return float(arguments.number(name, value, **bounds, above=low if above else None))


def labels(name: str, values: ArrayLike, count: int) -> tuple[NDArray[np.int64], int]:
    """Ranks (count,) of labels given as (count,), or as (count, k) for joint labels, and their number."""
    array = np.asarray(values)
    if array.ndim not in (1, 2) or len(array) != count:
        raise ValueError(f"{name} must hold one label a row, ({count},) or ({count}, k), got shape {array.shape}")
    distinct, inverse = np.unique(array, axis=0, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), len(distinct)


def group_means(values: Array, ranks: NDArray[np.int64], count: int) -> tuple[Array, NDArray[np.int64]]:
    """Means (count, d) of rows by group and the group sizes (count,)."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, ranks, values)
    sizes = np.bincount(ranks, minlength=count)
    return sums / sizes[:, None], sizes


def _finite(name: str, array: Array) -> Array:
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {int((~np.isfinite(array)).sum())} entries are not")
    return array
