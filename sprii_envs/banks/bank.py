"""An open bank: its table, its systems, and windows of its columns read straight from the disk."""

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files, rendering
from sprii_envs.arguments import choice
from sprii_envs.banks import simulate, storage, worlds
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.ranges import Ranges, ranges
from sprii_envs.banks.storage import BankError, Column, Manifest
from sprii_envs.banks.store import WindowStore, split_of
from sprii_envs.properties import PersistentProperties, SystemSet
from sprii_envs.registration import registered
from sprii_envs.relations import EpisodeTable
from sprii_envs.world import World, draw_states

# Windows of so many bytes are asked for before they are touched: 2 µs each in memory, and on a disk that reads ahead by
# megabytes 40 times faster. Smaller ones are cheaper to wait for.
_ADVISED = 1 << 16

_UNFINISHED = "the build of this bank was not finished: run the same build again to resume it"

Verify = Literal["size", "checksums"] | None


class Bank(WindowStore):
    """A finished bank, opened read-only with `Bank.open(path)`.

    Columns are memory maps, opened on first use: `bank["states"]` has shape (episodes, steps, 4). Episode ids
    are the row numbers 0…E−1 of every column. A pickled bank carries its path, never its data, and is
    reopened lazily where it is unpickled.

    All that is read is of the bank that was opened. Where another has been built at its path meanwhile, or a file
    written to, what is mapped already stays and the first read of anything else is a BankError.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `Bank.open`, which checks the files."""
        self.path = path
        self._manifest = manifest
        self._revisions = {name: files.revision(os.path.join(path, name)) for name in manifest.files}
        self._columns = {column.name: column for column in manifest.columns}
        self._maps: dict[str, tuple[mmap.mmap, NDArray[Any]]] = {}
        self._table: EpisodeTable | None = None
        self._world: World | None = None

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

        A protocol with a behaviour or population of a class that is not registered here (`banks.register`) can be
        read all the same.
        """
        if verify is not None:
            choice("verify", verify, legal=("size", "checksums"))
        place = files.absolute(path)
        bank = files.read_folder(place, lambda: cls._read(place, verify), BankError)
        if protocol is not None and protocol != bank.protocol:
            raise BankError(f"{place}: bank of another protocol ({bank.protocol.differences(protocol)})")
        return bank

    @classmethod
    def _read(cls, path: Path, verify: Verify) -> "Bank":
        if path.name.endswith(".partial") and os.path.lexists(path / "build.json"):
            raise BankError(f"{path}: {_UNFINISHED}")
        manifest = path / storage.MANIFEST
        try:
            os.lstat(manifest)
        except NotADirectoryError:
            raise BankError(f"{path}: no bank here (not a folder)") from None
        except FileNotFoundError:
            if path.exists():
                raise BankError(f"{manifest}: missing, so {path} is not a bank or is damaged") from None
            if storage.partial_path(path).exists():
                raise BankError(f"{path}: {_UNFINISHED}") from None
            raise BankError(f"{path}: no bank here (no such folder)") from None
        except OSError as error:
            raise BankError(f"{path} cannot be read: {error.strerror}") from error
        bank = cls(path, Manifest.read(path))
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
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names that `split` takes, in the order of the protocol."""
        return tuple(self.protocol.systems)

    @property
    def sealed_splits(self) -> tuple[str, ...]:
        """Splits that are kept for one last evaluation."""
        return tuple(self.protocol.sealed_splits)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the array columns."""
        return tuple(self._columns)

    @property
    def table(self) -> EpisodeTable:
        """One row per episode.

        Columns: episode, system, rollout, length, split, `kind` where the behaviour tells kinds apart, `group`
        where the population has groups ("" outside them), each persistent property, `<property>_level` where the
        population has levels (−1 off them), and `ending`: why the world ended the episode before its planned
        length, "" where it did not. `length` counts the states before that ending.
        """
        if self._table is None:
            path = self.path / storage.TABLE
            with self._reading(storage.TABLE):
                table = EpisodeTable.load(path)
            needed = ("episode", "system", "rollout", "length", "split", *self._manifest.properties.names, "ending")
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
        """Every system with its values, split and levels, in the order of the table's `system` column."""
        table, names = self.table, self.properties.names
        first = np.unique(table["system"], return_index=True)[1]
        values = np.stack([table[name][first] for name in names], axis=1)
        levels = None
        if f"{names[0]}_level" in table:
            levels = np.stack([table[f"{name}_level"][first] for name in names], axis=1)
        return SystemSet(self.properties, values, split=table["split"][first], levels=levels)

    @property
    def world(self) -> World:
        """The environment's pure functions, with the constants that the bank was made with.

        BankError if the class is not by now what it was then: other declarations, or other code.
        """
        if self._world is None:
            self._world = worlds.remade(self._manifest, self.path)
        return self._world

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What is recorded of the world and the behaviours that made it: constants, declarations, digests of code."""
        return worlds.recorded(self._manifest)

    def split(self, name: str, *, unseal: bool = False) -> EpisodeTable:
        """The episodes of one split; its `rows` are rows of the bank.

        BankError for an unknown split, and for a sealed one without `unseal=True`: nothing may be fitted or chosen
        on its episodes.
        """
        return split_of(self, name, unseal, BankError)

    def column(self, name: str) -> Column:
        """Shape, dtype and file of a column; BankError when the bank has no such column."""
        if name not in self._columns:
            raise BankError(f"{self.path}: missing column {name!r}; this bank has {', '.join(self._columns)}")
        return self._columns[name]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as a read-only memory map (episodes, entries, *item); BankError if it cannot be."""
        column = self.column(name)
        if name not in self._maps:
            with self._reading(column.file), open(self.path / column.file, "rb") as file:
                self._check_size(column.file)
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps[name] = mapped, np.frombuffer(mapped, column.dtype).reshape(column.shape)
        elif self._is_written(column.file):
            raise self._changed(column.file)
        return self._maps[name][1]

    def _is_written(self, name: str) -> bool:
        """Whether a mapped file was written to, and the map with it; another file of its name leaves the map as it was.

        To touch the map of a file that was cut short would end the process.
        """
        now, then = files.revision(os.path.join(self.path, name)), self._revisions[name]
        return now != then and now is not None and then is not None and now[0] == then[0]

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Around reading a file of the bank: BankError unless it is, before and after, that of the bank opened."""
        self._check_same(name)
        try:
            yield
        except (OSError, ValueError) as error:
            self._check_same(name)
            if isinstance(error, BankError):
                raise
            if isinstance(error, OSError):
                raise BankError(f"{self.path / name} cannot be read: {error.strerror}") from error
            raise BankError(f"{error}; {storage.REMEDY}") from error
        self._check_same(name)

    def _check_same(self, name: str) -> None:
        if files.revision(os.path.join(self.path, name)) != self._revisions[name]:
            raise self._changed(name)

    def _changed(self, name: str) -> BankError:
        return BankError(f"{self.path / name} was replaced or changed after the bank was opened: open the bank again")

    def _check_size(self, name: str, checksums: bool = False) -> None:
        recorded, path = self._manifest.files[name], self.path / name
        files.check_file(path, recorded, checksums=checksums, error=BankError, remedy=storage.REMEDY)

    def windows(
        self,
        column: str,
        episodes: ArrayLike,
        starts: ArrayLike,
        length: int,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Windows (n, length, *item) of a column: entries starts…starts+length−1 of each episode.

        `episodes` and `starts` are (n,) integers or broadcast to that; episodes that a sampler drew may be rows of any
        table of this bank, and `read` takes a whole batch. A window never crosses the end of its episode (column
        entries per episode, or the episode's own length if that is shorter): BankError names the first that would.
        With `out` of that shape and the column's dtype the result is written there, without allocation.
        """
        entry = self.column(column)
        rows, begins, length = self._ranges(entry, episodes, starts, length)
        flat = self[column].reshape(-1, *entry.shape[2:])
        if length * _entry_bytes(entry) >= _ADVISED:
            self._advise(entry, rows, begins, length)
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

    def frames(
        self,
        episodes: ArrayLike,
        starts: ArrayLike,
        length: int,
        size: int | Sequence[int] | None = None,
        out: rendering.Frame | None = None,
    ) -> rendering.Frame:
        """Grayscale frames (n, length, H, W) uint8 of windows of observations; arguments as in `windows`.

        `size` is the image size, by default that of the stored frames. Frames of that size are read, others are drawn
        from the recorded states: the same pixels either way.
        """
        stored = self._columns["frames"].shape[2:] if "frames" in self._columns else None
        if size is None:
            if stored is None:
                raise BankError(f"{self.path}: this bank stores no frames, so say which to draw: frames(..., size=64)")
            size = stored
        shape = rendering.image_size(size)
        if shape == stored:
            return self.windows("frames", episodes, starts, length, out)
        states = self.windows("states", episodes, starts, length)
        wanted = (*states.shape[:2], *shape)
        if out is not None and not (out.shape == wanted and out.dtype == np.uint8 and out.flags.c_contiguous):
            raise BankError(f"{self.path}: out must be C-ordered uint8 of shape {wanted}")
        return draw_states(self.world, states, shape, out)

    def prefetch(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> None:
        """Ask the kernel to read these windows (arguments as in `windows`) from the disk in the background.

        For banks larger than memory: called one batch ahead, it lets `windows` find its pages in memory. (`windows`
        asks for them itself, all at once, but has to wait.)
        """
        entry = self.column(column)
        _ = self[column]
        self._advise(entry, *self._ranges(entry, episodes, starts, length))

    def _advise(self, column: Column, rows: NDArray[np.int64], begins: NDArray[np.int64], length: int) -> None:
        mapped, size = self._maps[column.name][0], _entry_bytes(column)
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        first = (rows * column.shape[1] + begins) * size
        pages = first // mmap.PAGESIZE * mmap.PAGESIZE
        for page, end in zip(pages.tolist(), (first + length * size).tolist(), strict=True):
            mapped.madvise(mmap.MADV_WILLNEED, page, end - page)

    def _ranges(self, column: Column, episodes: ArrayLike, starts: ArrayLike, length: int) -> Ranges:
        fewer = column.per == "transition"
        try:
            return ranges(self.table["length"], fewer, self.table.locate(episodes), starts, length, column.name)
        except ValueError as error:
            raise BankError(f"{self.path}: {error}") from None

    def verify(self, *, checksums: bool = True) -> None:
        """BankError naming the first file that is missing or altered (in size, with `checksums` at all)."""
        for thorough in (False, True) if checksums else (False,):
            for name in self._manifest.files:
                with self._reading(name):
                    self._check_size(name, thorough)

    def info(self) -> dict[str, Any]:
        """What the bank holds, as JSON values; `describe()` is the same for people.

        `complete` is the share of episodes that ran their planned length, by split, and `kinds` the same for every kind
        of episode; `endings` counts the others by reason; `signals` is the share of episodes in which a signal is ever
        not zero; `properties` is the range of each property.
        """
        protocol, table = self.protocol, self.table
        whole = table["ending"] == ""
        within = np.arange(protocol.steps - 1) < table["length"][:, None] - 1
        reasons, counts = np.unique(table["ending"][~whole], return_counts=True)
        kinds = {}
        for kind in protocol.behaviour.episode_kinds:
            rows = table["kind"] == kind
            if rows.any():
                planned = protocol.lengths.get(kind, protocol.steps)
                kinds[kind] = {"episodes": int(rows.sum()), "steps": planned, "complete": self._by_split(whole, rows)}
        return {
            "path": str(self.path),
            "protocol": f"{protocol.name} v{protocol.version}",
            "environment": protocol.env_id,
            "seed": protocol.seed,
            "systems": protocol.counts,
            "sealed": list(protocol.sealed_splits),
            "episodes": len(table),
            "steps": protocol.steps,
            "columns": {c.name: {"shape": list(c.shape), "dtype": c.dtype} for c in self._columns.values()},
            "bytes": sum(recorded["bytes"] for recorded in self._manifest.files.values()),
            "properties": {
                name: [float(np.min(table[name])), float(np.max(table[name]))] for name in self.properties.names
            },
            "complete_episodes": float(whole.mean()),
            "complete": self._by_split(whole, np.ones(len(table), np.bool_)),
            "kinds": kinds,
            "endings": dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
            "signals": {
                name: float(((self[name] != 0) & within).any(axis=1).mean())
                for name in self._columns
                if name not in simulate.COLUMNS
            },
            "packages": dict(self._manifest.packages),
            "fingerprint": self.fingerprint,
        }

    def _by_split(self, true: NDArray[np.bool_], rows: NDArray[np.bool_]) -> dict[str, float]:
        """The share of true episodes among `rows`, in every split that has some."""
        split = self.table["split"]
        chosen = {name: rows & (split == name) for name in self.protocol.systems}
        return {name: float(true[some].mean()) for name, some in chosen.items() if some.any()}

    def describe(self) -> str:
        """`info()` in a few lines for people."""
        info = self.info()
        sealed = {split: " (sealed)" for split in info["sealed"]}
        splits = [f"{count:,} {split}{sealed.get(split, '')}" for split, count in info["systems"].items()]
        rows = [("systems", ", ".join(splits)), ("episodes", _episodes(info))]
        if info["endings"]:
            rows.append(("ended", ", ".join(f"{count:,} {reason}" for reason, count in info["endings"].items())))
        rows += [(f"  {kind}", _episodes(told)) for kind, told in info["kinds"].items()]
        for name, column in info["columns"].items():
            text = f"{'×'.join(map(str, column['shape']))} {np.dtype(column['dtype']).name}"
            if name in info["signals"]:
                text += f", not zero in {info['signals'][name]:.1%} of episodes"
            rows.append((name, text))
        rows += [
            (p.name, f"{p.symbol} from {low:.4g} to {high:.4g}{'' if p.unit == '1' else f' {p.unit}'}")
            for p, (low, high) in zip(self.properties, info["properties"].values(), strict=True)
        ]
        rows += [("size", f"{info['bytes'] / 1e6:,.1f} MB"), ("fingerprint", info["fingerprint"][:16])]
        width = max(len(name) for name, _ in rows)
        head = f"{info['protocol']} bank of {info['environment']} at {info['path']} (seed {info['seed']})"
        return "\n".join([head, *(f"  {name:<{width}} {text}" for name, text in rows)])

    __iter__ = None  # neither over the columns' names, as a mapping's, nor over the episodes, as `len` counts

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self._columns

    def __len__(self) -> int:
        """Number of episodes."""
        return self.protocol.episodes

    def __repr__(self) -> str:
        """Protocol, size and path."""
        name = f"{self.protocol.name} v{self.protocol.version}"
        return f"Bank({name!r}, {len(self):,} episodes, {str(self.path)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Path and fingerprint, and where the world is that another process may have to register."""
        own = registered(self.protocol.env_id)
        return {"path": str(self.path), "fingerprint": self.fingerprint, "registered": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Reopen; BankError if another bank lies at the path by now."""
        path = Path(state["path"])
        vars(self).update(vars(Bank.open(path, None)))
        if self.fingerprint != state["fingerprint"]:
            raise BankError(f"{path}: not the bank that was pickled: it has been replaced meanwhile")
        if (own := state.get("registered")) is not None:
            with contextlib.suppress(ValueError):  # what is recorded can be read without the world
                own.here()


def _entry_bytes(column: Column) -> int:
    return column.episode_bytes // column.shape[1]


def _episodes(told: dict[str, Any]) -> str:
    """Number, length and completeness of episodes, from `Bank.info`."""
    shares = {split: f"{share:.1%}" for split, share in told["complete"].items()}
    same = len(set(shares.values())) == 1
    complete = next(iter(shares.values())) if same else ", ".join(f"{text} of {s}" for s, text in shares.items())
    upto = "up to " if any(kind["steps"] < told["steps"] for kind in told.get("kinds", {}).values()) else ""
    return f"{told['episodes']:,} of {upto}{told['steps']} observations, {complete} of full length"
