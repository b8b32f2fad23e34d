"""Rows of pushing that train nothing: random actions, and planning with the world's physics, nominal or true."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sprii_train.checkpoints import write_tensors
from sprii_train.control.push_agents import known, nominal
from sprii_train.distributed import first
from sprii_train.evaluation import RandomAgent
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.push import pushed
from sprii_train.experiments.references import ReferenceCell, References
from sprii_train.experiments.sources import Measure
from sprii_train.identity import cell_code
from sprii_train.records import Report
from sprii_train.settings.push import PlannedTrials

PUSHERS = {"random": "Random actions", "nominal": "Nominal equations", "oracle": "True equations (oracle)"}


@dataclass(frozen=True)
class PushReferenceCell(ReferenceCell):
    """One seed of one reference under one planner, in the rows of the measure `push`."""

    planner: str

    @property
    def title(self) -> str:
        """Setting, reference, planner and seed."""
        return f"{self.world}-{self.name}-{self.planner}-seed{self.seed}"

    @property
    def measure(self) -> Measure:
        """What its row and its courses are of."""
        return MEASURES["push"]

    @property
    def result(self) -> str:
        """The file of the row."""
        return "push.json"

    @property
    def arrays(self) -> str:
        """The file of the courses."""
        return "push.safetensors"

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides."""
        return {"code": cell_code(pushed, known, nominal, RandomAgent, type(self.controller))}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Act."""
        key = f"{self.name}|{self.planner}"

        def act() -> dict[str, Any]:
            made: dict[str, Any] = {"nominal": nominal, "oracle": known}
            agent = (
                made[self.name](self.controller, seed=self.seed) if self.name in made else RandomAgent(seed=self.seed)
            )
            row, courses = pushed(agent, self.seed, self.episodes)
            tensors = {f"{key}|{name}": torch.from_numpy(course) for name, course in courses.items()}
            write_tensors(folder / self.arrays, tensors)
            return {"acts": {key: row}}

        arm = self.name if self.name == "random" else f"{self.name}-{self.planner}"
        return {"world": self.world, "arm": arm, "label": PUSHERS[self.name], "seed": self.seed} | first(act)


@dataclass(frozen=True)
class PushReferences(References):
    """All references of the setting, each under every planner of the budget; random actions once."""

    acting: float = 0.3

    def cells(self, scope: Scope) -> list[Cell]:
        """One a reference and planner, seeds outermost."""
        trials = scope.budget.trials
        assert isinstance(trials, PlannedTrials)
        return [
            PushReferenceCell(self.world, name, controller, seed, trials.episodes, planner)
            for seed in scope.budget.sources
            for name in PUSHERS
            for planner, controller in (trials.planners[:1] if name == "random" else trials.planners)
        ]
