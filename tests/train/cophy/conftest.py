"""One small bank of discs, and the front end that learns it."""

import pytest
from drawn_banks import SMALL, drawn_bank

from sprii_envs.banks import RecordedBank
from sprii_train.cophy.frontend import FrontEnd, train_frontend


@pytest.fixture(scope="session")
def disc_bank(tmp_path_factory: pytest.TempPathFactory) -> RecordedBank:
    return drawn_bank(tmp_path_factory.mktemp("cophy") / "discs")


@pytest.fixture(scope="session")
def disc_folder(disc_bank: RecordedBank, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("cophy") / "frontend"
    train_frontend(disc_bank, SMALL, folder)
    return folder


@pytest.fixture(scope="session")
def disc_frontend(disc_bank: RecordedBank, disc_folder) -> FrontEnd:
    return train_frontend(disc_bank, SMALL, disc_folder)
