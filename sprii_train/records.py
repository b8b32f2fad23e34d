"""What a run writes down while it trains: metrics, TensorBoard events and diagnostics, cut back to where it resumes."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sprii_envs.dependencies import needed
from sprii_train.checkpoints import CheckpointError


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


def _truncate(path: Path, step: int) -> None:
    if path.exists():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        try:
            kept = [line for line in lines if json.loads(line)["step"] <= step]
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path} is damaged ({error}); remove the folder {path.parent}") from None
        path.write_text("".join(kept), encoding="utf-8")


def _writer(root: Path, start: int):
    with needed("TensorBoard's events of a run need tensorboard", "tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and absent from minimal installations

    return SummaryWriter(str(root / "tensorboard"), purge_step=start or None)
