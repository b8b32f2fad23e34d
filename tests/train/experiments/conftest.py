"""One trained source of each small world, and all that is measured of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_sources import cell_of, silent, source_of

from sprii_envs.banks import Bank
from sprii_train.experiments.grid import folder_of
from sprii_train.experiments.sources import Source, SourceCell


@pytest.fixture(scope="session")
def cells_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="session")
def poke_source(poke_bank: Bank, cells_root: Path) -> Source:
    return source_of(cell_of(poke_bank, "poke", "structure"), cells_root)


@pytest.fixture(scope="session")
def spring_source(spring_bank: Bank, cells_root: Path) -> Source:
    return source_of(cell_of(spring_bank, "spring"), cells_root)


@pytest.fixture(scope="session")
def poke_row(poke_source: Source, cells_root: Path) -> dict[str, Any]:
    return measured(poke_source.cell, cells_root, ("formation", "direction"))


@pytest.fixture(scope="session")
def spring_row(spring_source: Source, cells_root: Path) -> dict[str, Any]:
    return measured(spring_source.cell, cells_root, ("formation", "landscape", "value"))


def measured(cell: SourceCell, root: Path, measures: tuple[str, ...]) -> dict[str, Any]:
    """The row of a source with all of these measures, as a report gets it."""
    folder, row = folder_of(cell, root), {"arrays": {}}
    for measure in measures:
        torch.manual_seed(0)
        one = replace(cell, measure=measure)
        row |= one.run(folder, silent)
        row["arrays"][measure] = str(folder / one.arrays)
    return row
