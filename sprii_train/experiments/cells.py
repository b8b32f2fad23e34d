"""A cell: a training run and its evaluation, in a folder named by the hash of what it is.

It is finished by an atomic result file. A cell that is done is not run again, and one that was killed resumes from its
checkpoint; two jobs of one cell, wherever they run, meet at the lock of its folder.
"""

import hashlib
import json
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sprii_envs import files
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.records import Report

KEPT = "kept"
"""The entry of a result file that is no result: its measurement, and checksums of the row and of its arrays.

A row that `result_of` returns has the entry of its arrays under this name, where it has any: who reads them later sees
by it whether they are still the row's.
"""

TRACEBACK = "traceback.txt"
"""The file of what a cell last failed with; a cell that is done has none."""


class Cell(Protocol):
    """A picklable description of one training run and its evaluation.

    `identity` is what the training depends on, and names the folder; `result` is the file in it that holds what `run`
    returns, so that one trained run can be evaluated in several ways. A cell may have a method `measurement` of what
    the result depends on besides, its code for one: where a result is of another measurement, `run` is called again.
    `arrays`, where a cell has it, is a file that `run` writes beside the result.
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


def work(cell: Cell, root: Path, report: Report) -> None:
    """Run a cell, unless its result is there, with its folder locked, and write the result whole."""
    folder = folder_of(cell, root)
    with locked(folder / ".lock"):
        if distributed.first(lambda: result_of(cell, root)) is None:
            if hasattr(cell, "arrays"):  # a row of another measurement goes first, so that none stands by new arrays
                distributed.first(lambda: (folder / cell.result).unlink(missing_ok=True))
            try:
                row = cell.run(folder, report)
            except Exception as error:  # what goes on to another process has lost where it was raised
                files.write_whole(folder / TRACEBACK, traceback.format_exc().encode())
                error.add_note(f"its traceback is in {folder / TRACEBACK}")
                raise
            distributed.first(lambda: files.write_json(folder / cell.result, row | {KEPT: _kept(cell, row, folder)}))
            distributed.first(lambda: (folder / TRACEBACK).unlink(missing_ok=True))  # of a failure that is repaired


def result_of(cell: Cell, root: Path) -> dict[str, Any] | None:
    """What `run` returned, if it has and is of the cell's measurement, with its arrays beside it (`KEPT`).

    A result that is replaced meanwhile is read again.

    Raises:
        CheckpointError: naming the file that is damaged.
    """
    folder = folder_of(cell, root)
    return files.read_folder(folder / cell.result, lambda: _result(cell, folder), CheckpointError)


def _result(cell: Cell, folder: Path) -> dict[str, Any] | None:
    path = folder / cell.result
    if not path.exists():
        return None
    remedy = "remove it and repeat the command"
    row = files.read_json(path, CheckpointError, remedy)
    kept = row.pop(KEPT, None)
    if not row:
        raise CheckpointError(f"{path} is damaged: it holds no results; {remedy}")
    if kept is None and _measurement(cell) is None:
        return row
    if not isinstance(kept, dict) or kept.get("measurement") != _measurement(cell):
        return None
    if kept.get("sha256") != _checksum(row):
        raise CheckpointError(f"{path} is damaged: its checksum is another; {remedy}")
    if (entry := kept.get("arrays")) is None:
        return row
    remedy = f"remove {path} and repeat the command"
    files.check_file(folder / getattr(cell, "arrays", ""), entry, error=CheckpointError, remedy=remedy)
    return row | {KEPT: entry}


def _kept(cell: Cell, row: dict[str, Any], folder: Path) -> dict[str, Any]:
    arrays = files.inventory(folder).get(getattr(cell, "arrays", ""))
    return {"measurement": _measurement(cell), "sha256": _checksum(row), "arrays": arrays}


def _checksum(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def _measurement(cell: Cell) -> Any:
    describe = getattr(cell, "measurement", None)
    return json.loads(json.dumps(describe())) if callable(describe) else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the file, and hold it for the block; rank 0 holds it for its group."""

    with ExitStack() as stack:
        distributed.first(lambda: stack.enter_context(files.lock(path, error=CheckpointError)))
        yield
