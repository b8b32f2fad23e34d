"""Arms × seeds as cells: one folder each, named by the hash of what it is, finished by an atomic result file.

Cells run in processes. A cell that is done is not run again, one that was killed resumes from its checkpoint, and a
worker whose parent has died stops at its next step, so that the same command never meets its own orphans.
"""

import fcntl
import hashlib
import json
import multiprocessing
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from sprii_train.checkpoints import read_json, write_json
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


def threads_per_cell(cells: int, workers: int) -> int:
    """Threads of one worker: a function of the whole grid, so that a resumed run computes with as many as before."""
    return max(1, (os.cpu_count() or 1) // max(1, min(cells, workers)))


def run_grid(cells: Sequence[Cell], root: Path, *, workers: int | None = None) -> list[dict[str, Any]]:
    """Run what is not done, and return the results of all cells in their order.

    Args:
        workers: processes; by default one a core. Two one-thread processes beat one two-thread process.
    """
    workers = workers or os.cpu_count() or 1
    threads = threads_per_cell(len(cells), workers)
    todo = [c for c in cells if not (folder_of(c, root) / c.result).exists()]
    if todo:
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, _display(todo) as show:
            messages = manager.Queue()
            with ProcessPoolExecutor(min(workers, len(todo)), mp_context=context) as pool:
                futures = [pool.submit(_work, cell, root, threads, messages, os.getpid()) for cell in todo]
                try:
                    _watch(futures, messages, show)
                except BaseException:
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
    return [read_json(folder_of(c, root) / c.result) for c in cells]


def _watch(futures: list[Future], messages: Any, show: Callable[[str, int, float], None]) -> None:
    pending, failure = set(futures), None
    while pending:
        done, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        while True:
            try:
                show(*messages.get_nowait())
            except queue.Empty:
                break
        for error in (future.exception() for future in done):
            if isinstance(error, Interrupted):
                raise error
            if error is not None:
                failure = failure or error
                print(f"a cell failed, the others go on: {error}", file=sys.stderr, flush=True)
    if failure is not None:
        raise failure


def _work(cell: Cell, root: Path, threads: int, messages: Any, parent: int) -> None:
    torch.set_num_threads(threads)
    folder = folder_of(cell, root)
    folder.mkdir(parents=True, exist_ok=True)
    said = 0.0

    def report(step: int, values: dict[str, float]) -> None:
        nonlocal said
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)  # fit writes its checkpoint and stops
        elif time.monotonic() - said > 0.5 or step == cell.steps:
            said = time.monotonic()
            messages.put((cell.title, step, values.get("self", float("nan"))))

    with _locked(folder / ".lock"):
        if not (folder / cell.result).exists():
            write_json(folder / cell.result, cell.run(folder, report))
    messages.put((cell.title, cell.steps, float("nan")))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
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
