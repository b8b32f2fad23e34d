"""What every store of episodes offers, wherever it lies: a table, and windows of named columns.

A store's columns are arrays with an entry for every step of an episode, or several, or one every few steps. Windows are
asked for on the clock of the table's `length`, so that all streams of one window show the same time.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.arguments import check, choice, shown
from sprii_envs.banks.ranges import Ranges, ranges
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.coercion import integer_array
from sprii_envs.relations.rows import TableRows
from sprii_envs.relations.table import few
from sprii_envs.relations.windows import WindowPairs

PER = ("observation", "transition")
"""What an entry may belong to: an episode of length L has L or L − 1 of them."""

COPY = "copy_of"
"""In the origin of a copy: the origin of what was copied."""


class StoreError(ValueError):
    """A store that cannot be written, opened or read; the message names it and the cause."""


class WindowStore(ABC):
    """Episodes of which windows of named columns can be read.

    What keeps a sealed split from being fitted on is `split`, which hands out no rows of it without `unseal`; `windows`
    and `read` read whichever rows they are given.
    """

    @abstractmethod
    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows (n, length, *item) of a column: entries starts…starts+length−1 of each episode."""

    def read(self, w: WindowPairs, column: str, length: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The recipients' and the donors' windows of a batch of `WindowSampler`, (n, length, *item) each.

        Rows that know their table are read as the episodes that they stand for. ValueError if these are of another
        store, and as `windows`.
        """
        if not isinstance(w, WindowPairs):
            raise StoreError(f"w is {shown(w)}; legal: the WindowPairs that WindowSampler.batch returns")
        recipient = self.windows(column, w.recipient, w.recipient_start, length)
        return recipient, self.windows(column, w.donor, w.donor_start, length)


@runtime_checkable
class Store(Protocol):
    """Episodes with labels, for samplers, readers and measures.

    Attributes:
        name: path or id, for messages.
        table: one row an episode; its `episode` column are the ids that `windows` takes.
        columns: names that `windows` takes.
        splits: names that `split` takes, in order.
        sealed_splits: those that are kept for one last evaluation; `split` is their guard, `windows` asks nothing.
        fingerprint: equal fingerprints mean equal data.
    """

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> EpisodeTable: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def splits(self) -> tuple[str, ...]: ...
    @property
    def sealed_splits(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    def split(self, name: str, *, unseal: bool = False) -> EpisodeTable: ...
    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]: ...
    def read(self, w: WindowPairs, column: str, length: int) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def verify(self, *, checksums: bool = True) -> None: ...


def origin_of(store: Any) -> dict[str, Any]:
    """Where a store's data came from, as their first writer said, also of a copy; {} where none did."""
    origin = getattr(store, "origin", {})
    while isinstance(origin.get(COPY), Mapping):
        origin = origin[COPY]
    return dict(origin)


def split_of(store: Store, name: str, unseal: bool, error: type[ValueError] = StoreError) -> EpisodeTable:
    """The episodes of one split of a store.

    Raises:
        error: for an unknown split, and for a sealed one without `unseal`: nothing may be fitted or chosen on it.
    """
    name = str(name)
    if name not in store.splits:
        raise error(f"{store.name}: no split {name!r}; splits: {', '.join(store.splits)}")
    if name in store.sealed_splits and not unseal:
        raise error(
            f"{store.name}: the split {name!r} is sealed: it is for one last evaluation, never for fitting or "
            f"choosing; open it with split({name!r}, unseal=True)"
        )
    return store.table.select(name)


def ranges_in(
    name: str,
    table: EpisodeTable,
    order: NDArray[np.int64],
    column: str,
    fewer: int,
    episodes: ArrayLike,
    starts: ArrayLike,
    length: int,
) -> Ranges:
    """Rows of a store's table and the steps of windows of episodes, by their ids or as rows that know their table.

    Args:
        name: of the store; column: of it, which has `fewer` entries than an episode has observations.
        order: `table.by_episode()`.

    Raises:
        StoreError: for an unknown episode, rows of another store's table, and a window that is not inside its episode.
    """
    try:
        located = table.locate(episodes)
        if isinstance(located, TableRows):
            rows = np.asarray(located)
        else:
            ids, known = np.atleast_1d(integer_array("episodes", located)), table["episode"]
            rows = order[np.searchsorted(known, ids, sorter=order).clip(max=len(known) - 1)]
            if (wrong := known[rows] != ids).any():
                raise ValueError(f"no episode {few(np.unique(ids[wrong]))}")
        return ranges(table["length"], fewer, rows, starts, length, column, table["episode"])
    except ValueError as error:
        asked = getattr(episodes, "dtype", np.asarray(episodes).dtype)
        hint = "; its texts are numbered: windows takes the table's 'episode', texts are its 'episode_id'"
        told = hint if "episode_id" in table and asked.kind in "UO" else ""
        raise StoreError(f"{name}: {error}{told}") from None


def sealed_names(sealed: Any) -> tuple[str, ...]:
    """Splits to seal as a tuple; StoreError for text, whose letters would each be one."""
    if isinstance(sealed, str):
        raise StoreError(f"sealed is {sealed!r}; legal: a tuple of splits, such as ({sealed!r},)")
    return tuple(sealed)


def with_splits(table: EpisodeTable, sealed: tuple[str, ...], name: str) -> tuple[EpisodeTable, tuple[str, ...]]:
    """A table with a `split`, which is `train` where it has none, and its splits in order.

    Raises:
        StoreError: for a sealed split that is not among them.
    """
    if "split" not in table:
        table = EpisodeTable({**{c: table[c] for c in table.columns}, "split": np.full(len(table), "train")})
    splits = _in_order(table["split"].astype(str))
    if unknown := set(sealed) - set(splits):
        raise StoreError(f"{name}: no split {sorted(unknown)[0]!r} to seal; splits: {', '.join(splits)}")
    return table, splits


@dataclass(frozen=True)
class Stream:
    """One column of episodes of any length, laid end to end.

    Attributes:
        values: (N, *item), all entries of all episodes in the order of the table's rows.
        rate: entries a step of the table's clock: 1; an integer r > 1, a faster sensor; or 1/k, a slower one, whose
            last entry is held until the next.
        per: an episode of `length` L has L steps per "observation", L − 1 per "transition".
    """

    values: NDArray[Any]
    rate: Fraction = Fraction(1)
    per: str = "observation"

    def __post_init__(self) -> None:
        """ValueError for a rate, a `per` or a dtype that no stream has."""
        object.__setattr__(self, "rate", legal_rate(self.rate))
        check(self, choice, "per", legal=PER)
        if self.values.dtype.kind not in "biuf" or self.values.ndim < 1:
            raise ValueError(f"a stream holds numbers or booleans, got {self.values.dtype} of {self.values.ndim} axes")

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Entries of episodes of `lengths` (E,)."""
        return counts(lengths, self.rate, self.per)

    def windows(self, where: Ranges, offsets: NDArray[np.int64]) -> NDArray[Any]:
        """(n, length, *item) where an entry or a held one belongs to each step, (n, length, rate, *item) if faster.

        Args:
            where: rows and steps, inside their episodes.
            offsets: (E + 1,) of the episodes' entries.
        """
        steps = where.begins[:, None] + np.arange(where.length)
        if self.rate.denominator > 1:
            index = offsets[where.rows][:, None] + steps // self.rate.denominator
        else:
            index = offsets[where.rows][:, None] + steps * self.rate.numerator
            if self.rate > 1:
                index = index[..., None] + np.arange(self.rate.numerator)
        return np.take(self.values, index, axis=0)


def counts(lengths: NDArray[np.int64], rate: Fraction, per: str) -> NDArray[np.int64]:
    """Entries of episodes of `lengths` (E,) in a stream; k steps begun of a slower one have their entry."""
    return -(-(lengths - (per == "transition")) * rate.numerator // rate.denominator)


def legal_rate(value: Any) -> Fraction:
    """A rate as a fraction; ValueError for what is neither an integer nor 1/k."""
    try:
        rate = Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        rate = Fraction(0)
    if rate <= 0 or (rate.numerator != 1 and rate.denominator != 1):
        raise ValueError(f"the rate of a stream is {value!r}; legal: a positive integer, or 1/k of an integer k")
    return rate


class ArrayStore(WindowStore):
    """A store over arrays in memory, or mapped from files.

    Args:
        table: one row an episode. A `split` column names the splits; without one, all episodes are `train`.
        streams: column → `Stream`, or the array of one of rate 1: (N, *item) of all episodes end to end, or
            (E, T, *item) of episodes of T observations, or of T + 1 if it has an entry a transition; or a list of an
            array (T, *item) an episode, of any lengths.
        sealed: splits kept for one last evaluation.
        name: for messages.
        fingerprint: of the data; by default hashed from it.

    Raises:
        StoreError: for a stream whose entries are not those of the table's lengths, and an unknown sealed split.
    """

    def __init__(
        self,
        table: EpisodeTable,
        streams: Mapping[str, Stream | NDArray[Any] | Sequence[NDArray[Any]]],
        *,
        sealed: tuple[str, ...] = (),
        name: str = "arrays",
        fingerprint: str | None = None,
    ) -> None:
        self.name, self.sealed_splits = name, sealed_names(sealed)
        self.table, self.splits = with_splits(table, self.sealed_splits, name)
        table = self.table
        if not streams:
            raise StoreError(f"{name}: a store holds a column at least")
        self.streams: dict[str, Stream] = {}
        self._offsets: dict[str, NDArray[np.int64]] = {}
        for column, given in streams.items():
            stream = given if isinstance(given, Stream) else _stream(column, given, table["length"], name)
            each = stream.counts(table["length"])
            if len(stream.values) != each.sum():
                raise StoreError(
                    f"{name}: column {column!r} has {len(stream.values):,} entries; {len(table):,} episodes of these "
                    f"lengths have {each.sum():,} at {stream.rate} a step, one step per {stream.per}"
                )
            self.streams[column] = stream
            self._offsets[column] = np.concatenate([[0], np.cumsum(each)])
        self._order = table.by_episode()
        self._fingerprint = fingerprint

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.streams)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of table and columns."""
        if self._fingerprint is None:
            self._fingerprint = _digest(self.table, self.streams, self.sealed_splits)
        return self._fingerprint

    def stream(self, name: str) -> Stream:
        """A column; StoreError naming the legal ones."""
        if name not in self.streams:
            raise StoreError(f"{self.name}: no column {name!r}; columns: {', '.join(self.streams)}")
        return self.streams[name]

    def split(self, name: str, *, unseal: bool = False) -> EpisodeTable:
        """The episodes of one split; StoreError for an unknown one and for a sealed one without `unseal`."""
        return split_of(self, name, unseal)

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows of a column: steps starts…starts+length−1 of episodes by their ids, (n, length, *item).

        Rows that know their table are read as the episodes that they stand for. A faster stream gives
        (n, length, rate, *item), a slower one holds its last entry. StoreError for an unknown column or episode, rows
        of another store's table, and for a window that is not inside its episode.
        """
        stream, fewer = self.stream(column), self.stream(column).per == "transition"
        where = ranges_in(self.name, self.table, self._order, column, fewer, episodes, starts, length)
        return stream.windows(where, self._offsets[column])

    def verify(self, *, checksums: bool = True) -> None:
        """StoreError if the arrays are no longer those that the fingerprint was taken of."""
        if checksums and self._fingerprint not in (None, _digest(self.table, self.streams, self.sealed_splits)):
            raise StoreError(f"{self.name}: its arrays have changed since the fingerprint was taken")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """`files.written_folder`, for what must not replace anything.

    Raises:
        StoreError: if something is there, or the folder cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} exists; choose another folder or remove it")
    try:
        with files.written_folder(folder) as temporary:
            yield temporary
    except BrokenPipeError:  # of a progress callback that prints
        raise
    except OSError as error:
        raise StoreError(f"{error.filename or folder} cannot be written: {error.strerror}") from error


Opener = Callable[[Any], Store]
_OPENERS: dict[str, Opener | str] = {}
_REMOTE = "sprii-lance"
"""The format of stores that lie at a URI, where no `bank.json` names one."""


def register_store(format: str, opener: Opener | str) -> None:
    """Let `open_store` open folders whose `bank.json` says `"format": format`; the last registration holds.

    Args:
        opener: takes the folder; or where it is, "package.module:name", which is imported when a folder needs it.
    """
    _OPENERS[format] = opener


def read_manifest(folder: Path, remedy: str = "") -> dict[str, Any]:
    """The `bank.json` of a folder.

    Raises:
        StoreError: if there is none, saying so where the bank is only begun, or it is damaged; see `read_json`.
    """
    manifest, target = folder / "bank.json", Path(os.path.realpath(folder))
    for begun in (target, target.with_name(target.name + ".partial")):
        if not os.path.lexists(manifest) and (begun / "build.json").exists():
            raise StoreError(f"{folder} is not finished: {begun} holds its beginning, from where the same call goes on")
    if not os.path.lexists(manifest) and folder.is_dir():
        if (folder / "meta" / "info.json").exists():
            raise StoreError(
                f"{folder} is a LeRobot dataset, not a store: LeRobotStore.open reads it where it is, "
                "`sprii bank import lerobot` makes a bank of it"
            )
        raise StoreError(
            f"{folder} holds no store: it has no bank.json{'' if any(folder.iterdir()) else ', it is empty'}"
        )
    return files.read_json(manifest, StoreError, remedy)


def open_store(path: files.StrPath) -> Store:
    """The store in a folder, of whichever format its `bank.json` names; or in Lance at a URI, such as s3://bucket/store.

    Raises:
        StoreError: if there is none or only its beginning, or nobody registered the format.
    """
    if "://" in os.fspath(path):
        return _opener(_REMOTE)(path)
    folder = files.absolute(path)
    format = read_manifest(folder).get("format")
    if not isinstance(format, str) or format not in _OPENERS:
        raise StoreError(f"{folder} is of format {format!r}; registered: {', '.join(sorted(_OPENERS))}")
    return _opener(format)(folder)


def _opener(format: str) -> Opener:
    opener = _OPENERS[format]
    return resolve_name(opener) if isinstance(opener, str) else opener


def _stream(column: str, values: Any, lengths: NDArray[np.int64], name: str) -> Stream:
    if isinstance(values, list | tuple) and len({np.shape(each)[:1] for each in values}) > 1:
        return _joined(column, values, lengths, name)
    if np.ma.is_masked(values):
        raise StoreError(
            f"{name}: column {column!r} has masked entries; legal: arrays without a mask, filled or dropped"
        )
    array = np.asarray(values)
    episodes = len(lengths)
    if array.ndim == 2 and len(array) == episodes == (lengths - 1).sum() and (lengths == array.shape[1]).all():
        raise StoreError(
            f"{name}: column {column!r} of shape {array.shape} may be {episodes:,} episodes of 2 numbers or "
            f"{episodes:,} transitions of 2 end to end; legal: Stream(array.ravel()), Stream(array, per='transition')"
        )
    if array.ndim >= 2 and len(array) == episodes and len(array) != lengths.sum():
        for steps, per in ((lengths, "observation"), (lengths - 1, "transition")):
            if (steps == array.shape[1]).all():
                return Stream(array.reshape(-1, *array.shape[2:]), per=per)
        raise StoreError(
            f"{name}: column {column!r} has shape {array.shape}, but the {episodes:,} episodes have lengths "
            f"{few(np.unique(lengths))}; legal: (E, T, …) of one length T or T − 1, or all entries end to end"
        )
    per = "transition" if len(array) == (lengths - 1).sum() else "observation"
    return Stream(array, per=per)


def _joined(column: str, values: Sequence[Any], lengths: NDArray[np.int64], name: str) -> Stream:
    """The stream of an array an episode, of several lengths."""
    counts = np.array([np.shape(each)[0] if np.ndim(each) else 0 for each in values])
    items = {np.shape(each)[1:] for each in values}
    for steps, per in ((lengths, "observation"), (lengths - 1, "transition")):
        if len(items) == 1 and np.array_equal(counts, steps):
            return Stream(np.concatenate(values), per=per)
    raise StoreError(
        f"{name}: column {column!r} is a list of {len(values):,} arrays with {few(counts)} entries of shape "
        f"{few(sorted(items))}; legal: one for each of the {len(lengths):,} episodes, whose lengths T are "
        f"{few(lengths)}, with T or T − 1 entries of one shape"
    )


def _in_order(values: NDArray[Any]) -> tuple[str, ...]:
    distinct, first = np.unique(values, return_index=True)
    return tuple(str(v) for v in distinct[np.argsort(first)])


def _digest(table: EpisodeTable, streams: Mapping[str, Stream], sealed: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{table.fingerprint()}{table.rows_fingerprint()}{sorted(sealed)}".encode())
    for name in sorted(streams):
        stream = streams[name]
        values = np.ascontiguousarray(stream.values.astype(stream.values.dtype.newbyteorder("<"), copy=False))
        digest.update(repr((name, values.dtype.str, values.shape, str(stream.rate), stream.per)).encode())
        digest.update(values.data.cast("B") if values.size else b"")
    return digest.hexdigest()
