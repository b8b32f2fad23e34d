"""Files that outlive kills, links and damage: written whole, locked, checksummed, and read with errors that name them.

Whoever writes a path first collects what killed writers of that path left beside it. A temporary file or folder is
locked by its writer for as long as it is written, and the kernel lets go of the lock however the writer ends: what can
be locked is nobody's any more. Where there is no `flock` (Windows, some network disks), nothing is locked and nothing
collected.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

try:
    import fcntl
except ImportError:
    fcntl = None

StrPath = str | os.PathLike[str]
T = TypeVar("T")

_PART, _FORMER = ".part", ".former"
"""Endings of `.NAME.<hex>…`: what is being written or removed, and what stood at NAME until its successor does."""

_LEFT = re.compile(rf"\.(?P<name>.+)\.[0-9a-f]{{12}}({re.escape(_PART)}|{re.escape(_FORMER)})", re.DOTALL)


class FileError(ValueError):
    """A file that is missing, damaged or in use; the message names it and what to do."""


def absolute(path: StrPath) -> Path:
    """The path from the root, so that it means the same after `os.chdir`; links in it are kept.

    FileError for what is no text or path, or has a NUL character, which no file has.
    """
    return plain(Path(_checked(path)).absolute())


def plain(path: StrPath) -> Path:
    """The path without `..` behind a folder: where the system follows it to, and as text behind what is not there.

    So `absent/../bank` is `bank`, for a writer that makes folders and for whoever reads it later. FileError as of
    `absolute`.
    """
    made = Path()
    for part in Path(_checked(path)).parts:
        if part != "..":
            made /= part
        elif made.is_symlink():
            made = Path(os.path.realpath(made)).parent
        elif made.name not in ("", ".."):
            made = made.parent
        elif not made.root:
            made /= part
    return made


def _checked(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"the path is {path!r:.80}; legal: a text or a pathlib.Path")
    text = os.fspath(path)
    if isinstance(text, bytes) or "\0" in text:
        raise FileError(f"the path is {text!r:.80}; legal: one without NUL characters")
    return text


def read_json(path: StrPath, error: type[ValueError] = FileError, remedy: str = "") -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        error: what is raised.
        remedy: what to do about a damaged file, appended to the message.

    Raises:
        error: naming the file, if it is missing, unreadable, not JSON or not an object.
    """
    return _object(_text(path, error, remedy), os.fspath(path), error, remedy)


def read_json_lines(path: StrPath, error: type[ValueError] = FileError, remedy: str = "") -> list[dict[str, Any]]:
    """The JSON objects in a file of one a line; a last line without its end, torn by a kill, is left out.

    Raises:
        error: naming the file and the line; see `read_json`.
    """
    lines = _text(path, error, remedy).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    return [_object(line, f"{os.fspath(path)}, line {i}", error, remedy) for i, line in enumerate(whole, 1)]


def _text(path: StrPath, error: type[ValueError], remedy: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(f"{os.fspath(path)} does not exist") from None
    except OSError as cause:
        raise error(f"{os.fspath(path)} cannot be read: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        raise error(_damaged(os.fspath(path), f"not text ({cause.reason})", remedy)) from None


def _object(text: str, place: str, error: type[ValueError], remedy: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise error(_damaged(place, "JSON nested without end", remedy)) from None
    except ValueError as cause:
        raise error(_damaged(place, f"not JSON ({cause})", remedy)) from None
    if not isinstance(data, dict):
        raise error(_damaged(place, f"{type(data).__name__} where an object is expected", remedy))
    return data


def _damaged(place: str, reason: str, remedy: str) -> str:
    return f"{place} is damaged: {reason}{_then(remedy)}"


def _then(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def write_json(path: StrPath, data: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all; ValueError for what JSON has no word for (nan, infinities)."""
    write_whole(path, (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_whole(path: StrPath, data: bytes) -> None:
    """Write a file that is wholly there, on the disk, or as it was before; a link's target is what is replaced."""
    with written_file(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def written_file(path: StrPath) -> Iterator[Path]:
    """An empty temporary file that becomes `path` when the block succeeds and vanishes when it does not.

    Raises:
        OSError: naming `path`, if it cannot be written.
    """
    path = _place(path)
    temporary, descriptor = _temporary(path, folder=False)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as cause:
        if cause.errno and cause.filename in (None, os.fspath(temporary)):  # a full disk is told of without a name
            cause.filename = os.fspath(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def written_folder(path: StrPath) -> Iterator[Path]:
    """An empty temporary folder that becomes `path` when the block succeeds and vanishes when it does not.

    What is at `path` stays until the new folder is whole, and is then removed. Where the two cannot be exchanged at one
    stroke it is set aside first; if the writer is killed in between, `recover` puts it back.
    """
    path = _place(path)
    temporary, descriptor = _temporary(path, folder=True)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                sync(Path(folder, name))
            sync(Path(folder))
        replace_folder(temporary, path)
    finally:
        _remove_folder(temporary)
        os.close(descriptor)


def replace_folder(folder: Path, path: Path) -> None:
    """Move a whole folder to `path` on the same disk, and remove what is there: `written_folder` in its last moment.

    Linux exchanges the two at one stroke, so that nobody finds nothing at `path`. `folder` is gone afterwards.
    """
    former = path.with_name(f".{path.name}.{uuid4().hex[:12]}{_FORMER}")
    held = None
    try:
        if not path.exists():
            os.replace(folder, path)
        elif not _exchange(folder, path):
            with contextlib.suppress(OSError):
                held = _hold(path)  # so that nobody takes it for left behind while it stands aside
            os.replace(path, former)
            os.replace(folder, path)
        sync(path.parent)
    finally:
        if former.exists() and not path.exists():
            os.replace(former, path)
        _remove_folder(former)
        if held is not None:
            os.close(held)
    _remove_folder(folder)


def _exchange(one: Path, other: Path) -> bool:
    """Whether the system could exchange two names at one stroke."""
    call = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return call is not None and call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def recover(path: StrPath) -> None:
    """Collect what killed writers of `path` left, and put back what one of them had set aside with nothing in place."""
    path = Path(os.path.realpath(_checked(path)))
    collect(path.parent, path.name)


def collect(folder: StrPath, name: str | None = None) -> None:
    """`recover` every path in a folder, or the one of that name."""
    if fcntl is None:
        return
    try:
        entries = [found for entry in sorted(os.listdir(folder)) if (found := _LEFT.fullmatch(entry))]
    except OSError:
        return
    for entry in entries:
        stem, left = entry["name"], Path(folder, entry[0])
        if name not in (None, stem):
            continue
        with contextlib.suppress(OSError):  # a disk that cannot be written holds nobody up
            descriptor = _hold(left)
            if descriptor is None:
                continue
            try:
                if left.name.endswith(_FORMER) and not os.path.lexists(Path(folder, stem)):
                    os.replace(left, Path(folder, stem))
                elif left.is_dir():
                    _remove_folder(left)
                else:
                    left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _place(path: StrPath) -> Path:
    """Where `path` leads, with its folder there and nothing left behind of killed writers."""
    path = Path(os.path.realpath(_checked(path)))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileError(f"{path} is in the way: a device, a pipe or a socket is not replaced; name a file or folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    recover(path)
    return path


def _temporary(path: Path, folder: bool) -> tuple[Path, int]:
    """A new temporary file or folder beside `path`, and the descriptor that holds it."""
    while True:
        temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}{_PART}")
        try:
            if folder:
                temporary.mkdir()
            else:
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError as cause:
            cause.filename = os.fspath(path)
            raise
        try:
            descriptor = _hold(temporary)
        except FileNotFoundError:  # collected between its making and its lock
            continue
        except OSError:  # a disk without locks: nobody collects there
            return temporary, os.open(os.devnull, os.O_RDONLY)
        if descriptor is not None:
            return temporary, descriptor


def _hold(path: Path) -> int | None:
    """A descriptor that holds the lock of a file or folder; None if somebody else does. Links are not followed.

    Raises:
        OSError: there is nothing of that name, or it cannot be locked.
    """
    if fcntl is None:
        return os.open(os.devnull, os.O_RDONLY)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove_folder(path: Path) -> None:
    """Remove a folder under a name that says it is not whole, so that a kill in between leaves no half of it."""
    if path.name.endswith(_FORMER) and path.exists():
        half = path.with_name(path.name.removesuffix(_FORMER) + _PART)
        os.replace(path, half)
        path = half
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def lock(
    path: StrPath, *, wait: bool = True, busy: str = "is in use", error: type[ValueError] = FileError
) -> Iterator[None]:
    """Hold the lock file `path` for the block; the kernel lets go of it however the process ends.

    Args:
        wait: until another holder is done, rather than raise.
        busy: what to say of a lock that another process holds.

    Raises:
        error: it is held and `wait` is false, or it is a link or no plain file.
    """
    path = plain(path)
    if fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as cause:
            if path.is_symlink() or path.is_dir():
                raise error(f"{path} is in the way: a lock must be a plain file; remove it") from cause
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise error(f"{path} is in the way: a lock must be a plain file; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            if not wait:
                raise error(f"{path} {busy} (by process {holder})") from None
            time.sleep(0.1)
            continue
        # The former holder may have removed the name between our open and our lock: no lock at all.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                break
        os.close(descriptor)
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def checksum(path: StrPath) -> str:
    """SHA-256 of a file, read in pieces, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inventory(folder: StrPath) -> dict[str, dict[str, Any]]:
    """`{"bytes", "sha256"}` of every file in a folder, by name: what a JSON beside them keeps for `check_file`."""
    return {
        entry.name: {"bytes": entry.stat().st_size, "sha256": checksum(entry)}
        for entry in sorted(Path(folder).iterdir())
        if entry.is_file()
    }


def check_file(
    path: StrPath,
    entry: object,
    *,
    checksums: bool = True,
    error: type[ValueError] = FileError,
    remedy: str = "",
    ours: bool = True,
) -> None:
    """Compare a file with its entry of an `inventory`.

    Args:
        checksums: False compares sizes only, in microseconds.
        ours: whether nobody else writes the file, so that one which differs is damaged; else it has changed.

    Raises:
        error: naming the file, if it or its entry is missing or another.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("bytes"), int) or "sha256" not in entry:
        raise error(f"{os.fspath(path)} cannot be checked: no size and checksum of it was kept{_then(remedy)}")
    try:
        size = os.stat(path).st_size
        same = not checksums or size != entry["bytes"] or checksum(path) == entry["sha256"]
    except FileNotFoundError:
        raise error(f"{os.fspath(path)} is missing{_then(remedy)}") from None
    except OSError as cause:
        raise error(f"{os.fspath(path)} cannot be read: {cause.strerror}") from cause
    if size == entry["bytes"] and same:
        return
    reason = "its checksum is another" if size == entry["bytes"] else f"{size:,} bytes, expected {entry['bytes']:,}"
    if not ours:
        raise error(f"{os.fspath(path)} has changed: {reason}{_then(remedy)}")
    kind = "" if size == entry["bytes"] else "truncated: " if size < entry["bytes"] else "too long: "
    raise error(_damaged(os.fspath(path), kind + reason, remedy))


def revision(path: StrPath | int) -> tuple[int, int, int] | None:
    """What is another after a file or folder was replaced or written, whatever name it has; None if there is none.

    `path` may be an open file's descriptor.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_folder(folder: StrPath, read: Callable[[], T], error: type[ValueError] = FileError) -> T:
    """What `read()` gives of a folder that stays the same meanwhile: it reads again if another took its place.

    Raises:
        error: what `read` raises of a folder that stayed the same; the folder never does.
    """
    for _ in range(100):
        with _kept_open(folder) as held:
            before = revision(held)
            try:
                result = read()
            except error:
                if revision(folder) == before:
                    raise
                continue
            if revision(folder) == before:
                return result
    raise error(f"{os.fspath(folder)} changes all the time: it cannot be read while something writes to it")


@contextlib.contextmanager
def _kept_open(folder: StrPath) -> Iterator[StrPath | int]:
    """A descriptor: while it is open no other folder gets this one's number, so that a second successor is told apart.

    The path where there is nothing, or on a system that opens no folders.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))  # a pipe would wait for a writer
    except OSError:
        yield folder
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(path: StrPath) -> None:
    """Force a file's contents, or a folder's names, to the disk."""
    if os.name != "posix" and os.path.isdir(path):
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
