"""What embeddings of frames tell of the state, beside every table of learners of pixels: why nothing formed, if so."""

from collections.abc import Sequence

from sprii_train.experiments.targets.base import Row
from sprii_train.reports.page import Table, number


def sight_tables(rows: Sequence[Row]) -> list[Table]:
    """One line a source, of rows with the measure `sight`; none without any."""
    seen = [row for row in rows if row.get("sight")]
    if not seen:
        return []
    names = list(dict.fromkeys(name for row in seen for name in row["sight"]))
    several = len({row["world"] for row in rows}) > 1
    lines = [
        [
            f"{row['label']}, {row['world']}" if several else str(row["label"]),
            str(row["seed"]),
            *(number(row["sight"][name]) if name in row["sight"] else "n.a." for name in names),
        ]
        for row in seen
    ]
    columns = [f"R² {name.replace('_', ' ')}" for name in names]
    return [
        Table(
            "What embeddings of frames tell of the state",
            ["Condition", "Source", *columns],
            lines,
            "Ridge, fitted on 200 training systems, of validation systems; mean over coordinates. Where velocities "
            "cannot be read, no context can tell of what changes them.",
        )
    ]
