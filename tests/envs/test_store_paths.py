"""Stores through a folder that is not there, and through a link: one place, for the writer and for who reads it."""

import os
from pathlib import Path

import pytest
from faults import NAME, Kept, told
from test_faults_of_stores import EVERY, bank

STORES = [kept for kept in EVERY if kept.name != "table of episodes"]


@pytest.mark.parametrize("kept", STORES, ids=str)
def test_a_store_is_found_where_it_was_written(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Path("absent", "..", NAME)
    kept.write(place, 0)
    assert told(kept.read(place)) == told(kept.read(Path(NAME)))
    assert os.listdir() == [NAME]
    if kept.name in ("burgers", "fhn", "cophy"):  # opened where they are built again
        kept.write(place, 0)
    assert os.listdir() == [NAME]


def test_a_link_leads_where_the_system_follows_it(tmp_path: Path) -> None:
    """To the bank beside what the link points to, not beside the link."""
    (tmp_path / "far/inner").mkdir(parents=True)
    (tmp_path / "near").mkdir()
    (tmp_path / "near/link").symlink_to(tmp_path / "far/inner")
    bank("d-clean", frames=8).write(tmp_path / "near/link/../bank", 0)
    assert os.listdir(tmp_path / "near") == ["link"]
    assert sorted(os.listdir(tmp_path / "far")) == ["bank", "inner"]
