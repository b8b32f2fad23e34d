"""Tiny banks for all training tests, one thread, so that sums have one order, and a meaning for every column."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from tiny import PROTOCOL, naive_windows
from tiny_worlds import POKE_SMALL, SPRING_SMALL

from sprii_envs.banks import Bank, Store, build
from sprii_envs.fields.bank import build_fields
from sprii_train.experiments.targets import COPHY_SCENES, TARGETS
from sprii_train.experiments.targets.base import Row
from sprii_train.identity import cell_code
from sprii_train.protocol import Windows
from sprii_train.reports.glossary import without_meaning
from sprii_train.reports.page import Table
from sprii_train.settings.burgers import SMOKE


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _explained() -> Iterator[None]:
    """Whatever test draws the tables of a target: every column has a meaning in the glossary."""
    targets = {id(one): one for one in (*TARGETS.values(), *COPHY_SCENES.values())}.values()
    before = {one.label: one.tables for one in targets}
    for one in targets:
        object.__setattr__(one, "tables", _checked(one.label, one.tables))
    yield
    for one in targets:
        object.__setattr__(one, "tables", before[one.label])


def _checked(label: str, draw: Callable[[Sequence[Row]], list[Table]]) -> Callable[[Sequence[Row]], list[Table]]:
    def tables(rows: Sequence[Row]) -> list[Table]:
        found = draw(rows)
        for table in found:
            lacking = without_meaning(table.columns, label)
            assert not lacking, f"{label}, {table.title!r}: no meaning in reports/glossary.py for {lacking}"
        return found

    return tables


@pytest.fixture(autouse=True)
def _own_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Digests asked for while a test has exchanged code are of that code: the next test asks anew."""
    yield
    if "monkeypatch" in request.fixturenames:
        cell_code.cache_clear()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(PROTOCOL, tmp_path_factory.mktemp("banks") / "tiny")


@pytest.fixture(scope="session")
def windows(bank: Bank) -> Windows:
    """Sixteen windows: row i and row 8 + i are two episodes of system i, labels included."""
    system = np.arange(8)
    return naive_windows(bank, np.concatenate([system * 4, system * 4 + 1]), np.arange(16) % 5)


@pytest.fixture(scope="session")
def poke_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(POKE_SMALL, tmp_path_factory.mktemp("banks") / "poke")


@pytest.fixture(scope="session")
def spring_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(SPRING_SMALL, tmp_path_factory.mktemp("banks") / "spring")


@pytest.fixture(scope="session")
def field_bank(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Burgers' equation on 17 points and 9 frames: 9 training systems of 4, 2 and 2 cases, and 5 of each other one."""
    return build_fields(SMOKE, tmp_path_factory.mktemp("banks") / "burgers")
