"""Cells of the small banks, trained for three steps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_worlds import D_CLEAN_LEARNER, POKE_LEARNER, SPRING_LEARNER

from sprii_envs.banks import Store
from sprii_envs.files import read_json, write_json
from sprii_train.experiments.cells import Cell, folder_of, result_of, work
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.sources import ReaderBudget, Source, SourceCell, train_source
from sprii_train.fit import TrainConfig
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import SETTINGS

TRAIN = TrainConfig(steps=3, pairs=6, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")
LEARNERS = {"d-clean": D_CLEAN_LEARNER, "spring": SPRING_LEARNER}


def silent(step: int, values: dict[str, float]) -> None:
    """A report to nobody."""


def cell_of(bank: Store, world: str, recipe: str = "align-cross", **changes: Any) -> SourceCell:
    """A cell of a small bank."""
    learner = LEARNERS.get(world, POKE_LEARNER)
    base = SourceCell(
        SETTINGS[world],
        EVERY_RECIPE[recipe],
        learner,
        TRAIN,
        bank.name,
        bank.fingerprint,
        readers=ReaderBudget(2, 5, 5),
    )
    return replace(base, **changes)


def measuring(cell: SourceCell, measure: str) -> SourceCell:
    """The same with another measure."""
    return replace(cell, measure=MEASURES[measure])


def row_of(cell: SourceCell, root: Path, measures: Sequence[str]) -> dict[str, Any]:
    """The row of a source with all of these measures, each taken once, as a report gets it."""
    folder, row = folder_of(cell, root), {"arrays": {}}
    for measure in measures:
        one = measuring(cell, measure)
        if not (folder / one.result).exists():
            write_json(folder / one.result, one.run(folder, silent))
        row |= read_json(folder / one.result)
        row["arrays"][measure] = str(folder / one.arrays)
    return row


def source_of(cell: SourceCell, root: Path) -> Source:
    """The trained source of a cell, in its folder under a root."""
    return train_source(cell, folder_of(cell, root), silent)


def serial(cells: list[Cell], root: Path, **_: Any) -> list[dict[str, Any]]:
    """The grid in this process."""
    for cell in cells:
        work(cell, root, silent)
    return [row for cell in cells if (row := result_of(cell, root)) is not None]
