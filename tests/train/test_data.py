"""Windows against a naive reader, and who is paired with whom, recovered from the numbers in the batch."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import HISTORY, HORIZONS, PROTOCOL, naive_windows

from sprii_envs.banks import ArrayStore, Bank, BankError, Stream, build
from sprii_envs.banks.populations import Combinations
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.protocol import Windows
from sprii_train.recipes import POKE_RECIPES, RECIPES, Spaced

LAST = 20 - HISTORY - HORIZONS[-1]


def assert_equal(a: Windows, b: Windows) -> None:
    for name in Windows._fields:
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            assert x.dtype == y.dtype == torch.float32
            assert torch.equal(x, y), name


def origin(bank: Bank, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Episode and start of each window, found by looking for its first and last observation in the bank."""
    states = np.asarray(bank["states"], dtype=np.float32)
    episodes, starts = [], []
    for observations in windows.observations.numpy():
        hits = np.argwhere((states == observations[0]).all(-1))
        assert len(hits) == 1
        episode, start = hits[0]
        assert (states[episode, start + HISTORY - 1] == observations[-1]).all()
        episodes.append(episode)
        starts.append(start)
    return np.array(episodes), np.array(starts)


def test_a_bare_integer_whose_table_is_not_known(bank: Bank, tmp_path):
    table = bank.split("test").select(np.arange(len(bank.split("test")))[::-1])
    w = WindowSampler(table, HISTORY, HORIZONS[-1]).batch(0, PairSampler(table, SAME_SYSTEM).batch(0, 8))
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    assert_equal(reader.read(w.donor, w.donor_start), reader.read(w.donor.episodes, w.donor_start))
    assert_equal(reader.histories(w.donor, w.donor_start), reader.histories(w.donor.episodes, w.donor_start))
    other = build(bank.protocol.replace(seed=bank.protocol.seed + 1), tmp_path / "other")
    with pytest.raises(ValueError, match="rows of another store's table"):
        PairedWindows(reader, other.split("train"), pairs=4)


def test_reader_equals_the_naive_one(bank: Bank):
    rng = np.random.default_rng(0)
    episodes, starts = rng.integers(0, 88, 30), rng.integers(0, LAST + 1, 30)
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    assert_equal(reader.read(episodes, starts), naive_windows(bank, episodes, starts))
    without = WindowReader(bank, HISTORY, HORIZONS).read(episodes, starts)
    assert_equal(without, naive_windows(bank, episodes, starts)._replace(labels=None))
    with pytest.raises(BankError):
        reader.read(np.array([0]), np.array([LAST + 1]))


def test_labels_are_standardised_by_training_systems_only(bank: Bank):
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    train = reader.read(np.arange(48), np.zeros(48, np.int64)).labels
    assert train is not None
    assert train.shape == (48, 1)
    assert float(train.double().mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(train.double().std(correction=0)) == pytest.approx(1.0, abs=1e-6)
    rest = reader.read(np.arange(48, 88), np.zeros(40, np.int64)).labels
    assert rest is not None
    assert abs(float(rest.mean())) > 1e-3
    drag = bank.table["drag"]
    slope = np.polyfit(drag, np.concatenate([train, rest])[:, 0], 1)
    np.testing.assert_allclose(slope, [1 / drag[:48].std(), -drag[:48].mean() / drag[:48].std()], rtol=1e-4)


@pytest.mark.filterwarnings("error")
def test_statistics_of_a_constant_label(tmp_path: Path):
    """One drag in training: labels there are 0, and those of other systems their distance from it."""
    systems = {"train": Combinations({"drag": (0.7,)}), "test": Combinations({"drag": (0.2, 1.7)})}
    bank = build(PROTOCOL.replace(systems=systems, rollouts=3), tmp_path / "bank")
    labels = WindowReader(bank, HISTORY, HORIZONS, ("drag",)).read(np.arange(9), np.zeros(9, np.int64)).labels
    assert labels is not None
    np.testing.assert_allclose(labels[:, 0], [0.0] * 3 + [-0.5] * 3 + [1.0] * 3, rtol=1e-6)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_pairs_obey_the_relation(bank: Bank, name: str, split: str):
    recipe, pairs = RECIPES[name], 6
    data = PairedWindows(
        WindowReader(bank, HISTORY, HORIZONS),
        split,
        relation=recipe.relation,
        kernel=recipe.kernel,
        pairs=pairs,
        seed=2,
    )
    legal = np.flatnonzero(bank.table["split"] == split)
    seen = set()
    for step in range(12):
        windows = data(step)
        episodes, starts = origin(bank, windows)
        assert_equal(windows, naive_windows(bank, episodes, starts)._replace(labels=None))
        assert np.isin(episodes, legal).all()
        assert ((starts >= 0) & (starts <= LAST)).all()
        donor, recipient = episodes[:pairs], episodes[pairs:]
        assert len(set(recipient // 4)) == pairs  # distinct systems
        if name == "same-rollout":
            assert (donor == recipient).all()
            assert (starts[:pairs] + HISTORY <= starts[pairs:]).all()
        elif name == "align-random":
            assert (donor // 4 != recipient // 4).all()
            assert sorted(donor // 4) == sorted(recipient // 4)
        else:
            assert (donor // 4 == recipient // 4).all()
            assert (donor != recipient).all()
        seen |= set(zip(recipient.tolist(), starts[pairs:].tolist(), strict=True))
    assert len(seen) > 45  # of 72 draws


def test_batches_are_a_pure_function_of_seed_and_step(bank: Bank):
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    one, two = PairedWindows(reader, pairs=6, seed=1), PairedWindows(reader, pairs=6, seed=1)
    forward = [one(step) for step in range(5)]
    torch.manual_seed(99)
    for step in (4, 0, 3, 3, 1, 2):
        assert_equal(two(step), forward[step])
    for a, b in pairwise(forward):
        assert not torch.equal(a.observations, b.observations)
    assert not torch.equal(PairedWindows(reader, pairs=6, seed=2)(0).observations, forward[0].observations)


def test_arms_see_the_same_recipients(bank: Bank):
    """Random exchanges donors between the pairs of a batch and leaves the recipients alone."""
    reader = WindowReader(bank, HISTORY, HORIZONS)
    arms = [RECIPES[name] for name in ("align", "align-random")]
    for step in range(4):
        batches = [PairedWindows(reader, relation=a.relation, kernel=a.kernel, pairs=6, seed=3)(step) for a in arms]
        (related, _), (random, _) = (origin(bank, b) for b in batches)
        assert (related[6:] == random[6:]).all()
        assert sorted(related[:6]) == sorted(random[:6])
        assert torch.equal(batches[0].observations[6:], batches[1].observations[6:])


@pytest.mark.parametrize("name", ["spaced-rollout", "spaced-system"])
def test_donors_of_one_rollout_and_of_others_differ_in_the_rollout_alone(bank: Bank, name: str):
    recipe, pairs, kept = POKE_RECIPES[name], 6, []
    assert isinstance(recipe, Spaced)
    assert recipe.apart == 12
    relation, kernel = recipe.pairing(bank.split("train"))
    for apart in (None, 2):
        data = PairedWindows(
            WindowReader(bank, HISTORY, HORIZONS), relation=relation, kernel=kernel, pairs=pairs, seed=2, apart=apart
        )
        kept.append(data.identity())
    for step in range(6):
        episodes, starts = origin(bank, data(step))
        assert (starts[:pairs] + 2 <= starts[pairs:]).all()
        assert (episodes[:pairs] // 4 == episodes[pairs:] // 4).all()
        assert ((episodes[:pairs] == episodes[pairs:]) == (name == "spaced-rollout")).all()
    assert kept[1] == kept[0] | {"apart": 2}


# Frames, anchors, histories


def naive_frames(bank: Bank, episodes: np.ndarray, starts: np.ndarray, nows: np.ndarray, history: int) -> Windows:
    """Windows of frames, drawn one at a time; `nows` are the last observed entries."""

    def frame(episode: int, t: int) -> np.ndarray:
        return bank.world.draw(bank["states"][episode, t][None].astype(np.float64), 16)[0]

    seen, future = [], []
    for e, start, now in zip(episodes.tolist(), starts.tolist(), nows.tolist(), strict=True):
        seen.append([frame(e, max(start - 1, 0)), *(frame(e, start + i) for i in range(history))])
        future.append([[frame(e, now + h - 1), frame(e, now + h)] for h in (1, 4, 16)])
    actions = [bank["actions"][e, s : s + history - 1] for e, s in zip(episodes, starts, strict=True)]
    planned = [bank["actions"][e, now : now + 16] for e, now in zip(episodes, nows, strict=True)]
    return Windows(*(torch.from_numpy(np.array(x)) for x in (seen, actions, future, planned)))


def assert_same(got: Windows, wanted: Windows) -> None:
    for name, x, y in zip(Windows._fields, got, wanted, strict=True):
        assert (x is None) == (y is None), name
        assert x is None or (x.dtype == y.dtype and torch.equal(x, y)), name


def test_frames_equal_those_drawn_one_at_a_time(poke_bank: Bank):
    """Windows at an episode's start, within it and at its end, alone and mixed."""
    reader = WindowReader(poke_bank, 24, (1, 4, 16), image=16)
    episodes, starts = np.array([3, 3, 50, 100, 7]), np.array([0, 1, 24, 0, 11])
    for rows in (np.arange(5), np.array([0, 3]), np.array([1, 2, 4])):
        wanted = naive_frames(poke_bank, episodes[rows], starts[rows], starts[rows] + 23, 24)
        assert wanted.observations.dtype == torch.uint8
        assert_same(reader.read(episodes[rows], starts[rows]), wanted)
    seen = reader.read(episodes, starts).observations
    assert (seen[:, 0] == seen[:, 1]).flatten(1).all(1).tolist() == [True, False, False, True, False]


def test_still_windows_begin_without_a_difference_wherever_they_begin(spring_bank: Bank):
    """SpringWorld's; targets keep theirs, and so do all frames after the first."""
    episodes, starts = np.array([0, 1, 2]), np.array([0, 7, 81])
    usual, still = (WindowReader(spring_bank, 96, (1, 4, 16), image=16, still=one) for one in (False, True))
    seen, wanted = still.read(episodes, starts), usual.read(episodes, starts)
    assert (seen.observations[:, 0] == seen.observations[:, 1]).all()
    assert_same(seen._replace(observations=seen.observations[:, 1:]),
                wanted._replace(observations=wanted.observations[:, 1:]))  # fmt: skip
    moved = (wanted.observations[:, 0] != wanted.observations[:, 1]).flatten(1).any(1)
    assert moved.tolist() == [False, True, True]
    assert_same(still.histories(episodes, starts), seen._replace(
        future_observations=seen.future_observations[:, :0], future_actions=seen.future_actions[:, :0]))  # fmt: skip


def forced(bank: Bank):
    table = bank.split("train")
    return table.select(table["kind"] == "forced")


def test_what_is_read_is_part_of_the_identity(spring_bank: Bank):
    """Old runs of states keep theirs: nothing is added for them."""

    def identity(image: int, still: bool) -> dict:
        reader = WindowReader(spring_bank, 96, (1, 4), image=image, still=still)
        return PairedWindows(reader, forced(spring_bank), pairs=2).identity()

    assert not {"image", "still"} & identity(0, False).keys()
    told = identity(16, True)
    assert (told["image"], told["still"]) == (16, True)
    assert "still" not in identity(16, False)


def test_a_reader_of_your_own_is_part_of_the_identity(spring_bank: Bank):
    """By its plain attributes, or by what it says itself."""

    class Loud(WindowReader):
        gain = 1.0

    class Told(WindowReader):
        def identity(self) -> dict[str, Any]:
            return {"stem": "a"}

    def identity(kind: type[WindowReader], **attributes: Any) -> dict:
        reader = kind(spring_bank, 96, (1, 4))
        vars(reader).update(attributes)
        return PairedWindows(reader, forced(spring_bank), pairs=2).identity()

    assert identity(Loud, gain=1.0) != identity(Loud, gain=100.0)
    assert identity(Loud, gain=2.0) == identity(Loud, gain=2.0)
    assert identity(Told)["reader"] == {"stem": "a"}
    assert "reader" not in identity(WindowReader)


def test_a_table_in_place_of_a_split(poke_bank: Bank):
    chosen = poke_bank.split("train")
    chosen = chosen.select(chosen["rollout"] < 2)
    data = PairedWindows(WindowReader(poke_bank, 24, (1, 4, 16)), chosen, pairs=6, seed=0)
    named = PairedWindows(WindowReader(poke_bank, 24, (1, 4, 16)), "train", pairs=6, seed=0)
    assert len(data.table) == 64
    assert len(named.table) == 128
    assert data.identity() != named.identity()
    first = poke_bank["states"][chosen["episode"]]
    for seen in data(0).observations.numpy():
        assert (first == seen[0]).all(-1).sum() == 1


# Stores of several streams, or without actions


@pytest.fixture(scope="module")
def streams() -> tuple[ArrayStore, dict[str, np.ndarray]]:
    """Six episodes of 12 … 17 observations: touch, an inertial sensor three times as fast, and actions."""
    rng, lengths = np.random.default_rng(0), np.arange(12, 18)
    labels = {"episode": np.arange(6) * 10, "system": np.arange(6) // 2, "rollout": np.arange(6) % 2, "length": lengths}
    arrays = {
        "touch": rng.standard_normal((lengths.sum(), 2, 2)),
        "imu": rng.standard_normal((3 * lengths.sum(), 5)),
        "push": rng.standard_normal(((lengths - 1).sum(), 2)),
    }
    columns = {
        "touch": arrays["touch"],
        "imu": Stream(arrays["imu"], Fraction(3)),
        "push": Stream(arrays["push"], per="transition"),
    }
    return ArrayStore(EpisodeTable(labels), columns, name="gripper"), arrays


def test_several_streams_are_a_mapping(streams: tuple[ArrayStore, dict[str, np.ndarray]]):
    """Every stream on the clock of the table, a faster one with all its entries of a step; episodes by their ids."""
    store, arrays = streams
    reader = WindowReader(store, HISTORY, HORIZONS, observation=("touch", "imu"), action="push")
    episodes, starts = np.array([30, 0, 50]), np.array([1, 2, 8])
    got = reader.read(episodes, starts)
    first = np.concatenate([[0], np.cumsum(np.arange(12, 18))])
    for i, (row, start) in enumerate(zip(episodes // 10, starts, strict=True)):
        at = first[row] + start
        now = at + HISTORY - 1
        imu = arrays["imu"].reshape(-1, 3, 5)
        for name, whole in (("touch", arrays["touch"]), ("imu", imu)):
            seen, ahead = got.observations[name], got.future_observations[name]
            assert seen.dtype == ahead.dtype == torch.float32
            np.testing.assert_allclose(seen[i], whole[at : at + HISTORY], rtol=1e-6)
            np.testing.assert_allclose(ahead[i], whole[now + np.array(HORIZONS)], rtol=1e-6)
            np.testing.assert_allclose(reader.presents(episodes, starts)[name][i], whole[at], rtol=1e-6)
        pushes = arrays["push"][first[row] - row :]
        np.testing.assert_allclose(got.actions[i], pushes[start : start + HISTORY - 1], rtol=1e-6)
        then = start + HISTORY - 1
        np.testing.assert_allclose(got.future_actions[i], pushes[then : then + HORIZONS[-1]], rtol=1e-6)
    histories = reader.histories(episodes, starts)
    assert {name: tuple(ahead.shape) for name, ahead in histories.future_observations.items()} == {
        "touch": (3, 0, 2, 2), "imu": (3, 0, 3, 5),
    }  # fmt: skip
    for name in ("touch", "imu"):
        assert torch.equal(histories.observations[name], got.observations[name])


def test_episodes_without_actions(streams: tuple[ArrayStore, dict[str, np.ndarray]]):
    store, _ = streams
    reader = WindowReader(store, HISTORY, HORIZONS, observation="touch", action=None)
    got = reader.read(np.array([0, 50]), np.array([0, 3]))
    assert got.actions.shape == (2, HISTORY - 1, 0)
    assert got.future_actions.shape == (2, HORIZONS[-1], 0)
    assert got.observations.shape == (2, HISTORY, 2, 2)
    data = PairedWindows(reader, pairs=2)
    batch = data(0)
    assert (batch.observations.shape, batch.actions.shape) == ((4, HISTORY, 2, 2), (4, HISTORY - 1, 0))
    pushed = WindowReader(store, HISTORY, HORIZONS, observation="touch", action="push")
    both = WindowReader(store, HISTORY, HORIZONS, observation=("touch", "imu"), action=None)
    identities = [json.dumps(PairedWindows(each, pairs=2).identity()) for each in (reader, pushed, both)]
    assert len(set(identities)) == 3


def test_columns_that_a_store_does_not_have(streams: tuple[ArrayStore, dict[str, np.ndarray]]):
    store, _ = streams
    for named in ({"observation": "sound", "action": None}, {"observation": ("touch", "sound"), "action": "push"}):
        with pytest.raises(ValueError, match="gripper has no column 'sound'; columns: touch, imu, push"):
            WindowReader(store, HISTORY, HORIZONS, **named)
    with pytest.raises(ValueError, match="gripper has no column 'actions'"):
        WindowReader(store, HISTORY, HORIZONS, observation="touch")
    with pytest.raises(ValueError, match="gripper draws no frames: image is 16; legal: 0"):
        WindowReader(store, HISTORY, HORIZONS, image=16, observation="touch", action="push")


@pytest.mark.parametrize("values", [["a", "b", "a"] * 2, [0.0, np.nan] * 3, [1.0, np.inf] * 3])
def test_labels_that_are_no_finite_numbers(streams: tuple[ArrayStore, dict[str, np.ndarray]], values: list):
    store, arrays = streams
    table = EpisodeTable({name: store.table[name] for name in store.table.columns} | {"grip": np.array(values)})
    labelled = ArrayStore(table, {"touch": arrays["touch"]}, name="gripper")
    with pytest.raises(ValueError, match=r"^the property 'grip' is given as a label, but is not a finite number in"):
        WindowReader(labelled, HISTORY, HORIZONS, ("grip",), observation="touch", action=None)
