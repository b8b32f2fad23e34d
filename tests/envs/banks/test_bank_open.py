"""Opening and reading: every kind of damage is one clear error, and windows are what a naive reader reads."""

import contextlib
import hashlib
import json
import pickle
import shutil

import numpy as np
import pytest

from sprii_envs.banks import Bank, BankError, storage
from sprii_envs.relations import EpisodeTable


@pytest.fixture
def copy(bank, tmp_path):
    """A bank of one's own to damage."""
    return shutil.copytree(bank.path, tmp_path / "copy")


def edit(folder, change):
    manifest = json.loads((folder / "bank.json").read_text())
    change(manifest)
    (folder / "bank.json").write_text(json.dumps(manifest))


def test_missing_folder(tmp_path):
    with pytest.raises(BankError, match="nowhere: no bank here"):
        Bank.open(tmp_path / "nowhere")


def test_a_file_or_an_empty_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BankError, match="not a folder"):
        Bank.open(tmp_path / "file")
    with pytest.raises(BankError, match=r"bank\.json: missing"):
        Bank.open(tmp_path)


@pytest.mark.parametrize("name", ["states.f32", "actions.f32", "rewards.f32", "episodes.npz"])
def test_missing_truncated_and_lengthened_files(copy, name):
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[:-1])
    with pytest.raises(
        BankError, match=rf"{name} is damaged: truncated: {len(whole) - 1:,} bytes, expected {len(whole):,}"
    ):
        Bank.open(copy)
    (copy / name).write_bytes(whole + b"\0")
    with pytest.raises(BankError, match=f"{name} is damaged: too long"):
        Bank.open(copy)
    (copy / name).unlink()
    with pytest.raises(BankError, match=f"{name} is missing"):
        Bank.open(copy)


@pytest.mark.parametrize("name", ["states.f32", "actions.f32", "rewards.f32", "episodes.npz"])
def test_one_flipped_bit_is_found_by_checksums(copy, name):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    Bank.open(copy)
    with pytest.raises(BankError, match=f"{name} is damaged: its checksum is another; build the bank anew"):
        Bank.open(copy, "checksums")


def test_damaged_manifests(copy):
    text = (copy / "bank.json").read_text()
    for damaged, message in (
        (text[: len(text) // 2], "is damaged: not JSON"),
        ("", "is damaged: not JSON"),
        ("[" * 200_000, "is damaged: JSON nested without end"),
        ("[]", "is damaged: list where an object is expected"),
        ("{}", "is not a bank manifest"),
    ):
        (copy / "bank.json").write_text(damaged)
        with pytest.raises(BankError, match=rf"bank\.json {message}"):
            Bank.open(copy)
    (copy / "bank.json").write_bytes(b"\xff\xfe")
    with pytest.raises(BankError, match="is damaged: not text"):
        Bank.open(copy)


def forge(folder, change):
    """Edit a manifest and its fingerprint, a SHA-256 of all else but the packages and the world that made it."""

    def forged(manifest):
        change(manifest)
        content = {key: value for key, value in manifest.items() if key not in ("packages", "world", "fingerprint")}
        manifest["fingerprint"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    edit(folder, forged)


def test_a_manifest_of_another_schema(copy):
    edit(copy, lambda manifest: manifest.update(schema=1))
    with pytest.raises(
        BankError, match=r"bank\.json: bank schema 1, this version reads schema 2: build the bank again"
    ):
        Bank.open(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("columns"), "it lacks 'columns'"),
        (lambda m: m.update(more=1), "fields that are unknown here"),
        (lambda m: m["protocol"].pop("seed"), "missing fields"),
        (lambda m: m["protocol"].update(seed=-1), "seed is -1; legal: an integer"),
        (lambda m: m["columns"][0].update(shape=[1, 2, 3]), "does not have the size of its shape"),
        (lambda m: m["columns"][0].update(shape=[2**70, 2**70]), "does not have the size of its shape"),
        (lambda m: m["columns"][0].pop("dtype"), "dtype"),
        (lambda m: m["columns"].append(m["columns"][0]), "two columns"),
        (lambda m: m["files"].pop("episodes.npz"), r"must list the files .*; not so for 'episodes\.npz'"),
    ],
)
def test_damage_is_said_of_what_was_edited_and_not_of_what_is_whole(copy, change, message):
    """A manifest whose fingerprint holds was written so, by another version or by a forger."""
    whole = (copy / "bank.json").read_bytes()
    edit(copy, change)
    with pytest.raises(BankError, match=r"bank\.json is damaged or edited: its fingerprint does not match"):
        Bank.open(copy)
    (copy / "bank.json").write_bytes(whole)
    forge(copy, change)
    with pytest.raises(
        BankError, match=rf"bank\.json is as it was written, but this version cannot use it: .*{message}"
    ):
        Bank.open(copy)


def test_a_manifest_without_a_fingerprint(copy):
    edit(copy, lambda manifest: manifest.pop("fingerprint"))
    with pytest.raises(BankError, match="damaged or edited"):
        Bank.open(copy)


def test_any_damaged_byte_of_the_manifest_is_an_error_or_harmless(copy, bank):
    """Harmless is only what is not data: the package versions."""
    whole = (copy / "bank.json").read_bytes()
    rng = np.random.default_rng(0)
    for position, flip in zip(rng.integers(0, len(whole), 300), rng.integers(1, 256, 300), strict=True):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        (copy / "bank.json").write_bytes(damaged)
        with contextlib.suppress(BankError):
            assert Bank.open(copy).fingerprint == bank.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../states.f32"},
        {"file": ".."},
        {"file": "states\0"},
        {"file": "/etc/hostname"},
        {"dtype": "|O"},
        {"shape": [30]},
        {"per": "day"},
        {"shape": [30, 0, 4]},
    ],
)
def test_a_forged_column_reaches_nothing_outside(copy, change):
    forge(copy, lambda manifest: manifest["columns"][0].update(change))
    with pytest.raises(BankError, match="this version cannot use it: column 'states'"):
        Bank.open(copy)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "states.f32/../../outside", "bank.json"])
def test_a_file_that_only_a_forged_manifest_lists_is_refused_and_its_hash_not_told(copy, name):
    outside = copy.parent / "outside"
    outside.write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    forge(copy, lambda manifest: manifest["files"].update({name: {"bytes": 6, "sha256": "0" * 64}}))
    for verify in ("size", "checksums", None):
        with pytest.raises(BankError, match="must list the files states") as raised:
            Bank.open(copy, verify)
        assert digest[:8] not in str(raised.value)


def test_another_protocol(bank):
    assert Bank.open(bank.path, protocol=bank.protocol).fingerprint == bank.fingerprint
    with pytest.raises(BankError, match=r"bank of another protocol \(version: 1, not 2\)"):
        Bank.open(bank.path, protocol=bank.protocol.replace(version=2))


def test_damaged_and_incomplete_tables(copy, bank):
    path = copy / "episodes.npz"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BankError, match=r"episodes\.npz is not an episode table or is damaged: it is no npz file"):
        _ = Bank.open(copy).table
    columns = {name: bank.table[name] for name in bank.table.columns if name != "drag"}
    EpisodeTable(columns).save(path)
    with pytest.raises(BankError, match=r"episodes\.npz: missing column 'drag'"):
        _ = Bank.open(copy, None).table
    bank.table.select(np.arange(5)).save(path)
    with pytest.raises(BankError, match="5 episodes, expected 30"):
        _ = Bank.open(copy, None).table


def test_a_table_with_pickles_is_never_loaded(copy):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    np.savez(copy / "episodes.npz", **{"format": np.int64(1), "column/episode": np.array([Trap()], object)})
    with pytest.raises(BankError, match="not an episode table or is damaged"):
        _ = Bank.open(copy, None).table


def test_truncated_after_opening(copy):
    bank = Bank.open(copy)
    (copy / "states.f32").write_bytes(b"")
    with pytest.raises(BankError, match=r"states\.f32 was replaced or changed after the bank was opened"):
        _ = bank["states"]


def test_unknown_names(bank):
    with pytest.raises(BankError, match="missing column 'frames'; this bank has states, actions, rewards"):
        _ = bank["frames"]
    with pytest.raises(BankError, match="no split 'confirmation'; splits: train, validation, test"):
        bank.split("confirmation")
    with pytest.raises(ValueError, match=r"verify is .*; legal: size, checksums"):
        Bank.open(bank.path, "yes")  # pyright: ignore[reportArgumentType]


def test_table_and_systems(bank):
    table = bank.table
    assert np.array_equal(table["episode"], np.arange(30))
    assert np.array_equal(table["system"], np.repeat(np.arange(10), 3))
    assert np.array_equal(table["rollout"], np.tile(np.arange(3), 10))
    assert set(table["length"]) == {20}
    assert len(bank) == len(table) == 30
    assert np.array_equal(bank.systems.values[table["system"], 0], table["drag"])
    assert len(bank.systems.subset("validation")) == 2
    part = bank.split("test")
    assert np.array_equal(part.rows, part["episode"])
    assert set(part["system"]) == {8, 9}


def naive(bank, column, episodes, starts, length):
    data = np.fromfile(bank.path / bank.column(column).file, "<f4").reshape(bank.column(column).shape)
    return np.stack([data[e, s : s + length] for e, s in zip(episodes, starts, strict=True)])


@pytest.mark.parametrize(("column", "entries"), [("states", 20), ("actions", 19), ("rewards", 19)])
@pytest.mark.parametrize("length", [1, 7, 19])
def test_windows_equal_a_naive_reader(bank, column, entries, length):
    rng = np.random.default_rng(length)
    episodes = rng.integers(0, 30, 200)
    starts = rng.integers(0, entries - length, 200, endpoint=True)
    expected = naive(bank, column, episodes, starts, length)
    assert np.array_equal(bank.windows(column, episodes, starts, length), expected)
    out = np.full_like(expected, np.nan)
    assert bank.windows(column, episodes.tolist(), starts, length, out=out) is out
    assert np.array_equal(out, expected)
    bank.prefetch(column, episodes, starts, length)


def test_windows_broadcast_and_are_writable_copies(bank):
    windows = bank.windows("states", 4, np.arange(3), 5)
    assert windows.shape == (3, 5, 4)
    windows[:] = 0.0
    assert bank["states"][4].any()
    assert bank.windows("states", [], [], 5).shape == (0, 5, 4)
    with pytest.raises(ValueError, match="read-only"):
        bank["states"][0] = 0.0


@pytest.mark.parametrize(
    ("episodes", "starts", "length", "message"),
    [
        ([0, 30], [0, 0], 2, "no episode 30; episode ids are 0 to 29"),
        ([-1], [0], 2, "no episode -1"),
        ([0], [2**63 - 1], 2, "is not inside episode 0"),
        ([0, 3], [0, 19], 2, "window of 2 from 19 is not inside episode 3, which has 20 entries of 'states'"),
        ([0], [-1], 2, "window of 2 from -1"),
        ([0], [0], 0, "length is 0; legal: an integer >= 1"),
        ([0], [0], 21, "window of 21"),
        ([0.5], [0], 2, "episodes must be integers"),
        ([[0]], [0], 2, "one-dimensional"),
        ([0, 1], [0, 1, 2], 2, "do not fit together"),
    ],
)
def test_windows_never_leave_an_episode(bank, episodes, starts, length, message):
    with pytest.raises(BankError, match=message):
        bank.windows("states", episodes, starts, length)


def test_transitions_are_one_fewer(bank):
    bank.windows("actions", [0], [0], 19)
    with pytest.raises(BankError, match="which has 19 entries of 'actions'"):
        bank.windows("actions", [0], [0], 20)


def test_wrong_out(bank):
    with pytest.raises(ValueError, match="out"):
        bank.windows("states", [0], [0], 2, out=np.empty((1, 3, 4), np.float32))
    with pytest.raises(ValueError, match="out"):
        bank.windows("states", [0], [0], 2, out=np.empty((1, 2, 4), np.float64))


def test_pickle_carries_the_path_only(bank):
    _ = bank["states"], bank.table
    data = pickle.dumps(bank)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert np.array_equal(again["states"], bank["states"])
    assert again.fingerprint == bank.fingerprint


def test_pickle_refuses_a_replaced_bank(copy, bank):
    data = pickle.dumps(Bank.open(copy))
    edit(copy, lambda manifest: manifest.update(packages={}))
    pickle.loads(data)  # other package versions, same data
    manifest = storage.Manifest.read(copy)
    files = {**manifest.files, "states.f32": {**manifest.files["states.f32"], "sha256": "0" * 64}}
    storage.Manifest(manifest.protocol, manifest.properties, manifest.columns, files, {}).write(copy)
    with pytest.raises(BankError, match="replaced"):
        pickle.loads(data)


def test_info_and_description(bank):
    info = bank.info()
    assert json.loads(json.dumps(info)) == info
    assert info["episodes"] == 30
    assert info["bytes"] == sum(f.stat().st_size for f in bank.path.iterdir() if f.name != "bank.json")
    low, high = info["properties"]["drag"]
    assert 0.5 <= low < high <= 4.0
    text = bank.describe()
    for part in (
        "d-clean v1",
        "6 train, 2 validation, 2 test",
        "30×20×4 float32",
        "γ from",
        bank.fingerprint[:16],
    ):
        assert part in text
    assert "30 episodes" in repr(bank)
