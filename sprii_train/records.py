"""What a run writes down while it trains: metrics, TensorBoard events and diagnostics, cut back to where it resumes."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sprii_envs.dependencies import needed
from sprii_envs.files import read_json_lines, write_whole
from sprii_train.checkpoints import CheckpointError

Report = Callable[[int, dict[str, float]], None]
"""Of a run in progress: steps done, and values."""


def later(progress: Report, steps: int) -> Report:
    """The report of a stage that begins after so many steps of a run, whether or not they were taken here."""
    return lambda done, values: progress(steps + done, values)


class Records:
    """`metrics.jsonl`, `tensorboard/` and one `<name>.jsonl` a diagnostic, in a run's folder.

    Args:
        root: the folder.
        start: steps already taken; what is written of later ones is dropped.
        on: False writes nothing.
    """

    def __init__(
        self, root: Path, start: int, *, tensorboard: bool = True, diagnostics: Sequence[str] = (), on: bool = True
    ) -> None:
        self.on, self._writer = on, None
        if on:
            paths = {name: root / f"{name}.jsonl" for name in ("metrics", *diagnostics)}
            for path in paths.values():
                _truncate(path, start)
            self._writer = _writer(root, start) if tensorboard else None
            self._files = {name: open(path, "a", encoding="utf-8") for name, path in paths.items()}  # noqa: SIM115
        self._seconds, self._logged = time.perf_counter(), start

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.on:
            for file in self._files.values():
                file.close()
        if self._writer is not None:
            self._writer.close()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values of one update, with the rate of those since the last call."""
        if not self.on:
            return
        now = time.perf_counter()
        rate = (step - self._logged) / max(now - self._seconds, 1e-9)
        self._seconds, self._logged = now, step
        self.add("metrics", step, {**values, "steps_per_second": rate})
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"train/{name}", value, step)
            self._writer.add_scalar("time/steps_per_second", rate, step)

    def add(self, name: str, step: int, row: Mapping[str, Any]) -> None:
        """One row of the metrics or of a diagnostic."""
        if self.on:
            self._files[name].write(json.dumps({"step": step, **row}) + "\n")
            self._files[name].flush()


def read_rows(path: Path, numbers: Sequence[str] = (), *, torn: bool = False) -> list[dict[str, Any]]:
    """The rows of the metrics or of a diagnostic.

    Args:
        numbers: entries that every row must have as a number, besides its step.
        torn: whether the last line may lack its end, as a kill leaves it; it is left out.

    Raises:
        CheckpointError: naming the file, and the line that is damaged.
    """
    remedy = f"remove the folder {path.parent}"
    rows = read_json_lines(path, CheckpointError, remedy)
    if not torn and path.read_bytes()[-1:] not in (b"", b"\n"):
        raise CheckpointError(f"{path}, line {len(rows) + 1} is damaged: it has no end; {remedy}")
    for line, row in enumerate(rows, 1):
        for name in ("step", *numbers):
            kind = int if name == "step" else (int, float)
            if not isinstance(row.get(name), kind) or isinstance(row[name], bool):
                raise CheckpointError(f"{path}, line {line} is damaged: no number {name}; {remedy}")
    return rows


def training_seconds(directory: str | Path, steps: int) -> float:
    """Seconds that a finished run of so many steps has trained, over all its resumptions.

    Raises:
        CheckpointError: for metrics that are missing or damaged.
    """
    path = Path(directory) / "metrics.jsonl"
    step, seconds = 0, 0.0
    for line, row in enumerate(read_rows(path, ["steps_per_second"]), 1):
        if not 0.0 < row["steps_per_second"] < math.inf:
            raise CheckpointError(
                f"{path}, line {line} is damaged: {row['steps_per_second']} steps a second; remove the folder "
                f"{path.parent}"
            )
        seconds += (row["step"] - step) / row["steps_per_second"]
        step = row["step"]
    if step != steps:
        raise CheckpointError(f"{path} is damaged: it ends at step {step} of {steps}; remove the folder {path.parent}")
    return round(seconds, 1)


def _truncate(path: Path, step: int) -> None:
    if path.exists():
        kept = [json.dumps(row) + "\n" for row in read_rows(path, torn=True) if row["step"] <= step]
        write_whole(path, "".join(kept).encode())


def _writer(root: Path, start: int):
    with needed("TensorBoard's events of a run need tensorboard", "tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and absent from minimal installations

    return SummaryWriter(str(root / "tensorboard"), purge_step=start or None)
