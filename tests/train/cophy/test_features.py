"""Cached features: what they hold, that they resume, and what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_banks import FRAMES, SLOTS, SMALL, drawn_bank

from sprii_envs.banks import RecordedBank, StoreError, open_store
from sprii_train.cophy.features import Features, features_of, objects, place_of
from sprii_train.cophy.frontend import FrontEnd, see


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RecordedBank:
    return drawn_bank(tmp_path_factory.mktemp("features") / "bank", 4, 2)


@pytest.fixture
def cached(small: RecordedBank, disc_frontend: FrontEnd, tmp_path: Path) -> Features:
    return features_of(small, disc_frontend, tmp_path / "features")


def test_objects_stand_in_the_order_of_their_slots(small: RecordedBank) -> None:
    slot, kind = objects(small)
    for row in range(len(small.table)):
        there = [k for k in range(SLOTS) if small.table[f"kind_{k}"][row] >= 0]
        assert slot[row].tolist() == there
    assert (kind == 0).all()


def test_they_are_what_the_front_end_makes_of_every_frame(cached: Features, disc_frontend: FrontEnd) -> None:
    assert cached.features.shape == (6, 2, FRAMES, 2, 784)
    assert cached.features.dtype == np.float16
    for row in range(6):
        for v, video in enumerate(("ab", "cd")):
            pictures = cached.bank.windows(f"{video}_frames", [row], [0], FRAMES)[0]
            seen = see(disc_frontend, pictures)
            for found, expected in zip(
                (cached.features, cached.poses, cached.boxes), (seen.features, seen.position, seen.box), strict=True
            ):
                np.testing.assert_allclose(found[row, v], expected[:, cached.slot[row]].numpy(), atol=1e-3, rtol=2e-3)


def test_estimated_positions_follow_the_true_ones(cached: Features) -> None:
    """Over all pairs and frames whose objects are all there: estimates and truth are nearly one line."""
    rows = np.arange(1, 6)
    true = cached.windows("ab_states", rows, np.zeros(5, int), FRAMES)[..., :2]
    true = np.take_along_axis(true, cached.slot[rows][:, None, :, None], 2)
    estimated = cached.poses[rows, 0, ..., :2]
    assert np.corrcoef(true.ravel(), estimated.ravel())[0, 1] > 0.9


def test_it_is_a_store_of_the_banks_rows_with_both_columns(cached: Features, small: RecordedBank) -> None:
    assert cached.table is cached.bank.table
    assert cached.columns == ("features", "poses", "boxes", *small.columns)
    assert cached.splits == small.splits
    assert cached.split("validation")["episode"].tolist() == [4, 5]
    again = open_store(cached.name)
    assert isinstance(again, Features)
    assert again.fingerprint == cached.fingerprint != small.fingerprint
    entry = cached.windows("poses", [3], [1], 1)
    assert np.array_equal(entry[0, 0], cached.poses[3])
    with pytest.raises(ValueError, match="read-only"):
        cached.features[0] = 0
    cached.verify()


def test_a_killed_cache_goes_on_to_the_same_bytes(
    small: RecordedBank, disc_frontend: FrontEnd, cached: Features, tmp_path: Path
) -> None:
    def kill(done: int, of: int) -> None:
        assert of == 6
        if done == 3:
            raise RuntimeError("killed")

    path, told = tmp_path / "resumed", []
    with pytest.raises(RuntimeError, match="killed"):
        features_of(small, disc_frontend, path, progress=kill)
    assert not path.exists()
    resumed = features_of(small, disc_frontend, path, progress=lambda done, of: told.append(done))
    assert told == [3, 4, 5, 6]
    assert resumed.fingerprint == cached.fingerprint
    for file in cached.path.glob("*.f*"):
        assert (path / file.name).read_bytes() == file.read_bytes()


def test_workers_write_the_same_bytes(
    small: RecordedBank, disc_frontend: FrontEnd, cached: Features, tmp_path: Path
) -> None:
    assert features_of(small, disc_frontend, tmp_path / "two", workers=2).fingerprint == cached.fingerprint


def test_it_is_found_where_it_lies(small: RecordedBank, disc_frontend: FrontEnd) -> None:
    path = place_of(small, disc_frontend)
    assert path.parent == small.path.parent
    first = features_of(small, disc_frontend, path)
    told: list[int] = []
    assert features_of(small, disc_frontend, path, progress=lambda *_: told.append(1)).fingerprint == first.fingerprint
    assert not told


def test_a_damaged_cache_is_refused(cached: Features) -> None:
    file = cached.path / "features.f16"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"features\.f16 is damaged"):
        Features(cached.path, verify=True)
    with pytest.raises(StoreError, match=r"features\.f16 is damaged"):
        cached.verify()
    file.write_bytes(data[:-2])
    with pytest.raises(StoreError, match="truncated"):
        Features.open(cached.path)


def test_another_front_ends_cache_is_refused(cached: Features, small: RecordedBank) -> None:
    torch.manual_seed(1)
    with pytest.raises(StoreError, match="holds other features \\(of another frontend\\)"):
        features_of(small, FrontEnd(SMALL, SLOTS), cached.path)


def test_features_of_another_bank_are_refused(disc_frontend: FrontEnd, tmp_path: Path) -> None:
    bank = drawn_bank(tmp_path / "bank", 2, 1)
    features_of(bank, disc_frontend, tmp_path / "features")
    shutil.rmtree(tmp_path / "bank")
    with pytest.raises(StoreError, match="bank"):
        Features.open(tmp_path / "features")
    drawn_bank(tmp_path / "bank", 2, 1, seed=1)
    with pytest.raises(StoreError, match="features of another bank"):
        Features.open(tmp_path / "features")
