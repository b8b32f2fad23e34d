"""An open bank: its table, its systems, and windows of its columns read straight from the disk."""

import mmap
import operator
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.banks import storage
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.storage import BankError, Column, Manifest
from sprii_envs.properties import PersistentProperties, SystemSet
from sprii_envs.relations import EpisodeTable

_UNFINISHED = "the build of this bank was not finished: run the same build again to resume it"

Verify = Literal["size", "checksums"] | None


class Bank:
    """A finished bank, opened read-only with `Bank.open(path)`.

    Columns are memory maps, opened on first use: `bank["states"]` has shape (episodes, steps, 4). Episode ids
    are the row numbers 0…E−1 of every column. A pickled bank carries its path, never its data, and is
    reopened lazily where it is unpickled.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `Bank.open`, which checks the files."""
        self.path = path
        self._manifest = manifest
        self._columns = {column.name: column for column in manifest.columns}
        self._maps: dict[str, tuple[mmap.mmap, NDArray[Any]]] = {}
        self._table: EpisodeTable | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        verify: Verify = "size",
        *,
        protocol: BankProtocol | None = None,
    ) -> "Bank":
        """Open the bank at `path`.

        `verify="size"` compares the size of every file with the manifest (microseconds), "checksums" also its
        SHA-256 (reads everything), None only reads the manifest. With `protocol`, the bank must have been
        built by it. Raises BankError, naming file and cause, for a missing or unfinished bank, a missing,
        truncated or altered file, a damaged manifest or table, another schema or another protocol.
        """
        if verify not in ("size", "checksums", None):
            raise ValueError(f"verify must be 'size', 'checksums' or None, got {verify!r}")
        path = Path(path)
        if path.name.endswith(".partial") and (path / "build.json").exists():
            raise BankError(f"{path}: {_UNFINISHED}")
        if not path.is_dir():
            if storage.partial_path(path).exists():
                raise BankError(f"{path}: {_UNFINISHED}")
            raise BankError(f"{path}: no bank here ({'not a folder' if path.exists() else 'no such folder'})")
        if not (path / storage.MANIFEST).exists():
            raise BankError(f"{path / storage.MANIFEST}: missing, so {path} is not a bank or is damaged")
        bank = cls(path, Manifest.read(path))
        if protocol is not None and protocol != bank.protocol:
            raise BankError(f"{path}: bank of another protocol ({bank.protocol.differences(protocol)})")
        if verify is not None:
            bank.verify(checksums=verify == "checksums")
        return bank

    @property
    def protocol(self) -> BankProtocol:
        """The protocol it was built by."""
        return self._manifest.protocol

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the bank's contents and protocol, 64 hex digits: equal fingerprints mean equal data."""
        return self._manifest.fingerprint

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the array columns."""
        return tuple(self._columns)

    @property
    def table(self) -> EpisodeTable:
        """One row per episode: episode, system, rollout, length, split, and each persistent property."""
        if self._table is None:
            path = self.path / storage.TABLE
            try:
                table = EpisodeTable.load(path)
            except (OSError, ValueError) as error:
                raise BankError(f"{path}: damaged episode table: {error}") from error
            needed = ("episode", "system", "rollout", "length", "split", *self._manifest.properties.names)
            for name in needed:
                if name not in table:
                    raise BankError(f"{path}: missing column {name!r}")
            if len(table) != self.protocol.episodes:
                raise BankError(f"{path}: {len(table)} episodes, expected {self.protocol.episodes}")
            self._table = table
        return self._table

    @property
    def properties(self) -> PersistentProperties:
        """Declarations of the persistent properties."""
        return self._manifest.properties

    @property
    def systems(self) -> SystemSet:
        """Every system with its values and split, in the order of the table's `system` column."""
        table = self.table
        first = np.unique(table["system"], return_index=True)[1]
        values = np.stack([table[name][first] for name in self.properties.names], axis=1)
        return SystemSet(self.properties, values, split=table["split"][first])

    def split(self, name: str) -> EpisodeTable:
        """The episodes of one split; its `rows` are rows of the bank. BankError for an unknown split."""
        if name not in self.protocol.systems:
            raise BankError(f"{self.path}: no split {name!r}; splits: {', '.join(self.protocol.systems)}")
        return self.table.select(name)

    def column(self, name: str) -> Column:
        """Shape, dtype and file of a column; BankError when the bank has no such column."""
        if name not in self._columns:
            raise BankError(f"{self.path}: missing column {name!r}; this bank has {', '.join(self._columns)}")
        return self._columns[name]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as a read-only memory map (episodes, entries, *item); BankError if it cannot be."""
        if name not in self._maps:
            column = self.column(name)
            storage.check_size(self.path / column.file, column.bytes)
            with open(self.path / column.file, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps[name] = mapped, np.frombuffer(mapped, column.dtype).reshape(column.shape)
        return self._maps[name][1]

    def windows(
        self,
        column: str,
        episodes: ArrayLike,
        starts: ArrayLike,
        length: int,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Windows (n, length, *item) of a column: entries starts…starts+length−1 of each episode.

        `episodes` and `starts` are (n,) integers or broadcast to that. A window never crosses the end of its
        episode (column entries per episode, or the episode's own length if that is shorter): BankError names
        the first that would. With `out` of that shape and the column's dtype the result is written there,
        without allocation.
        """
        entry = self.column(column)
        rows, begins, length = self._ranges(entry, episodes, starts, length)
        flat = self[column].reshape(-1, *entry.shape[2:])
        index = (rows * entry.shape[1] + begins)[:, None] + np.arange(length)
        shape = (*index.shape, *flat.shape[1:])
        if out is None:
            out = np.empty(shape, flat.dtype)
        elif out.shape != shape or out.dtype != flat.dtype:
            raise BankError(
                f"{self.path}: out must be {flat.dtype} of shape {shape}, got {out.dtype} of shape {out.shape}"
            )
        # mode="clip" makes NumPy write straight into `out`; the bounds are already checked.
        return np.take(flat, index, axis=0, out=out, mode="clip")

    def prefetch(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> None:
        """Ask the kernel to read these windows (arguments as in `windows`) from the disk in the background.

        For banks larger than memory: called one batch ahead, it lets `windows` find its pages in memory.
        """
        entry = self.column(column)
        rows, begins, length = self._ranges(entry, episodes, starts, length)
        _ = self[column]
        mapped, size = self._maps[column][0], entry.episode_bytes // entry.shape[1]
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        first = (rows * entry.shape[1] + begins) * size
        pages = first // mmap.PAGESIZE * mmap.PAGESIZE
        for page, end in zip(pages.tolist(), (first + length * size).tolist(), strict=True):
            mapped.madvise(mmap.MADV_WILLNEED, page, end - page)

    def _ranges(
        self, column: Column, episodes: ArrayLike, starts: ArrayLike, length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        length = operator.index(length)
        if length < 1:
            raise BankError(f"{self.path}: a window holds at least 1 entry, got {length}")
        rows, begins = np.atleast_1d(_integers("episodes", episodes)), _integers("starts", starts)
        try:
            rows, begins = np.broadcast_arrays(rows, begins)
        except ValueError:
            raise BankError(
                f"{self.path}: episodes {rows.shape} and starts {begins.shape} do not fit together"
            ) from None
        if rows.ndim != 1:
            raise BankError(f"{self.path}: episodes and starts must be one-dimensional, got shape {rows.shape}")
        outside = (rows < 0) | (rows >= column.shape[0])
        if outside.any():
            bad = rows[outside.argmax()]
            raise BankError(f"{self.path}: no episode {bad}; episode ids are 0 to {column.shape[0] - 1}")
        entries = self.table["length"][rows] - (column.per == "transition")
        crossing = (begins < 0) | (begins + length > entries)
        if crossing.any():
            i = int(crossing.argmax())
            raise BankError(
                f"{self.path}: window of {length} from {begins[i]} is not inside episode {rows[i]}, "
                f"which has {entries[i]} entries of {column.name!r}"
            )
        return rows, begins, length

    def verify(self, *, checksums: bool = True) -> None:
        """BankError naming the first file that is missing or altered (in size, with `checksums` at all)."""
        for name, recorded in self._manifest.files.items():
            storage.check_size(self.path / name, recorded["bytes"])
        if not checksums:
            return
        for name, recorded in self._manifest.files.items():
            found = storage.checksum(self.path / name)
            if found != recorded["sha256"]:
                raise BankError(
                    f"{self.path / name}: contents changed: SHA-256 {found[:12]}…, expected {recorded['sha256'][:12]}…"
                )

    def info(self) -> dict[str, Any]:
        """What the bank holds, as JSON values; `describe()` is the same for people.

        `complete_episodes` is the share of episodes of full length, `properties` the range of each property.
        """
        protocol, table = self.protocol, self.table
        return {
            "path": str(self.path),
            "protocol": f"{protocol.name} v{protocol.version}",
            "environment": protocol.env_id,
            "seed": protocol.seed,
            "systems": dict(protocol.systems),
            "episodes": len(table),
            "steps": protocol.steps,
            "columns": {c.name: {"shape": list(c.shape), "dtype": c.dtype} for c in self._columns.values()},
            "bytes": sum(recorded["bytes"] for recorded in self._manifest.files.values()),
            "properties": {
                name: [float(np.min(table[name])), float(np.max(table[name]))] for name in self.properties.names
            },
            "complete_episodes": float(np.mean(table["length"] == protocol.steps)),
            "packages": dict(self._manifest.packages),
            "fingerprint": self.fingerprint,
        }

    def describe(self) -> str:
        """`info()` in a few lines for people."""
        info = self.info()
        splits = ", ".join(f"{count:,} {split}" for split, count in info["systems"].items())
        lines = [
            f"{info['protocol']} bank of {info['environment']} at {info['path']} (seed {info['seed']})",
            f"  systems     {splits}",
            f"  episodes    {info['episodes']:,} of {info['steps']} observations, "
            f"{info['complete_episodes']:.1%} of full length",
        ]
        lines += [
            f"  {name:<11} {'×'.join(map(str, column['shape']))} {np.dtype(column['dtype']).name}"
            for name, column in info["columns"].items()
        ]
        lines += [
            f"  {p.name:<11} {p.symbol} from {low:.4g} to {high:.4g} {p.unit}".rstrip()
            for p, (low, high) in zip(self.properties, info["properties"].values(), strict=True)
        ]
        lines += [f"  size        {info['bytes'] / 1e6:,.1f} MB", f"  fingerprint {info['fingerprint'][:16]}"]
        return "\n".join(lines)

    def __len__(self) -> int:
        """Number of episodes."""
        return self.protocol.episodes

    def __repr__(self) -> str:
        """Protocol, size and path."""
        name = f"{self.protocol.name} v{self.protocol.version}"
        return f"Bank({name!r}, {len(self):,} episodes, {str(self.path)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Path and fingerprint only."""
        return {"path": str(self.path.absolute()), "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Reopen; BankError if another bank lies at the path by now."""
        path = Path(state["path"])
        self.__init__(path, Manifest.read(path))
        if self.fingerprint != state["fingerprint"]:
            raise BankError(f"{path}: not the bank that was pickled: it has been replaced meanwhile")


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise BankError(f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64, copy=False)
