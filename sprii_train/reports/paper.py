"""The paper's numbers, for printing beside measured ones; never a target of a test."""

import json
from importlib.resources import files

from sprii_train.analysis.statistics import Spread

SOURCES = 3  # independently trained sources behind each cell of `tab:dclean-full`


def paper_table(label: str) -> dict[str, dict[str, Spread]]:
    """`{arm: {column: mean ± SD}}` of one table of the paper."""
    table = json.loads(files("sprii_train.reports").joinpath("paper_tables.json").read_text(encoding="utf-8"))[label]
    return {
        arm: {column: Spread(mean, sd, SOURCES) for column, (mean, sd) in cells.items()}
        for arm, cells in table["rows"].items()
    }
