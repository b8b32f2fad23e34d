"""Variances as functions of means over systems, so that a bootstrap of systems draws them anew with all else."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def moments(name: str, means: Array, squares: ArrayLike | None = None) -> dict[str, Array]:
    """Columns (N,) from whose means `total_variance` follows.

    Args:
        name: of the quantity.
        means: (N, d), of each system's values, near 0: a variance is a mean square minus a squared mean.
        squares: (N,), each system's mean of its values' squared lengths; by default it has one value.
    """
    found = np.asarray((means**2).sum(1) if squares is None else squares, np.float64)
    return {f"{name} {j}": means[:, j] for j in range(means.shape[1])} | {f"{name} square": found}


def total_variance(name: str, of: Mapping[str, Any]) -> Any:
    """Summed variance of a quantity's coordinates, from means of its `moments`; elementwise over resamples.

    It is 0 where it is nothing but rounding, as in a resample of one system alone.
    """
    square = of[f"{name} square"]
    keys = itertools.takewhile(of.__contains__, (f"{name} {j}" for j in itertools.count()))
    variance = square - sum(of[key] ** 2 for key in keys)
    return np.where(variance > 1e-12 * square, variance, 0.0)
