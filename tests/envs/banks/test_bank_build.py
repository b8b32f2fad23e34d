"""Building: the same bytes whatever happens, and one clear error for what cannot be built."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from bank_files import read

import sprii_envs
from sprii_envs.banks import Bank, BankError, behaviours, build, storage


class Interrupted(Exception):
    """Stands for any failure between two chunks."""


def interrupt_after(episodes):
    def progress(done, total):
        if done >= episodes:
            raise Interrupted

    return progress


def leftovers(path):
    return [p for p in path.parent.iterdir() if p != path and p.name.startswith(path.name)]


@pytest.mark.parametrize("workers", [1, 2])
def test_same_bytes_for_any_number_of_workers(protocol, contents, tmp_path, workers):
    path = tmp_path / "bank"
    build(protocol, path, workers=workers)
    assert read(path) == contents
    assert leftovers(path) == []


@pytest.mark.parametrize("episodes", [0, 6, 18, 30])
def test_same_bytes_after_an_interruption(protocol, contents, tmp_path, episodes):
    path = tmp_path / "bank"
    with pytest.raises(Interrupted):
        build(protocol, path, progress=interrupt_after(episodes))
    assert not path.exists()
    with pytest.raises(BankError, match="not finished: run the same build again"):
        Bank.open(path)
    seen = []
    build(protocol, path, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (episodes, 30)  # finished chunks are not built twice
    assert seen[-1] == (30, 30)
    assert read(path) == contents
    assert leftovers(path) == []


def test_interrupted_again_and_again(protocol, contents, tmp_path):
    path = tmp_path / "bank"
    for episodes in (6, 12, 18, 24):
        with pytest.raises(Interrupted):
            build(protocol, path, progress=interrupt_after(episodes))
    build(protocol, path, workers=2)
    assert read(path) == contents


KILLED = """
import multiprocessing, sys, time
from pathlib import Path
from sprii_envs.banks import D_CLEAN, build

def progress(done, total):
    file = Path(sys.argv[3])
    if done and not file.exists():  # once, so that the kill cannot tear it
        file.write_text(" ".join(str(child.pid) for child in multiprocessing.active_children()))
    time.sleep(0.15 if done else 0.0)

protocol = D_CLEAN.replace(systems={"train": 40, "test": 20}, rollouts=2, steps=16, systems_per_chunk=2, frames=16)
build(protocol, sys.argv[1], workers=int(sys.argv[2]), progress=progress)
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_then_the_same_command(protocol, tmp_path, workers):
    whole, path = tmp_path / "whole", tmp_path / "bank"
    protocol = protocol.replace(systems={"train": 40, "test": 20}, rollouts=2, steps=16, systems_per_chunk=2, frames=16)
    build(protocol, whole)
    root = str(Path(sprii_envs.__file__).parents[1])
    command = [sys.executable, "-c", KILLED, str(path), str(workers), str(tmp_path / "pids")]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root})
    journal = storage.partial_path(path) / "journal"
    deadline = time.monotonic() + 30
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    finished = journal.read_bytes().count(b"\n")
    assert 2 <= finished < 30  # really unfinished
    assert not path.exists()
    orphans = (tmp_path / "pids").read_text().split()
    assert (len(orphans) > 0) == (workers > 1)
    while any(map(alive, orphans)):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    seen = []
    build(protocol, path, workers=workers, progress=lambda done, total: seen.append(done))
    assert seen[0] == finished * 4
    assert read(path) == read(whole)
    assert leftovers(path) == []


def test_a_torn_journal_line_and_altered_chunks_are_built_again(protocol, contents, tmp_path):
    path = tmp_path / "bank"
    with pytest.raises(Interrupted):
        build(protocol, path, progress=interrupt_after(24))
    partial = storage.partial_path(path)
    journal = partial / "journal"
    journal.write_text(journal.read_text()[:-10])  # the last of four lines is torn
    with open(partial / "data" / "states.f32", "r+b") as file:
        file.write(b"\xff")  # in the first chunk
    seen = []
    build(protocol, path, progress=lambda done, total: seen.append(done))
    assert seen[0] == 12
    assert read(path) == contents


def test_a_kill_in_the_last_moments(protocol, contents, tmp_path, monkeypatch):
    """Between writing the manifest and the rename, and between the rename and clearing up."""
    path, replace = tmp_path / "bank", os.replace

    def interrupted(source, target):
        if Path(target) == path:
            raise Interrupted
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(Interrupted):
        build(protocol, path)
    monkeypatch.undo()
    (storage.partial_path(path) / "data" / "bank.json.tmp").write_text("{")
    build(protocol, path)
    assert read(path) == contents

    storage.partial_path(path).mkdir()
    (storage.partial_path(path) / "build.json").write_text("{}")
    build(protocol, path)
    assert leftovers(path) == []


def test_a_finished_bank_is_opened_not_rebuilt(protocol, tmp_path):
    path = tmp_path / "bank"
    build(protocol, path)
    before = {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in path.rglob("*")}
    for overwrite in (False, True):
        assert build(protocol, path, overwrite=overwrite).protocol == protocol
        assert {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in path.rglob("*")} == before


def test_another_protocol_is_refused_or_replaced(protocol, tmp_path):
    path, other = tmp_path / "bank", protocol.replace(seed=1)
    first = build(protocol, path)
    with pytest.raises(BankError, match=r"another protocol \(seed: 0, not 1\)"):
        build(other, path)
    assert Bank.open(path, "checksums").fingerprint == first.fingerprint
    assert build(other, path, overwrite=True).protocol == other
    assert leftovers(path) == []


def test_an_unfinished_bank_of_another_protocol_is_refused_or_discarded(protocol, contents, tmp_path):
    path, other = tmp_path / "bank", protocol.replace(seed=1)
    with pytest.raises(Interrupted):
        build(other, path, progress=interrupt_after(6))
    with pytest.raises(BankError, match="unfinished build of another protocol"):
        build(protocol, path)
    build(protocol, path, overwrite=True)
    assert read(path) == contents


def test_resuming_with_other_packages_is_refused(protocol, tmp_path, monkeypatch):
    path = tmp_path / "bank"
    with pytest.raises(Interrupted):
        build(protocol, path, progress=interrupt_after(6))
    monkeypatch.setattr("numpy.__version__", "9.9")
    with pytest.raises(BankError, match="other packages"):
        build(protocol, path)


def test_a_damaged_bank_is_refused_or_rebuilt(protocol, contents, tmp_path):
    path = tmp_path / "bank"
    build(protocol, path)
    (path / "actions.f32").write_bytes(b"")
    with pytest.raises(BankError, match=r"actions\.f32 is damaged: truncated.*overwrite=True"):
        build(protocol, path)
    build(protocol, path, overwrite=True)
    assert read(path) == contents


def test_what_is_not_a_bank_is_never_replaced(protocol, tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious")
    file.write_text("precious")
    for path in (folder, file):
        with pytest.raises(BankError, match="not a bank"):
            build(protocol, path, overwrite=True)
    assert (folder / "thesis.tex").read_text() == file.read_text() == "precious"


def test_an_empty_folder_becomes_the_bank(protocol, tmp_path):
    path = tmp_path / "made by hand"
    path.mkdir()
    assert len(build(protocol, path)) == protocol.episodes


def test_somebody_elses_partial_folder_is_left_alone(protocol, tmp_path):
    path = tmp_path / "bank"
    other = storage.partial_path(path)
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(BankError, match=r"bank\.partial: is in the way"):
        build(protocol, path, overwrite=True)
    build(protocol, tmp_path / "elsewhere").path.rename(path)
    assert build(protocol, path).protocol == protocol
    assert (other / "thesis.tex").read_text() == "precious"


def test_a_finished_bank_does_not_end_the_unfinished_build_that_will_replace_it(protocol, tmp_path):
    path, other = tmp_path / "bank", protocol.replace(seed=1)
    build(protocol, path)
    with pytest.raises(Interrupted):
        build(other, path, overwrite=True, progress=interrupt_after(12))
    assert build(protocol, path).protocol == protocol
    seen = []
    assert build(other, path, overwrite=True, progress=lambda done, _: seen.append(done)).protocol == other
    assert seen[0] == 12
    assert leftovers(path) == []


def test_no_disk_space_is_found_before_anything_is_written(protocol, contents, tmp_path, monkeypatch):
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(BankError, match=r"bank: no disk space .*bytes needed, 1,000 bytes free") as caught:
        build(protocol, tmp_path / "deep" / "bank")
    needed = int(str(caught.value).partition(" bytes needed")[0].rpartition(" ")[2].replace(",", ""))
    whole = sum(map(len, contents.values()))
    assert whole < needed < whole + 100_000
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_disk_full_at_reservation_leaves_nothing(protocol, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BankError, match="no disk space"):
        build(protocol, tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("at", [1, 3])
def test_disk_full_midway_keeps_finished_chunks_only(protocol, contents, tmp_path, monkeypatch, at):
    path, sync, calls = tmp_path / "bank", os.fsync, []

    def full(descriptor):
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == "states.f32":
            calls.append(1)
            if len(calls) == at:
                raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BankError, match=r"no disk space .*No space left on device .* bytes free") as caught:
        build(protocol, path)
    assert ("the same call resumes" in str(caught.value)) == (at > 1)
    assert not path.exists()
    assert storage.partial_path(path).exists() == (at > 1)
    build(protocol, path)
    assert read(path) == contents


@dataclass(frozen=True)
class Deadly:
    """Ends the process that simulates it."""

    kind: ClassVar[str] = "test_deadly"
    episode_kinds: ClassVar[tuple[str, ...]] = ()

    def policy(self, *_):
        assert multiprocessing.parent_process() is not None
        os._exit(1)


behaviours.KINDS[Deadly.kind] = Deadly


def test_a_worker_that_dies_is_one_clear_error(protocol, tmp_path):
    with pytest.raises(BankError, match="worker was killed"):
        build(protocol.replace(behaviour=Deadly()), tmp_path / "bank", workers=2)


def test_two_builders_do_not_meet(protocol, contents, tmp_path):
    path = tmp_path / "bank"
    started, go = threading.Event(), threading.Event()

    def progress(done, total):
        started.set()
        go.wait(20)

    first = threading.Thread(target=build, args=(protocol, path), kwargs={"progress": progress})
    first.start()
    started.wait(20)
    with pytest.raises(BankError, match=rf"lock is held: this bank is being built \(by process {os.getpid()}\)"):
        build(protocol, path)
    second = threading.Thread(target=build, args=(protocol, path), kwargs={"wait": True})
    second.start()
    go.set()
    first.join(20)
    second.join(20)
    assert read(path) == contents
    assert leftovers(path) == []


def test_a_stale_lock_file_does_not_block(protocol, tmp_path):
    (tmp_path / "bank.lock").write_text("1\n")
    build(protocol, tmp_path / "bank")
    assert leftovers(tmp_path / "bank") == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(protocol, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BankError, match="cannot be read or written: Permission denied"):
        build(protocol, tmp_path / "bank")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_place_where_nothing_can_be_made(protocol):
    with pytest.raises(BankError, match="cannot be read or written"):
        build(protocol, "/proc/nowhere/bank")


def test_a_parent_that_is_a_file(protocol, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BankError, match="file"):
        build(protocol, tmp_path / "file" / "bank")


def test_workers_must_be_positive(protocol, tmp_path):
    with pytest.raises(ValueError, match="workers"):
        build(protocol, tmp_path / "bank", workers=0)


def test_building_leaves_no_processes(protocol, tmp_path):
    build(protocol, tmp_path / "bank", workers=2)
    assert multiprocessing.active_children() == []
