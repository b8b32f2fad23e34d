"""A bank that is replaced: killed in between, through links, under its readers, and on a full disk."""

import errno
import gc
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bank_files import read

from sprii_envs import files
from sprii_envs.banks import Bank, BankError, build, storage

KILLED = """
import contextlib, hashlib, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kills import kills
from sprii_envs import files
from sprii_envs.banks import D_CLEAN, Bank, BankError, build
root, kind, every = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
old = D_CLEAN.replace(systems={"train": 2, "test": 1}, rollouts=1, steps=6, systems_per_chunk=1, frames=8)
new = old.replace(seed=1)
if kind == "without exchange":
    files._exchange = lambda one, other: False
def digest(folder):
    return hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in sorted(folder.iterdir()))).hexdigest()[:8]
whole = {build(p, root / name).protocol.seed: digest(root / name) for p, name in ((old, "old"), (new, "new"))}
def prepare(folder):
    folder.mkdir()
    if kind != "fresh":
        build(old, folder / "bank")
for folder in kills(prepare, lambda folder: build(new, folder / "bank", overwrite=True), root, every):
    path = folder / "bank"
    reads = "none"
    with contextlib.suppress(BankError):
        reads = str(Bank.open(path, "checksums").protocol.seed)
        assert digest(path) == whole[int(reads)]
    build(new, path, overwrite=True)
    assert digest(path) == whole[1]
    assert os.listdir(folder) == ["bank"], os.listdir(folder)
    print(reads)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 41])
@pytest.mark.parametrize("kind", ["fresh", "over another", "without exchange"])
def test_a_build_killed_anywhere_ends_in_the_same_bytes_and_leaves_nothing(tmp_path, kind, every):
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parents[1]), str(tmp_path), kind, str(every)]
    reads = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert len(reads) * every > 80
    assert reads[-1] == "1"
    assert reads[0] == ("none" if kind == "fresh" else "0")
    if kind == "over another" and "none" not in reads:
        assert reads == sorted(reads)


def test_a_kill_between_two_names_puts_the_old_bank_back(protocol, tmp_path):
    """Where two folders cannot be exchanged, one stands aside for a moment."""
    path = tmp_path / "bank"
    build(protocol, path)
    path.rename(tmp_path / ".bank.0123456789ab.former")
    with pytest.raises(BankError, match="no bank here"):
        Bank.open(path)
    with pytest.raises(BankError, match="another protocol"):
        build(protocol.replace(seed=1), path)
    assert Bank.open(path).protocol == protocol
    assert os.listdir(tmp_path) == ["bank"]


def test_what_was_opened_stays_what_it_was(protocol, bank, tmp_path):
    path = tmp_path / "bank"
    build(protocol, path)
    opened, lazy = Bank.open(path), Bank.open(path)
    data = pickle.dumps(opened)
    states, table = opened["states"], opened.table
    build(protocol.replace(seed=8), path, overwrite=True)
    assert np.array_equal(opened["states"], bank["states"])
    assert opened.windows("states", [0], 0, 3).tobytes() == bank.windows("states", [0], 0, 3).tobytes()
    assert opened["states"] is states
    assert opened.table is table
    for use in (
        lambda: opened["actions"],
        lambda: lazy.table,
        lambda: lazy.windows("states", [0], 0, 3),
        lambda: lazy.info(),
        lambda: lazy.verify(),
        lambda: lazy.verify(checksums=False),
    ):
        with pytest.raises(BankError, match="was replaced or changed after the bank was opened: open the bank again"):
            use()
    with pytest.raises(BankError, match="not the bank that was pickled"):
        pickle.loads(data)
    assert Bank.open(path).protocol.seed == 8


@pytest.mark.parametrize("name", ["states", "rewards"])
def test_a_file_written_to_in_its_place_is_refused_and_does_not_end_the_process(protocol, tmp_path, name):
    """`cp` and `rsync --inplace` write into the file that is mapped; a map of a file cut short cannot be touched."""
    bank = build(protocol, tmp_path / "bank")
    _ = bank[name]
    for content in (bytes(bank.column(name).bytes), b""):
        (bank.path / bank.column(name).file).write_bytes(content)
        for use in (lambda: bank[name], lambda: bank.windows(name, [0], 0, 3)):
            with pytest.raises(BankError, match="replaced or changed"):
                use()


def test_a_removed_bank_is_a_named_error(protocol, tmp_path):
    bank = build(protocol, tmp_path / "bank")
    states = bank["states"]
    shutil.rmtree(bank.path)
    assert bank["states"] is states
    for use in (lambda: bank["actions"], lambda: bank.table):
        with pytest.raises(BankError, match="replaced or changed"):
            use()


def _rebuild(protocol, path, seconds):
    deadline, seed = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        seed = 1 - seed
        build(protocol.replace(seed=seed), path, overwrite=True)


@pytest.mark.parametrize("seconds", [1.5, pytest.param(60, marks=pytest.mark.slow)])
def test_short_lived_readers_during_rebuilds_see_one_bank_or_an_error(protocol, tmp_path, seconds):
    path = tmp_path / "bank"
    whole = {seed: build(protocol.replace(seed=seed), tmp_path / str(seed)) for seed in (0, 1)}
    build(protocol, path)
    builder = multiprocessing.get_context("spawn").Process(target=_rebuild, args=(protocol, path, seconds))
    builder.start()
    opens, refusals, seeds = 0, [], set()
    try:
        while builder.is_alive():
            bank = Bank.open(path)  # never refused: where the system can exchange two folders, one is always there
            expected = whole[bank.protocol.seed]
            assert bank.fingerprint == expected.fingerprint
            opens += 1
            try:
                for name in bank.columns:
                    assert np.array_equal(bank[name], expected[name])
                assert bank.table.fingerprint() == expected.table.fingerprint()
                seeds.add(bank.protocol.seed)
            except BankError as error:
                refusals.append(str(error))
    finally:
        builder.join()
    assert builder.exitcode == 0
    assert seeds == {0, 1}
    assert all("replaced or changed after the bank was opened" in text for text in refusals)
    assert len(refusals) < opens


def test_many_open_banks_hold_few_descriptors(bank):
    if not Path("/proc/self/fd").exists():
        pytest.skip("reads /proc")
    gc.collect()  # other tests' files
    before = len(os.listdir("/proc/self/fd"))
    banks = [Bank.open(bank.path) for _ in range(200)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len({b.table["drag"][0] for b in banks}) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_bank_opened_by_a_relative_path_is_read_from_another_folder(protocol, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    built = build(protocol, "../bank")
    opened = Bank.open("../bank")
    monkeypatch.chdir("/")
    for bank in (built, opened, pickle.loads(pickle.dumps(opened))):
        assert bank.path == tmp_path / "bank"
        assert bank["states"].shape == bank.column("states").shape
        assert len(bank.table) == len(bank)
        bank.verify()


def test_the_target_of_a_link_is_built_and_replaced(protocol, contents, tmp_path):
    small, disk = tmp_path / "small", tmp_path / "disk"
    small.mkdir()
    disk.mkdir()
    link = small / "bank"
    link.symlink_to(disk / "b")
    for seed, overwrite in ((3, False), (0, True)):
        bank = build(protocol.replace(seed=seed), link, overwrite=overwrite)
        assert bank.path == link
        assert link.is_symlink()
    assert read(disk / "b") == contents
    assert os.listdir(small) == ["bank"]
    assert os.listdir(disk) == ["b"]


def test_a_build_through_a_link_is_put_together_and_measured_on_the_targets_disk(protocol, tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "bank"
    link.symlink_to(tmp_path / "disk" / "b")
    measured = []

    def usage(path, real=shutil.disk_usage):
        measured.append(Path(path))
        return real(path)

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(KeyboardInterrupt):
        build(protocol, link, progress=stop)
    assert set(measured) == {tmp_path / "disk"}
    assert os.listdir(tmp_path / "disk") == ["b.partial"]
    with pytest.raises(BankError, match="not finished"):
        Bank.open(link)
    build(protocol, link)
    assert os.listdir(tmp_path / "disk") == ["b"]


@pytest.mark.parametrize("name", ["bank.lock", "bank.partial", "bank.partial/journal", "bank.partial/data/states.f32"])
def test_no_link_is_followed_by_a_file_of_the_build(protocol, tmp_path, name):
    victim = tmp_path / "victim"
    if name == "bank.partial":
        victim.mkdir()
    else:
        victim.write_text("precious")
    place = tmp_path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(victim)
    with pytest.raises(BankError, match="is in the way"):
        build(protocol, tmp_path / "bank", overwrite=True)
    assert os.listdir(victim) == [] if victim.is_dir() else victim.read_text() == "precious"
    assert place.is_symlink()


def test_old_names_of_temporary_files_are_no_way_through_a_link(protocol, contents, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "bank.json.tmp").symlink_to(victim)
    files.write_json(tmp_path / "bank.json", {})
    assert victim.read_text() == "precious"


def _no_room(protocol, tmp_path, monkeypatch, free):
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(BankError) as raised:
        build(protocol, tmp_path / "bank")
    monkeypatch.undo()
    return str(raised.value)


def test_a_disk_that_holds_the_columns_and_no_table_is_refused_at_the_start(protocol, contents, tmp_path, monkeypatch):
    columns = sum(len(data) for name, data in contents.items() if name.endswith(".f32"))
    message = _no_room(protocol, tmp_path, monkeypatch, columns + 1000)
    assert f"bytes needed, {columns + 1000:,} bytes free" in message
    assert " 0 bytes needed" not in message
    assert list(tmp_path.iterdir()) == []


def test_no_inodes_left_is_told_as_that(protocol, tmp_path, monkeypatch):
    real = os.statvfs

    def few(path):
        status = list(real(path))
        status[5], status[7] = 1000, 3  # f_files, f_favail
        return os.statvfs_result(status)

    monkeypatch.setattr(os, "statvfs", few)
    with pytest.raises(BankError, match=r"no disk space for this bank: \d+ more files needed, 3 can be made .*inodes"):
        build(protocol, tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_under_the_table_is_told_as_that(protocol, contents, tmp_path, monkeypatch):
    def full(file, **arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", full)
        with pytest.raises(BankError, match=r"episodes\.npz could not be written: No space left on device") as raised:
            build(protocol, tmp_path / "bank")
    assert "0 bytes needed" not in str(raised.value)
    assert "the same call resumes" in str(raised.value)
    build(protocol, tmp_path / "bank")
    assert read(tmp_path / "bank") == contents


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize("options", ["size=120k", "size=20m,nr_inodes=6", "size=20m,nr_inodes=12"])
def test_a_disk_that_is_really_full(protocol, tmp_path, options):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=False).returncode:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(BankError, match="no disk space for this bank") as raised:
            build(protocol.replace(steps=200), disk / "bank")
        assert ("inodes" in str(raised.value)) == ("inodes" in options)
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_bank_that_cannot_be_read_is_not_called_damaged(protocol, tmp_path, monkeypatch):
    bank = build(protocol, tmp_path / "bank")
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(bank.path))

    def no(*args, **kwargs):
        raise refused

    for target, use in (
        ("os.lstat", lambda: Bank.open(bank.path)),
        ("pathlib.Path.read_text", lambda: Bank.open(bank.path)),
        ("mmap.mmap", lambda: bank["states"]),
        ("numpy.load", lambda: bank.table),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, no)
            with pytest.raises(BankError, match="cannot be read: Permission denied"):
                use()


def test_a_journal_of_anything_is_read(protocol, contents, tmp_path):
    path = tmp_path / "bank"

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(protocol, path, progress=stop)
    with open(storage.partial_path(path) / "journal", "ab") as journal:
        journal.write(b"9" * 5000 + b" abc\n\xff\xfe 3\n1\n-1 abc\n" + b"[" * 5000 + b"\n")
    build(protocol, path)
    assert read(path) == contents


def test_a_half_discarded_partial_folder_beside_a_finished_bank_is_collected(protocol, tmp_path):
    path = tmp_path / "bank"
    build(protocol, path)
    partial = storage.partial_path(path)
    (partial / "data").mkdir(parents=True)
    (partial / "data" / "states.f32").write_bytes(b"half")
    build(protocol, path)
    assert os.listdir(tmp_path) == ["bank"]
