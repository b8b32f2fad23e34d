"""`sprii bank`: banks of episodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, subcommand

from sprii_envs.arguments import integer
from sprii_train.cli.options import as_options, check_text, check_workers, load_plugin
from sprii_train.terminal import console

if TYPE_CHECKING:
    from sprii_envs.banks import Bank, RecordedBank, Store
    from sprii_envs.banks.generated import GeneratedProtocol, Progress
    from sprii_envs.processes import InOrder


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
    pairs: tuple[int, int, int] | None = None
    """Pairs of training, validation and test in a bank of CoPhy; by default as many as were published."""
    seed: int | None = None
    """Seed of systems, starts and actions; by default as the protocol says."""
    plugin: str | None = None
    """A module of yours that is imported first and registers a protocol."""
    launcher: Literal["local", "ray"] = "local"
    """Where shards are built: processes here, or tasks of a Ray cluster whose machines all see the path."""

    def run(self) -> None:
        """Build with a progress bar."""
        import os

        from sprii_envs.banks import PROTOCOLS, build
        from sprii_envs.properties import unknown_name

        if self.no_frames and self.frames is not None:
            raise ValueError("--frames and --no-frames exclude each other")
        given = {"frames": self.frames, "rollouts": self.rollouts, "seed": self.seed}
        changes = {name: value for name, value in given.items() if value is not None}
        check_workers(self.workers)
        if self.workers is not None and self.launcher != "local":
            raise ValueError(f"--workers is of the launcher local; {self.launcher} uses the CPUs of its cluster")
        if self.plugin is not None:
            load_plugin(self.plugin)
        workers = (os.cpu_count() or 1) if self.workers is None else self.workers
        generated = _generated()
        if self.protocol in generated:
            self._build_generated(generated[self.protocol], workers)
            return
        if self.protocol not in PROTOCOLS:
            raise unknown_name("bank", self.protocol, [*PROTOCOLS, *generated])
        if self.pairs is not None:
            raise ValueError(f"--pairs is not of {self.protocol}; legal: of CoPhy's banks")
        protocol = PROTOCOLS[self.protocol].replace(**changes)
        if self.no_frames:
            protocol = protocol.replace(frames=None)
        with _bar() as progress:
            bank = build(
                protocol,
                self.path,
                workers=workers,
                overwrite=self.overwrite,
                progress=progress,
                elsewhere=self._elsewhere(),
            )
        print(bank.describe())

    def _build_generated(self, protocol: "GeneratedProtocol", workers: int) -> None:
        from dataclasses import replace

        from sprii_envs.banks.generated import build_generated
        from sprii_envs.cophy.protocols import SPLITS, CoPhyProtocol

        counted = isinstance(protocol, CoPhyProtocol)
        options = {
            "--frames": self.frames is not None,
            "--no-frames": self.no_frames,
            "--rollouts": self.rollouts is not None,
            "--overwrite": self.overwrite,
            "--pairs": self.pairs is not None and not counted,
        }
        if given := [name for name, was in options.items() if was]:
            legal = "--pairs, --seed and --workers" if counted else "--seed and --workers"
            raise ValueError(f"{given[0]} is not of {self.protocol}; legal: {legal}")
        changes: dict[str, int] = {} if self.seed is None else {"seed": self.seed}
        if self.pairs is not None:
            for split, count in zip(SPLITS, self.pairs, strict=True):
                changes[split] = integer(f"--pairs of {split}", count, least=int(split == "train"))
        protocol = replace(protocol, **changes)
        with _bar() as progress:
            bank = build_generated(protocol, self.path, workers=workers, progress=progress, elsewhere=self._elsewhere())
        print(described(bank, self.path))

    def _elsewhere(self) -> "InOrder | None":
        """What builds shards in place of processes here."""
        if self.launcher == "local":
            return None
        from sprii_train.experiments.launchers.ray import RayTasks

        return RayTasks()


def _generated() -> "dict[str, GeneratedProtocol]":
    """Protocols of banks that are generated, by name."""
    from sprii_envs.cophy.protocols import PROTOCOLS as COPHY
    from sprii_envs.fields.protocols import PROTOCOLS as FIELDS
    from sprii_envs.robots.arms import PROTOCOLS as ARMS
    from sprii_envs.robots.tactile import PROTOCOLS as GRASPS

    return {**FIELDS, **COPHY, **ARMS, **GRASPS}


_OPTIONS: dict[str, tuple[str, ...]] = {
    "burgers": ("additional",),
    "fhn": (),
    "cophy": ("scene", "objects", "variant", "splits", "size", "no_videos", "drop", "workers"),
    "baxter": ("drop",),
    "rh20t": ("config", "camera", "size", "high_frequency", "joints", "rating", "calibration", "seed", "workers"),
    "lerobot": ("size", "no_videos", "labels", "sealed"),
}
"""What was published → the options of its import."""


@dataclass
class Import:
    """Read published data into a bank."""

    data: Positional[Literal["burgers", "fhn", "cophy", "baxter", "rh20t", "lerobot"]]
    """What was published: HDF5 of Burgers' equation or MAT of FitzHugh–Nagumo's, see docs/envs/fields.md; CoPhy, see
    docs/envs/cophy.md; Baxter's grasps and RH20T, see docs/robots.md; or a LeRobot dataset, see docs/stores.md."""
    source: Positional[Path]
    """Folder of the published files."""
    path: Positional[Path]
    """Folder of the bank."""
    additional: Annotated[bool, FlagCreatePairsOff] = False
    """Read `train_add/` of Burgers, too."""

    scene: str | None = None
    """Of CoPhy: balls, collision or blocktower."""
    objects: int | None = None
    """Of CoPhy: how many an example has; needed for balls and blocktower."""
    variant: str | None = None
    """Of CoPhy: normal, or generalization, moving_sphere, …; by default normal."""
    splits: Path | None = None
    """Of CoPhy: folder of the lists of ids; by default `splits` in the source."""
    size: int | None = None
    """Of CoPhy, RH20T and LeRobot: pixels along a side of the pictures that are kept; by default 112, 96, or as they
    are."""
    no_videos: Annotated[bool, FlagCreatePairsOff] = False
    """Of CoPhy and LeRobot: read no videos; CoPhy's pictures are drawn from the states."""
    drop: Annotated[bool, FlagCreatePairsOff] = False
    """Of CoPhy and Baxter: leave damaged examples out rather than stop; the bank lists them."""
    config: int | None = None
    """Of RH20T: configuration of the robot, 1 to 7; by default 1."""
    camera: str | None = None
    """Of RH20T: serial of the camera; needed but for configuration 1."""
    high_frequency: Annotated[bool, FlagCreatePairsOff] = False
    """Of RH20T: take forces from the file of the higher rate."""
    joints: Annotated[bool, FlagCreatePairsOff] = False
    """Of RH20T: read joint angles, too."""
    rating: int | None = None
    """Of RH20T: least rating of a scene; by default 2."""
    calibration: int | None = None
    """Of RH20T: least quality of a scene's calibration; by default any."""
    seed: int | None = None
    """Of RH20T: seed of the permutation of tasks into splits; by default 0."""
    workers: int | None = None
    """Of CoPhy and RH20T: processes; by default one a core."""
    labels: Path | None = None
    """Of LeRobot: CSV or Parquet of labels, with a column `episode` or a row for each; by default tasks are systems."""
    sealed: tuple[str, ...] = ()
    """Of LeRobot: splits kept for one last evaluation."""

    def run(self) -> None:
        """Read with a progress bar."""
        for name in dict.fromkeys(option for options in _OPTIONS.values() for option in options):
            if getattr(self, name) not in (None, False, ()) and name not in _OPTIONS[self.data]:
                legal = ", ".join(data for data, options in _OPTIONS.items() if name in options)
                raise ValueError(f"--{name.replace('_', '-')} is not of {self.data}; legal: of {legal}")
        with _bar() as progress:
            bank = self._read(progress)
        print(described(bank, self.path))

    def _read(self, progress: "Progress") -> "RecordedBank":
        if self.data == "rh20t":
            return self._read_rh20t(progress)
        if self.data == "lerobot":
            from sprii_envs.banks.lerobot import import_lerobot

            labels = None if self.labels is None else _labels(self.labels)
            return import_lerobot(
                self.source,
                self.path,
                labels,
                sealed=self.sealed or None,
                videos=not self.no_videos,
                size=self.size,
                progress=progress,
            )
        if self.data == "baxter":
            from sprii_envs.robots.baxter import import_baxter

            damaged = "drop" if self.drop else "error"
            return import_baxter(self.source, self.path, damaged=damaged, progress=progress)
        if self.data != "cophy":
            from sprii_envs.fields.published import import_burgers, import_fhn

            if self.data == "fhn":
                return import_fhn(self.source, self.path, progress=progress)
            return import_burgers(self.source, self.path, additional=self.additional, progress=progress)
        import os

        from sprii_envs.arguments import choice
        from sprii_envs.cophy.objects import OBJECTS
        from sprii_envs.cophy.published import import_cophy

        check_workers(self.workers)
        scene = choice("--scene", self.scene, legal=OBJECTS)
        if self.objects is None and len(OBJECTS[scene]) > 1:
            raise ValueError(f"--objects is None; legal for {scene}: {', '.join(map(str, OBJECTS[scene]))}")
        if self.no_videos and self.size is not None:
            raise ValueError("--size and --no-videos exclude each other")
        return import_cophy(
            self.source,
            self.path,
            scene,
            OBJECTS[scene][0] if self.objects is None else self.objects,
            variant=self.variant or "normal",
            splits=self.splits,
            size=112 if self.size is None else self.size,
            videos=not self.no_videos,
            damaged="drop" if self.drop else "error",
            workers=(os.cpu_count() or 1) if self.workers is None else self.workers,
            progress=progress,
        )

    def _read_rh20t(self, progress: "Progress") -> "RecordedBank":
        import os

        from sprii_envs.robots.rh20t import import_rh20t

        check_workers(self.workers)
        given = {name: getattr(self, name) for name in _OPTIONS["rh20t"] if getattr(self, name) is not None}
        with as_options("Layout"):
            return import_rh20t(self.source, self.path, **{"workers": os.cpu_count() or 1, **given}, progress=progress)


def _labels(file: Path) -> object:
    """A table of labels; ValueError for what is none."""
    from sprii_envs.dependencies import require

    require("reading labels", "'sprii[lerobot]'", "pyarrow")
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    read = {".csv": csv.read_csv, ".parquet": parquet.read_table}.get(file.suffix)
    if read is None:
        raise ValueError(f"--labels is {file}; legal: a file that ends in .csv or .parquet")
    try:
        return read(file)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


@dataclass
class Export:
    """Write a bank in the layout of published data, or in another format."""

    data: Positional[Literal["cophy", "lerobot", "lance"]]
    """Whose layout: CoPhy's, see docs/envs/cophy.md; a LeRobot dataset's or Lance's, see docs/stores.md."""
    bank: Positional[Path]
    """Folder of the bank."""
    path: Positional[str]
    """Folder that is made, of CoPhy what is published as `CoPhy_224`; of Lance also a URI, such as s3://bucket/store."""
    size: int | None = None
    """Of CoPhy: pixels along a side of the videos, even; by default 224."""
    workers: int | None = None
    """Of CoPhy: processes; by default one a core."""
    fps: int | None = None
    """Of LeRobot: frames a second; by default 30."""
    task: str | None = None
    """Of LeRobot: the label that is the text of the task."""
    exact: Annotated[bool, FlagCreatePairsOff] = False
    """Of LeRobot: keep every pixel, in larger videos."""
    unseal: Annotated[bool, FlagCreatePairsOff] = False
    """Of LeRobot and Lance: write sealed splits, too."""

    def run(self) -> None:
        """Write with a progress bar."""
        from sprii_envs.banks import open_store
        from sprii_envs.files import plain

        options = {"cophy": ("size", "workers"), "lerobot": ("fps", "task", "exact", "unseal"), "lance": ("unseal",)}
        for name in dict.fromkeys(option for several in options.values() for option in several):
            if getattr(self, name) not in (None, False) and name not in options[self.data]:
                told = ", ".join(data for data, several in options.items() if name in several)
                raise ValueError(f"--{name} is not of {self.data}; legal: of {told}")
        check_workers(self.workers)
        check_text("path", self.path)
        if "://" not in self.path:
            self.path = str(plain(self.path))
        store = open_store(self.bank)
        with _bar() as progress:
            count = self._write(store, progress)
        print(f"{self.path}: {_counted(count, 'example' if self.data == 'cophy' else 'episode')} of {store.name}")

    def _write(self, store: "Store", progress: "Progress") -> int:
        """How many episodes were written."""
        import os

        if self.data == "cophy":
            from sprii_envs.cophy.exporting import export_cophy

            workers, size = self.workers or os.cpu_count() or 1, 224 if self.size is None else self.size
            export_cophy(store, Path(self.path), size=size, workers=workers, progress=progress)
            return len(store.table)
        if self.data == "lance":
            from sprii_envs.banks.lance import write_lance

            return len(write_lance(store, self.path, unseal=self.unseal, progress=progress).table)
        from sprii_envs.banks.lerobot import LeRobotStore, export_lerobot

        fps = 30 if self.fps is None else self.fps
        export_lerobot(
            store, self.path, fps=fps, task=self.task, exact=self.exact, unseal=self.unseal, progress=progress
        )
        return len(LeRobotStore.open(self.path).table)


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

        if self.plugin is not None:
            load_plugin(self.plugin)
        table = Table("bank", "systems", box=None, pad_edge=False)
        table.add_column("episodes", justify="right")
        table.add_column("size", justify="right")
        for name, protocol in PROTOCOLS.items():
            systems = ", ".join(f"{count:,} {split}" for split, count in protocol.counts.items())
            size = sum(column.bytes for column in simulate.columns(protocol))
            table.add_row(name, systems, f"{protocol.episodes:,}", f"{size / 1e9:.2f} GB")
        for name, generated in _generated().items():
            plan = generated.plan()
            named = ((each["split"], each.get("system", i)) for i, each in enumerate(plan))  # one each, where none is
            counts = Counter(split for split, _ in dict.fromkeys(named))
            systems = ", ".join(f"{count:,} {split}" for split, count in counts.items())
            told = f"{name} (stand-in)" if generated.origin["kind"] == "stand-in" else name
            table.add_row(told, systems, f"{len(plan):,}", f"{generated.bytes / 1e9:.2f} GB")
        console().print(table)


@dataclass
class Info:
    """Say what a bank holds, of whichever format."""

    path: Positional[Path]
    """Folder of the bank."""
    dropped: Annotated[bool, FlagCreatePairsOff] = False
    """List what an import left out, and why."""

    def run(self) -> None:
        """Print the description."""
        from sprii_envs.banks import Bank, open_store

        store = open_store(self.path)
        print(store.describe() if isinstance(store, Bank) else described(store, self.path))
        if "explanation" in store.table and "cd_states" in store.columns:
            print(_outcomes(store))
        if isinstance(store, Bank) and (told := _unexplained(store)):
            print(told)
        if self.dropped:
            for name, reason in getattr(store, "notes", {}).get("dropped", {}).items():
                print(f"  {name}: {reason}")


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
    from sprii_envs.banks.store import origin_of, read_manifest

    table, lengths = store.table, store.table["length"]
    labels = [name for name in table.columns if name not in ("episode", "system", "rollout", "length", "split")]
    rows = [("episodes", f"{len(table):,} of {lengths.min():,} to {lengths.max():,} observations")]
    of = table["split"].astype(str)
    for split in store.splits:
        sealed = " (sealed)" if split in store.sealed_splits else ""
        systems = table["system"][of == split]
        told = f"{_counted(len(systems), 'episode')} of {_counted(len(np.unique(systems)), 'system')}"
        rows.append((split, told + sealed))
    rows += [("labels", _numbered(labels))] if labels else []
    origin = origin_of(store)
    if origin.get("kind") == "stand-in":
        rows.insert(1, ("stand-in", f"simulated in place of recordings of {origin['benchmark']}"))
    notes = getattr(store, "notes", {})
    if dropped := notes.get("dropped"):
        kinds = notes.get("left_out", {"damaged": len(dropped)})
        told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        such = f"such as {next(iter(dropped.values()))}"
        rows.append(("left out", f"{_counted(len(dropped), 'example')}: {told} (info --dropped lists them), {such}"))
    rows += [("tasks", notes["split"])] if "split" in notes else []
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


def _outcomes(store: "Store", most: int = 1000) -> str:
    """What happens in the pairs of a bank of CoPhy."""
    from sprii_envs.cophy.bank import pairs
    from sprii_envs.cophy.outcomes import outcomes

    rows = range(min(most, len(store.table)))
    told = ", ".join(f"{name} {value:.3f}" for name, value in outcomes(pairs(store, rows)).items())
    return f"  of the first {_counted(len(rows), 'pair')}: {told}"


def _unexplained(bank: "Bank") -> str:
    """What unknown physics leaves of SpringWorld's cold queries; nothing of other banks."""
    import numpy as np

    from sprii_envs.banks.behaviours import SpringEpisodes

    if not isinstance(bank.protocol.behaviour, SpringEpisodes) or not {"train", "validation"} <= {*bank.splits}:
        return ""
    if "group" not in bank.table.columns:  # systems were only counted
        return ""
    from sprii_train.settings.spring import SPRING_CASES as CASES

    table = bank.split("validation")
    cases = (table["kind"] == CASES.cold) & np.isin(table["group"], CASES.groups)
    if not cases.any():
        return ""
    left = ", ".join(f"h{h} {e:.3f}" for h, e in zip(CASES.horizons, CASES.unexplained(bank), strict=True))
    systems = len(np.unique(table["system"][cases]))
    return (
        f"  unknown physics leaves of {int(cases.sum()):,} cold queries of {systems} systems, in training variances: "
        f"{left}"
    )


def _numbered(names: "list[str]") -> str:
    """Names, of which those that end in 0 … n are told as one."""
    import re

    last: dict[str, str] = {}
    for name in names:
        stem, number = match.groups() if (match := re.fullmatch(r"(.+_)(\d+)", name)) else (name, "")
        last[stem] = f"{stem}0…{number}" if number else name
    return ", ".join(last.values())


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@dataclass
class BankCommand:
    """List, build, import, export, describe or verify banks of episodes."""

    command: List | Build | Annotated[Import, subcommand("import")] | Export | Info | Verify

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
