"""Where the cells of a grid run: processes here, jobs of Slurm, tasks of a Ray cluster, or the ranks of torchrun."""

import importlib
from typing import Any

from sprii_envs import dependencies
from sprii_envs.fields import WORKERS, integer
from sprii_train.experiments.grid import Launcher

NAMES = ("local", "slurm", "ray")


def named_launcher(name: str, *, workers: int | None, threads: int) -> Launcher:
    """The launcher of that name, with its defaults.

    Raises:
        ValueError: for an unknown name, an illegal number, or a launcher whose package or cluster is not there.
    """
    if workers is not None:
        integer("workers", workers, least=1, most=WORKERS)
    integer("threads", threads, least=1, most=WORKERS)
    if name == "local":
        from sprii_train.experiments.launchers.local import Local

        return Local(workers, threads)
    if name == "slurm":
        from sprii_train.experiments.launchers.slurm import Slurm

        return Slurm(workers, threads)
    if name == "ray":
        from sprii_train.experiments.launchers.ray import Ray

        return Ray(workers, threads)
    raise ValueError(f"unknown launcher {name!r}; legal: {', '.join(NAMES)}")


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
