"""The `sprii` command. Every subcommand is a dataclass; heavy imports wait until one is chosen."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

try:
    import tyro
    from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand
except ModuleNotFoundError:
    sys.exit("sprii: the command line needs the training extra: pip install 'sprii[train]'")

PresetName = Literal["smoke", "quick", "paper"]


def main() -> None:
    """Entry point: parse, run, and turn a known failure into one line on stderr and exit status 2."""
    command = tyro.cli(
        OmitSubcommandPrefixes[
            Annotated[Quickstart, subcommand("quickstart")]
            | Annotated[Reproduce, subcommand("reproduce")]
            | Annotated[BankCommand, subcommand("bank")]
        ],
        prog="sprii",
        description="Environments with persistent properties, relation samplers, Align and Cross.",
    )
    for stream in (sys.stdout, sys.stderr):  # a terminal without γ or ± is no reason to lose a report
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        command.run()
    except KeyboardInterrupt:
        sys.exit("sprii: stopped; the same command resumes")
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"sprii: {error}", file=sys.stderr)
        sys.exit(2)


@dataclass
class Quickstart:
    """Build the D-Clean bank, train the arms that tell the story at a small budget, and report (about 10 minutes)."""

    preset: PresetName = "quick"
    """quick: a narrower model, the paper's orderings in minutes; smoke: a check that everything runs."""
    seeds: str | None = None
    """A count (3) or a list (0,4,7) of sources; by default the preset's."""
    out: Path = Path("runs/quickstart")
    """Folder of the bank, the runs and the report."""
    workers: int | None = None
    """Training processes; by default one a core."""

    def run(self) -> None:
        """Train and report."""
        _dclean("quickstart", self.preset, self.out, seeds=self.seeds, workers=self.workers)


@dataclass
class Reproduce:
    """Reproduce a table of the paper. A stopped run resumes when the command is repeated."""

    experiment: Positional[Literal["dclean"]]
    """dclean: Table tab:dclean-full."""
    preset: PresetName = "quick"
    """paper: the paper's model and 20,000 steps, hours to days on a CPU."""
    seeds: str | None = None
    """A count (3) or a list (0,4,7) of sources; by default the preset's."""
    arms: str | None = None
    """Comma-separated arms; by default the preset's."""
    steps: int | None = None
    """Optimiser updates; by default the preset's."""
    population: Literal["test", "validation"] = "test"
    """The systems reported on. Choose settings on validation only."""
    out: Path | None = None
    """Folder of the bank, the runs and the report; by default runs/dclean-<preset>."""
    workers: int | None = None
    """Training processes; by default one a core."""

    def run(self) -> None:
        """Train and report."""
        out = self.out or Path(f"runs/{self.experiment}-{self.preset}")
        _dclean(
            "reproduce dclean",
            self.preset,
            out,
            seeds=self.seeds,
            arms=self.arms,
            steps=self.steps,
            population=self.population,
            workers=self.workers,
        )


@dataclass
class Build:
    """Build a bank, or resume a build that was stopped."""

    protocol: Positional[Literal["d-clean"]]
    path: Positional[Path]
    workers: int = 1
    """Processes."""
    overwrite: bool = False
    """Replace a bank of another protocol at this path."""

    def run(self) -> None:
        """Build with a progress bar."""
        from rich.progress import Progress

        from sprii_envs.banks import D_CLEAN, build

        with Progress(transient=True) as progress:
            bar = progress.add_task("episodes", total=D_CLEAN.episodes)
            bank = build(
                {"d-clean": D_CLEAN}[self.protocol],
                self.path,
                workers=self.workers,
                overwrite=self.overwrite,
                progress=lambda done, total: progress.update(bar, completed=done, total=total),
            )
        print(bank.describe())


@dataclass
class Info:
    """Say what a bank holds."""

    path: Positional[Path]

    def run(self) -> None:
        """Print the description."""
        from sprii_envs.banks import Bank

        print(Bank.open(self.path).describe())


@dataclass
class Verify:
    """Compare every file of a bank with its checksum."""

    path: Positional[Path]

    def run(self) -> None:
        """Verify, or fail with the first file that differs."""
        from sprii_envs.banks import Bank

        bank = Bank.open(self.path, verify="checksums")
        print(f"{self.path}: every checksum holds (fingerprint {bank.fingerprint[:16]})")


@dataclass
class BankCommand:
    """Build, describe or verify a bank of episodes."""

    command: Build | Info | Verify

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()


def _dclean(
    command: str,
    preset_name: str,
    out: Path,
    *,
    seeds: str | None = None,
    arms: str | None = None,
    steps: int | None = None,
    population: str = "test",
    workers: int | None = None,
) -> None:
    import os
    from dataclasses import replace

    from sprii_train.experiments.dclean import PRESETS, cells, open_bank
    from sprii_train.experiments.grid import run_grid
    from sprii_train.experiments.seeds import parse_seeds
    from sprii_train.recipes import recipe
    from sprii_train.reports.dclean import print_summary, write_report

    preset = PRESETS[preset_name]
    written = [f"sprii {command}", f"--preset {preset_name}"]
    if seeds is not None:
        preset = replace(preset, seeds=parse_seeds(seeds))
        written.append(f"--seeds {seeds}")
    if arms is not None:
        named = tuple(recipe(name.strip()).name for name in arms.split(","))
        if repeated := sorted({a for a in named if named.count(a) > 1}):
            raise ValueError(f"--arms names {repeated[0]!r} twice")
        preset = replace(preset, arms=named)
        written.append(f"--arms {arms}")
    if steps is not None:
        preset = replace(preset, train=replace(preset.train, steps=steps))
        written.append(f"--steps {steps}")
    if population != "test":
        written.append(f"--population {population}")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers is {workers}; legal: an integer >= 1")
    if out not in (Path("runs/quickstart"), Path(f"runs/dclean-{preset_name}")):
        written.append(f"--out {out}")
    print(f"D-Clean, preset {preset.name}: {preset.note}", file=sys.stderr)
    bank = open_bank(preset, out)
    planned = cells(preset, bank, population=population)
    rows = run_grid(planned, out / "cells", workers=workers)
    facts = {
        "Training time": f"{sum(r['train_seconds'] for r in rows) / 60:.0f} process-minutes for {len(rows)} cells, one "
        f"thread each, on {os.cpu_count()} cores that may have had other work",
    }
    summary = write_report(rows, planned, preset, bank, out, " ".join(written), facts)
    print_summary(summary)
    suffix = "" if population == "test" else f"-{population}"
    print(f"\nreport: {out / f'report{suffix}.html'}\nrows:   {out / f'results{suffix}.json'}")
