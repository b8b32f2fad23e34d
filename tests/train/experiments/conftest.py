"""One trained source of each small world, and all that is measured of it."""

from pathlib import Path
from typing import Any

import pytest
from tiny_sources import cell_of, row_of, source_of

from sprii_envs.banks import Bank
from sprii_train.experiments.sources import Source


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
    return row_of(poke_source.cell, cells_root, ("formation", "direction"))


@pytest.fixture(scope="session")
def spring_row(spring_source: Source, cells_root: Path) -> dict[str, Any]:
    return row_of(spring_source.cell, cells_root, ("formation", "landscape", "value"))
