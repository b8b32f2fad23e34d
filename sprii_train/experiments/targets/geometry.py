"""What tables of geometry share: columns of two splits, and the system-bootstrap intervals of `formation`."""

from collections.abc import Mapping, Sequence

from sprii_train.experiments.targets.base import Row, arms_of, value_of
from sprii_train.reports.page import Table, number

LEAST = 0.05
"""The least change of ρ or R² that counts as one: differences of arms without information are smaller."""


def both_splits(columns: Mapping[str, str], held_back: str) -> dict[str, str]:
    """The columns on validation and on held-back systems."""
    return {
        f"{heading}, {split}": f"{split}.{path}"
        for split in ("validation", held_back)
        for heading, path in columns.items()
    }


def interval_table(rows: Sequence[Row], columns: Mapping[str, str], *, first: str = "Condition", of: str = "") -> Table:
    """One row an arm and source: the ratio and the ρ's with 95 % intervals over systems, conditional on the source.

    Args:
        columns: heading → path of the number, `validation.ratio`; other numbers than these have no interval.
        first: heading of the arms.
        of: the systems, for the title.
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
        f"Geometry by source{of and f', {of} systems'}, with 95 % intervals over systems",
        [first, "Source", *columns],
        lines,
        "Percentile bootstrap of the systems, 10,000 draws, conditional on each source; ± in the other tables is over "
        "sources.",
    )


def _cell(row: Row, path: str) -> str:
    split, _, name = path.rpartition(".")
    estimate, ends = value_of(row, path), value_of(row, f"{split}.intervals.{name}")
    return number(estimate) if ends is None else f"{number(estimate)} [{number(ends[0])}, {number(ends[1])}]"
