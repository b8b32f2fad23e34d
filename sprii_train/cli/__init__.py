"""The `sprii` command. Every subcommand is a dataclass; heavy imports wait until one is chosen."""

import io
import os
import sys
from typing import Annotated

from sprii_envs import __version__
from sprii_envs.dependencies import PackageImportError, require

try:
    require("the command line", "tyro rich (for all commands: 'sprii[train]')", "tyro", "rich")
    import tyro
    from tyro.conf import OmitSubcommandPrefixes, subcommand

    from sprii_train.terminal import ends_with_its_reader, size
except PackageImportError as error:
    print(f"sprii: {error}", file=sys.stderr)
    sys.exit(2)

from sprii_train.cli.bank import BankCommand
from sprii_train.cli.benchmark import Benchmark
from sprii_train.cli.doctor import Doctor
from sprii_train.cli.options import without_detours
from sprii_train.cli.overcooked import OvercookedCommand
from sprii_train.cli.pendulum import PendulumCommand
from sprii_train.cli.relations import RelationsCommand
from sprii_train.cli.reproduce import Quickstart, Report, Reproduce, Scoreboard

REPLACED: dict[tuple[str, ...], str] = {
    ("pendulum", "compare"): "is now sprii reproduce tab:pendulum-r7, and its --rows are --arms",
    ("overcooked", "compare"): "is now sprii reproduce tab:overcooked-complete, with its --partners",
}
"""Commands that are gone: what does it now."""
_CONTROL = {i: repr(chr(i))[1:-1] for i in (*range(32), 127)}
"""An error is one line, whatever characters its names have."""
_TRAIN = ("torch", "safetensors", "sklearn", "scipy", "matplotlib", "jinja2", "tensorboard")
"""What the extra `train` installs beside the two packages of the command line."""
_EXTRAS = {
    Quickstart: ("quickstart", "train"),
    Reproduce: ("reproduce", "train"),
    Scoreboard: ("scoreboard", "train"),
    Report: ("report", "train"),
    Doctor: ("doctor", "train"),
    PendulumCommand: ("pendulum", "train"),
    OvercookedCommand: ("overcooked", "train,overcooked"),
}
"""Commands that need more than the two packages of the command line: name and extras."""


@ends_with_its_reader
def main() -> None:
    """Entry point: parse, run, and turn a known failure into one line on stderr and exit status 2 (130 if stopped)."""
    if "COLUMNS" in os.environ:  # tyro lays its help out in it, for ever if it is 5
        os.environ["COLUMNS"] = str(size("COLUMNS", sys.__stdout__))
    if (words := tuple(sys.argv[1:3])) in REPLACED:
        print(f"sprii: sprii {' '.join(words)} {REPLACED[words]}", file=sys.stderr)
        sys.exit(2)
    if words == ("--version",):
        print(f"sprii {__version__}")
        return
    command = tyro.cli(
        OmitSubcommandPrefixes[
            Annotated[Quickstart, subcommand("quickstart")]
            | Annotated[Reproduce, subcommand("reproduce")]
            | Annotated[Scoreboard, subcommand("scoreboard")]
            | Annotated[Report, subcommand("report")]
            | Annotated[BankCommand, subcommand("bank")]
            | Annotated[RelationsCommand, subcommand("relations")]
            | Annotated[PendulumCommand, subcommand("pendulum")]
            | Annotated[OvercookedCommand, subcommand("overcooked")]
            | Annotated[Benchmark, subcommand("benchmark")]
            | Annotated[Doctor, subcommand("doctor")]
        ],
        prog="sprii",
        description="Environments with persistent properties, relation samplers, Align and Cross; sprii --version.",
    )
    for stream in (sys.stdout, sys.stderr):  # a terminal without γ or ± is no reason to lose a report
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        without_detours(command)
        for kind, (name, extras) in _EXTRAS.items():
            if isinstance(command, kind):
                require(name, f"'sprii[{extras}]'", *_TRAIN)
        command.run()
    except KeyboardInterrupt:
        print("sprii: stopped; the same command resumes", file=sys.stderr)
        sys.exit(130)  # what a shell gives a command that SIGINT ends
    except BrokenPipeError:
        raise
    except (ValueError, OSError, FloatingPointError, PackageImportError) as error:
        said = "; ".join([f"sprii: {error}", *getattr(error, "__notes__", ())])
        print(said.translate(_CONTROL), file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        print(f"sprii: not enough memory: {error}", file=sys.stderr)
        sys.exit(2)
