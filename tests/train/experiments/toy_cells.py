"""Cells for the grid that train nothing: they write down what happened to them."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprii_train.experiments.cells import Report


@dataclass(frozen=True)
class ToyCell:
    """Counts to `steps` in a file, one line a step, and breaks once at `breaks_at`."""

    name: str
    value: float = 1.0
    steps: int = 4
    breaks_at: int = 0

    @property
    def title(self) -> str:
        return self.name

    @property
    def result(self) -> str:
        return "done.json"

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        with open(folder / "starts", "a") as file:
            file.write("start\n")
        path = folder / "steps"
        done = len(path.read_text().splitlines()) if path.exists() else 0
        for step in range(done + 1, self.steps + 1):
            with open(path, "a") as file:
                file.write(f"{step}\n")
            report(step, {"self": 0.5})
            if step == self.breaks_at and done == 0:
                raise ArithmeticError(f"planned failure of {self.name}")
        return {"arm": self.name, "value": self.value, "resumed_at": done}


@dataclass(frozen=True)
class GatedCell(ToyCell):
    """Takes a step, and then waits for a file, for as long as it is not there."""

    gate: str = ""

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        def waiting(step: int, values: dict[str, float]) -> None:
            report(step, values)
            while not Path(self.gate).exists():
                time.sleep(0.02)

        return super().run(folder, waiting)
