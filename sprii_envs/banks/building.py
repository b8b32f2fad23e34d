"""Building a bank: chunk by chunk, in parallel, resumable after `kill -9`, atomic at the end.

While it is built, a bank at `path` (or where a link at `path` leads) lives in `path.partial/`:

    build.json   the protocol, the package versions and what is told of the world
    journal      a line per finished chunk (number, SHA-256), written once its bytes are on the disk
    outcome.i32  length and ending of every episode, for the table
    spare        room for table and manifest, so that a full disk is told of at the start
    data/        the future bank; takes its place at `path` as the very last act
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import pickle
import platform
import shutil
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import as_completed
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sprii_envs import __version__, files
from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import simulate, storage, worlds
from sprii_envs.banks.bank import Bank
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.simulate import Chunk
from sprii_envs.banks.storage import BankError, Column
from sprii_envs.dependencies import PackageImportError
from sprii_envs.processes import BrokenProcessPool, InOrder, job, pool, without_interrupts
from sprii_envs.registration import importable_elsewhere, registered, world_of
from sprii_envs.relations import EpisodeTable
from sprii_envs.world import draw_states
from sprii_envs.world_checks import check_once

Progress = Callable[[int, int], None]

_TABLE = ("episode", "system", "rollout", "length", "split", "kind", "group", "ending")
_OUTCOME = "outcome.i32"
_PARTIAL = {"build.json", "journal", _OUTCOME, "spare", "data"}
_OVERWRITE = "pass overwrite=True (--overwrite)"
_PIECE = 2**22
"""Bytes of frames drawn, written and read at once."""

_OVERHEAD = 2**10
"""Bytes that the table's file adds to an array, at most (measured: 600)."""

_FILES = 5
"""Files made one after the other: build.json, journal, table, manifest, and one until it is whole."""


def build(
    protocol: BankProtocol,
    path: str | os.PathLike[str],
    *,
    workers: int = 1,
    progress: Progress | None = None,
    overwrite: bool = False,
    wait: bool = False,
    elsewhere: InOrder | None = None,
) -> Bank:
    """Build the bank of `protocol` at `path`, or open it if it is already there.

    A build that was interrupted at any point, even by `kill -9`, is taken up by the same call and ends in the
    same bytes as an uninterrupted one, for any number of `workers` (processes, started by "spawn": with more
    than one, a script needs the usual `if __name__ == "__main__":`). `progress(done, total)` counts episodes.

    A finished or unfinished bank of *another* protocol at `path` (or a damaged one) is an error, unless
    `overwrite` replaces it. With `wait`, a second builder of the same bank waits for the first instead of
    raising an error.

    A link at `path` stays: what it leads to is built or replaced.

    `elsewhere` builds chunks in place of these processes, such as on other machines: all see `path` under that name,
    and have the same packages.

    Raises BankError, always naming the path: too little disk space (checked before anything is written; if
    space runs out midway, the finished chunks stay in `path.partial` and the same call resumes), another
    protocol, another builder, a killed worker, or a folder that is not a bank (which is never replaced). ValueError for
    a protocol that cannot be built or recorded: with a behaviour that is not registered, say (`banks.register`).
    """
    workers = integer("workers", workers, least=1, most=WORKERS)
    place = files.absolute(path)
    path = Path(os.path.realpath(place))
    with _disk_errors(path):
        if _finished(protocol, path, overwrite):
            with contextlib.suppress(BankError, OSError):  # what cannot be cleared up holds no reader up
                _clear_up(protocol, path)
        else:
            protocol.check_recorded()
            path.parent.mkdir(parents=True, exist_ok=True)
            with storage.lock(path, wait):
                files.recover(path)
                if not _finished(protocol, path, overwrite):
                    _Build(protocol, path).run(workers, progress, overwrite, elsewhere)
                _remove_left(protocol, path)
    return Bank.open(place)


def _finished(protocol: BankProtocol, path: Path, overwrite: bool) -> bool:
    """Whether the bank at `path` is there; BankError if what is there may not be replaced."""
    try:
        os.lstat(path / storage.MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
            return False
        no_bank = f"{path}: exists and is not a bank (no {storage.MANIFEST}); it will not be replaced"
        raise BankError(no_bank) from None
    try:
        bank = Bank.open(path)
    except BankError as error:
        if overwrite:
            return False
        raise BankError(f"{error}; {_OVERWRITE} to build it anew") from error
    if bank.protocol == protocol:
        differ = _changed(bank)
        if differ and not overwrite:
            raise BankError(f"{path}: holds a bank of another world ({differ}); choose another path or {_OVERWRITE}")
        return not differ
    if overwrite:
        return False
    raise BankError(
        f"{path}: holds a bank of another protocol ({bank.protocol.differences(protocol)}); "
        f"choose another path or {_OVERWRITE}"
    )


def _changed(bank: Bank) -> str:
    """In what the protocol's world differs from the one that made the bank; empty if in nothing or if it is unknown."""
    try:
        world_of(bank.protocol.env_id)
    except (gym.error.Error, ImportError):  # read it can be
        return ""
    try:
        return worlds.differences(bank.recipe, worlds.recipe(bank.protocol, simulate.world(bank.protocol)))
    except PackageImportError:
        return ""
    except ValueError as error:
        return str(error)


class _Build:
    """One build in progress, under the build lock."""

    def __init__(self, protocol: BankProtocol, path: Path) -> None:
        self.protocol, self.path = protocol, path
        self.partial = storage.partial_path(path)
        self.data = self.partial / "data"
        if registered(protocol.env_id) is not None:
            check_once(simulate.world(protocol))
        self.columns = simulate.columns(protocol)
        self.chunks = simulate.chunks(protocol)
        self.drawn = simulate.draw(protocol)
        self.systems = simulate.systems(protocol, self.drawn)
        outcome = Column("outcome", _OUTCOME, "<i4", (protocol.episodes, 1, 2), "observation")
        self.targets = (*((self.data / c.file, c) for c in self.columns), (self.partial / _OUTCOME, outcome))
        self.spare = self.partial / "spare"
        self.packages = {"python": platform.python_version(), "numpy": np.__version__, "sprii": __version__}
        world = simulate.world(protocol)
        if surplus := [name for name in world.properties.names if name in _TABLE]:
            raise ValueError(
                f"property {surplus[0]!r} of {world.name} has the name of a column that every bank's table has; "
                f"choose none of {', '.join(_TABLE)}"
            )
        if protocol.frames is not None and not world.has_pictures:
            raise world.without_pictures(f"frames={protocol.frames} of the bank {protocol.name!r}")
        self.packages |= {name: _version(name, protocol) for name in world.packages}
        try:
            self.packages |= world.sources
            world.prepare(self.drawn.values[:1])
            self.recipe = worlds.recipe(protocol, world)
        except PackageImportError as error:
            raise BankError(f"the bank {protocol.name!r} cannot be built: {error}") from error
        self.room = self._room()
        self.done: set[int] = set()

    def run(self, workers: int, progress: Progress | None, overwrite: bool, elsewhere: InOrder | None) -> None:
        if workers > 1 or elsewhere is not None:
            self._check_importable()
        with _disk_errors(self.path, self._needed):
            self.done = self._take_up(overwrite)
            self._simulate(workers, progress, elsewhere)
            self._finish()

    def _check_importable(self) -> None:
        """BankError, before anything is written, for classes that no worker could import."""
        own = registered(self.protocol.env_id)
        made = [own.world.split(":")] if own else []
        made += [[type(each).__module__, type(each).__qualname__] for each in self.protocol.recorded]
        for module, name in made:
            if "<locals>" in name or not importable_elsewhere(module):
                raise BankError(
                    f"{self.path}: build workers cannot import {name}, which is defined in "
                    f"{'a function' if '<locals>' in name else 'a notebook or shell'}: put it into a module of its "
                    "own, or build with workers=1"
                )

    def _simulate(self, workers: int, progress: Progress | None, elsewhere: InOrder | None) -> None:
        todo = [chunk for chunk in self.chunks if chunk.number not in self.done]
        total = self.protocol.episodes
        finished = total - sum(chunk.end - chunk.begin for chunk in todo)
        if progress:
            progress(finished, total)
        if todo:
            with (
                self._nothing_kept_if_empty(),
                open(self.partial / "journal", "a", encoding="ascii") as journal,
                contextlib.closing(self._digests(todo, workers, elsewhere)) as digests,
            ):
                for chunk, digest in digests:
                    journal.write(f"{chunk.number} {digest}\n")
                    journal.flush()
                    os.fsync(journal.fileno())
                    self.done.add(chunk.number)
                    finished += chunk.end - chunk.begin
                    if progress:
                        progress(finished, total)

    @contextlib.contextmanager
    def _nothing_kept_if_empty(self) -> Iterator[None]:
        """On a disk error, remove a partial folder without finished chunks: it only occupies the disk."""
        try:
            yield
        except OSError:
            if not self.done:
                shutil.rmtree(self.partial, ignore_errors=True)
            raise

    def _take_up(self, overwrite: bool) -> set[int]:
        """Make the partial folder ready and return the numbers of the chunks that are finished in it."""
        header = {"schema": storage.SCHEMA, "protocol": self.protocol.to_dict(), "packages": self.packages}
        header["world"] = self.recipe
        if os.path.lexists(self.partial) and not _is_ours(self.partial):
            raise BankError(f"{self.partial}: is in the way and not an unfinished build; move it")
        if (self.partial / "build.json").exists():
            try:
                found = files.read_json(self.partial / "build.json", BankError, f"{_OVERWRITE} to discard it")
                if found != header:
                    raise BankError(self._refusal(found))
            except BankError:
                if not overwrite:
                    raise
                shutil.rmtree(self.partial)
        elif self.partial.exists():
            shutil.rmtree(self.partial)
        fresh = not self.partial.exists()
        if not fresh and self.data.exists():  # table and manifest of a build that was killed in its last moments
            for stray in set(os.listdir(self.data)) - {column.file for column in self.columns}:
                (self.data / stray).unlink()
        self._check_space()
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            for path, column in self.targets:
                storage.reserve(path, column.bytes)
            storage.reserve(self.spare, self.room)
            if fresh:
                files.write_json(self.partial / "build.json", header)
        except OSError:
            if fresh:
                shutil.rmtree(self.partial, ignore_errors=True)
            raise
        return self._journaled()

    def _refusal(self, found: dict[str, Any]) -> str:
        begun = f"{self.partial}: an unfinished build"
        try:
            other = BankProtocol.from_dict(found["protocol"], unknown=True)
        except (KeyError, TypeError, ValueError):
            return f"{begun} of an unknown protocol; {_OVERWRITE} to discard it"
        if other != self.protocol:
            differences = other.differences(self.protocol)
            return f"{begun} of another protocol ({differences}); {_OVERWRITE} to discard it"
        if "world" not in found:
            return f"{begun} that does not say of which world; {_OVERWRITE} to discard it"
        if differ := worlds.differences(found["world"], self.recipe):
            return f"{begun} of another world ({differ}); go back to that one or {_OVERWRITE} to discard it"
        if found["packages"] == self.packages:
            return f"{begun} of a world without some of its constants; {_OVERWRITE} to discard it"
        return (
            f"{begun} with other packages ({found.get('packages')}, now {self.packages}), which may not give "
            f"the same bytes; resume it with those or {_OVERWRITE} to discard it"
        )

    def _check_space(self) -> None:
        """What can fail at the end is refused at the start: BankError unless there is room for bytes and files."""
        places = (self.partial, self.data, self.spare, *(path for path, _ in self.targets))
        count, needed = _FILES + sum(not path.exists() for path in places), self._needed()
        if needed > storage.free_bytes(self.path) or count > storage.free_files(self.path):
            raise BankError(_no_space(self.path, needed, count))

    def _needed(self) -> int:
        """Bytes still to be allocated."""
        sizes = {**{path: column.bytes for path, column in self.targets}, self.spare: self.room}
        return sum(size - min(size, _allocated(path)) for path, size in sizes.items())

    def _room(self) -> int:
        """Bytes that the table and the manifest take at most, and the last of the journal."""
        longest = max(range(len(self.endings)), key=lambda code: len(self.endings[code]))
        table = self._table(np.full((self.protocol.episodes, 2), (1, longest)))
        arrays = [table.rows, *(table[name] for name in table.columns)]
        return sum(array.nbytes + _OVERHEAD for array in arrays) + len(json.dumps(self.protocol.to_dict())) + 2**16

    def _journaled(self) -> set[int]:
        """Chunks whose bytes agree with their last line in the journal. A line torn by a crash is cut off."""
        path = self.partial / "journal"
        path.touch()
        lines = path.read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        numbers = {str(chunk.number): chunk.number for chunk in self.chunks}
        digests: dict[int, str] = {}
        for line in lines:
            parts = line.split()
            if line.endswith("\n") and len(parts) == 2 and parts[0] in numbers:
                digests[numbers[parts[0]]] = parts[1]
        good = {i for i, digest in digests.items() if self._digest_on_disk(self.chunks[i]) == digest}
        files.write_whole(path, "".join(f"{i} {digests[i]}\n" for i in sorted(good)).encode("ascii", "replace"))
        return good

    def _digest_on_disk(self, chunk: Chunk) -> str:
        digest = hashlib.sha256()
        for path, column in self.targets:
            with open(path, "rb") as file:
                file.seek(chunk.begin * column.episode_bytes)
                left = (chunk.end - chunk.begin) * column.episode_bytes
                while left:
                    piece = file.read(min(left, _PIECE))
                    digest.update(piece)
                    left -= len(piece)
        return digest.hexdigest()

    def _digests(self, todo: list[Chunk], workers: int, elsewhere: InOrder | None) -> Generator[tuple[Chunk, str]]:
        """Build the chunks, in any order, and yield each with its digest once its bytes are on the disk."""
        kept = (self.protocol, self.systems.values, self.targets)
        if workers == 1 and elsewhere is None:
            for chunk in todo:
                yield chunk, _build_chunk(*kept, chunk)
            return
        packed = pickle.dumps((registered(self.protocol.env_id), kept))
        try:
            if elsewhere is not None:
                with contextlib.closing(elsewhere(partial(_task, packed), todo)) as digests:
                    yield from zip(todo, digests, strict=True)
                return
            with pool(min(workers, len(todo)), packed) as executor:
                with without_interrupts():
                    futures = {executor.submit(_work, chunk): chunk for chunk in todo}
                for future in as_completed(futures):
                    yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise BankError(
                f"{self.path}: a build worker was killed or could not start (out of memory? a script without "
                f'`if __name__ == "__main__":`?); finished chunks are kept, the same call resumes'
            ) from error

    def _finish(self) -> None:
        """Table, checksums and manifest; then the rename that makes it a bank."""
        self.spare.unlink()
        outcome = np.fromfile(self.partial / _OUTCOME, "<i4").reshape(-1, 2)
        self._table(outcome).save(self.data / storage.TABLE)
        storage.Manifest(
            protocol=self.protocol,
            properties=self.systems.properties,
            columns=self.columns,
            files=files.inventory(self.data),
            packages=self.packages,
            world=self.recipe,
        ).write(self.data)
        files.replace_folder(self.data, self.path)

    @property
    def endings(self) -> tuple[str, ...]:
        """How an episode ends, by its code in the outcome."""
        return (*simulate.OUTCOMES, *simulate.world(self.protocol).endings)

    def _table(self, outcome: NDArray[np.integer]) -> EpisodeTable:
        """The table, from the length and the code of the ending of every episode (episodes, 2)."""
        protocol, drawn = self.protocol, self.drawn
        system, rollout, kind = [], [], []
        first = 0
        for split, count in protocol.counts.items():
            each = protocol.episodes_per_system(split)
            system.append(np.repeat(np.arange(first, first + count), each))
            rollout.append(np.tile(np.arange(each), count))
            parts = protocol.parts(split)
            kind.append(np.tile(np.repeat([str(p.kind) for p in parts], [p.episodes for p in parts]), count))
            first += count
        row = np.concatenate(system)
        columns: dict[str, NDArray[Any]] = {
            "episode": np.arange(protocol.episodes),
            "system": row,
            "rollout": np.concatenate(rollout),
            "length": outcome[:, 0],
            "split": np.repeat(list(protocol.counts), [len(part) for part in system]),
        }
        if protocol.behaviour.episode_kinds:
            columns["kind"] = np.concatenate(kind)
        if (drawn.group != "").any():
            columns["group"] = drawn.group[row]
        columns |= {name: self.systems.column(name)[row] for name in self.systems.names}
        if self.systems.levels is not None:
            columns |= {f"{n}_level": self.systems.levels[row, i] for i, n in enumerate(self.systems.names)}
        columns["ending"] = np.array(self.endings)[outcome[:, 1]]
        return EpisodeTable(columns)


def _version(package: str, protocol: BankProtocol) -> str:
    """The installed version of a package; BankError if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise BankError(f"the bank {protocol.name!r} needs {package}: pip install {package}") from error


def _is_ours(partial: Path) -> bool:
    """Whether this is the folder of an unfinished build, and nothing of anybody else's is in it; links never are."""
    if partial.is_symlink() or not partial.is_dir():
        return False
    files.collect(partial)
    data = partial / "data"
    entries = [*os.scandir(partial), *(os.scandir(data) if data.is_dir() else ())]
    return set(os.listdir(partial)) <= _PARTIAL and not any(entry.is_symlink() for entry in entries)


def _clear_up(protocol: BankProtocol, path: Path) -> None:
    """Collect what was left beside a finished bank by who was killed in the last moments of its build."""
    files.recover(path)
    if os.path.lexists(storage.partial_path(path)) or os.path.lexists(storage.lock_path(path)):
        with storage.lock(path, wait=False):
            if _finished(protocol, path, overwrite=True):
                _remove_left(protocol, path)


def _remove_left(protocol: BankProtocol, path: Path) -> None:
    """Remove the partial folder beside the finished bank of `protocol`, but not the unfinished build of another."""
    partial = storage.partial_path(path)
    if not _is_ours(partial):
        return
    if (partial / "data").exists() and (partial / "build.json").exists():
        try:
            begun = files.read_json(partial / "build.json", BankError)
        except BankError:
            return
        if begun.get("protocol") != protocol.to_dict():
            return
    shutil.rmtree(partial, ignore_errors=True)


def _no_space(path: Path, needed: int, count: int = 1, cause: OSError | None = None) -> str:
    """What to say when `needed` bytes or `count` files do not fit, or if they do, of what failed all the same."""
    free, most, partial = storage.free_bytes(path), storage.free_files(path), storage.partial_path(path)
    if count > most:
        reason = f"{count} more files needed, {most} can be made on its disk (inodes)"
    elif needed > free or cause is None:
        reason = f"{needed:,} bytes needed, {free:,} bytes free"
    else:
        reason = f"{cause.filename or 'a file'} could not be written: {cause.strerror} ({free:,} bytes free now)"
    kept = f"; finished chunks are kept in {partial}: free some space and the same call resumes"
    return f"{path}: no disk space for this bank: {reason}{kept if partial.exists() else ''}"


def _allocated(path: Path) -> int:
    """Bytes that a file already holds on the disk (a sparse file holds fewer than its size)."""
    try:
        stat = path.stat()
    except OSError:
        return 0
    return min(getattr(stat, "st_blocks", 0) * 512, stat.st_size)


def _build_chunk(
    protocol: BankProtocol, values: NDArray[np.float64], targets: tuple[tuple[Path, Column], ...], chunk: Chunk
) -> str:
    """Simulate one chunk, put it in its place in every file, sync, and return its SHA-256."""
    arrays = simulate.simulate(protocol, values[chunk.first : chunk.last], chunk)
    digest = hashlib.sha256()
    for path, column in targets:
        with open(path, "r+b", buffering=0) as file:
            file.seek(chunk.begin * column.episode_bytes)
            for block in _blocks(protocol, arrays, chunk, column):
                digest.update(block)
                _write(file, block)
            os.fsync(file.fileno())
    return digest.hexdigest()


def _blocks(
    protocol: BankProtocol, arrays: dict[str, NDArray[Any]], chunk: Chunk, column: Column
) -> Iterator[memoryview]:
    """The bytes of a column of one chunk; frames are drawn episode by episode, so that they never fill the memory."""
    if column.name != "frames":
        array = arrays[column.name].reshape(-1, *column.shape[1:])
        yield np.ascontiguousarray(array, column.dtype).data.cast("B")
        return
    world = simulate.world(protocol)
    planned = np.concatenate([np.full(p.episodes, p.length) for p in protocol.parts(chunk.split)])
    planned = np.tile(planned, chunk.last - chunk.first)
    count = max(1, _PIECE // column.episode_bytes)
    for first in range(0, len(planned), count):
        states, lengths = arrays["states"][first : first + count], planned[first : first + count]
        frames = draw_states(world, states, column.shape[2:])
        frames[np.arange(frames.shape[1]) >= lengths[:, None]] = 0
        yield frames.data.cast("B")


def _write(file: io.FileIO, block: memoryview) -> None:
    """All of a block: the system may write less than it is given."""
    while len(block):
        block = block[file.write(block) :]


def _work(chunk: Chunk) -> str:
    (packed,) = job()
    return _task(packed, chunk)


def _task(packed: bytes, chunk: Chunk) -> str:
    return _build_chunk(*_unpacked(packed), chunk)


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> tuple[BankProtocol, NDArray[np.float64], tuple[tuple[Path, Column], ...]]:
    """What every chunk needs, the registration of the world included; BankError if its classes are not found.

    A chunk unpacks it, so that its error reaches the parent.
    """
    try:
        own, kept = pickle.loads(packed)
        if own is not None:
            own.here()
    except (ImportError, AttributeError, ValueError) as error:
        raise BankError(f"a build worker cannot import what the bank is made of: {error} (or: workers=1)") from error
    return kept


@contextlib.contextmanager
def _disk_errors(path: Path, needed: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn an OSError into one BankError that says what to do."""
    try:
        yield
    except BrokenPipeError:  # of a progress callback that prints
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BankError(_no_space(path, needed(), cause=error)) from error
        raise BankError(f"{error.filename or path} cannot be read or written: {error.strerror}") from error
