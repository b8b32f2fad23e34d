"""The store of episodes and its anchors: against lists, by brute force, and on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_world import PROPERTIES, collect
from safetensors.torch import load_file, save_file

from sprii_envs.relations import SAME_SYSTEM, PairSampler
from sprii_train.checkpoints import CheckpointError
from sprii_train.control.anchors import anchors, epoch_order, rows, split
from sprii_train.control.experience import Experience

ARRAYS = ("observations", "actions", "lengths", "systems", "properties")


@pytest.fixture
def store() -> Experience:
    """Episodes 0–2 of 12 steps and 3–4 of 5, of systems 4, 1, 4, 1, 2."""
    return collect([1, 2], 5, into=collect([4, 1, 4], 12))


def episode(store: Experience, i: int) -> tuple[np.ndarray, np.ndarray]:
    """One episode by adding up lengths."""
    steps = store.lengths.tolist()
    o, a = sum(steps[:i]) + i, sum(steps[:i])
    return store.observations[o : o + steps[i] + 1], store.actions[a : a + steps[i]]


def test_transitions_never_cross_episodes(store: Experience):
    found = store.transitions()
    seen = 0
    for i in range(len(store)):
        observations, actions = episode(store, i)
        assert store.first[i] == seen
        for t in range(len(actions)):
            assert (found.before[seen] == observations[t]).all()
            assert (found.action[seen] == actions[t]).all()
            assert (found.after[seen] == observations[t + 1]).all()
            seen += 1
    assert seen == len(found.action) == 46


def test_windows(store: Experience):
    episodes, starts = np.array([0, 4, 2, 3]), np.array([9, 0, 0, 2])
    observations, actions = store.windows(episodes, starts, 4)
    for i in range(4):
        all_observations, all_actions = episode(store, episodes[i])
        assert (observations[i] == all_observations[starts[i] : starts[i] + 4]).all()
        assert (actions[i] == all_actions[starts[i] : starts[i] + 3]).all()
    with pytest.raises(ValueError, match="4 observations from 3 leaves episode 4, which has 6"):
        store.windows(np.array([0, 4]), np.array([0, 3]), 4)
    with pytest.raises(ValueError, match="from -1 leaves episode 0"):
        store.windows(np.array([0]), np.array([-1]), 4)


def test_a_bare_integer_whose_table_is_not_known(store: Experience):
    part = store.table().select([4, 2, 1, 0])
    pairs = PairSampler(part, SAME_SYSTEM, on_missing="drop").batch(0, 5)
    found = store.windows(pairs.donor, np.zeros(5, int), 3)
    assert np.array_equal(found[0], store.windows(part["episode"][pairs.donor], np.zeros(5, int), 3)[0])
    collect([3, 3], 5, into=store)  # it grows, and the rows still mean the same episodes
    assert np.array_equal(found[1], store.windows(pairs.donor, np.zeros(5, int), 3)[1])
    other = collect([2, 2, 2, 2, 2], 12)
    with pytest.raises(ValueError, match="rows of another store's table"):
        other.windows(pairs.donor, np.zeros(5, int), 3)
    for absent in (-1, 7):
        with pytest.raises(ValueError, match=f"episodes names {absent}; legal: integers >= 0 and below 7"):
            store.windows(np.array([absent]), np.array([0]), 3)


def test_table(store: Experience):
    table = store.table()
    assert table["system"].tolist() == ["system-4", "system-1", "system-4", "system-1", "system-2"]
    assert table["rollout"].tolist() == [0, 0, 1, 1, 0]
    assert table["length"].tolist() == [13, 13, 13, 6, 6]
    assert (table["gain"] == store.properties[:, 0]).all()
    assert (table["property_length"] == store.properties[:, 1]).all()


def test_round_trip_and_hash(tmp_path: Path, store: Experience):
    store.save(tmp_path / "experience")
    back = Experience.load(tmp_path / "experience")
    assert back.property_names == PROPERTIES
    for name in ARRAYS:
        a, b = getattr(store, name), getattr(back, name)
        assert a.dtype == b.dtype
        assert (a == b).all()
    assert back.digest() == store.digest()
    assert sorted(p.name for p in (tmp_path / "experience").iterdir()) == ["episodes.safetensors", "experience.json"]
    collect([7], 4, into=back).save(tmp_path / "experience")
    assert len(Experience.load(tmp_path / "experience")) == 6
    assert [p.name for p in tmp_path.iterdir()] == ["experience"]


@pytest.mark.parametrize("name", ARRAYS)
def test_hash_is_of_everything(store: Experience, name: str):
    before, array = store.digest(), getattr(store, name)
    changed = array.copy()
    changed[-1] = "other" if name == "systems" else changed[-1] + 1
    setattr(store, name, changed)
    assert store.digest() != before


def test_damage_is_told(tmp_path: Path, store: Experience):
    path = tmp_path / "experience"
    store.save(path)
    arrays = load_file(path / "episodes.safetensors")
    arrays["actions"][3] += 1e-6
    save_file(arrays, path / "episodes.safetensors")
    with pytest.raises(CheckpointError, match=r"episodes\.safetensors is not what .*experience\.json is of"):
        Experience.load(path)
    arrays.pop("lengths")
    save_file(arrays, path / "episodes.safetensors")
    with pytest.raises(CheckpointError, match="does not hold experience: KeyError"):
        Experience.load(path)
    (path / "experience.json").write_text(json.dumps([1]))
    with pytest.raises(CheckpointError, match=r"experience\.json is damaged: list where an object"):
        Experience.load(path)
    with pytest.raises(CheckpointError, match="does not exist"):
        Experience.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observations": np.zeros((1, 3, 2))},
            r"observations of new episodes have shape \(1, 3, 2\); legal: \(1, 4, 2\)",
        ),
        ({"actions": np.zeros((1, 3, 2))}, r"actions of new episodes have shape \(1, 3, 2\); legal: \(1, 3, 1\)"),
        ({"actions": np.full((1, 3, 1), np.nan)}, "actions of new episodes must be finite; 3 are not"),
        ({"actions": np.zeros((0, 3, 1))}, "actions of new episodes"),
        ({"systems": ["a", "b"]}, r"systems of new episodes have shape \(2,\); legal: \(1,\)"),
        ({"properties": np.zeros((1, 3))}, r"properties of new episodes have shape \(1, 3\); legal: \(1, 2\)"),
        ({"systems": ["system-4"]}, r"system 'system-4' has properties \[1\.1, .*\] and \[0\.0, 0\.0\]"),
    ],
)
def test_bad_episodes_change_nothing(store: Experience, change: dict, message: str):
    good = {"observations": np.zeros((1, 4, 2)), "actions": np.zeros((1, 3, 1)), "systems": ["new"]}
    before = store.digest()
    with pytest.raises(ValueError, match=message):
        store.add(**(good | {"properties": np.zeros((1, 2))} | change))
    assert store.digest() == before


def test_one_id_for_each_system(store: Experience):
    with pytest.raises(ValueError, match="systems 'system-4' and 'twin' have the same properties"):
        store.add(np.zeros((1, 4, 2)), np.zeros((1, 3, 1)), ["twin"], store.properties[:1])


# Anchors and rows


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    window=st.integers(1, 5),
    first=st.integers(0, 3),
    dropped=st.integers(0, 2),
)
def test_rows_by_brute_force(lengths: list[int], window: int, first: int, dropped: int):
    at = anchors(np.array(lengths), window=window, first=first, dropped=dropped)
    expected, rows_expected = [], []
    for e, length in enumerate(lengths):
        for t in range(first, length - dropped):
            for offset in range(window):
                if t + offset < length - dropped:
                    rows_expected.append((len(expected), sum(lengths[:e]) + t + offset))
            reach = sum(1 for offset in range(window) if t + offset < length - dropped)
            expected.append((e, t, sum(lengths[:e]) + t, reach))
    assert list(zip(*(x.tolist() for x in at), strict=True)) == expected
    used = rows(at, np.arange(len(at.time)))
    assert list(zip(*(x.tolist() for x in used), strict=True)) == rows_expected
    some = np.arange(0, len(at.time), 2)
    part = rows(at, some)
    assert list(zip(*(x.tolist() for x in part), strict=True)) == [r for r in rows_expected if r[0] % 2 == 0]


def test_the_published_rows():
    """199 of 200 transitions, t = 0 never: 198 anchors with 10 rows each but for the last nine."""
    at = anchors(np.full(10, 200), window=10)
    assert len(at.time) == 1980
    assert at.time.min() == 1
    assert at.reach.sum() == 10 * (198 * 10 - 45)


@pytest.mark.parametrize(("count", "held"), [(0, 0), (9, 0), (57, 5), (100_000, 5000)])
def test_split(count: int, held: int):
    trained, validated = split(count, seed=3, iteration=2)
    assert len(validated) == held
    assert (np.diff(trained) > 0).all()
    assert sorted([*trained, *validated]) == list(range(count))
    if held:
        assert (split(count, seed=3, iteration=2)[1] == validated).all()
        assert not np.array_equal(split(count, seed=3, iteration=3)[1], validated)
        assert not np.array_equal(split(count, seed=4, iteration=2)[1], validated)


def test_epoch_order():
    key = {"seed": 1, "iteration": 2, "epoch": 3}
    order = epoch_order(50, 1, **key)
    assert sorted(order[0]) == list(range(50))
    assert (epoch_order(50, 1, **key) == order).all()
    for name in key:
        assert not np.array_equal(epoch_order(50, 1, **(key | {name: 9})), order)


def test_members_have_bootstrap_samples():
    """Of the rows' number, with repetitions; the same sample in all epochs of an iteration, in another order."""
    a, b, c = (epoch_order(300, 3, seed=1, iteration=i, epoch=e) for i, e in ((2, 0), (2, 1), (3, 0)))
    assert a.shape == (3, 300)
    for member in range(3):
        assert 0.55 < len(set(a[member])) / 300 < 0.71  # 1 − 1/e
        assert sorted(a[member]) == sorted(b[member])
        assert not np.array_equal(a[member], b[member])
        assert sorted(a[member]) != sorted(c[member])
    assert sorted(a[0]) != sorted(a[1])
