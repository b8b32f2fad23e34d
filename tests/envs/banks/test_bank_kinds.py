"""Banks of worlds with kinds of episode, endings, signals and frames, against naive simulation."""

import json
import shutil

import gymnasium as gym
import numpy as np
import pytest
from bank_files import read
from bounded import PROTOCOL, Bounded

from sprii_envs.banks import D_CLEAN, Bank, BankError, build, simulate, storage
from sprii_envs.world import draw_states, rollout


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return build(PROTOCOL, tmp_path_factory.mktemp("banks") / "bounded")


TRAIN = ["still", "push", "push", "chase", "chase", "chase"]
PLANNED = {"still": 9, "push": 20, "chase": 24}


def test_episodes_go_system_by_system_with_kinds_in_order(bank):
    table = bank.table
    assert table["kind"].tolist() == TRAIN * 4 + ["push", "chase"] * 5 + ["chase"] * 3
    assert table["system"].tolist() == [*np.repeat(range(4), 6), *np.repeat(range(4, 9), 2), 9, 10, 11]
    assert table["rollout"].tolist() == [*range(6)] * 4 + [0, 1] * 5 + [0] * 3
    assert table["split"].tolist() == ["train"] * 24 + ["validation"] * 10 + ["sealed"] * 3
    assert table["episode"].tolist() == list(range(37))
    assert len(bank) == PROTOCOL.episodes == 37


def test_groups_and_levels_are_columns(bank):
    table = bank.table
    assert table["group"].tolist() == [""] * 24 + ["uniform"] * 4 + ["between"] * 6 + [""] * 3
    assert table["drag_level"].tolist() == [*np.repeat(range(4), 6)] + [-1] * 13
    levels = 0.5 + 3.5 * np.arange(4) / 3
    np.testing.assert_allclose(table["drag"][:24], np.repeat(levels, 6), rtol=1e-15)
    np.testing.assert_allclose(table["drag"][28:34], np.repeat((levels[1:] + levels[:-1]) / 2, 2), rtol=1e-15)
    assert bank.systems.levels[:, 0].tolist() == [0, 1, 2, 3] + [-1] * 8
    assert simulate.systems(PROTOCOL) == bank.systems


def test_every_episode_is_what_its_start_and_actions_give(bank):
    """One by one through `rollout`, the ending found by looking at the positions."""
    endings = []
    for row in range(len(bank)):
        planned = PLANNED[bank.table["kind"][row]]
        values = np.array([[bank.table["drag"][row]]])
        start = bank["states"][row, 0].astype(np.float64)
        alone = rollout(Bounded(), values, start, bank["actions"][row, : planned - 1])
        states = alone.states[0].astype(np.float32)
        assert np.array_equal(bank["states"][row, :planned], states)
        assert np.array_equal(bank["rewards"][row, : planned - 1], alone.rewards[0].astype(np.float32))
        distance = np.abs(alone.states[0, 1:, :2]).sum(axis=1)
        assert np.array_equal(bank["distance"][row, : planned - 1], distance.astype(np.float32))
        assert np.array_equal(bank["far"][row, : planned - 1], distance > 1.0)
        for column, entries in (("states", planned), ("actions", planned - 1), ("distance", planned - 1)):
            assert not bank[column][row, entries:].any()
        out = np.abs(alone.states[0, 1:, :2]) > 1.2
        length, ending = planned, ""
        if out.any():
            first = int(out.any(axis=1).argmax())
            length, ending = first + 1, "left or right" if out[first, 0] else "top or bottom"
        assert (bank.table["length"][row], bank.table["ending"][row]) == (length, ending)
        endings.append(ending)
    assert set(endings) == {"", "left or right", "top or bottom"}  # or the test says little


def test_columns_have_the_worlds_types(bank):
    assert bank.column("far").dtype == "|b1"
    assert bank.column("distance").dtype == "<f4"
    assert bank.column("frames").shape == (37, 24, 16, 16)
    assert set(bank.columns) == {"states", "actions", "rewards", "far", "distance", "frames"}


def test_a_still_start_has_no_velocity(bank):
    still = bank.table["kind"] == "still"
    assert not bank["states"][still, 0, 2:].any()
    assert bank["states"][~still, 0, 2:].all()


def test_windows_stay_before_the_ending(bank):
    row = int(np.flatnonzero(bank.table["ending"] != "")[0])
    length = int(bank.table["length"][row])
    bank.windows("states", row, 0, length)
    for read_window in (bank.windows, lambda _, *window: bank.frames(*window)):
        with pytest.raises(BankError, match=rf"not inside episode {row}, which has {length} entries"):
            read_window("states", row, 0, length + 1)


def windows(bank, length, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.flatnonzero(bank.table["length"] >= length), 50)
    return rows, rng.integers(0, bank.table["length"][rows] - length, endpoint=True)


def test_stored_frames_are_what_the_states_show(bank, tmp_path):
    without = build(PROTOCOL.replace(frames=None), tmp_path / "bank")
    assert "frames" not in without.columns
    rows, starts = windows(bank, 6)
    stored = bank.frames(rows, starts, 6)
    assert stored.shape == (50, 6, 16, 16)
    assert stored.dtype == np.uint8
    assert np.array_equal(stored, without.frames(rows, starts, 6, size=16))
    states = bank.windows("states", rows, starts, 6).astype(np.float64)
    one_by_one = [[bank.world.draw(state[None], 16)[0] for state in window] for window in states]
    assert np.array_equal(stored, one_by_one)
    assert stored.any(axis=(2, 3)).all()  # the disc is in view
    other = bank.frames(rows, starts, 6, size=(12, 24))
    assert other.shape == (50, 6, 12, 24)
    assert np.array_equal(other[3, 2], bank.world.draw(states[3, 2][None], (12, 24))[0])
    for size in (16, 24):
        out = np.full((50, 6, size, size), 7, np.uint8)
        assert bank.frames(rows, starts, 6, size, out) is out
        assert np.array_equal(out, without.frames(rows, starts, 6, size))


def test_frames_beyond_the_planned_length_are_black(bank):
    for row, kind in enumerate(bank.table["kind"]):
        assert bank["frames"][row, : PLANNED[kind]].any(axis=(1, 2)).sum() > 0
        assert not bank["frames"][row, PLANNED[kind] :].any()


def test_many_frames_are_drawn_in_blocks_without_a_seam(bank):
    states = np.random.default_rng(0).uniform(-1, 1, (3, 400, 4)).astype(np.float32)  # more than a block
    frames = draw_states(bank.world, states, 8)
    assert np.array_equal(frames[2, 399], bank.world.draw(states[2, 399:].astype(np.float64), 8)[0])
    assert np.array_equal(frames[1, 111:113], bank.world.draw(states[1, 111:113].astype(np.float64), 8))


def test_frames_that_cannot_be_had(bank, tmp_path):
    without = build(PROTOCOL.replace(frames=None), tmp_path / "bank")
    with pytest.raises(BankError, match="stores no frames, so say which to draw"):
        without.frames([0], [0], 2)
    with pytest.raises(ValueError, match="image_size"):
        bank.frames([0], [0], 2, size=4)
    with pytest.raises(BankError, match="out must be"):
        bank.frames([0], [0], 2, size=8, out=np.empty((1, 2, 8, 9), np.uint8))


def test_a_sealed_split_opens_on_request_only(bank):
    with pytest.raises(BankError, match=r"the split 'sealed' is sealed.*unseal=True"):
        bank.split("sealed")
    assert len(bank.split("sealed", unseal=True)) == 3
    assert len(bank.split("train")) == 24


def test_info_and_description(bank):
    info = bank.info()
    assert json.loads(json.dumps(info)) == info
    table = bank.table
    whole = table["ending"] == ""
    assert info["complete_episodes"] == whole.mean()
    train = (table["split"] == "train") & (table["kind"] == "chase")
    assert info["kinds"]["chase"]["complete"]["train"] == whole[train].mean()
    assert info["kinds"]["push"]["episodes"] == (table["kind"] == "push").sum()
    assert set(info["kinds"]["push"]["complete"]) == {"train", "validation"}
    assert info["complete"]["sealed"] == whole[-3:].mean()
    assert sum(info["endings"].values()) == (~whole).sum()
    far = [bank["far"][row, : length - 1].any() for row, length in enumerate(table["length"])]
    assert info["signals"]["far"] == np.mean(far)
    assert info["signals"]["distance"] == 1.0
    text = bank.describe()
    for part in ("3 sealed (sealed)", "left or right", f"{np.mean(far):.1%} of episodes", "37×24×16×16 uint8"):
        assert part in text
    assert "still     4 of 9 observations, 100.0% of full length" in text
    assert f"{whole[train].mean():.1%} of train, " in text


@pytest.mark.parametrize("episodes", [0, 12, 24, 36])
def test_same_bytes_after_an_interruption_and_with_two_workers(bank, tmp_path, episodes):
    path, contents = tmp_path / "bank", read(bank.path)

    def stop(done, total):
        assert total == 37
        if done >= episodes:
            raise InterruptedError

    with pytest.raises(BankError):
        build(PROTOCOL, path, progress=stop)
    if episodes == 24:
        with open(storage.partial_path(path) / "outcome.i32", "r+b") as file:
            file.write(b"\xff")  # in the first chunk
    seen = []
    build(PROTOCOL, path, workers=2, progress=lambda done, total: seen.append(done))
    assert seen[0] == {24: 12, 36: 36}.get(episodes, episodes)
    assert read(path) == contents


def test_opening_a_bank_again(bank, tmp_path):
    copy = Bank.open(shutil.copytree(bank.path, tmp_path / "copy"), "checksums", protocol=PROTOCOL)
    assert copy.fingerprint == bank.fingerprint


NESTED = D_CLEAN.replace(systems={"train": 5, "test": 3}, steps=50, systems_per_chunk=2, nested=True)


def test_nested_banks_share_their_first_episodes(tmp_path):
    large = build(NESTED.replace(rollouts=8), tmp_path / "8")
    for rollouts in (1, 2, 4):
        small = build(NESTED.replace(rollouts=rollouts), tmp_path / str(rollouts))
        first = large.table["rollout"] < rollouts
        for column in large.columns:
            assert np.array_equal(small[column], large[column][first])
        assert np.array_equal(small.table["drag"], large.table["drag"][first])
    assert len(np.unique(large["states"][:, 0], axis=0)) == len(large)
    assert len(np.unique(large["actions"].reshape(len(large), -1), axis=0)) == len(large)
    assert not np.isin(large["states"][:, 0, 0], build(NESTED.replace(nested=False), tmp_path / "n")["states"]).any()


def test_nested_kinds_do_not_depend_on_each_others_number(bank, tmp_path):
    nested = PROTOCOL.replace(nested=True, frames=None)
    one = build(nested, tmp_path / "one")
    rollouts = {**nested.rollouts, "train": {"push": 4, "chase": 2}}
    other = build(nested.replace(rollouts=rollouts), tmp_path / "other")
    for kind, count in (("push", 2), ("chase", 2)):
        a, b = (x["states"][(x.table["kind"] == kind) & (x.table["system"] == 1)][:count] for x in (one, other))
        assert np.array_equal(a, b)


class Unfaithful(Bounded):
    endings = ("left or right",)


gym.register("test/Unfaithful-v0", entry_point=f"{__name__}:UnfaithfulEnv")


def test_an_undeclared_reason_is_an_error():
    protocol = PROTOCOL.replace(env_id="test/Unfaithful-v0")
    protocol = protocol.replace(systems={"train": 60}, rollouts={"train": {"chase": 1}}, sealed_splits=())
    protocol = protocol.replace(systems_per_chunk=60)
    with pytest.raises(ValueError, match="ended an episode for 'top or bottom', not one of its endings"):
        simulate.simulate(protocol, np.full((60, 1), 0.5), simulate.chunks(protocol)[0])


class Broken(Bounded):
    def step(self, state, force, prepared):
        after, extras = super().step(state, force, prepared)
        after[:1] = np.nan
        return after, extras


gym.register("test/Broken-v0", entry_point=f"{__name__}:BrokenEnv")


def test_a_state_that_is_not_finite_is_an_error():
    protocol = PROTOCOL.replace(env_id="test/Broken-v0")
    with pytest.raises(ValueError, match="state of an episode of system 0 is not finite at step 1"):
        simulate.simulate(protocol, np.array([[0.5], [1.0]]), simulate.chunks(protocol)[0])
