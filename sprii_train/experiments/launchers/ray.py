"""Cells, and shards of a bank, as tasks of a Ray cluster that is there already; needs the extra `ray`."""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sprii_envs.processes import BrokenProcessPool
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.launchers.base import Told, check_counts, needed
from sprii_train.experiments.launchers.remote import EVERY, run_cell, told

T = TypeVar("T")
R = TypeVar("R")


class Ray:
    """One task a cell, on any machine of the cluster; a task whose machine dies is run again and resumes.

    Args:
        workers: tasks at once; by default as many as the cluster has room for.
        threads: CPUs of each task.
        every: seconds between two words of a task, and between two looks at it.
        options: of `ray.remote`, such as `num_gpus=1`.

    Raises:
        ValueError: without Ray or without a cluster.
    """

    def __init__(self, workers: int | None = None, threads: int = 1, *, every: float = EVERY, **options: Any) -> None:
        check_counts(workers, threads)
        self.workers, self.threads, self.every = workers or sys.maxsize, threads, every
        self.ray = cluster()
        self.options = {"num_cpus": threads} | options
        self._tasks: list[_Task] = []

    def launch(self, cells: Sequence[Cell], root: Path) -> list["_Task"]:
        """Submit the cells."""
        body = self.ray.remote(**self.options)(run_cell)
        for cell in cells:
            reference = body.options(name=cell.title).remote(cell, root, self.threads, self.every)
            self._tasks.append(_Task(self.ray, cell, root, reference))
        return self._tasks[-len(cells) :]

    def wait(self) -> None:
        """Return when a task is done, or after a few seconds."""
        self._tasks = [task for task in self._tasks if not task.done()]
        if self._tasks:
            self.ray.wait([task.reference for task in self._tasks], timeout=self.every)

    def stop(self) -> None:
        """Cancel what is not done, and give it a minute to write its checkpoints."""
        left = [task.reference for task in self._tasks if not task.done()]
        for reference in left:
            self.ray.cancel(reference)
        if left:
            self.ray.wait(left, num_returns=len(left), timeout=60)


def cluster() -> Any:
    """The module `ray`, connected to a cluster; ValueError without Ray or without a cluster."""
    ray = needed("ray", "ray")
    if not ray.is_initialized():
        try:
            ray.init(address="auto", logging_level="warning")
        except ConnectionError:
            raise ValueError(
                "the launcher ray found no cluster: run this on one of its machines, or set RAY_ADDRESS"
            ) from None
    return ray


class RayTasks:
    """A `sprii_envs.processes.InOrder`: a task of Ray for each item, with twice as many submitted as CPUs.

    Args:
        options: of `ray.remote`, such as `num_cpus=2`; a task has one CPU by default.

    Raises:
        ValueError: without Ray or without a cluster.
    """

    def __init__(self, **options: Any) -> None:
        self.ray, self.options = cluster(), {"num_cpus": 1} | options

    def __call__(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
        """Results in the order of the items; what `work` raises, and BrokenProcessPool for a task that was lost."""
        body, left, waiting = self.ray.remote(**self.options)(_run), iter(items), deque()
        shared = self.ray.put(work)
        most = 2 * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        try:
            while True:
                waiting.extend(body.remote(shared, item) for item in islice(left, most - len(waiting)))
                if not waiting:
                    return
                failed, result = self.ray.get(waiting[0])
                waiting.popleft()
                if failed is not None:
                    raise failed
                yield result
        except self.ray.exceptions.RayError as error:
            raise BrokenProcessPool(f"a task of Ray was lost: {type(error).__name__}: {error}") from error
        finally:
            for reference in waiting:
                self.ray.cancel(reference)


def _run(work: Callable[[T], R], item: T) -> tuple[Exception | None, R | None]:
    """What fails is returned: Ray would raise it as a class of its own."""
    try:
        return None, work(item)
    except Exception as error:
        return error, None


class _Task:
    def __init__(self, ray: Any, cell: Cell, root: Path, reference: Any) -> None:
        self.ray, self.cell, self.root, self.reference = ray, cell, root, reference

    def told(self) -> Told | None:
        return told(self.cell, self.root)

    def done(self) -> bool:
        return bool(self.ray.wait([self.reference], timeout=0)[0])

    def error(self) -> Exception | None:
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.RayError as error:
            *_, why = (type(error).__name__, *str(error).split("\n"))
            return ChildProcessError(f"{self.cell.title}: its task left no result: {why}")
