"""Cells as tasks of a Ray cluster that is there already; needs the extra `ray`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sprii_train.experiments.cells import Cell
from sprii_train.experiments.launchers.base import Told, needed
from sprii_train.experiments.launchers.remote import EVERY, run_cell, told


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
        self.workers, self.threads, self.every = workers or sys.maxsize, threads, every
        self.ray = needed("ray", "ray")
        if not self.ray.is_initialized():
            try:
                self.ray.init(address="auto", logging_level="warning")
            except ConnectionError:
                raise ValueError(
                    "the launcher ray found no cluster: run this on one of its machines, or set RAY_ADDRESS"
                ) from None
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
