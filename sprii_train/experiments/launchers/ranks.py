"""Cells one after another, each over all ranks of a process group."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sprii_train import distributed
from sprii_train.experiments.cells import Cell, work


def over_ranks(cells: Sequence[Cell], root: Path, show: Callable[[str, int, float], None]) -> None:
    """Run the cells; every rank calls this. A cell that fails is reported, and its error raised at the end."""
    failure: Exception | None = None
    for cell in cells:

        def report(step: int, values: dict[str, float], title: str = cell.title) -> None:
            show(title, step, values.get("self", float("nan")))

        try:
            work(cell, root, report)
        except Exception as error:
            failure = failure or error
            if distributed.rank() == 0:
                print(f"{cell.title} failed, the others go on: {error}", file=sys.stderr, flush=True)
    if failure is not None:
        raise failure
