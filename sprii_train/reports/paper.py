"""The paper's numbers, for printing beside measured ones; never a target of a test."""

import json
from importlib.resources import files
from typing import Any

from sprii_train.analysis.statistics import Spread

SOURCES = 3  # independently trained sources behind each cell of `tab:dclean-full`

KEPT_UNDER = {
    "tab:fidelity-full": "tab:pokeworld-geometry",
    "ext:poke-frozen-pixels": "tab:pokeworld-geometry",
    "fig:structured-mismatch-differences": "tab:structured-mismatch-factors",
}
"""Label → the label under which its numbers are kept: another label of the table, or of a figure drawn from it."""


def paper_table(label: str) -> dict[str, dict[str, Spread]]:
    """`{arm: {column: mean ± SD}}` of one table of the paper."""
    return {
        arm: {column: Spread(mean, sd, SOURCES) for column, (mean, sd) in cells.items()}
        for arm, cells in _tables()[label]["rows"].items()
    }


def paper_panels(label: str) -> list[list[list[str]]]:
    """A table of the paper as it prints it: panels of rows of cells, the first row of a panel its header.

    Raises:
        ValueError: for a table that is not kept here, naming those that are.
    """
    tables = {name: table["panels"] for name, table in _tables().items() if "panels" in table}
    kept = KEPT_UNDER.get(label, label)
    if kept not in tables:
        raise ValueError(f"the paper's numbers of {label!r} are not kept; kept: {', '.join(tables)}")
    return tables[kept]


def _tables() -> dict[str, dict[str, Any]]:
    return json.loads(files("sprii_train.reports").joinpath("paper_tables.json").read_text(encoding="utf-8"))
