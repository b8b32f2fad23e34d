"""Banks of fields: solved in parallel, recorded in order, taken up after a kill, the same bytes for any workers."""

import functools
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import WORKERS, instance, integer, shown
from sprii_envs.banks import RecordedBank, Recording, StoreError, storage
from sprii_envs.banks.recorded import MANIFEST
from sprii_envs.fields.protocols import FIELD, PROTOCOLS, BurgersProtocol, FHNProtocol, FieldProtocol, Labels
from sprii_envs.processes import BrokenProcessPool, in_order

__all__ = ["FIELD", "PROTOCOLS", "BurgersProtocol", "FHNProtocol", "FieldProtocol", "build_fields", "record_fields"]

Progress = Callable[[int, int], None]
Episodes = Generator[tuple[Labels, NDArray[np.float32]]]
"""Labels and field (frames, *shape), one episode after another."""


def build_fields(
    protocol: FieldProtocol, path: files.StrPath, *, workers: int = 1, progress: Progress | None = None
) -> RecordedBank:
    """Build the bank of `protocol` at `path`, or open it if it is there already.

    After a kill the same call goes on behind the last episode that was written, and ends in the same bytes, as it does
    for any number of `workers` (processes, started by "spawn": with more than one, a script needs the usual
    `if __name__ == "__main__":`). `progress(done, total)` counts episodes.

    Raises:
        ValueError: for no number of workers.
        StoreError: for a path that holds anything else, begun or finished, or is being written; for too little room on
            its disk, before anything is written; for a killed worker.
    """
    instance("protocol", protocol, of=FieldProtocol)
    workers = integer("workers", workers, least=1, most=WORKERS)
    plan = protocol.plan()

    def episodes(done: int) -> Episodes:
        chunks = [plan[i : i + protocol.together] for i in range(done, len(plan), protocol.together)]
        solve = functools.partial(_solved, protocol)
        with closing(in_order(solve, chunks, min(workers, max(1, len(chunks))))) as solved:
            for chunk, fields in zip(chunks, solved, strict=True):
                yield from zip(chunk, fields, strict=True)

    try:
        return record_fields(path, protocol, protocol.origin, len(plan), episodes, progress)
    except BrokenProcessPool as error:
        raise StoreError(
            f"{path}: a worker was killed or could not start (out of memory? a script without "
            f'`if __name__ == "__main__":`?); episodes that were written are kept, the same call resumes'
        ) from error


def _solved(protocol: FieldProtocol, labels: list[Labels]) -> NDArray[np.float32]:
    return protocol.fields(labels)


def record_fields(
    path: files.StrPath,
    protocol: FieldProtocol,
    origin: dict[str, Any],
    total: int,
    episodes: Callable[[int], Episodes],
    progress: Progress | None,
) -> RecordedBank:
    """Write the bank of an origin, in the shape of `protocol`, or open it if it is there already.

    Args:
        total: episodes of the bank; `episodes(done)` gives those behind the first `done`.

    Raises:
        StoreError: see `build_fields`.
    """
    tell = progress or (lambda done, total: None)
    bank = _opened(path, origin)
    if bank is None:
        _check_room(files.absolute(path), total * protocol.frames * protocol.stream.entry_bytes)
        with _disk_errors(path), Recording(path, {FIELD: protocol.stream}, origin) as recording:
            tell(recording.done, total)
            with closing(episodes(recording.done)) as left:
                for labels, field in left:
                    recording.append({FIELD: field}, **labels)
                    tell(recording.done, total)
        return RecordedBank(path)
    tell(total, total)
    return bank


def _opened(path: files.StrPath, origin: dict[str, Any]) -> RecordedBank | None:
    """The bank of this origin at `path`, or None where there is none; StoreError for another."""
    if not (Path(path) / MANIFEST).exists():
        return None
    bank, wanted = RecordedBank(path), json.loads(json.dumps(origin))
    if bank.origin != wanted:
        raise StoreError(f"{path} holds another bank ({_difference(bank.origin, wanted)}); choose another folder")
    return bank


def _difference(found: Any, wanted: Any, name: str = "origin") -> str:
    """The first thing in which two origins differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in (*wanted, *found):
            if key not in found or key not in wanted or found[key] != wanted[key]:
                return _difference(found.get(key), wanted.get(key), key)
    return f"its {name} is {shown(found)}, not {shown(wanted)}"


def _check_room(path: Path, size: int) -> None:
    """StoreError unless what is left of `size` bytes fits on the disk."""
    written = sum(file.stat().st_size for file in storage.partial_path(path).glob(f"{FIELD}.*"))
    if size - written > (free := storage.free_bytes(path)):
        raise StoreError(f"{path}: no disk space for this bank: {size - written:,} bytes needed, {free:,} bytes free")


@contextmanager
def _disk_errors(path: files.StrPath) -> Iterator[None]:
    """Turn an OSError into one StoreError that says what to do."""
    try:
        yield
    except BrokenPipeError:  # of a progress callback that prints
        raise
    except OSError as error:
        raise StoreError(
            f"{error.filename or path} cannot be written: {error.strerror}; episodes that were written are kept, the "
            "same call resumes"
        ) from error
