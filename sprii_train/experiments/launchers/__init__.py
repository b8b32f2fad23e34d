"""Where the cells of a grid run: processes here, jobs of Slurm, tasks of a Ray cluster, or the ranks of torchrun."""

from sprii_envs.properties import unknown_name
from sprii_train.experiments.launchers.base import Launcher
from sprii_train.experiments.launchers.local import Local
from sprii_train.experiments.launchers.ray import Ray
from sprii_train.experiments.launchers.slurm import Slurm

_LAUNCHERS = {"local": Local, "slurm": Slurm, "ray": Ray}


def named_launcher(name: str, *, workers: int | None, threads: int) -> Launcher:
    """The launcher of that name, with its defaults.

    Raises:
        ValueError: for an unknown name, an illegal number, or a launcher whose package or cluster is not there.
    """
    if name not in _LAUNCHERS:
        raise unknown_name("launcher", name, _LAUNCHERS)
    return _LAUNCHERS[name](workers, threads)
