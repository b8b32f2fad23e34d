"""Aggregation over sources (`app:measurements`): readers are averaged within a source, sources count equally."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """Mean over sources, sample SD (n − 1; NaN for one source) and the number of sources."""

    mean: float
    sd: float
    n: int


def over_sources(values: Sequence[float]) -> Spread:
    """Mean ± SD over independently trained sources."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"over_sources needs a non-empty list of numbers, got shape {array.shape}")
    return Spread(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else float("nan"), len(array))
