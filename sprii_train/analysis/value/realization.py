"""What M2 recovers over M1 in a grid of sources and readers (`tab:realization-complete-grid`)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_train.analysis.statistics import over_readers, reader_grid

Array = NDArray[np.float64]


class Realization(NamedTuple):
    """One row of `tab:realization-complete-grid`: descriptive means over a fitted grid, without uncertainty.

    Attributes:
        readers: fitted on each source.
        m1, m2: mean errors.
        gain: m1 − m2, positive where the code is worth more than the query alone.
        weighted_gain: of the weighted routes; None without them.
        reduction: 100·(m1 − m2)/m1 of each fit, averaged within and then over sources.
        favouring: fits with m2 below m1.
    """

    readers: tuple[int, ...]
    m1: float
    m2: float
    gain: float
    weighted_gain: float | None
    reduction: float
    favouring: int


Grid = ArrayLike | Mapping[Any, ArrayLike]


def realization_row(m1: Grid, m2: Grid, weighted: tuple[Grid, Grid] | None = None) -> Realization:
    """A row of errors of paired M1 and M2 fits (`tab:realization-complete-grid`, `tab:reader-capacity-errors`).

    Args:
        m1, m2: source → errors of its readers (R_s,), or (S, R) in which NaN is a reader not fitted.
        weighted: M1 and M2 of the weighted routes.

    Raises:
        ValueError: for unpaired grids, an error of M1 that is not above 0, and as `source_means`.
    """
    pairs = _pairs(m1, m2)
    if (least := min(float(a.min()) for a, _ in pairs)) <= 0:
        raise ValueError(f"an error of M1 is {least:g}; legal: above 0, of which a reduction is a share")
    one, two = over_readers(m1), over_readers(m2)
    weighted_gain = None
    if weighted is not None:
        _pairs(*weighted)
        weighted_gain = over_readers(weighted[0]).mean - over_readers(weighted[1]).mean
    return Realization(
        one.readers,
        one.mean,
        two.mean,
        one.mean - two.mean,
        weighted_gain,
        float(np.mean([np.mean(100.0 * (a - b) / a) for a, b in pairs])),
        sum(int((b < a).sum()) for a, b in pairs),
    )


def _pairs(m1: Grid, m2: Grid) -> list[tuple[Array, Array]]:
    first, second = reader_grid(m1), reader_grid(m2)
    shapes = [[len(readers) for readers in grid] for grid in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"M1 and M2 must be fitted in pairs, got {shapes[0]} and {shapes[1]} readers of each source")
    return list(zip(first, second, strict=True))
