"""The grid's loop without its processes, whose start costs more than the cells of these tests."""

from collections.abc import Sequence
from pathlib import Path

from sprii_train.experiments.cells import Cell, work
from sprii_train.experiments.launchers.base import Job, Told


class Queue:
    """A launcher that runs one launched cell at each `wait`, in this process."""

    def __init__(self, workers: int) -> None:
        self.workers, self.jobs, self.most, self.stopped = workers, [], 0, False

    def launch(self, cells: Sequence[Cell], root: Path) -> list[Job]:
        new = [Queued(cell, root) for cell in cells]
        self.jobs += new
        self.most = max(self.most, sum(not job.over for job in self.jobs))
        return new  # type: ignore[return-value]

    def wait(self) -> None:
        next(job for job in self.jobs if not job.over).go()

    def stop(self) -> None:
        self.stopped = True


class Queued:
    def __init__(self, cell: Cell, root: Path) -> None:
        self.cell, self.root, self.over, self.failed = cell, root, False, None

    def go(self) -> None:
        self.over = True
        try:
            work(self.cell, self.root, lambda *_: None)
        except Exception as error:
            self.failed = error

    def told(self) -> Told | None:
        return (self.cell.steps, 0.5) if self.over else None

    def done(self) -> bool:
        return self.over

    def error(self) -> Exception | None:
        return self.failed
