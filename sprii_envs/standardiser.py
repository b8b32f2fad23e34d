"""Mean 0 and SD 1 of columns: one convention for labels, targets, factors, states and codes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

ROUNDING = 1e-12
"""Largest range of a constant column, as a share of its magnitude: sums and logarithms leave that of equal values."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Mean and scale (d,) of columns, or (k, d); a constant column has scale 1, as in scikit-learn's scaler."""

    mean: Array
    scale: Array

    @classmethod
    def fit(cls, values: ArrayLike, *, floor: float = 0.0) -> "Standardiser":
        """Of the columns of values (n, d), n >= 1; see `constant` for the floor."""
        array = np.asarray(values, np.float64)
        still, sd = constant(array, floor=floor), array.std(0)
        # The mean of equal values is rounded; they themselves are not. Squares of the least numbers are 0.
        return cls(np.where(still, array[0], array.mean(0)), np.where(still | (sd == 0.0), 1.0, sd))

    def __call__(self, values: ArrayLike) -> Array:
        """(..., d) → (..., d)."""
        return (np.asarray(values, np.float64) - self.mean) / self.scale


def constant(values: Array, *, floor: float = 0.0) -> NDArray[np.bool_]:
    """Which columns (d,) of values (n, d) do not vary: by no more than rounding, or than `floor` in their own unit."""
    return np.ptp(values, axis=0) <= np.maximum(floor, ROUNDING * np.abs(values).max(0))
