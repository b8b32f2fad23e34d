import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sprii_envs import files
from sprii_envs.relations import EpisodeTable

KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kills import kills
from sprii_envs import files
from sprii_envs.relations import EpisodeTable
root, kind = Path(sys.argv[2]), sys.argv[3]
def write(path, text):
    if kind == "file":
        files.write_whole(path, text.encode())
    elif kind == "table":
        EpisodeTable({"episode": [0], "system": [text], "rollout": [0], "length": [1]}).save(path)
    else:
        with files.written_folder(path) as folder:
            (folder / "a").write_text(text)
            (folder / "b").write_text(text)
if kind == "without exchange":
    files._exchange = lambda one, other: False
for folder in kills(lambda f: write(f / "x", "old"), lambda f: write(f / "x", "new"), root):
    print(folder.name)
"""

HOLDER = """
import time
from sprii_envs import files
with files.lock("{path}"):
    print("held", flush=True)
    time.sleep({seconds})
"""


def contents(path: Path) -> object:
    return {f.name: f.read_text() for f in path.iterdir()} if path.is_dir() else path.read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("kind", ["file", "folder", "without exchange", "table"])
def test_a_killed_writer_leaves_the_old_or_the_new_and_the_next_collects_the_rest(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path), kind]
    killed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert len(killed) > 6
    outcomes = []
    for name in killed:
        path = tmp_path / name / "x"
        files.recover(path)
        if kind == "table":
            text = str(EpisodeTable.load(path)["system"][0])
        elif path.is_dir():
            assert sorted(os.listdir(path)) == ["a", "b"]
            text = (path / "a").read_text()
            assert (path / "b").read_text() == text
        else:
            text = path.read_text()
        outcomes.append(text)
        assert os.listdir(path.parent) == ["x"]
    first = outcomes.index("new")
    assert outcomes == ["old"] * first + ["new"] * (len(killed) - first)


def test_a_living_writer_is_not_collected(tmp_path: Path) -> None:
    with files.written_folder(tmp_path / "x") as folder:
        (folder / "a").write_text("new")
        files.collect(tmp_path)
        files.write_whole(tmp_path / "y", b"another path")
        assert folder.exists()
    assert contents(tmp_path / "x") == {"a": "new"}


def test_a_file_of_somebody_else_is_not_collected(tmp_path: Path) -> None:
    for name in (".x.notes.part", ".x.part", "x.0123456789ab.part"):
        (tmp_path / name).write_text("dear")
    files.write_whole(tmp_path / "x", b"new")
    assert len(os.listdir(tmp_path)) == 4


def test_a_disk_without_locks_is_written_and_nothing_collected_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refused)
    (tmp_path / ".x.0123456789ab.part").write_text("of a living writer, maybe")
    files.write_whole(tmp_path / "x", b"new")
    with files.written_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("new")
    assert sorted(os.listdir(tmp_path)) == [".x.0123456789ab.part", "folder", "x"]


def test_what_is_read_of_a_folder_is_of_one_folder(tmp_path: Path) -> None:
    path, calls = tmp_path / "x", []

    def read() -> str:
        first = (path / "a").read_text()
        calls.append(1)
        if len(calls) < 3:
            write(str(len(calls)))
        return first + (path / "b").read_text()

    def write(value: str) -> None:
        with files.written_folder(path) as folder:
            (folder / "a").write_text(value)
            (folder / "b").write_text(value)

    write("0")
    assert files.read_folder(path, read) == "22"
    with pytest.raises(files.FileError, match="does not exist"):
        files.read_folder(path, lambda: files.read_json(path / "c"))
    with pytest.raises(files.FileError, match="changes all the time"):
        files.read_folder(path, lambda: os.utime(path, ns=(0, time.monotonic_ns())))


def test_a_folder_that_was_replaced_twice_is_read_again(tmp_path: Path) -> None:
    """By one of the same size and times, as `cp -a` makes it: file systems give it the number of the first."""
    path, read = tmp_path / "folder", []

    def make(content: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        (path / "a").write_text(content)
        os.utime(path, ns=(0, 0))

    def reading() -> str:
        read.append((path / "a").read_text())
        if len(read) == 1:
            make("between")
            read.append((path / "a").read_text())
            make("last")
        return read[-1]

    make("first")
    assert files.read_folder(path, reading) == "last"
    assert read == ["first", "between", "last"]


def test_a_failed_write_leaves_what_was(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x", {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "x", {"a": float("nan")})
    with pytest.raises(RuntimeError), files.written_folder(tmp_path / "folder"):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["x"]
    assert files.read_json(tmp_path / "x") == {"a": 1}


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(disk / name)
    files.write_whole(tmp_path / "file", b"new")
    with files.written_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("new")
    assert sorted(os.listdir(disk)) == ["file", "folder"]
    assert all((tmp_path / name).is_symlink() for name in ("file", "folder"))


def test_a_planted_link_is_neither_locked_nor_written(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("dear")
    (tmp_path / "x.lock").symlink_to(victim)
    with pytest.raises(files.FileError, match="plain file"), files.lock(tmp_path / "x.lock"):
        pass
    (tmp_path / ".x.0123456789ab.part").symlink_to(victim)
    files.write_whole(tmp_path / "x", b"new")
    assert victim.read_text() == "dear"


def test_a_lock_keeps_others_out_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = HOLDER.format(path=path, seconds=60)
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(files.FileError, match=f"is in use .by process {holder.pid}."), files.lock(path, wait=False):
        pass
    holder.kill()
    holder.wait()
    with files.lock(path, wait=False):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b'{"a": ', "not JSON"),
        (b"[" * 200_000, "nested without end"),
        (b"\xff\xfe", "not text"),
        (b"[1]", "list where an object is expected"),
    ],
)
def test_damaged_json_names_the_file_and_the_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(files.FileError, match=reason) as raised:
        files.read_json(path, remedy="write it again")
    assert str(raised.value).startswith(f"{path} is damaged: ")
    assert str(raised.value).endswith("; write it again")


def test_lines_of_json_leave_out_a_torn_one_and_name_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert files.read_json_lines(path) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 1}\n[' + "\n")
    with pytest.raises(files.FileError, match=r"x\.jsonl, line 2 is damaged: not JSON"):
        files.read_json_lines(path)


def test_an_inventory_tells_every_changed_byte(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    entry = json.loads(json.dumps(files.inventory(tmp_path)))["x"]
    files.check_file(path, entry)
    for content, reason in (
        (b"abd", "its checksum is another"),
        (b"ab", "truncated: 2 bytes, expected 3"),
        (b"abcd", "too long"),
    ):
        path.write_bytes(content)
        with pytest.raises(files.FileError, match=reason):
            files.check_file(path, entry)
    path.write_bytes(b"abd")
    files.check_file(path, entry, checksums=False)
    with pytest.raises(files.FileError, match="no size and checksum"):
        files.check_file(path, None)
    path.unlink()
    with pytest.raises(files.FileError, match="is missing"):
        files.check_file(path, entry)


def test_paths_mean_the_same_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = files.absolute("x")
    monkeypatch.chdir("/")
    assert path == tmp_path / "x"


def test_a_path_without_detours_is_where_the_system_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `os.path.realpath` follows it, whatever is a link, a folder, a file or absent."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    for link, target in (("a/here", "b"), ("a/b/up", "../.."), ("a/b/away", tmp_path / "a/b/c"), ("a/gone", "no")):
        (tmp_path / link).symlink_to(target)
    monkeypatch.chdir(tmp_path / "a")
    rng = random.Random(0)
    parts = ("..", "..", "..", "here", "up", "away", "gone", "b", "c", "a", "file", "absent", ".")
    for _ in range(2000):
        path = "/".join(rng.choice(parts) for _ in range(rng.randint(1, 7)))
        found = files.plain(path)
        assert os.path.realpath(found) == os.path.realpath(path) == os.path.realpath(files.absolute(path)), path
        assert ".." not in "/".join(found.parts).lstrip("./"), path
        assert ".." not in files.absolute(path).parts
    assert files.plain("absent/../x") == Path("x")
    assert files.plain("/../x") == Path("/x")
    assert files.plain("../../x") == Path("../../x")


def test_waiting_for_a_lock_ends_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = HOLDER.format(path=path, seconds=0.5)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with files.lock(path):
            assert path.read_text() == f"{os.getpid()}\n"


def test_no_path_has_a_nul_character() -> None:
    with pytest.raises(files.FileError, match=r"^the path is 'a\\x00b'; legal: one without NUL characters$"):
        files.absolute("a\0b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(files.FileError, match="pipe is in the way"):
            files.write_whole(path, b"")
        with pytest.raises(files.FileError, match="pipe is in the way"), files.written_folder(path):
            pass
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


@pytest.mark.parametrize("path", [None, 3, b"name", "a\0b"])
def test_what_is_no_path_is_refused(path):
    for use in (files.absolute, files.recover, lambda given: files.write_json(given, {})):
        with pytest.raises(files.FileError, match=r"the path is .*; legal: "):
            use(path)
