"""Cells as arrays of Slurm jobs, submitted by submitit; needs the extra `slurm`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sprii_train.experiments.cells import Cell
from sprii_train.experiments.launchers.base import Told, check_counts, needed
from sprii_train.experiments.launchers.remote import EVERY, run_cell, told


class Slurm:
    """One job a cell. A job that runs out of time, or is preempted, is queued again and resumes.

    Args:
        workers: jobs submitted at once; by default all.
        threads: of each job.
        cluster: `slurm`; submitit's `local` and `debug` run the jobs here.
        every: seconds between two words of a job, and between two looks at it.
        parameters: of `submitit.AutoExecutor.update_parameters`, such as `slurm_partition="gpu", gpus_per_node=1`;
            the environment's SBATCH_PARTITION, SBATCH_ACCOUNT, … count too.

    Raises:
        ValueError: without submitit, or where there is no Slurm.
    """

    def __init__(
        self,
        workers: int | None = None,
        threads: int = 1,
        cluster: str = "slurm",
        *,
        every: float = EVERY,
        **parameters: Any,
    ) -> None:
        check_counts(workers, threads)
        self.workers, self.threads, self.cluster, self.every = workers or sys.maxsize, threads, cluster, every
        self.submitit = needed("submitit", "slurm")
        self.parameters = {"timeout_min": 24 * 60, "cpus_per_task": threads, "name": "sprii"} | parameters
        self._jobs: list[_Job] = []

    def launch(self, cells: Sequence[Cell], root: Path) -> list["_Job"]:
        """Submit the cells; logs lie under `root/slurm`."""
        try:
            executor = self.submitit.AutoExecutor(root / "slurm", cluster=self.cluster, slurm_max_num_timeout=1000)
        except RuntimeError as error:
            raise ValueError(f"the launcher slurm found no Slurm here: {error}") from None
        executor.update_parameters(**self.parameters)
        count = len(cells)
        body = _Body(self.every)
        jobs = executor.map_array(body, cells, [root] * count, [self.threads] * count)
        self._jobs += [_Job(cell, root, job) for cell, job in zip(cells, jobs, strict=True)]
        return self._jobs[-count:]

    def wait(self) -> None:
        """Return after a few seconds."""
        time.sleep(self.every)

    def stop(self) -> None:
        """Cancel what is not done, and give it a minute to write its checkpoints."""
        left = [job for job in self._jobs if not job.done()]
        for job in left:
            job.job.cancel(check=False)
        until = time.monotonic() + 60
        while any(not job.job.done(force_check=True) for job in left) and time.monotonic() < until:
            time.sleep(1.0)


class _Body:
    """What a job runs; it knows what to run when it is queued again: the same."""

    def __init__(self, every: float) -> None:
        self.every = every

    def __call__(self, cell: Cell, root: Path, threads: int) -> Exception | None:
        return run_cell(cell, root, threads, self.every)

    def checkpoint(self, *arguments: Any) -> Any:
        return needed("submitit", "slurm").helpers.DelayedSubmission(self, *arguments)


class _Job:
    def __init__(self, cell: Cell, root: Path, job: Any) -> None:
        self.cell, self.root, self.job = cell, root, job

    def told(self) -> Told | None:
        return told(self.cell, self.root)

    def done(self) -> bool:
        return self.job.done()

    def error(self) -> Exception | None:
        if self.job.exception() is None:
            return self.job.result()
        told = f"job {self.job.job_id} left no result ({self.job.state}); its log is {self.job.paths.stderr}"
        return ChildProcessError(f"{self.cell.title}: {told}")
