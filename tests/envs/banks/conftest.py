"""A small D-Clean protocol (5 chunks) and one bank of it, shared and never written to."""

import pytest
from bank_files import read

from sprii_envs.banks import D_CLEAN, Bank, BankProtocol, build

SMALL = D_CLEAN.replace(systems={"train": 6, "validation": 2, "test": 2}, rollouts=3, steps=20, systems_per_chunk=2)


@pytest.fixture(scope="session")
def protocol() -> BankProtocol:
    return SMALL


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(SMALL, tmp_path_factory.mktemp("banks") / "small")


@pytest.fixture(scope="session")
def contents(bank: Bank) -> dict[str, bytes]:
    """Every byte of the uninterrupted, one-process build."""
    return read(bank.path)
