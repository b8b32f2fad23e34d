"""Arms × seeds as cells: one folder each, named by the hash of what it is, finished by an atomic result file.

Cells run in processes. A cell that is done is not run again, one that was killed resumes from its checkpoint, and a
worker whose parent has died stops at its next step, so that the same command never meets its own orphans.
"""

import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from sprii_train.checkpoints import CheckpointError, read_json, write_json
from sprii_train.fit import Interrupted

Report = Callable[[int, dict[str, float]], None]


class Cell(Protocol):
    """A picklable description of one training run and its evaluation.

    `identity` is what the training depends on, and names the folder; `result` is the file in it that holds what `run`
    returns, so that one trained run can be evaluated in several ways.
    """

    @property
    def title(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def result(self) -> str: ...
    def identity(self) -> dict[str, Any]: ...
    def run(self, folder: Path, report: Report) -> dict[str, Any]: ...


def folder_of(cell: Cell, root: Path) -> Path:
    """`root/<title>-<hash of its identity>`."""
    digest = hashlib.sha256(json.dumps(cell.identity(), sort_keys=True).encode()).hexdigest()[:10]
    return root / f"{cell.title}-{digest}"


def run_grid(
    cells: Sequence[Cell], root: Path, *, workers: int | None = None, threads: int = 1
) -> list[dict[str, Any]]:
    """Run what is not done, and return the results of all cells in their order.

    A cell that fails is reported at once and the others go on; its error is raised at the end.

    Args:
        workers: processes; by default one a core.
        threads: of each process. Two one-thread processes beat one two-thread process, and a fixed number keeps the
            order of every sum, so that a run resumed with another number of workers ends in the same bits.

    Raises:
        Interrupted: after SIGINT or SIGTERM, when every worker has written its checkpoint.
    """
    todo = [c for c in cells if not (folder_of(c, root) / c.result).exists()]
    if todo:
        with _display(todo) as show, _terminable():
            _run(todo, root, min(workers or os.cpu_count() or 1, len(todo)), threads, show)
    return [_result(folder_of(c, root) / c.result) for c in cells]


def _result(path: Path) -> dict[str, Any]:
    held = read_json(path)
    if not isinstance(held, dict) or not held:
        raise CheckpointError(f"{path} is damaged: it holds no results; remove it and repeat the command")
    return held


def _run(todo: Sequence[Cell], root: Path, workers: int, threads: int, show: Callable[[str, int, float], None]) -> None:
    context = multiprocessing.get_context("spawn")
    waiting, running = list(todo), {}
    failure: BaseException | None = None
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                cell = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(cell, root, threads, theirs, os.getpid()))
                process.start()
                theirs.close()
                running[ours] = process, cell
            ready: list[Any] = multiprocessing.connection.wait(list(running), timeout=0.5)
            for ours in ready:
                process, cell = running[ours]
                try:
                    message = ours.recv()
                except EOFError:
                    process.join()
                    del running[ours]
                    message = None
                    if process.exitcode:
                        message = ChildProcessError(f"{cell.title} ended with exit status {process.exitcode}")
                if isinstance(message, BaseException):
                    failure = failure or message
                    print(f"{cell.title} failed, the others go on: {message}", file=sys.stderr, flush=True)
                elif message is not None:
                    show(*message)
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command resumes") from None
    finally:
        for process, _ in running.values():
            process.terminate()  # fit writes its checkpoint and stops
        for process, _ in running.values():
            process.join(60)
            process.kill()
    if failure is not None:
        raise failure


def _work(cell: Cell, root: Path, threads: int, messages: Any, parent: int) -> None:
    torch.set_num_threads(threads)
    folder = folder_of(cell, root)
    said = 0.0

    def report(step: int, values: dict[str, float]) -> None:
        nonlocal said
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)  # fit writes its checkpoint and stops
        elif time.monotonic() - said > 0.5 or step == cell.steps:
            said = time.monotonic()
            with contextlib.suppress(BrokenPipeError):  # the parent has died; the next step sees it
                messages.send((cell.title, step, values.get("self", float("nan"))))

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock"):
            if not (folder / cell.result).exists():
                write_json(folder / cell.result, cell.run(folder, report))
        messages.send((cell.title, cell.steps, float("nan")))
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        messages.send(error)


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
    """Wait until no other process holds the file, and hold it for the block."""
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _display(cells: Sequence[Cell]) -> Iterator[Callable[[str, int, float], None]]:
    """Bars on a terminal, a line every ten seconds elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = sum(c.steps for c in cells)
    at = {c.title: 0 for c in cells}
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}"),
        )
        from rich.console import Console

        with Progress(*columns, console=Console(stderr=True)) as progress:
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
