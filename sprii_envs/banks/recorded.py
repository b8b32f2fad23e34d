"""Recorded banks: arrays and labels from anywhere, without a simulator, in a folder that is checked when it is opened.

folder/
  tactile.f32 …  one header-less file a stream, all episodes end to end; shape, dtype, rate in the manifest
  episodes.npz   the EpisodeTable
  bank.json      manifest: streams, splits kept sealed, where the data came from, sizes and SHA-256 of every file

Recording appends episodes one after another and may be killed at any point: the same recording goes on behind the last
whole episode, and ends in the same bytes.
"""

import hashlib
import json
import math
import mmap
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import check, choice, flag, integers, shown
from sprii_envs.banks.store import (
    PER,
    ArrayStore,
    StoreError,
    Stream,
    counts,
    legal_rate,
    read_manifest,
    register_store,
    sealed_names,
)
from sprii_envs.checks import is_integer
from sprii_envs.relations import EpisodeTable

MANIFEST = "bank.json"
_TABLE, _JOURNAL = "episodes.npz", "journal.jsonl"

_SHA256 = re.compile("[0-9a-f]{64}")

SYNC_SECONDS = 1.0
"""Episodes are forced to the disk this often: a kill loses no more, and short ones cost no wait."""

_LEGAL: dict[str, tuple[Any, str]] = {
    "system": (int | str, "an integer or text"),
    "episode": (int | str, "an integer or text"),
    "split": (int | str, "an integer or text"),
    "rollout": (int, "an integer"),
}
"""Labels that an `EpisodeTable` takes in fewer types than others."""


@dataclass(frozen=True)
class StreamSpec:
    """One column of a recorded bank.

    Attributes:
        shape: of an entry.
        dtype: of an entry, a number or boolean.
        rate, per: see `store.Stream`.
        finite: whether NaN and infinity are refused when they are recorded.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    rate: str = "1"
    per: str = "observation"
    finite: bool = True

    def __post_init__(self) -> None:
        """ValueError for a shape, dtype, rate or `per` that no stream has."""
        check(self, integers, "shape", least=1)
        try:
            kind = np.dtype(self.dtype).newbyteorder("<")
        except TypeError:
            raise ValueError(f"StreamSpec.dtype is {self.dtype!r}; legal: numbers and booleans") from None
        if kind.kind not in "biuf":
            raise ValueError(f"StreamSpec.dtype is {self.dtype!r}; legal: numbers and booleans")
        check(self, choice, "per", legal=PER)
        check(self, flag, "finite")
        object.__setattr__(self, "dtype", kind.str)
        object.__setattr__(self, "rate", str(legal_rate(self.rate)))

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Entries of episodes of `lengths` (E,)."""
        return counts(lengths, Fraction(self.rate), self.per)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class RecordedBank(ArrayStore):
    """An open recorded bank: a `Store` over mapped files.

    Attributes:
        path: its folder, absolute.
        origin: what its writer said of where the data came from.
        notes: what its writer noted while it recorded.
        packages: versions that wrote it.

    A subclass with a `FORMAT` of its own reads what `Recording(…, bank=Subclass)` wrote.
    """

    FORMAT: ClassVar[str] = "sprii-recorded"
    SCHEMA: ClassVar[int] = 1
    REMEDY: ClassVar[str] = "record the bank again"

    def __init__(self, path: files.StrPath, *, verify: bool = False) -> None:
        """Open the bank in a folder; with `verify`, read everything and compare the checksums.

        Raises:
            StoreError: naming the file that is missing, damaged or of another format.
        """
        self.path = files.absolute(path)
        files.read_folder(self.path, lambda: self._open(verify), StoreError)

    def _open(self, verify: bool) -> None:
        """All that is read of the folder, which another may replace meanwhile: then it is read again."""
        manifest, place = self._manifest(), self.path / MANIFEST
        try:
            specs = {name: StreamSpec(**{**s, "shape": tuple(s["shape"])}) for name, s in manifest["streams"].items()}
            sealed = tuple(manifest["sealed"])
            self.origin: dict[str, Any] = dict(manifest["origin"])
            self.notes: dict[str, Any] = dict(manifest.get("notes", {}))
            self.packages: dict[str, str] = dict(manifest["packages"])
            self._files: dict[str, Any] = dict(manifest["files"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{place} is damaged: {type(error).__name__}: {error}; {self.REMEDY}") from error
        wanted = {_TABLE, *(_file(name, spec) for name, spec in specs.items())}
        if set(self._files) != wanted:
            raise StoreError(f"{place} is damaged: it lists {sorted(self._files)}, not {sorted(wanted)}")
        self._check_files(checksums=verify)  # sizes at least, so that a mapping never reaches beyond its file
        try:
            table = EpisodeTable.load(self.path / _TABLE)
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path / _TABLE} is damaged: {error}; {self.REMEDY}") from error
        try:
            streams = {name: _mapped(self.path / _file(name, spec), spec) for name, spec in specs.items()}
        except OSError as error:  # removed since its size was looked at
            raise StoreError(f"{error.filename} cannot be read: {error.strerror}; {self.REMEDY}") from error
        super().__init__(table, streams, sealed=sealed, name=str(self.path), fingerprint=manifest["fingerprint"])

    def _manifest(self) -> dict[str, Any]:
        """What `bank.json` says now; StoreError for one of another format, or one that is damaged or edited."""
        place = self.path / MANIFEST
        manifest = read_manifest(self.path, self.REMEDY)
        if manifest.get("format") != self.FORMAT or manifest.get("schema") != self.SCHEMA:
            raise StoreError(
                f"{place} is of format {manifest.get('format')!r}, schema {manifest.get('schema')!r}; this reads "
                f"{self.FORMAT!r}, schema {self.SCHEMA}; {self.REMEDY}"
            )
        if manifest.get("fingerprint") != _fingerprint(manifest):
            raise StoreError(f"{place} is damaged or edited: its fingerprint is not of its contents; {self.REMEDY}")
        return manifest

    def _check_files(self, checksums: bool) -> None:
        for file, entry in self._files.items():
            files.check_file(self.path / file, entry, checksums=checksums, error=StoreError, remedy=self.REMEDY)

    def verify(self, *, checksums: bool = True) -> None:
        """StoreError naming the first file whose size, or with `checksums` a byte, is not what was written."""
        if self._manifest()["fingerprint"] != self.fingerprint:
            raise StoreError(f"{self.path} holds another bank than when it was opened; open it again")
        self._check_files(checksums)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by path; StoreError where it is unpickled if another bank lies there by then."""
        return _reopened, (type(self), str(self.path), self.fingerprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.table):,} episodes, {', '.join(self.columns)}, {str(self.path)!r})"


def _reopened(kind: type[RecordedBank], path: str, fingerprint: str) -> RecordedBank:
    bank = kind(path)
    if bank.fingerprint != fingerprint:
        raise StoreError(f"{path}: not the bank that was pickled: it has been replaced meanwhile")
    return bank


@dataclass
class Recording:
    """Write a recorded bank episode by episode; resumable.

    `with Recording(path, {"tactile": StreamSpec((16,))}, origin={"source": "…"}) as recording:` then `append` each
    episode in a fixed order; `done` episodes are on the disk already, skip them. The bank is there when the block ends
    without an error.

    Attributes:
        path: of the bank.
        streams: column → spec.
        origin: where the data came from, JSON; kept in the manifest, and part of what identifies the recording.
        sealed: splits kept for one last evaluation.
        bank: what will open it.
        notes: JSON that is kept in the manifest as it is when the block ends; it identifies no recording.

    Raises:
        StoreError: for a folder that is not empty, a recording in progress of other streams or origin, another
            writer, or an episode that does not fit the streams.
    """

    path: files.StrPath
    streams: Mapping[str, StreamSpec]
    origin: Mapping[str, Any] = field(default_factory=dict)
    sealed: tuple[str, ...] = ()
    bank: type[RecordedBank] = RecordedBank
    notes: dict[str, Any] = field(default_factory=dict, init=False)
    _rows: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)
    _pending: list[str] = field(default_factory=list, init=False, repr=False)
    _kinds: dict[str, type] = field(default_factory=dict, init=False, repr=False)
    _ids: set[Any] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self.sealed = sealed_names(self.sealed)
        if not self.streams:
            raise ValueError("a recording needs a stream at least")
        for name in self.streams:
            if not name or Path(name).name != name or name.startswith("."):
                raise ValueError(f"a stream is named {name!r}; legal: what can be a file's name")
        self.path = Path(os.path.realpath(files.absolute(self.path)))
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._stack = ExitStack()

    @property
    def done(self) -> int:
        """Episodes that are recorded; after a kill, those that were on the disk."""
        return len(self._rows)

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The labels of those episodes."""
        return tuple(self._rows)

    def __enter__(self) -> Self:
        path = Path(self.path)
        with ExitStack() as stack:
            stack.enter_context(
                files.lock(path.with_name(path.name + ".lock"), wait=False, busy="is being recorded", error=StoreError)
            )
            if path.exists() and not (path.is_dir() and not any(path.iterdir())):
                raise StoreError(f"{path} exists; choose another folder or remove it")
            told = {"format": self.bank.FORMAT, "streams": _described(self.streams), "origin": dict(self.origin)}
            header = json.loads(json.dumps(told))
            if (self._partial / "build.json").exists():
                begun = files.read_json(self._partial / "build.json", StoreError, f"remove {self._partial}")
                if begun != header:
                    raise StoreError(
                        f"{self._partial} is a recording of other streams or another origin "
                        f"({difference(begun, header)}); remove it or choose another folder"
                    )
            else:
                shutil.rmtree(self._partial, ignore_errors=True)
                self._partial.mkdir(parents=True)
                files.write_json(self._partial / "build.json", header)
            self._take_up()
            self._handles = {
                name: stack.enter_context(open(self._partial / _file(name, spec), "ab"))
                for name, spec in self.streams.items()
            }
            self._log = stack.enter_context(open(self._partial / _JOURNAL, "a", encoding="utf-8"))
            self._synced = time.monotonic()
            self._stack = stack.pop_all()
        return self

    def _take_up(self) -> None:
        """Episodes of the journal, and every file cut behind the last of them."""
        journal = self._partial / _JOURNAL
        journal.touch()
        remedy = f"remove {self._partial}"
        lines = files.read_json_lines(journal, StoreError, remedy)
        for number, line in enumerate(lines, 1):
            row: Any = line.get("labels")
            usual = isinstance(row, dict) and set(row) == set(lines[0]["labels"]) and "sha256" in line
            if not usual or not isinstance(row.get("length"), int) or row["length"] < 1:
                raise StoreError(f"{journal}, line {number} is damaged: no labels and checksum of an episode; {remedy}")
            self._check_labels(row, f"{journal}, line {number}")
        self._rows = [line["labels"] for line in lines]
        text = journal.read_text(encoding="utf-8")
        os.truncate(journal, len(text[: text.rfind("\n") + 1].encode()))
        lengths = np.array([row["length"] for row in self._rows], np.int64)
        for name, spec in self.streams.items():
            file = self._partial / _file(name, spec)
            file.touch()
            count = int(spec.counts(lengths).sum()) * spec.entry_bytes
            if file.stat().st_size < count:
                raise StoreError(f"{file} is shorter than its journal says; remove {self._partial}")
            os.truncate(file, count)
        self._check_arrays([line["sha256"] for line in lines])

    def _check_arrays(self, digests: Sequence[str]) -> None:
        """StoreError unless the arrays of every episode taken up are the bytes that were appended."""
        with ExitStack() as stack:
            names = sorted(self.streams)
            handles = [stack.enter_context(open(self._partial / _file(n, self.streams[n]), "rb")) for n in names]
            for number, (row, digest) in enumerate(zip(self._rows, digests, strict=True)):
                whole = hashlib.sha256()
                for name, handle in zip(names, handles, strict=True):
                    spec = self.streams[name]
                    whole.update(handle.read(int(spec.counts(np.array([row["length"]]))[0]) * spec.entry_bytes))
                if whole.hexdigest() != digest:
                    raise StoreError(
                        f"{self._partial}: the arrays of episode {row.get('episode', number)} are damaged: not what "
                        f"was appended; remove {self._partial}"
                    )

    def append(self, arrays: Mapping[str, NDArray[Any]], **labels: Any) -> None:
        """One episode: an array (entries, *shape) a stream, and its labels; `length` is that of the streams.

        Labels are the columns of the table, `system` at least; `episode` and `rollout` are given where they are not.
        The table's `length` counts observations: a label of that name must, a rod's needs another name.

        Raises:
            StoreError: for arrays that do not fit the streams or each other, are not finite, have masked entries or
                integers beyond the stream's dtype, labels that the first episode did not have, or one that no table can
                hold.
        """
        if set(arrays) != set(self.streams):
            raise StoreError(f"{self.path}: an episode has the columns {sorted(arrays)}, not {sorted(self.streams)}")
        place = f"{self.path}: episode {labels.get('episode', self.done)}"
        given = labels.pop("length", None)
        length, told = self._length(arrays, place, given), "" if given is None else ", as its label 'length' says"
        data: dict[str, bytes] = {}
        for name, spec in self.streams.items():
            if np.ma.is_masked(arrays[name]):
                raise StoreError(
                    f"{place}: {name!r} has masked entries; legal: arrays without a mask, filled or dropped"
                )
            array = np.asarray(arrays[name])
            count = int(spec.counts(np.array([length]))[0])
            if array.shape != (count, *spec.shape) or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
                raise StoreError(
                    f"{place}: {name!r} is {array.dtype} of shape {array.shape}, expected {np.dtype(spec.dtype)} of "
                    f"shape {(count, *spec.shape)} for {length} observations{told}"
                )
            if (beyond := _beyond(array, np.dtype(spec.dtype))) is not None:
                raise StoreError(f"{place}: {name!r} holds {beyond}, which {np.dtype(spec.dtype)} does not")
            with np.errstate(over="ignore"):  # told of below
                array = np.ascontiguousarray(array, spec.dtype)
            if spec.finite and (bad := array.size - np.count_nonzero(np.isfinite(array))):
                raise StoreError(
                    f"{place}: {bad} of {array.size} values of {name!r} are not finite in {np.dtype(spec.dtype)}; "
                    "legal: finite numbers, or any with StreamSpec(finite=False)"
                )
            data[name] = array.tobytes()
        row = {"length": length, **{name: _plain(value) for name, value in labels.items()}}
        if self._rows and set(row) != set(self._rows[0]):
            raise StoreError(
                f"{place}: its labels are {sorted(row)}, those of the first {sorted(self._rows[0])}; another recording "
                f"begins when {self._partial} is removed"
            )
        self._check_labels(row, place)
        for name, block in data.items():
            self._handles[name].write(block)
        self._rows.append(row)
        digest = hashlib.sha256(b"".join(data[name] for name in sorted(data))).hexdigest()
        self._pending.append(json.dumps({"labels": row, "sha256": digest}) + "\n")
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self._sync()

    def _check_labels(self, row: Mapping[str, Any], place: str) -> None:
        """StoreError for a label that no column of a table can hold; the table is made at the end, too late to mend."""
        if "system" not in row:
            raise StoreError(f"{place}: its labels are {sorted(row)}; required: 'system', an id of what persists")
        kinds: dict[str, type] = {}
        for name, value in row.items():
            numeric = isinstance(value, int | float) and not isinstance(value, bool)
            kinds[name] = float if numeric else type(value)
            legal = _LEGAL.get(name, (int | float | str | bool, "a finite number, text, or True or False"))
            fits = isinstance(value, legal[0]) and not (name in _LEGAL and isinstance(value, bool))
            if not fits or (numeric and not (abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value))):
                raise StoreError(f"{place}: its label {name!r} is {shown(value)}; legal: {legal[1]}")
            if self._kinds.get(name, kinds[name]) is not kinds[name]:
                raise StoreError(f"{place}: its label {name!r} is {value!r}, those before are of another type")
        if row.get("episode") in self._ids:
            raise StoreError(f"{place} is recorded already; legal: ids that differ")
        self._kinds = kinds
        if "episode" in row:
            self._ids.add(row["episode"])

    def _sync(self) -> None:
        """Everything appended to the disk; the journal names an episode only when its arrays are there."""
        for handle in self._handles.values():
            handle.flush()
            os.fsync(handle.fileno())
        self._log.writelines(self._pending)
        self._log.flush()
        os.fsync(self._log.fileno())
        self._pending.clear()
        self._synced = time.monotonic()

    def _length(self, arrays: Mapping[str, NDArray[Any]], place: str, given: Any) -> int:
        """Observations of an episode: as given, or those of its streams of one entry a step."""
        own = next((name for name, spec in self.streams.items() if spec.rate == "1"), None)
        if given is None and own is None:
            raise StoreError(f"{place}: give its length, for no stream has one entry a step")
        count = 0 if own is None else len(arrays[own]) + (self.streams[own].per == "transition")
        if given is None:
            return count
        if not is_integer(given) or given < 1:
            has = f", but the table's length is the {count} observations of the episode" if count else ""
            raise StoreError(
                f"{place}: the label 'length' is {shown(given)}{has}; legal: that integer, none, or another name for a "
                "label of your own"
            )
        return int(given)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._stack:
            self._sync()
            if kind is None:
                for handle in (*self._handles.values(), self._log):
                    handle.close()
                self._finish()

    def _finish(self) -> None:
        if not self._rows:
            raise StoreError(f"{self.path}: no episode was appended")
        labels = {name: [row[name] for row in self._rows] for name in self._rows[0]}
        table = EpisodeTable({"episode": np.arange(self.done)} | labels)
        table.save(self._partial / _TABLE)
        names = [_file(name, spec) for name, spec in self.streams.items()] + [_TABLE]
        inventory = {name: entry for name, entry in files.inventory(self._partial).items() if name in names}
        manifest = {
            "format": self.bank.FORMAT,
            "schema": self.bank.SCHEMA,
            "streams": _described(self.streams),
            "sealed": list(self.sealed),
            "origin": {"kind": "recorded", **self.origin},
            "files": inventory,
            "packages": _packages(),
        } | ({"notes": self.notes} if self.notes else {})
        streams = {name: _mapped(self._partial / _file(name, spec), spec) for name, spec in self.streams.items()}
        ArrayStore(
            table, streams, sealed=tuple(self.sealed), name=str(self.path)
        )  # what could not be opened is refused
        files.write_json(self._partial / MANIFEST, {**manifest, "fingerprint": _fingerprint(manifest)})
        files.sync(self._partial)
        with suppress(FileNotFoundError):  # of an empty folder
            Path(self.path).rmdir()
        os.replace(self._partial, self.path)
        for name in ("build.json", _JOURNAL):  # not before: with them what cannot be put in place goes on
            (Path(self.path) / name).unlink()
        files.sync(Path(self.path).parent)


def difference(found: Any, wanted: Any, name: str = "origin") -> str:
    """The first thing in which two origins differ, in words; a checksum says that what was read has changed."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in (*wanted, *found):
            if key not in found or key not in wanted or found[key] != wanted[key]:
                return difference(found.get(key), wanted.get(key), key)
    if all(isinstance(each, str) and _SHA256.fullmatch(each) for each in (found, wanted)):
        return f"what it was made of is another or has changed since: the checksum of its {name} differs"
    return f"its {name} is {shown(found)}, not {shown(wanted)}"


def _beyond(array: NDArray[Any], dtype: np.dtype[Any]) -> int | None:
    """An integer of an array that an integer dtype would wrap; None if there is none."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iu" or not array.size or np.can_cast(array.dtype, dtype):
        return None
    legal = np.iinfo(dtype)
    return next((each for each in (int(array.min()), int(array.max())) if not legal.min <= each <= legal.max), None)


def _plain(value: Any) -> Any:
    """A label that is an array or tensor of one entry as Python's number; everything else as it is."""
    with suppress(ValueError, RuntimeError):  # of several entries, refused where labels are checked
        return value.item() if hasattr(value, "item") else value
    return value


def _described(streams: Mapping[str, StreamSpec]) -> dict[str, Any]:
    return {
        name: {"shape": list(spec.shape), "dtype": spec.dtype, "rate": spec.rate, "per": spec.per}
        | ({} if spec.finite else {"finite": False})  # the usual is not told, so that fingerprints stay
        for name, spec in streams.items()
    }


def _file(name: str, spec: StreamSpec) -> str:
    kind = np.dtype(spec.dtype)
    return f"{name}.{kind.kind}{8 * kind.itemsize}"


def _mapped(path: Path, spec: StreamSpec) -> Stream:
    shape = (-1, *spec.shape)
    if path.stat().st_size == 0:
        values = np.empty((0, *spec.shape), spec.dtype)
    else:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        values = np.frombuffer(mapped, spec.dtype).reshape(shape)
    return Stream(values, Fraction(spec.rate), spec.per)


def _fingerprint(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key not in ("packages", "fingerprint")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _packages() -> dict[str, str]:
    import platform

    from sprii_envs import __version__

    return {"python": platform.python_version(), "numpy": np.__version__, "sprii": __version__}


register_store(RecordedBank.FORMAT, RecordedBank)
