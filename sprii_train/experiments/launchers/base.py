"""What a launcher is: where the cells of a grid run, as jobs that the grid looks after."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sprii_envs import dependencies
from sprii_envs.arguments import WORKERS, integer
from sprii_train.experiments.cells import Cell


def check_counts(workers: int | None, threads: int) -> None:
    """ValueError for no number of jobs at once, None being the launcher's own, or of threads of each."""
    if workers is not None:
        integer("workers", workers, least=1, most=WORKERS)
    integer("threads", threads, least=1, most=WORKERS)


Told = tuple[int, float]
"""Steps done and the self loss at the last of them."""


class Job(Protocol):
    """A cell that was launched, done when it has ended in whatever way."""

    def told(self) -> Told | None: ...
    def done(self) -> bool: ...
    def error(self) -> Exception | None: ...


class Launcher(Protocol):
    """Where cells run: a job of a cell calls `work`.

    `workers` is the number of jobs at once; `wait` returns when one may have something to tell; `stop` ends those that
    are not done, with time to write their checkpoints.
    """

    @property
    def workers(self) -> int: ...
    def launch(self, cells: Sequence[Cell], root: Path) -> Sequence[Job]: ...
    def wait(self) -> None: ...
    def stop(self) -> None: ...


def needed(package: str, launcher: str) -> Any:
    """A package that a launcher needs.

    Raises:
        ValueError: saying what to install, or why it does not import.
    """
    try:
        with dependencies.needed(
            f"the launcher {launcher} needs {package}", f"{package}, or the extra '{launcher}'", package
        ):
            return importlib.import_module(package)
    except dependencies.PackageImportError as error:
        raise ValueError(str(error)) from error
