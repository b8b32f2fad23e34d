"""`sprii bank`: banks of episodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, subcommand

from sprii_train.cli.options import check_workers, load_plugin
from sprii_train.terminal import console

if TYPE_CHECKING:
    from sprii_envs.banks import Store


@dataclass
class Build:
    """Build a bank, or resume a build that was stopped."""

    protocol: Positional[str]
    """What is built, a name of `sprii bank list`."""
    path: Positional[Path]
    """Folder of the bank."""
    workers: int | None = None
    """Processes; by default one a core."""
    overwrite: Annotated[bool, FlagCreatePairsOff] = False
    """Replace a bank of another protocol at this path."""
    frames: int | None = None
    """Store frames of this size; by default as the protocol says."""
    no_frames: Annotated[bool, FlagCreatePairsOff] = False
    """Store no frames: they are drawn from the states when they are read."""
    rollouts: int | None = None
    """Episodes of every system, of each kind where there are kinds; by default as the protocol says."""
    seed: int | None = None
    """Seed of systems, starts and actions; by default as the protocol says."""
    plugin: str | None = None
    """A module of yours that is imported first and registers a protocol."""

    def run(self) -> None:
        """Build with a progress bar."""
        import os

        from sprii_envs.banks import PROTOCOLS, build
        from sprii_envs.fields.bank import PROTOCOLS as FIELDS
        from sprii_envs.properties import unknown_name

        if self.no_frames and self.frames is not None:
            raise ValueError("--frames and --no-frames exclude each other")
        given = {"frames": self.frames, "rollouts": self.rollouts, "seed": self.seed}
        changes = {name: value for name, value in given.items() if value is not None}
        check_workers(self.workers)
        if self.plugin is not None:
            load_plugin(self.plugin)
        workers = (os.cpu_count() or 1) if self.workers is None else self.workers
        if self.protocol in FIELDS:
            self._build_fields(workers)
            return
        if self.protocol not in PROTOCOLS:
            raise unknown_name("bank", self.protocol, [*PROTOCOLS, *FIELDS])
        protocol = PROTOCOLS[self.protocol].replace(**changes)
        if self.no_frames:
            protocol = protocol.replace(frames=None)
        with _bar() as progress:
            bank = build(protocol, self.path, workers=workers, overwrite=self.overwrite, progress=progress)
        print(bank.describe())

    def _build_fields(self, workers: int) -> None:
        from dataclasses import replace

        from sprii_envs.fields.bank import PROTOCOLS, build_fields

        options = {
            "--frames": self.frames is not None,
            "--no-frames": self.no_frames,
            "--rollouts": self.rollouts is not None,
            "--overwrite": self.overwrite,
        }
        if given := [name for name, was in options.items() if was]:
            raise ValueError(f"{given[0]} is not of {self.protocol}; legal: --seed and --workers")
        protocol = PROTOCOLS[self.protocol]
        if self.seed is not None:
            protocol = replace(protocol, seed=self.seed)
        with _bar() as progress:
            bank = build_fields(protocol, self.path, workers=workers, progress=progress)
        print(described(bank, self.path))


@dataclass
class Import:
    """Read published fields into a bank."""

    equation: Positional[Literal["burgers", "fhn"]]
    """What was published: HDF5 of Burgers' equation, or MAT of FitzHugh–Nagumo's, see docs/envs/fields.md."""
    source: Positional[Path]
    """Folder of the published files."""
    path: Positional[Path]
    """Folder of the bank."""
    additional: Annotated[bool, FlagCreatePairsOff] = False
    """Read `train_add/` of Burgers, too."""

    def run(self) -> None:
        """Read with a progress bar."""
        from sprii_envs.fields.published import import_burgers, import_fhn

        if self.additional and self.equation == "fhn":
            raise ValueError("--additional is not of fhn; legal: of burgers")
        with _bar() as progress:
            if self.equation == "burgers":
                bank = import_burgers(self.source, self.path, additional=self.additional, progress=progress)
            else:
                bank = import_fhn(self.source, self.path, progress=progress)
        print(described(bank, self.path))


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A bar of episodes, and what moves it."""
    from rich.progress import Progress

    with Progress(console=console(), transient=True) as progress:
        bar = progress.add_task("episodes", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@dataclass
class List:
    """Say which banks can be built, and how large they are."""

    plugin: str | None = None
    """A module of yours that is imported first and registers protocols."""

    def run(self) -> None:
        """Print a table of the protocols."""
        from collections import Counter

        from rich.table import Table

        from sprii_envs.banks import PROTOCOLS, simulate
        from sprii_envs.fields.bank import PROTOCOLS as FIELDS

        if self.plugin is not None:
            load_plugin(self.plugin)
        table = Table("bank", "systems", box=None, pad_edge=False)
        table.add_column("episodes", justify="right")
        table.add_column("size", justify="right")
        for name, protocol in PROTOCOLS.items():
            systems = ", ".join(f"{count:,} {split}" for split, count in protocol.counts.items())
            size = sum(column.bytes for column in simulate.columns(protocol))
            table.add_row(name, systems, f"{protocol.episodes:,}", f"{size / 1e9:.2f} GB")
        for name, fields in FIELDS.items():
            plan = fields.plan()
            counts = Counter(split for split, _ in dict.fromkeys((each["split"], each["system"]) for each in plan))
            systems = ", ".join(f"{count:,} {split}" for split, count in counts.items())
            table.add_row(name, systems, f"{len(plan):,}", f"{fields.bytes / 1e9:.2f} GB")
        console().print(table)


@dataclass
class Info:
    """Say what a bank holds, of whichever format."""

    path: Positional[Path]
    """Folder of the bank."""

    def run(self) -> None:
        """Print the description."""
        from sprii_envs.banks import Bank, open_store

        store = open_store(self.path)
        print(store.describe() if isinstance(store, Bank) else described(store, self.path))


@dataclass
class Verify:
    """Compare every file of a bank with its checksum."""

    path: Positional[Path]
    """Folder of the bank."""

    def run(self) -> None:
        """Verify, or fail with the first file that differs."""
        from sprii_envs.banks import open_store

        store = open_store(self.path)
        store.verify(checksums=True)
        print(f"{self.path}: every checksum holds (fingerprint {store.fingerprint[:16]})")


def described(store: "Store", folder: Path) -> str:
    """The store of a folder, of any format, in a few lines for people."""
    import numpy as np

    from sprii_envs.banks import ArrayStore
    from sprii_envs.banks.store import read_manifest

    table, lengths = store.table, store.table["length"]
    labels = [name for name in table.columns if name not in ("episode", "system", "rollout", "length", "split")]
    rows = [("episodes", f"{len(table):,} of {lengths.min():,} to {lengths.max():,} observations")]
    of = table["split"].astype(str)
    for split in store.splits:
        sealed = " (sealed)" if split in store.sealed_splits else ""
        systems = table["system"][of == split]
        told = f"{_counted(len(systems), 'episode')} of {_counted(len(np.unique(systems)), 'system')}"
        rows.append((split, told + sealed))
    rows += [("labels", ", ".join(labels))] if labels else []
    for name in store.columns:
        if isinstance(store, ArrayStore):
            stream = store.stream(name)
            shape, kind, told = stream.values.shape[1:], stream.values.dtype, f", {stream.rate} a step"
            told = f"{told if stream.rate != 1 else ''}, one step per {stream.per}"
        else:  # a column is known by what is read of it
            entry = store.windows(name, table["episode"][[lengths.argmax()]], [0], 1)
            shape, kind, told = entry.shape[2:], entry.dtype, ""
        rows.append((name, f"{'×'.join(map(str, shape)) or 'number'} {kind.name}{told}"))
    rows.append(("fingerprint", store.fingerprint[:16]))
    width = max(len(name) for name, _ in rows)
    head = f"{read_manifest(folder).get('format')} bank at {store.name}"
    return "\n".join([head, *(f"  {name:<{width}} {text}" for name, text in rows)])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@dataclass
class BankCommand:
    """List, build, import, describe or verify banks of episodes."""

    command: List | Build | Annotated[Import, subcommand("import")] | Info | Verify

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
