"""Arms × seeds as cells; a launcher says where they run: in processes here, or as jobs of a cluster."""

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.experiments.cells import Cell, folder_of, result_of
from sprii_train.experiments.launchers import named_launcher
from sprii_train.experiments.launchers.base import Launcher
from sprii_train.experiments.launchers.ranks import over_ranks
from sprii_train.experiments.progress import Display, display
from sprii_train.fit import Interrupted
from sprii_train.identity import cell_code


def run_grid(
    cells: Sequence[Cell],
    root: Path,
    *,
    workers: int | None = None,
    threads: int = 1,
    launcher: str | Launcher = "local",
    finished: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run what is not done, and return the results of all cells in their order.

    A cell that fails is reported at once and the others go on; its error is raised at the end. A line on stderr says
    how many were done before. In a process group of several ranks the cells run here one after another, each over all
    ranks.

    Args:
        workers: cells at once; by default one a core, or as many as a cluster starts.
        threads: of each cell.
        launcher: `local`, `slurm`, `ray`, or a launcher with settings of its own, which then says how many and with
            what threads.
        finished: called in this process after each cell that ended well while others go on; ranks do not call it.

    Raises:
        Interrupted: after SIGINT or SIGTERM, when every cell has written its checkpoint.
        ValueError: for an unknown launcher, or one whose package or cluster is not there.
        CheckpointError: for a result that is damaged.
    """
    distributed.join()
    cell_code.cache_clear()
    todo = distributed.first(lambda: [result_of(c, root) is None for c in cells])
    if not all(todo) and distributed.rank() == 0:
        print(f"{todo.count(False)} of {len(todo)} cells are done already in {root}", file=sys.stderr, flush=True)
    if any(todo):
        _launch(list(itertools.compress(cells, todo)), root, workers, threads, launcher, finished)
    rows = [result_of(c, root) for c in cells]
    for cell, row in zip(cells, rows, strict=True):
        if row is None:
            path = folder_of(cell, root) / cell.result
            raise CheckpointError(f"{path} is missing or of other code than this process has; repeat the command")
    return [row for row in rows if row is not None]


def _launch(
    todo: Sequence[Cell], root: Path, workers: int | None, threads: int, launcher: str | Launcher,
    finished: Callable[[], None],
) -> None:  # fmt: skip
    if distributed.world() > 1:
        if launcher != "local":
            raise ValueError("torchrun runs the cells of a grid over its own ranks; legal: the launcher local")
        with display(todo) if distributed.rank() == 0 else nullcontext() as shown, _terminable():
            over_ranks(todo, root, (lambda *_: None) if shown is None else shown.told)
        return
    if isinstance(launcher, str):
        launcher = named_launcher(launcher, workers=workers, threads=threads)
    with display(todo) as shown, _terminable():
        _run(todo, root, launcher, shown, finished)


def _startable(waiting: Sequence[Cell], running: Sequence[Cell], root: Path, workers: int) -> list[Cell]:
    """The next cells up to the number at once; those that share a folder, and would wait for its lock, wait here."""
    busy, started = {folder_of(cell, root) for cell in running}, []
    for cell in waiting:
        if len(running) + len(started) < workers and folder_of(cell, root) not in busy:
            busy.add(folder_of(cell, root))
            started.append(cell)
    return started


def _run(todo: Sequence[Cell], root: Path, launcher: Launcher, shown: Display, finished: Callable[[], None]) -> None:
    waiting, running = list(todo), []
    failure: Exception | None = None
    told_of: set[str] = set()
    try:
        while waiting or running:
            started = _startable(waiting, [cell for cell, _ in running], root, launcher.workers)
            waiting = [cell for cell in waiting if cell not in started]
            if started:
                running += zip(started, launcher.launch(started, root), strict=True)
            launcher.wait()
            for cell, job in tuple(running):
                if (told := job.told()) is not None:
                    shown.told(cell.title, *told)
                if job.done():
                    running.remove((cell, job))
                    if (error := job.error()) is not None:
                        failure = failure or error
                        if str(error) not in told_of:  # of many cells that fail alike one is told
                            notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
                            print(f"{cell.title} failed, the others go on: {error}{notes}", file=sys.stderr, flush=True)
                        told_of.add(str(error))
                    elif waiting or running:
                        finished()
            shown.running({cell.title for cell, _ in running})
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command resumes") from None
    finally:
        launcher.stop()
    if failure is not None:
        raise failure


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops the grid as SIGINT does."""

    def stop(*_: object) -> None:
        raise Interrupted("stopped; the same command resumes")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
