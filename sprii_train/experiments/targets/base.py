"""What `sprii reproduce` can reproduce: a table or figure of the paper, and the sources that it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Spread, over_sources
from sprii_train.checkpoints import read_tensors
from sprii_train.experiments.cells import KEPT
from sprii_train.experiments.groups import INFERRED, Group, Pairings, Unit
from sprii_train.reports.claims import Claim, Verdict
from sprii_train.reports.page import Picture, Table, spread

__all__ = [
    "INFERRED",
    "Group",
    "Pairings",
    "Row",
    "Target",
    "Unit",
    "arms_of",
    "arrays_of",
    "data_facts",
    "data_of",
    "spread_of",
    "spread_table",
    "stacked",
    "value_of",
]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """One table or figure.

    Attributes:
        label: the paper's.
        title: what it shows.
        groups: the sources and pairings it needs.
        tables: rows, one a source with all its measures and the audit of its pairs → our tables.
        claims: the paper's statements, judged source by source.
        pictures: rows → figures.
        note: what differs from the paper whatever the budget.
        checks: rows → verdicts on what is said of all sources together, which no claim within a source can judge.
        untested: statements that are not judged, each with the reason.
        partial: whether its tables are also of rows that lack a measure.
        fills: whether its tables and pictures are also of the sources that are done while others are trained.
        facts: rows → what the report says besides budget, stores and versions.
        files: rows → whatever else lies beside the report, by name.
    """

    label: str
    title: str
    groups: tuple[Unit, ...]
    tables: Callable[[Sequence[Row]], list[Table]]
    claims: tuple[Claim, ...]
    pictures: Callable[[Sequence[Row]], list[Picture]] = field(default=lambda rows: [])
    note: str = ""
    checks: Callable[[Sequence[Row]], Sequence[Verdict]] = field(default=lambda rows: ())
    untested: tuple[Verdict, ...] = ()
    partial: bool = False
    fills: bool = False
    facts: Callable[[Sequence[Row]], Mapping[str, str]] = field(default=lambda rows: {})
    files: Callable[[Sequence[Row]], Mapping[str, bytes]] = field(default=lambda rows: {})

    @property
    def folder(self) -> str:
        """The label as a folder's name."""
        return self.label.replace(":", "-")


def value_of(row: Row, path: str) -> Any:
    """A number of a row by its path, `validation.rho_mass`; None if any part is missing."""
    if path in row:  # a name may hold a point, own_s0.25
        return row[path]
    found: Any = row
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def arms_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by `world/arm` where there are several worlds, by arm otherwise, in their order."""
    several = len({row["world"] for row in rows}) > 1
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['world']}/{row['arm']}" if several else row["arm"], []).append(row)
    return found


def spread_of(rows: Sequence[Row], path: str) -> Spread | None:
    """Mean ± SD over sources of a number of their rows; None unless all have it."""
    values = [value_of(row, path) for row in rows]
    return None if any(v is None for v in values) else over_sources([float(v) for v in values])


def spread_table(
    rows: Sequence[Row], title: str, columns: Mapping[str, str], *, first: str = "Condition", note: str = ""
) -> Table:
    """One row an arm, mean ± SD over sources.

    Args:
        columns: heading → path of the number.
    """
    lines = [
        [_label(name, group), *(spread(spread_of(group, path)) for path in columns.values())]
        for name, group in arms_of(rows).items()
    ]
    return Table(title, [first, *columns], lines, note)


def arrays_of(row: Row, measure: str) -> dict[str, NDArray[Any]]:
    """The numbers by system that a measure kept beside a source's model.

    Raises:
        CheckpointError: where they are missing or damaged, or no more those that the row was read with.
    """
    entry = row.get(KEPT, {}).get(measure)
    remedy = "" if entry is None else "repeat the command"
    tensors = read_tensors(Path(row["arrays"][measure]), remedy, entry)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def stacked(rows: Sequence[Row], measure: str, name: str) -> NDArray[np.float64]:
    """One of these arrays of every source, (S, …)."""
    return np.stack([arrays_of(row, measure)[name] for row in rows]).astype(np.float64)


def data_of(rows: Sequence[Row]) -> str:
    """Whether rows are of recordings or of a stand-in, in words."""
    kinds = dict.fromkeys(str(row.get("data")) for row in rows)
    told = {"stand-in": "simulated stand-in, not the published recordings", "published": "the published recordings"}
    return "; ".join(told.get(kind, kind) for kind in kinds)


def data_facts(rows: Sequence[Row]) -> Mapping[str, Any]:
    """The same as a fact of the report."""
    return {"Data": data_of(rows)} if rows else {}


def _label(name: str, group: Sequence[Row]) -> str:
    label = str(group[0]["label"])
    return f"{label}, {name.split('/')[0]}" if "/" in name else label
