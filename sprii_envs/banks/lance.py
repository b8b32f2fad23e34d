"""Stores larger than a machine: columns in Lance, in a folder or an object storage, of which windows are read alone.

uri/
  COLUMN.lance     one dataset a column, an entry a row, all episodes end to end
  episodes.lance   the EpisodeTable, an episode a row; what else is told of the store is its schema's metadata
  bank.json        the same once more, in a folder, for `open_store`

`episodes.lance` is written last: where it is, the store is whole. Every dataset is opened at the version that was
written, so that nobody who appends to one changes the store.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.banks.arrow import column_of, numbers
from sprii_envs.banks.copying import chosen, episodes, specs
from sprii_envs.banks.generated import Progress
from sprii_envs.banks.recorded import StreamSpec
from sprii_envs.banks.store import Store, StoreError, WindowStore, new_folder, ranges_in, split_of, with_splits
from sprii_envs.dependencies import require
from sprii_envs.relations import EpisodeTable

FORMAT, SCHEMA = "sprii-lance", 1
_TABLE, _MANIFEST, _ENTRIES, _TOLD = "episodes.lance", "bank.json", "entries", b"sprii"
_BYTES = 1 << 23
"""Of a batch that is written."""

Options = Mapping[str, str]
"""Of an object storage: `endpoint`, `region`, `access_key_id` …, as Lance takes them; by default the environment's."""


@dataclass(frozen=True)
class _Column:
    spec: StreamSpec
    place: str
    version: int
    sha256: str


class LanceStore(WindowStore):
    """A `Store` whose columns lie in Lance; `open` one, `write_lance` makes one.

    The table is held in memory, of the columns nothing. A batch of windows is read as rows of a column, all at once.
    Lance has threads, which a forked process loses: load in processes that are spawned.

    Attributes:
        uri: where it lies, a folder or a URI of an object storage, such as s3://bucket/store.
        origin: of the store that was written, where that told of any.
    """

    def __init__(
        self,
        uri: str,
        table: EpisodeTable,
        columns: Mapping[str, _Column],
        manifest: Mapping[str, Any],
        options: Options,
    ) -> None:
        """Use `LanceStore.open`, which reads all that."""
        self.uri, self.name, self._options, self._manifest = uri, uri, dict(options), dict(manifest)
        self._columns = dict(columns)
        self.origin: dict[str, Any] = dict(manifest.get("origin", {}))
        self.sealed_splits: tuple[str, ...] = tuple(manifest["sealed"])
        self.table, self.splits = with_splits(table, self.sealed_splits, uri)
        self._order, self._datasets = self.table.by_episode(), {}
        self._offsets: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def open(cls, uri: files.StrPath, options: Options | None = None) -> Self:
        """The store at a path or URI.

        Raises:
            StoreError: naming what is missing, damaged or of another format.
            PackageImportError: without pylance.
        """
        require("stores in Lance", "'sprii[lance]'", "lance")
        place = _place(uri)
        found = _opened(f"{place}/{_TABLE}", None, options or {})
        try:
            manifest = json.loads((found.schema.metadata or {})[_TOLD])
            fingerprint = manifest.pop("fingerprint")
            if (manifest["format"], manifest["schema"]) != (FORMAT, SCHEMA):
                raise ValueError(f"it is of format {manifest['format']!r}, schema {manifest['schema']!r}")
            columns = {
                name: _Column(
                    StreamSpec(tuple(c["shape"]), c["dtype"], per=c["per"], finite=False),
                    str(c["place"]), int(c["version"]), str(c["sha256"]),
                )
                for name, c in manifest["columns"].items()
            }  # fmt: skip
            if fingerprint != _digest(manifest):
                raise ValueError("its fingerprint is not of its contents")
            table = EpisodeTable({name: found.to_table([name])[name].to_numpy() for name in found.schema.names})
            if _table_digest(table) != manifest["table"]:
                raise ValueError("its rows are others than were written")
            return cls(place, table, columns, manifest, options or {})
        except (KeyError, TypeError, ValueError, OSError, RuntimeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise StoreError(f"{place}/{_TABLE} is no table of a store, or is damaged: {reason}") from error

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table, all entries and the origin."""
        return _digest(self._manifest)

    def split(self, name: str, *, unseal: bool = False) -> EpisodeTable:
        """The episodes of one split; StoreError for an unknown one and for a sealed one without `unseal`."""
        return split_of(self, name, unseal)

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows of a column: steps starts…starts+length−1 of episodes by their ids, (n, length, *item).

        StoreError as `ArrayStore.windows`, and for what cannot be read where the store lies.
        """
        if column not in self._columns:
            raise StoreError(f"{self.name}: no column {column!r}; columns: {', '.join(self._columns)}")
        kept = self._columns[column]
        fewer = kept.spec.per == "transition"
        where = ranges_in(self.name, self.table, self._order, column, fewer, episodes, starts, length)
        first = self._begins(kept.spec)[where.rows] + where.begins
        index, back = np.unique(first[:, None] + np.arange(where.length), return_inverse=True)
        if not len(index):
            return np.empty((0, where.length, *kept.spec.shape), kept.spec.dtype)
        dataset = self._dataset(column)
        try:
            found = dataset.take(index.tolist(), columns=[_ENTRIES])
        except (OSError, ValueError, RuntimeError) as error:
            raise StoreError(f"{self.uri}/{kept.place} cannot be read: {error}") from error
        return _entries(found[_ENTRIES], kept.spec, column)[back.reshape(-1, where.length)]

    def _begins(self, spec: StreamSpec) -> NDArray[np.int64]:
        """First rows of the episodes."""
        if spec.per not in self._offsets:
            counts = spec.counts(self.table["length"])
            self._offsets[spec.per] = np.cumsum(counts) - counts
        return self._offsets[spec.per]

    def _dataset(self, column: str) -> Any:
        """The column, opened once a process."""
        key, kept = (column, os.getpid()), self._columns[column]
        if key not in self._datasets:
            self._datasets[key] = _opened(f"{self.uri}/{kept.place}", kept.version, self._options)
        return self._datasets[key]

    def verify(self, *, checksums: bool = True) -> None:
        """StoreError naming the first column that lacks rows, or with `checksums`, which reads all, has others."""
        for name, kept in self._columns.items():
            place, dataset = f"{self.uri}/{kept.place}", self._dataset(name)
            wanted = int(kept.spec.counts(self.table["length"]).sum())
            try:
                if (count := dataset.count_rows()) != wanted:
                    raise StoreError(f"{place} has {count:,} rows, expected {wanted:,}")
                digest = hashlib.sha256()
                for batch in dataset.to_batches(columns=[_ENTRIES]) if checksums else ():
                    digest.update(np.ascontiguousarray(_entries(batch[_ENTRIES], kept.spec, name)).data.cast("B"))
            except StoreError:
                raise
            except (OSError, ValueError, RuntimeError) as error:
                raise StoreError(f"{place} cannot be read, or its checksum is another: {error}") from error
            if checksums and digest.hexdigest() != kept.sha256:
                raise StoreError(f"{place} is damaged: its checksum is another; write the store again")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its URI, with the options."""
        return _reopened, (type(self), self.uri, self._options, self.fingerprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.table):,} episodes, {', '.join(self.columns)}, {self.uri!r})"


def _reopened(kind: type[LanceStore], uri: str, options: Options, fingerprint: str) -> LanceStore:
    store = kind.open(uri, options)
    if store.fingerprint != fingerprint:
        raise StoreError(f"{uri}: not the store that was pickled: it has been replaced meanwhile")
    return store


def write_lance(
    store: Store,
    uri: files.StrPath,
    *,
    table: EpisodeTable | None = None,
    columns: tuple[str, ...] | None = None,
    unseal: bool = False,
    options: Options | None = None,
    progress: Progress | None = None,
) -> LanceStore:
    """Write a store of any kind to a new folder or URI.

    One episode is in memory at a time, and a batch of some MB. A slower stream's held entries are written for every
    step. In a folder the store appears when it is whole; in an object storage it is none before its table is there, and
    the same call writes what a kill had left anew.

    Args:
        table: the episodes; by default all of splits that are not sealed.
        columns: by default all.
        unseal: write sealed splits, too; they stay sealed.
        options: of the object storage.
        progress: (done, total) episodes of all columns.

    Raises:
        StoreError: if something is there; for sealed splits without `unseal`, an unknown column; for what cannot be
            written.
        PackageImportError: without pylance.
    """
    require("stores in Lance", "'sprii[lance]'", "lance")
    place, options = _place(uri), options or {}
    table, kept = chosen(store, table, unseal), specs(store, columns)
    if _is_remote(place):
        if _is_there(f"{place}/{_TABLE}", options):
            raise StoreError(f"{place} holds a store; choose another place or remove it")
        _write(store, place, table, kept, options, progress)
    else:
        with new_folder(Path(place)) as temporary:
            files.write_json(temporary / _MANIFEST, _write(store, str(temporary), table, kept, options, progress))
    return LanceStore.open(place, options)


def _write(
    store: Store,
    place: str,
    table: EpisodeTable,
    columns: Mapping[str, StreamSpec],
    options: Options,
    progress: Progress | None,
) -> dict[str, Any]:
    import pyarrow as pa

    told: dict[str, Any] = {}
    for number, (name, spec) in enumerate(columns.items()):
        digest, to = hashlib.sha256(), f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{number}.lance"
        done = number * len(table)

        def tell(rows: int, done: int = done) -> None:
            if progress:
                progress(done + rows, len(columns) * len(table))

        batches = _batches(store, table, name, spec, digest, tell)
        schema = pa.schema([(_ENTRIES, _kind(spec))])
        written = _put(pa.RecordBatchReader.from_batches(schema, batches), f"{place}/{to}", options)
        told[name] = {"shape": list(spec.shape), "dtype": spec.dtype, "per": spec.per}
        told[name] |= {"place": to, "version": written.version, "sha256": digest.hexdigest()}
    sealed = [split for split in store.sealed_splits if split in table["split"].astype(str)]
    manifest = {"format": FORMAT, "schema": SCHEMA, "columns": told, "sealed": sealed, "table": _table_digest(table)}
    manifest |= {"origin": origin} if (origin := getattr(store, "origin", {})) else {}
    manifest["fingerprint"] = _digest(manifest)
    labels = pa.table({name: pa.array(table[name]) for name in table.columns})
    _put(labels.replace_schema_metadata({_TOLD: json.dumps(manifest).encode()}), f"{place}/{_TABLE}", options)
    return manifest


def _batches(store: Store, table: EpisodeTable, name: str, spec: StreamSpec, digest: Any, tell: Any) -> Iterator[Any]:
    """All entries of a column, some MB at a time."""
    import pyarrow as pa

    held: list[NDArray[Any]] = []

    def batch() -> Any:
        values = np.ascontiguousarray(np.concatenate(held))
        digest.update(values.data.cast("B"))
        values = values.view(np.uint8) if values.dtype.kind == "b" else values
        column = column_of(values.reshape(len(values), -1) if spec.shape else values)
        return pa.record_batch([column], schema=pa.schema([(_ENTRIES, _kind(spec))]))

    for row, arrays in enumerate(episodes(store, table, {name: spec}), 1):
        if len(arrays[name]):
            held.append(arrays[name])
        if sum(array.nbytes for array in held) >= _BYTES:
            yield batch()
            held = []
        tell(row)
    if held:
        yield batch()


def _kind(spec: StreamSpec) -> Any:
    """Arrow's type of an entry; booleans are bytes."""
    import pyarrow as pa

    kind = np.dtype(spec.dtype)
    number = pa.from_numpy_dtype(np.dtype(np.uint8) if kind.kind == "b" else kind)
    return pa.list_(number, math.prod(spec.shape)) if spec.shape else number


def _entries(column: Any, spec: StreamSpec, name: str) -> NDArray[Any]:
    """Entries (N, *shape) of a column of Arrow."""
    values = numbers(column, name).reshape(-1, *spec.shape)
    return values.view(bool) if np.dtype(spec.dtype).kind == "b" else values


def _put(data: Any, uri: str, options: Options) -> Any:
    import lance

    mode = "overwrite" if _is_remote(uri) and _is_there(uri, options) else "create"
    try:
        return lance.write_dataset(data, uri, mode=mode, storage_options=dict(options) or None)
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{uri} cannot be written: {error}") from error


def _opened(uri: str, version: int | None, options: Options) -> Any:
    import lance

    try:
        return lance.dataset(uri, version=version, storage_options=dict(options) or None)
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"{uri} is missing or cannot be read: {' '.join(str(error).split())[:200]}") from error


def _is_there(uri: str, options: Options) -> bool:
    try:
        _opened(uri, None, options)
    except StoreError:
        return False
    return True


def _is_remote(place: str) -> bool:
    return "://" in place


def _place(uri: files.StrPath) -> str:
    text = os.fspath(uri)
    return text.rstrip("/") if _is_remote(text) else str(files.absolute(text))


def _table_digest(table: EpisodeTable) -> str:
    return hashlib.sha256(f"{table.fingerprint()}{table.rows_fingerprint()}".encode()).hexdigest()


def _digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of what is told, but where and in which version columns lie."""
    told = {key: value for key, value in manifest.items() if key not in ("columns", "fingerprint")}
    columns = {
        name: {key: value for key, value in column.items() if key not in ("place", "version")}
        for name, column in manifest["columns"].items()
    }
    return hashlib.sha256(json.dumps(told | {"columns": columns}, sort_keys=True).encode()).hexdigest()
