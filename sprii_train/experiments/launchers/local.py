"""Cells in processes of this machine; one whose parent has died stops at its next step and leaves no orphan behind.

Where the system can, they are forked from a server that has imported what every cell needs and run nothing: a cell then
starts in a tenth of a second and shares that memory, and has neither threads nor locks of its parent.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from sprii_train.experiments.cells import Cell, work
from sprii_train.experiments.launchers.base import Told, check_counts


class Local:
    """A process a cell.

    Args:
        workers: processes at once; by default one a core.
        threads: of each process. Two one-thread processes beat one two-thread process, and a fixed number keeps the
            order of every sum, so that a run resumed with another number of workers ends in the same bits.
    """

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        check_counts(workers, threads)
        self.workers, self.threads = workers or os.cpu_count() or 1, threads
        self._running: list[_Process] = []

    def launch(self, cells: Sequence[Cell], root: Path) -> list["_Process"]:
        """Start a process for each cell."""
        for cell in cells:
            self._running.append(_Process(cell, root, self.threads))
        return self._running[-len(cells) :]

    def wait(self) -> None:
        """Return when a process has said something, or after half a second."""
        self._running = [job for job in self._running if not job.done()]
        multiprocessing.connection.wait([job.pipe for job in self._running], timeout=0.5)

    def stop(self) -> None:
        """Ask every process to write its checkpoint and end; kill what has not after a minute."""
        for job in self._running:
            job.process.terminate()
        for job in self._running:
            job.process.join(60)
            job.process.kill()


class _Process:
    def __init__(self, cell: Cell, root: Path, threads: int) -> None:
        context = forks()
        self.title, self._failed, self._ended = cell.title, None, False
        self.pipe, theirs = context.Pipe(duplex=False)
        given = (cloudpickle.dumps(cell), root, threads, theirs, dict(os.environ))
        self.process = context.Process(target=_work, args=given)
        self.process.start()
        theirs.close()

    def told(self) -> Told | None:
        latest = None
        while not self._ended and self.pipe.poll():
            try:
                message = self.pipe.recv()
            except EOFError:
                self.process.join()
                self._ended = True
            else:
                if isinstance(message, Exception):
                    self._failed = message
                else:
                    latest = message
        return latest

    def done(self) -> bool:
        return self._ended

    def error(self) -> Exception | None:
        if self._failed is None and self.process.exitcode:
            return ChildProcessError(f"{self.title} ended with exit status {self.process.exitcode}")
        return self._failed


def forks() -> Any:  # no name that every system has is of both
    """The context of multiprocessing whose processes begin as this module says."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sprii_train.experiments.targets"])
    return context


def _work(pickled: bytes, root: Path, threads: int, messages: Any, environment: dict[str, str]) -> None:
    os.environ.clear()  # a server has that of its start
    os.environ.update(environment)
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    cell: Cell = cloudpickle.loads(pickled)  # a setting of one's own may hold functions that have no name
    said = 0.0

    def report(step: int, values: dict[str, float]) -> None:
        nonlocal said
        if parent is not None and not parent.is_alive():
            os.kill(os.getpid(), signal.SIGTERM)  # fit writes its checkpoint and stops
        elif time.monotonic() - said > 0.5 or step == cell.steps:
            said = time.monotonic()
            with contextlib.suppress(BrokenPipeError):  # the parent has died; the next step sees it
                messages.send((step, values.get("self", float("nan"))))

    try:
        work(cell, root, report)
        messages.send((cell.steps, float("nan")))
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        messages.send(error)
