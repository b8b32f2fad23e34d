"""The system-bootstrap intervals of the geometry that `formation` measured, as tables print them."""

from collections.abc import Mapping, Sequence

from sprii_train.experiments.targets.base import Row, arms_of, value_of
from sprii_train.reports.page import Table, number


def interval_table(rows: Sequence[Row], columns: Mapping[str, str], *, first: str = "Condition") -> Table:
    """One row an arm and source: the ratio and the ρ's with 95 % intervals over systems, conditional on the source.

    Args:
        columns: heading → path of the number, `validation.ratio`; other numbers than these have no interval.
        first: heading of the arms.
    """
    several = len({row["world"] for row in rows}) > 1
    lines = [
        [
            f"{row['label']}, {row['world']}" if several else str(row["label"]),
            str(row["seed"]),
            *(_cell(row, path) for path in columns.values()),
        ]
        for group in arms_of(rows).values()
        for row in group
    ]
    return Table(
        "Geometry by source, with 95 % intervals over systems",
        [first, "Source", *columns],
        lines,
        "Percentile bootstrap of the systems, 10,000 draws, conditional on each source; ± in the other tables is over "
        "sources.",
    )


def _cell(row: Row, path: str) -> str:
    split, _, name = path.rpartition(".")
    estimate, ends = value_of(row, path), value_of(row, f"{split}.intervals.{name}")
    return number(estimate) if ends is None else f"{number(estimate)} [{number(ends[0])}, {number(ends[1])}]"
