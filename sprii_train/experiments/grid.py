"""Arms × seeds as cells: one folder each, named by the hash of what it is, finished by an atomic result file.

A launcher says where they run: in processes here, or as jobs of a cluster. A cell that is done is not run again, and
one that was killed, wherever it ran, resumes from its checkpoint; two jobs of one cell meet at the lock of its folder.
"""

import hashlib
import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from sprii_envs import files
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.fit import Interrupted
from sprii_train.identity import cell_code
from sprii_train.terminal import console

Report = Callable[[int, dict[str, float]], None]
Told = tuple[int, float]
"""Steps done and the self loss at the last of them."""
KEPT = "kept"
"""The entry of a result file that is no result: its measurement, and checksums of the row and of its arrays."""


class Cell(Protocol):
    """A picklable description of one training run and its evaluation.

    `identity` is what the training depends on, and names the folder; `result` is the file in it that holds what `run`
    returns, so that one trained run can be evaluated in several ways. A cell may have a method `measurement` of what
    the result depends on besides, its code for one: where a result is of another measurement, `run` is called again.
    `arrays`, where a cell has it, is a file that `run` writes beside the result.
    """

    @property
    def title(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def result(self) -> str: ...
    def identity(self) -> dict[str, Any]: ...
    def run(self, folder: Path, report: Report) -> dict[str, Any]: ...


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


def folder_of(cell: Cell, root: Path) -> Path:
    """`root/<title>-<hash of its identity>`."""
    digest = hashlib.sha256(json.dumps(cell.identity(), sort_keys=True).encode()).hexdigest()[:10]
    return root / f"{cell.title}-{digest}"


def work(cell: Cell, root: Path, report: Report) -> None:
    """Run a cell, unless its result is there, with its folder locked, and write the result whole."""
    folder = folder_of(cell, root)
    with locked(folder / ".lock"):
        if distributed.first(lambda: _result(cell, root)) is None:
            row = cell.run(folder, report)
            distributed.first(lambda: files.write_json(folder / cell.result, row | {KEPT: _kept(cell, row, folder)}))


def run_grid(
    cells: Sequence[Cell],
    root: Path,
    *,
    workers: int | None = None,
    threads: int = 1,
    launcher: "str | Launcher" = "local",
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

    Raises:
        Interrupted: after SIGINT or SIGTERM, when every cell has written its checkpoint.
        ValueError: for an unknown launcher, or one whose package or cluster is not there.
        CheckpointError: for a result that is damaged.
    """
    distributed.join()
    cell_code.cache_clear()
    todo = distributed.first(lambda: [_result(c, root) is None for c in cells])
    if not all(todo) and distributed.rank() == 0:
        print(f"{todo.count(False)} of {len(todo)} cells are done already in {root}", file=sys.stderr, flush=True)
    if any(todo):
        _launch(list(itertools.compress(cells, todo)), root, workers, threads, launcher)
    rows = [_result(c, root) for c in cells]
    for cell, row in zip(cells, rows, strict=True):
        if row is None:
            path = folder_of(cell, root) / cell.result
            raise CheckpointError(f"{path} is missing or of other code than this process has; repeat the command")
    return [row for row in rows if row is not None]


def _launch(todo: Sequence[Cell], root: Path, workers: int | None, threads: int, launcher: "str | Launcher") -> None:
    from sprii_train.experiments.launchers import named_launcher  # launchers are written over this module
    from sprii_train.experiments.launchers.ranks import over_ranks

    if distributed.world() > 1:
        if launcher != "local":
            raise ValueError("torchrun runs the cells of a grid over its own ranks; legal: the launcher local")
        with _display(todo) if distributed.rank() == 0 else nullcontext(lambda *_: None) as show, _terminable():
            over_ranks(todo, root, show)
        return
    if isinstance(launcher, str):
        launcher = named_launcher(launcher, workers=workers, threads=threads)
    with _display(todo) as show, _terminable():
        _run(todo, root, launcher, show)


def _result(cell: Cell, root: Path) -> dict[str, Any] | None:
    """What `run` returned, if it has and is of the cell's measurement.

    Raises:
        CheckpointError: naming the file that is damaged.
    """
    folder = folder_of(cell, root)
    path = folder / cell.result
    if not path.exists():
        return None
    remedy = "remove it and repeat the command"
    row = files.read_json(path, CheckpointError, remedy)
    kept = row.pop(KEPT, None)
    if not row:
        raise CheckpointError(f"{path} is damaged: it holds no results; {remedy}")
    if kept is None and _measurement(cell) is None:
        return row
    if not isinstance(kept, dict) or kept.get("measurement") != _measurement(cell):
        return None
    if kept.get("sha256") != _checksum(row):
        raise CheckpointError(f"{path} is damaged: its checksum is another; {remedy}")
    if (entry := kept.get("arrays")) is not None:
        remedy = f"remove {path} and repeat the command"
        files.check_file(folder / getattr(cell, "arrays", ""), entry, error=CheckpointError, remedy=remedy)
    return row


def _kept(cell: Cell, row: dict[str, Any], folder: Path) -> dict[str, Any]:
    arrays = files.inventory(folder).get(getattr(cell, "arrays", ""))
    return {"measurement": _measurement(cell), "sha256": _checksum(row), "arrays": arrays}


def _checksum(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def _measurement(cell: Cell) -> Any:
    describe = getattr(cell, "measurement", None)
    return json.loads(json.dumps(describe())) if callable(describe) else None


def _startable(waiting: Sequence[Cell], running: Sequence[Cell], root: Path, workers: int) -> list[Cell]:
    """The next cells up to the number at once; those that share a folder, and would wait for its lock, wait here."""
    busy, started = {folder_of(cell, root) for cell in running}, []
    for cell in waiting:
        if len(running) + len(started) < workers and folder_of(cell, root) not in busy:
            busy.add(folder_of(cell, root))
            started.append(cell)
    return started


def _run(todo: Sequence[Cell], root: Path, launcher: Launcher, show: Callable[[str, int, float], None]) -> None:
    waiting, running = list(todo), []
    failure: Exception | None = None
    try:
        while waiting or running:
            started = _startable(waiting, [cell for cell, _ in running], root, launcher.workers)
            waiting = [cell for cell in waiting if cell not in started]
            if started:
                running += zip(started, launcher.launch(started, root), strict=True)
            launcher.wait()
            for cell, job in tuple(running):
                if (told := job.told()) is not None:
                    show(cell.title, *told)
                if job.done():
                    running.remove((cell, job))
                    if (error := job.error()) is not None:
                        failure = failure or error
                        print(f"{cell.title} failed, the others go on: {error}", file=sys.stderr, flush=True)
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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the file, and hold it for the block; rank 0 holds it for its group."""

    with ExitStack() as stack:
        distributed.first(lambda: stack.enter_context(files.lock(path, error=CheckpointError)))
        yield


@contextmanager
def _display(cells: Sequence[Cell]) -> Iterator[Callable[[str, int, float], None]]:
    """Bars on a terminal, a line every ten seconds elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = sum(c.steps for c in cells)
    at = {c.title: 0 for c in cells}
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}", markup=False),
        )
        with Progress(*columns, console=console(stderr=True)) as progress:
            overall = progress.add_task("all steps", total=total, loss="")
            bars = {c.title: progress.add_task(c.title, total=c.steps, loss="", visible=False) for c in cells}

            def show(title: str, step: int, loss: float) -> None:
                at[title] = step
                text = f"self {loss:.4f}" if loss == loss else ""
                progress.update(bars[title], completed=step, loss=text, visible=True)
                progress.update(overall, completed=sum(at.values()))

            yield show
        return
    started = spoken = time.monotonic()

    def line(title: str, step: int, loss: float) -> None:
        nonlocal spoken
        at[title] = step
        if time.monotonic() - spoken > 10:
            spoken = time.monotonic()
            done = sum(at.values())
            running = ", ".join(
                f"{t} {s}" for t, s in at.items() if 0 < s < next(c.steps for c in cells if c.title == t)
            )
            print(f"{spoken - started:6.0f} s  {done}/{total} steps  {running}", file=sys.stderr, flush=True)

    yield line
