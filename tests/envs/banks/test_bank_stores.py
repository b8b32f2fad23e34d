"""Stores without a simulator: arrays in memory and recorded banks."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sprii_envs.banks import ArrayStore, RecordedBank, Recording, Store, StoreError, Stream, StreamSpec, open_store
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler

STREAMS = {
    "tactile": StreamSpec((4,)),
    "imu": StreamSpec((3,), "float64", "4"),
    "slow": StreamSpec((), "int32", "1/3"),
    "actions": StreamSpec((2,), per="transition"),
}
ORIGIN = {"source": "a test"}


def episode(i: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    rng, length = np.random.default_rng(i), 10 + i
    arrays = {
        "tactile": rng.random((length, 4)).astype("f4"),
        "imu": rng.random((4 * length, 3)),
        "slow": np.arange((length + 2) // 3),
        "actions": rng.random((length - 1, 2)).astype("f4"),
    }
    return arrays, {
        "episode": f"e{i}",
        "system": f"s{i // 2}",
        "split": "train" if i < 4 else "test",
        "hardness": i / 2,
    }


def record(path: Path, count: int = 6, **changed: Any) -> RecordedBank:
    with Recording(path, **{"streams": STREAMS, "origin": ORIGIN, "sealed": ("test",)} | changed) as recording:
        for i in range(recording.done, count):
            arrays, labels = episode(i)
            recording.append(arrays, **labels)
    return RecordedBank(path)


def test_a_recorded_bank_is_a_store_of_what_was_recorded(tmp_path: Path) -> None:
    bank = record(tmp_path / "bank")
    assert isinstance(bank, Store)
    assert bank.splits == ("train", "test")
    assert bank.table["rollout"].tolist() == [0, 1] * 3
    arrays = [episode(i)[0] for i in range(6)]
    assert np.array_equal(bank.windows("tactile", 3, [2, 5], 6), [arrays[3]["tactile"][s : s + 6] for s in (2, 5)])
    assert np.array_equal(bank.windows("imu", [5], [1], 7)[0], arrays[5]["imu"][4:32].reshape(7, 4, 3))
    assert bank.windows("slow", [2], [1], 8).tolist() == [[t // 3 for t in range(1, 9)]]
    assert np.array_equal(bank.windows("actions", [0], [0], 9)[0], arrays[0]["actions"])
    with pytest.raises(StoreError, match=r"window of 10 from 0 is not inside episode 0, which has 9 entries"):
        bank.windows("actions", [0], [0], 10)
    with pytest.raises(StoreError, match=r"no episode 6"):
        bank.windows("tactile", [0, 6], [0], 1)
    with pytest.raises(StoreError, match=r"no column 'state'; columns: tactile, imu, slow, actions"):
        bank.windows("state", [0], [0], 1)


def test_a_sealed_split_opens_only_when_it_is_unsealed(tmp_path: Path) -> None:
    bank = record(tmp_path / "bank")
    assert bank.split("train")["episode"].tolist() == [0, 1, 2, 3]
    with pytest.raises(StoreError, match="'test' is sealed"):
        bank.split("test")
    assert bank.split("test", unseal=True)["episode"].tolist() == [4, 5]
    with pytest.raises(StoreError, match="no split 'validation'; splits: train, test"):
        bank.split("validation")


def test_samplers_draw_pairs_of_a_recorded_bank(tmp_path: Path) -> None:
    table = record(tmp_path / "bank").split("train")
    pairs = PairSampler(table, SAME_SYSTEM, seed=0, distinct="system").batch(0, 2)
    windows = WindowSampler(table, 4, 2).batch(0, pairs)
    assert (table["system"][windows.recipient] == table["system"][windows.donor]).all()


def test_equal_contents_have_equal_fingerprints_and_every_change_shows(tmp_path: Path) -> None:
    bank = record(tmp_path / "a")
    assert record(tmp_path / "b").fingerprint == bank.fingerprint
    for i, changed in enumerate(({"sealed": ()}, {"origin": {"source": "another"}}, {"count": 5})):
        assert record(tmp_path / f"c{i}", **changed).fingerprint != bank.fingerprint
    copy = pickle.loads(pickle.dumps(bank))
    assert copy.fingerprint == bank.fingerprint
    shutil.rmtree(tmp_path / "a")
    data = pickle.dumps(bank)
    record(tmp_path / "a", 5)
    with pytest.raises(StoreError, match="replaced meanwhile"):
        pickle.loads(data)


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[3])
import test_bank_stores as tests
from sprii_envs.banks import recorded
recorded.SYNC_SECONDS = 0.0
calls, kill_at, fsync = 0, int(sys.argv[2]), os.fsync
def counted(descriptor):
    global calls
    calls += 1
    if calls == kill_at:
        os.kill(os.getpid(), 9)
    fsync(descriptor)
os.fsync = counted
tests.record(tests.Path(sys.argv[1]), 4, sealed=())
"""


def test_a_killed_recording_goes_on_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole", 4, sealed=())
    path = tmp_path / "bank"
    for kill_at in (3, 8, 9, 14, 200):
        arguments = [sys.executable, "-c", WRITER, str(path), str(kill_at), str(Path(__file__).parent)]
        ended = subprocess.run(arguments, check=False)
        assert ended.returncode == (0 if kill_at == 200 else -signal.SIGKILL)
    assert RecordedBank(path, verify=True).fingerprint == whole.fingerprint
    assert not [entry for entry in os.listdir(tmp_path) if entry not in ("whole", "bank", "bank.lock")]


def test_a_recording_of_other_streams_is_not_taken_up(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "bank", STREAMS)
    recording.__enter__()
    recording.append(episode(0)[0], system="a")
    recording.__exit__(RuntimeError, RuntimeError(), None)
    with pytest.raises(StoreError, match="of other streams or another origin"):
        record(tmp_path / "bank")
    with Recording(tmp_path / "bank", STREAMS) as recording:
        assert recording.done == 1
    with pytest.raises(StoreError, match="exists; choose another folder"):
        record(tmp_path / "bank")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tactile": np.zeros((9, 4))}, r"'imu' is float64 of shape \(40, 3\), expected float64 of shape \(36, 3\)"),
        ({"tactile": np.zeros((10, 5))}, r"'tactile' is float64 of shape \(10, 5\), expected float32"),
        ({"slow": np.zeros(4)}, r"'slow' is float64 of shape"),
        ({"actions": None}, r"has the columns \['imu', 'slow', 'tactile'\], not"),
        ({"slow": np.array([0, 1, 2**31, 3])}, "'slow' holds 2147483648, which int32 does not"),
        ({"slow": np.array([0, 1, 2, -(2**31) - 1])}, "'slow' holds -2147483649, which int32 does not"),
        ({"tactile": np.ma.masked_less(np.ones((10, 4)) * [1, 1, 1, -999], 0)}, "'tactile' has masked entries"),
    ],
)
def test_an_episode_that_does_not_fit_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in (episode(0)[0] | changed).items() if array is not None}
    with Recording(tmp_path / "bank", STREAMS) as recording:
        with pytest.raises(StoreError, match=message):
            recording.append(arrays, system="a")
        recording.append(episode(0)[0], system="a")
        with pytest.raises(StoreError, match=r"labels are \['length', 'mass', 'system'\]"):
            recording.append(episode(1)[0], system="a", mass=1.0)
    assert len(RecordedBank(tmp_path / "bank").table) == 1


def test_damage_is_named(tmp_path: Path) -> None:
    source = record(tmp_path / "source").path
    cases: list[tuple[str, Any, str]] = [
        ("tactile.f32", lambda data: data[:-1], "truncated"),
        ("episodes.npz", lambda data: data[: len(data) // 2], "truncated"),
        ("bank.json", lambda data: b"", "not JSON"),
        ("bank.json", lambda data: b"[" * 200_000, "nested"),
        ("bank.json", lambda data: data.replace(b"a test", b"b test"), "edited"),
        ("bank.json", lambda data: data.replace(b"tactile.f32", b"../../x.f32"), "edited"),
        ("bank.json", lambda data: json.dumps({**json.loads(data), "streams": 3}).encode(), "damaged"),
        ("bank.json", lambda data: data.replace(b"sprii-recorded", b"other"), "of format 'other'"),
    ]
    for i, (name, damage, message) in enumerate(cases):
        shutil.copytree(source, tmp_path / str(i))
        file = tmp_path / str(i) / name
        file.write_bytes(damage(file.read_bytes()))
        with pytest.raises(StoreError, match=message) as raised:
            RecordedBank(tmp_path / str(i))
        assert name in str(raised.value)
    flipped = source / "imu.f64"
    flipped.write_bytes(bytes([flipped.read_bytes()[0] ^ 1]) + flipped.read_bytes()[1:])
    RecordedBank(source)
    with pytest.raises(StoreError, match=r"imu\.f64 is damaged: its checksum is another"):
        RecordedBank(source).verify()


def test_stores_open_by_their_format(tmp_path: Path) -> None:
    assert isinstance(open_store(record(tmp_path / "bank").path), RecordedBank)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "bank.json").write_text('{"format": "none"}')
    with pytest.raises(StoreError, match="of format 'none'; registered: "):
        open_store(tmp_path / "other")
    with pytest.raises(StoreError, match=r"holds no store: it has no bank\.json$"):
        open_store(tmp_path)


def table_of(lengths: list[int]) -> EpisodeTable:
    ids = np.random.default_rng(0).permutation(len(lengths)) * 3 - 5
    return EpisodeTable({"episode": ids, "system": np.zeros(len(lengths), int), "length": lengths})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.sampled_from([1, 2, 5, "1/2", "1/4"]), st.data())
def test_windows_are_what_slicing_each_episode_gives(lengths: list[int], rate: Any, data: st.DataObject) -> None:
    table = table_of(lengths)
    per = data.draw(st.sampled_from(["observation", "transition"]))
    empty = Stream(np.empty((0, 2)), rate, per)
    counts = empty.counts(table["length"])
    values = np.random.default_rng(1).random((counts.sum(), 2))
    store = ArrayStore(table, {"x": Stream(values, rate, per)})
    row = data.draw(st.integers(0, len(lengths) - 1))
    steps = lengths[row] - (per == "transition")
    start = data.draw(st.integers(0, steps - 1))
    length = data.draw(st.integers(1, steps - start))
    own = values[counts[:row].sum() : counts[: row + 1].sum()]
    expected = [
        own[int(t * empty.rate)] if empty.rate <= 1 else own[t * int(empty.rate) : (t + 1) * int(empty.rate)]
        for t in range(start, start + length)
    ]
    assert np.array_equal(store.windows("x", table["episode"][row], start, length)[0], expected)


def test_plain_arrays_make_a_store() -> None:
    table = EpisodeTable({"episode": [4, 2], "system": ["a", "b"], "length": [5, 5]})
    states, actions = np.arange(20.0).reshape(2, 5, 2), np.arange(8.0).reshape(2, 4)
    store = ArrayStore(table, {"states": states, "actions": actions})
    assert store.splits == ("train",)
    assert np.array_equal(store.windows("states", [2, 4], [0, 1], 3), [states[1, :3], states[0, 1:4]])
    assert np.array_equal(store.windows("actions", [2], [0], 4), actions[1:])
    fingerprint = store.fingerprint
    assert ArrayStore(table, {"actions": actions, "states": states}).fingerprint == fingerprint
    states[0, 0, 0] = 9
    with pytest.raises(StoreError, match="have changed since"):
        store.verify()
    with pytest.raises(StoreError, match=r"'states' has shape \(2, 6, 2\), but the 2 episodes have lengths 5"):
        ArrayStore(table, {"states": np.zeros((2, 6, 2))})
    with pytest.raises(StoreError, match=r"'states' has 11 entries; 2 episodes of these lengths have 10"):
        ArrayStore(table, {"states": np.zeros((11, 2))})
    with pytest.raises(StoreError, match="no split 'test' to seal"):
        ArrayStore(table, {"states": states}, sealed=("test",))


def test_a_list_has_an_array_an_episode() -> None:
    table = EpisodeTable({"episode": [4, 2, 7], "system": ["a", "b", "a"], "length": [5, 3, 4]})
    states = [np.arange(2.0 * n).reshape(n, 2) + 100 * n for n in (5, 3, 4)]
    actions = [np.arange(float(n)) for n in (4, 2, 3)]
    store = ArrayStore(table, {"states": states, "actions": actions})
    ends = ArrayStore(table, {"states": np.concatenate(states), "actions": np.concatenate(actions)})
    assert store.fingerprint == ends.fingerprint
    assert np.array_equal(store.windows("states", [2, 7], [0, 1], 3), [states[1], states[2][1:]])
    assert np.array_equal(store.windows("actions", [7], [0], 3), [actions[2]])
    for wrong in (states[:2], [*states[:2], states[2][:1]], [*states[:2], np.zeros((4, 3))], [*states[:2], 1.0]):
        with pytest.raises(
            StoreError, match=r"'states' is a list of . arrays .*; legal: one for each of the 3 episodes"
        ):
            ArrayStore(table, {"states": wrong})  # type: ignore[dict-item]


@pytest.mark.parametrize("rate", [0, -1, "2/3", "x", None, float("nan"), 1.5])
def test_a_rate_that_no_stream_has_is_refused(rate: Any) -> None:
    with pytest.raises(ValueError, match=r"the rate of a stream is .*; legal: a positive integer, or 1/k"):
        Stream(np.zeros(3), rate)


def test_a_bare_integer_whose_table_is_not_known(tmp_path: Path) -> None:
    """Rows of a split are read as its episodes, whatever rows these have in the store; another store's are refused."""
    ids = np.random.default_rng(3).permutation(10)
    table = EpisodeTable(
        {"episode": ids, "system": np.arange(10) // 2, "length": np.full(10, 8), "split": ["test"] * 4 + ["train"] * 6}
    )
    store = ArrayStore(table, {"x": np.repeat(ids.astype(float), 8)[:, None]})  # every entry is its episode's id
    train = store.split("train").select(np.arange(6)[::-1])
    pairs = PairSampler(train, SAME_SYSTEM, seed=0).batch(0, 9)
    windows = WindowSampler(train, history=4, horizon=2, seed=1).batch(0, pairs)
    for side, rows in zip(store.read(windows, "x", 4), (windows.recipient, windows.donor), strict=True):
        assert (side[:, :, 0] == train["episode"][np.asarray(rows)][:, None]).all()
    other = ArrayStore(
        EpisodeTable({"episode": ids, "system": ids, "length": np.full(10, 8)}), {"x": np.zeros((80, 1))}
    )
    with pytest.raises(StoreError, match="another store's table"):
        other.windows("x", windows.recipient, windows.recipient_start, 4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"system": "a", "episode": "e0"}, "is recorded already; legal: ids that differ"),
        ({"system": "a", "episode": "e1", "mass": None}, "its label 'mass' is None; legal: a finite number, text"),
        ({"system": "a", "episode": "e1", "mass": [1.0]}, r"its label 'mass' is \[1.0\]; legal"),
        ({"system": "a", "episode": "e1", "mass": np.ones(2)}, r"'mass' is array\(\[1., 1.\]\); legal"),
        (
            {"system": "a", "episode": "e1", "mass": np.nan},
            "episode e1: its label 'mass' is nan; legal: a finite number",
        ),
        ({"system": "a", "episode": "e1", "mass": -np.inf}, "its label 'mass' is -inf; legal: a finite number"),
        ({"system": 1.5, "episode": "e1"}, "its label 'system' is 1.5; legal: an integer or text"),
        ({"system": True, "episode": "e1"}, "its label 'system' is True; legal: an integer or text"),
        ({"system": 3, "episode": "e1", "mass": 1.0}, "'system' is 3, those before are of another type"),
    ],
)
def test_a_bad_label_is_refused_when_it_is_given_and_costs_nothing(
    tmp_path: Path, labels: dict[str, Any], message: str
) -> None:
    with Recording(tmp_path / "bank", STREAMS) as recording:
        recording.append(episode(0)[0], system="a", episode="e0", mass=1)
        with pytest.raises(StoreError, match=message):
            recording.append(episode(1)[0], **{"mass": 2.0} | labels)
        recording.append(episode(1)[0], system="b", episode="e1", mass=2.5)
    assert RecordedBank(tmp_path / "bank").table["mass"].tolist() == [1.0, 2.5]


def test_what_no_table_can_hold_is_refused_at_the_first_episode(tmp_path: Path) -> None:
    with Recording(tmp_path / "bank", STREAMS) as recording:
        with pytest.raises(StoreError, match=r"episode 0: its labels are \['length', 'mass'\]; required: 'system'"):
            recording.append(episode(0)[0], mass=1.0)
        with pytest.raises(StoreError, match=r"its label 'rollout' is 'a'; legal: an integer"):
            recording.append(episode(0)[0], system="a", rollout="a")
        with pytest.raises(StoreError, match=r"its label 'split' is 0.5; legal: an integer or text"):
            recording.append(episode(0)[0], system="a", split=0.5)
        recording.append(episode(0)[0], system=np.int64(3))
    assert RecordedBank(tmp_path / "bank").table["system"].tolist() == [3]


def test_text_in_place_of_sealed_splits_is_refused(tmp_path: Path) -> None:
    message = r"sealed is 'final'; legal: a tuple of splits, such as \('final',\)"
    with pytest.raises(StoreError, match=message):
        Recording(tmp_path / "bank", STREAMS, sealed="final")  # type: ignore[arg-type]
    table = EpisodeTable({"episode": [0], "system": [0], "length": [5], "split": ["final"]})
    with pytest.raises(StoreError, match=message):
        ArrayStore(table, {"x": np.zeros((5, 1))}, sealed="final")  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["array", "journal", "labels"])
def test_a_damaged_recording_is_not_gone_on_with(tmp_path: Path, damage: str) -> None:
    recording = Recording(tmp_path / "bank", STREAMS)
    recording.__enter__()
    recording.append(episode(0)[0], system="a")
    recording.__exit__(RuntimeError, RuntimeError(), None)
    partial = tmp_path / "bank.partial"
    file = partial / ("imu.f64" if damage == "array" else "journal.jsonl")
    data = file.read_bytes()
    damaged = {
        "array": bytes([data[0] ^ 1]) + data[1:],
        "journal": b"{}\n",
        "labels": data.replace(b"length", b"lenght"),
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(StoreError, match=r"damaged.*remove .*bank\.partial"), Recording(tmp_path / "bank", STREAMS):
        pass


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e300])
def test_values_that_are_not_finite_are_refused_unless_the_stream_may_have_them(tmp_path: Path, bad: float) -> None:
    arrays = {"touch": np.zeros((3, 2)), "kind": np.zeros(3, np.int64)}
    wrong = arrays | {"touch": np.array([[0.0, bad], [0.0, 0.0], [0.0, bad]])}
    streams = {"touch": StreamSpec((2,)), "kind": StreamSpec((), "int64")}
    with Recording(tmp_path / "a", streams) as recording:
        with pytest.raises(
            StoreError, match=r"episode e1: 2 of 6 values of 'touch' are not finite in float32; legal: "
        ):
            recording.append(wrong, system="a", episode="e1")
        recording.append(arrays, system="a", episode="e1")
    assert len(RecordedBank(tmp_path / "a").table) == 1
    assert "finite" not in (tmp_path / "a" / "bank.json").read_text()
    with Recording(tmp_path / "b", streams | {"touch": StreamSpec((2,), finite=False)}) as recording:
        recording.append(wrong, system="a")
    bank = open_store(tmp_path / "b")
    assert np.count_nonzero(~np.isfinite(bank.windows("touch", [0], [0], 3))) == 2
    with pytest.raises(ValueError, match=r"StreamSpec\.finite is 1; legal: True, False"):
        StreamSpec((2,), finite=1)  # type: ignore[arg-type]


def test_a_recording_that_is_not_finished_says_so_where_it_is_opened(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "bank", STREAMS)
    recording.__enter__()
    recording.append(episode(0)[0], system="a")
    recording.__exit__(RuntimeError, RuntimeError(), None)
    for name in ("bank", "bank.partial"):
        for opener in (open_store, RecordedBank):
            with pytest.raises(
                StoreError, match=rf"/{name} is not finished: .*bank\.partial holds its beginning, from"
            ):
                opener(tmp_path / name)
    with pytest.raises(StoreError, match=r"other/bank\.json does not exist$"):
        open_store(tmp_path / "other")
    with pytest.raises(ValueError, match="NUL"):
        Recording("a\0b", STREAMS)


def test_the_length_is_that_of_the_streams(tmp_path: Path) -> None:
    """A label of that name must be it, unless no stream has one entry a step."""
    with Recording(tmp_path / "bank", STREAMS) as recording:
        with pytest.raises(StoreError, match=r"the label 'length' is 0\.7, but the table's length is the 10 obs"):
            recording.append(episode(0)[0], system="a", length=0.7)
        with pytest.raises(StoreError, match=r"for 2 observations, as its label 'length' says"):
            recording.append(episode(0)[0], system="a", length=2)
        recording.append(episode(0)[0], system="a", length=10)
        recording.append(episode(1)[0], system="a")
    assert RecordedBank(tmp_path / "bank").table["length"].tolist() == [10, 11]
    with Recording(tmp_path / "slow", {"slow": STREAMS["slow"]}) as recording:
        for length, message in ((None, "give its length"), (0.7, "the label 'length' is 0.7; legal: that integer")):
            told = {} if length is None else {"length": length}
            with pytest.raises(ValueError, match=message):
                recording.append({"slow": np.arange(4)}, system="a", **told)
        recording.append({"slow": np.arange(4)}, system="a", length=10)
    assert RecordedBank(tmp_path / "slow").table["length"].tolist() == [10]


def test_two_numbers_an_episode_may_be_two_things() -> None:
    """Of episodes of two observations (E, 2) is E series of numbers, or E actions of two."""
    table = EpisodeTable({"episode": [0, 1, 2], "system": ["a", "a", "b"], "length": [2, 2, 2]})
    array = np.arange(6.0).reshape(3, 2)
    with pytest.raises(StoreError, match=r"of shape \(3, 2\) may be 3 episodes of 2 numbers or 3 transitions of 2"):
        ArrayStore(table, {"x": array})
    assert ArrayStore(table, {"x": Stream(array, per="transition")}).windows("x", [1], [0], 1).tolist() == [[[2, 3]]]
    assert ArrayStore(table, {"x": Stream(array.ravel())}).windows("x", [1], [0], 2).tolist() == [[2, 3]]
    masked = np.ma.masked_greater(np.arange(6.0), 4)
    with pytest.raises(StoreError, match="'x' has masked entries"):
        ArrayStore(table, {"x": masked})


def test_a_recording_that_cannot_be_put_in_place_goes_on(tmp_path: Path) -> None:
    """Another program's file in the folder, when everything is written: nothing that was recorded is lost."""
    whole, path = record(tmp_path / "whole"), tmp_path / "bank"
    recording = Recording(path, STREAMS, ORIGIN, ("test",))
    recording.__enter__()
    for i in range(6):
        arrays, labels = episode(i)
        recording.append(arrays, **labels)
    path.mkdir()
    (path / "other").touch()
    with pytest.raises(OSError, match="bank"):
        recording.__exit__(None, None, None)
    (path / "other").unlink()
    with Recording(path, STREAMS, ORIGIN, ("test",)) as recording:
        assert recording.done == 6
    assert RecordedBank(path, verify=True).fingerprint == whole.fingerprint
    assert sorted(os.listdir(path)) == sorted(os.listdir(tmp_path / "whole"))
