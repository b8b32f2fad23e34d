"""What jobs on other machines share: a body that says how far it is through a file in the cell's folder.

All machines must see that folder under one path, and its locks (`flock`).
"""

import time
import traceback
from pathlib import Path

import torch

from sprii_envs.files import FileError, read_json, write_json
from sprii_train.experiments.cells import Cell, folder_of, work
from sprii_train.experiments.launchers.base import Told

EVERY = 5.0
"""Seconds between two words of a job, and between two looks at it, unless a launcher is told otherwise."""


def run_cell(cell: Cell, root: Path, threads: int, every: float) -> Exception | None:
    """The body of a job, which says every so many seconds how far it is.

    It returns what the cell failed with, whose traceback is in the job's log.
    """
    torch.set_num_threads(threads)
    said = 0.0

    def report(step: int, values: dict[str, float]) -> None:
        nonlocal said
        if time.monotonic() - said > every or step == cell.steps:
            said = time.monotonic()
            write_json(_path(cell, root), {"step": step, "self": values.get("self")})

    try:
        work(cell, root, report)
    except Exception as error:
        traceback.print_exc()
        return error
    return None


def told(cell: Cell, root: Path) -> Told | None:
    """How far the cell's job has said that it is."""
    try:
        held = read_json(_path(cell, root))
    except FileError:
        return None
    step, loss = held.get("step"), held.get("self")
    return (step, loss if isinstance(loss, float) else float("nan")) if isinstance(step, int) else None


def _path(cell: Cell, root: Path) -> Path:
    return folder_of(cell, root) / "progress.json"
