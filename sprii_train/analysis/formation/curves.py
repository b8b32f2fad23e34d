"""Formation along a design variable: pair reliability α, or the histories of a system, R2, R4 and R8."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sprii_train.analysis.statistics import Spread, over_sources


class Curve(NamedTuple):
    """One measure along a design variable: increasing x, and mean ± SD over sources at each."""

    x: tuple[float, ...]
    spreads: tuple[Spread, ...]


def curve(rows: Sequence[Mapping[str, Any]], over: str, column: str) -> Curve:
    """The curve of one column, sources equal at each x (`tab:pokeworld-geometry`, Figure `fig:relation-mechanism`).

    Args:
        rows: one a source and x, such as `formation_row` with the design added.
        over: the column of x, `alpha` or `rollouts`.
        column: the measure.

    Raises:
        ValueError: for no rows, or a row without one of the two columns.
    """
    if not rows:
        raise ValueError(f"a curve of {column!r} over {over!r} needs rows, got none")
    values: dict[float, list[float]] = {}
    for row in rows:
        for name in (over, column):
            if row.get(name) is None:
                raise ValueError(f"a curve of {column!r} over {over!r}: a row has no {name!r}; it has {', '.join(row)}")
        values.setdefault(float(row[over]), []).append(float(row[column]))
    x = tuple(sorted(values))
    return Curve(x, tuple(over_sources(values[at]) for at in x))
