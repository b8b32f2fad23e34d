"""Tiny banks for all training tests, and one thread, so that sums have one order."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tiny import PROTOCOL, naive_windows
from tiny_worlds import POKE_SMALL, SPRING_SMALL

from sprii_envs.banks import Bank, Store, build
from sprii_envs.fields.bank import build_fields
from sprii_train.protocol import Windows
from sprii_train.settings.burgers import SMOKE


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
