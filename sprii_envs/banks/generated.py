"""Banks that a protocol generates: made in parallel, recorded in order, taken up after a kill, the same bytes always.

What a family of such banks adds is its protocol: which episodes there are, and how the arrays of some are made.
"""

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import storage
from sprii_envs.banks.recorded import MANIFEST, RecordedBank, Recording, StreamSpec, difference
from sprii_envs.banks.store import StoreError
from sprii_envs.processes import BrokenProcessPool, InOrder, in_order

Labels = dict[str, Any]
Arrays = Mapping[str, NDArray[Any]]
"""Column → entries."""
Episodes = Generator[tuple[Labels, Arrays]]
"""Labels and arrays (length, *shape), one episode after another."""
Progress = Callable[[int, int], None]
"""Called with the episodes that are done, and all of them."""


class PublishedError(StoreError):
    """A published file that is missing or not as its layout has it; the message names it."""


@dataclass(frozen=True)
class GeneratedProtocol(ABC):
    """What `build_generated` asks of a protocol; its columns have an entry an observation.

    Attributes:
        seed: of what is drawn.
    """

    seed: int = field(default=0, kw_only=True)

    name: ClassVar[str]
    together: ClassVar[int]
    """Episodes that a worker makes at once; the bytes do not depend on it."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Observations of an episode."""

    @property
    @abstractmethod
    def streams(self) -> Mapping[str, StreamSpec]:
        """The columns."""

    @abstractmethod
    def plan(self) -> list[Labels]:
        """What is known of every episode before it is made, its `split` at least, in their order."""

    def check(self) -> None:  # noqa: B027  (most need nothing)
        """Raise what would keep episodes from being made, such as a missing package, before anything is written."""

    @abstractmethod
    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Labels and arrays (N, length, *shape) of rows of the plan; each depends on the protocol and its row only."""

    @property
    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """What a bank tells of where it came from, JSON; it identifies the bank."""

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return len(self.plan()) * self.length * sum(spec.entry_bytes for spec in self.streams.values())


def build_generated(
    protocol: GeneratedProtocol,
    path: files.StrPath,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    elsewhere: InOrder | None = None,
) -> RecordedBank:
    """Build the bank of `protocol` at `path`, or open it if it is there already.

    After a kill the same call goes on behind the last episode that was written, and ends in the same bytes, as it does
    for any number of `workers` (processes, started by "spawn": with more than one, a script needs the usual
    `if __name__ == "__main__":`). `progress(done, total)` counts episodes. `elsewhere` makes episodes in place of these
    processes, such as on other machines; they are written here.

    Raises:
        ValueError: for no number of workers.
        StoreError: for a path that holds anything else, begun or finished, or is being written; for too little room on
            its disk, before anything is written; for a killed worker.
    """
    workers = integer("workers", workers, least=1, most=WORKERS)
    plan = protocol.plan()
    if not (files.absolute(path) / MANIFEST).exists():
        protocol.check()

    def episodes(recording: Recording) -> Episodes:
        chunks = [plan[i : i + protocol.together] for i in range(recording.done, len(plan), protocol.together)]
        make = functools.partial(_made, protocol)
        several = elsewhere or functools.partial(in_order, workers=min(workers, max(1, len(chunks))))
        with closing(several(make, chunks)) as made:
            for labels, arrays in made:
                for i, each in enumerate(labels):
                    yield each, {name: array[i] for name, array in arrays.items()}

    return record_episodes(path, protocol.streams, protocol.origin, len(plan), protocol.bytes, episodes, progress)


def _made(protocol: GeneratedProtocol, rows: list[Labels]) -> tuple[list[Labels], Arrays]:
    return protocol.episodes(rows)


def record_episodes(
    path: files.StrPath,
    streams: Mapping[str, StreamSpec],
    origin: dict[str, Any],
    total: int,
    size: int,
    episodes: Callable[[Recording], Episodes],
    progress: Progress | None = None,
    *,
    sealed: tuple[str, ...] = (),
) -> RecordedBank:
    """Write the bank of an origin, or open it if it is there already.

    Args:
        total: episodes of the bank, for `progress`; size: bytes of all arrays, for which there must be room.
        episodes: gives those behind the ones that a recording has.
        sealed: splits kept for one last evaluation.

    Raises:
        StoreError: see `build_generated`.
    """
    tell = progress or (lambda done, total: None)
    bank = _opened(path, origin)
    if bank is None:
        _check_room(files.absolute(path), size, streams)
        with _errors(path), Recording(path, streams, origin, sealed) as recording:
            tell(recording.done, total)
            with closing(episodes(recording)) as left:
                for labels, arrays in left:
                    recording.append(arrays, **labels)
                    tell(recording.done, total)
        return RecordedBank(path)
    tell(total, total)
    return bank


def _opened(path: files.StrPath, origin: dict[str, Any]) -> RecordedBank | None:
    """The bank of this origin at `path`, or None where there is none; StoreError for another."""
    if not (files.absolute(path) / MANIFEST).exists():
        return None
    bank, wanted = RecordedBank(path), json.loads(json.dumps(origin))
    if bank.origin != wanted:
        raise StoreError(f"{path} holds another bank ({difference(bank.origin, wanted)}); choose another folder")
    return bank


def _check_room(path: Path, size: int, streams: Mapping[str, StreamSpec]) -> None:
    """StoreError unless what is left of `size` bytes fits on the disk."""
    partial = storage.partial_path(path)
    written = sum(file.stat().st_size for name in streams for file in partial.glob(f"{name}.*"))
    if size - written > (free := storage.free_bytes(path)):
        raise StoreError(f"{path}: no disk space for this bank: {size - written:,} bytes needed, {free:,} bytes free")


@contextmanager
def _errors(path: files.StrPath) -> Iterator[None]:
    """Turn an OSError and a lost worker into one StoreError that says what to do."""

    def kept() -> str:
        begun = (storage.partial_path(files.absolute(path)) / "build.json").exists()
        return "; episodes that were written are kept, the same call resumes" if begun else ""

    try:
        yield
    except BrokenPipeError:  # of a progress callback that prints
        raise
    except OSError as error:
        raise StoreError(f"{error.filename or path} cannot be written: {error.strerror}{kept()}") from error
    except BrokenProcessPool as error:
        raise StoreError(
            f"{path}: a worker was killed or could not start (out of memory? a script without "
            f'`if __name__ == "__main__":`?){kept()}'
        ) from error
