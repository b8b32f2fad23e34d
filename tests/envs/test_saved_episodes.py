"""Collected episodes in a folder are the same episodes, as a store."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from sprii_envs.banks import RecordedBank, Store, StoreError, open_store
from sprii_envs.collection import RelatedEpisodes, collect_related
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler
from sprii_envs.wrappers import PersistentEnv, StateObservation


def set_pole(env, values):
    env.length = values["length"]
    env.polemass_length = env.masspole * env.length


def poles(systems=6, seed=0, **kwargs) -> RelatedEpisodes:
    env = PersistentEnv(gym.make("CartPole-v1"), {"length": (0.25, 1.0)}, set_pole)
    return collect_related(env, systems=systems, episodes_per_system=3, steps=40, seed=seed, **kwargs)


def equal_windows(found: RelatedEpisodes, bank: Store, length: int) -> None:
    assert set(bank.columns) == {name.replace("/", ".") for name in found.columns}
    for name in found.columns:
        rows = np.arange(len(found)).repeat(3)
        last = found.table["length"][rows] - (not name.startswith("observations")) - length
        starts = (last * np.tile([0.0, 0.5, 1.0], len(found))).astype(np.int64)
        want = found.windows(name, rows, starts, length)
        got = bank.windows(name.replace("/", "."), bank.table["episode"][rows], starts, length)
        assert got.dtype == want.dtype
        assert np.array_equal(got, want), name


def test_what_is_opened_is_what_was_saved(tmp_path):
    found = poles()
    assert len(set(found.table["length"].tolist())) > 3
    bank = found.save(tmp_path / "poles")
    again = open_store(tmp_path / "poles")
    assert isinstance(bank, RecordedBank)
    assert isinstance(again, Store)
    bank.verify()
    for store in (bank, again, pickle.loads(pickle.dumps(bank))):
        equal_windows(found, store, 4)
        for name in found.table.columns:
            assert np.array_equal(store.table[name], found.table[name]), name
            assert store.table[name].dtype == found.table[name].dtype
        assert store.splits == ("train",)
    assert bank.origin["environment"] == "CartPole-v1"
    other = found.save(tmp_path / "other")
    assert other.fingerprint == bank.fingerprint == again.fingerprint
    assert poles(seed=1).save(tmp_path / "third").fingerprint != bank.fingerprint


def test_dictionaries_of_observations_are_columns(tmp_path):
    env = StateObservation(gym.make("sprii/D-Clean-v0", obs_type="pixels", image_size=16), both=True)
    found = collect_related(env, systems=2, steps=6)
    bank = found.save(tmp_path / "both")
    assert set(bank.columns) == {"observations.pixels", "observations.state", "actions", "rewards"}
    equal_windows(found, bank, 3)
    assert bank.windows("observations.pixels", [0], [0], 2).dtype == np.uint8


def test_values_that_are_not_finite_are_kept(tmp_path):
    found = poles(2)
    found["rewards"][0, 1] = np.nan
    assert np.isnan(found.save(tmp_path / "nan").windows("rewards", [0], [1], 1)).all()


def test_splits(tmp_path):
    found = poles(4)
    split = np.where(found.table["system"] == found.table["system"][-1], "test", "train")
    bank = found.save(tmp_path / "split", split=split, sealed=("test",))
    assert set(bank.split("train")["system"]) == set(found.table["system"].tolist()[:9])
    with pytest.raises(StoreError, match="sealed"):
        bank.split("test")
    with pytest.raises(ValueError, match="one for each of 12 episodes, got 2"):
        found.save(tmp_path / "bad", split=["train", "test"])
    assert not (tmp_path / "bad").exists()
    assert set(found.save(tmp_path / "one", split="validation").table["split"]) == {"validation"}


def test_a_killed_save_is_ended_and_not_mixed(tmp_path, monkeypatch):
    found, other = poles(3), poles(3, seed=1)
    whole = found.save(tmp_path / "whole")
    inner, calls = RelatedEpisodes.episode, []

    def dies(self, row):
        calls.append(row)
        if row == 5:
            raise KeyboardInterrupt
        return inner(self, row)

    monkeypatch.setattr(RelatedEpisodes, "episode", dies)
    with pytest.raises(KeyboardInterrupt):
        found.save(tmp_path / "killed")
    with pytest.raises(StoreError, match="not finished"):
        open_store(tmp_path / "killed")
    monkeypatch.setattr(RelatedEpisodes, "episode", inner)
    with pytest.raises(StoreError, match="another origin"):
        other.save(tmp_path / "killed")
    bank = found.save(tmp_path / "killed")
    assert bank.fingerprint == whole.fingerprint
    equal_windows(found, bank, 3)
    with pytest.raises(StoreError, match="exists"):
        found.save(tmp_path / "killed")


def test_relations_find_the_right_pairs(tmp_path):
    bank = poles(8).save(tmp_path / "poles")
    table = bank.split("train")
    table = table.select(table["length"] >= 9)
    pairs = PairSampler(table, SAME_SYSTEM, on_missing="drop").batch(0, 50)
    windows = WindowSampler(table, history=5, horizon=4).batch(0, pairs)
    recipients, donors = bank.read(windows, "observations", 5)
    assert recipients.shape == donors.shape == (50, 5, 4)
    lengths, ids = table["property_length"], table["episode"]
    assert (lengths[pairs.recipient] == lengths[pairs.donor]).all()
    assert (ids[pairs.recipient] != ids[pairs.donor]).all()
    # Physics agrees: over two steps the pole's angle changes as a pole of that length does, pushed as it was.
    actions = bank.windows("actions", windows.donor, windows.donor_start, 4)
    for window, action, length in zip(donors, actions, lengths[pairs.donor], strict=True):
        plain = gym.make("CartPole-v1").unwrapped
        plain.reset(seed=0)
        set_pole(plain, {"length": length})
        plain.state = window[0].astype(np.float64)
        for t, a in enumerate(action):
            assert np.allclose(plain.step(int(a))[0], window[t + 1], atol=1e-4)


def test_files_are_damaged_loudly(tmp_path):
    poles(2).save(tmp_path / "poles")
    with open(tmp_path / "poles" / "rewards.f64", "r+b") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match="rewards"):
        RecordedBank(tmp_path / "poles", verify=True)
