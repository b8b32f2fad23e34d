"""Rows of the pendulum that train nothing, under every planner of a budget: random actions, nominal model, oracle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from sprii_train.checkpoints import write_tensors
from sprii_train.control.pendulum_agents import ENV_ID, known, nominal
from sprii_train.distributed import first
from sprii_train.evaluation import RandomAgent, evaluate_agent
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.acting import rows
from sprii_train.experiments.measures.context_control import played
from sprii_train.experiments.references import REFERENCES, ReferenceCell, References
from sprii_train.experiments.sources import Measure
from sprii_train.identity import cell_code
from sprii_train.records import Report
from sprii_train.settings.base import PlannedTrials


@dataclass(frozen=True)
class PlannersReferenceCell(ReferenceCell):
    """One seed of one reference: the rows that the measure `context-control` has of a source.

    Attributes:
        planners: the names of `controllers` in rows.
    """

    planners: tuple[str, ...]

    @property
    def measure(self) -> Measure:
        """What its row and its courses are of."""
        return MEASURES["context-control"]

    @property
    def result(self) -> str:
        """The file of the row."""
        return "context-control.json"

    @property
    def arrays(self) -> str:
        """The file of the courses."""
        return "context-control.safetensors"

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides."""
        planners = dict.fromkeys(map(type, self.controllers))
        return {"code": cell_code(played, known, nominal, RandomAgent, *planners)}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Act."""

        def act() -> dict[str, Any]:
            acted, courses = {}, {}
            if self.name == "random-policy":
                agent = RandomAgent(seed=self.seed)
                found = evaluate_agent(agent, ENV_ID, seed=self.seed, episodes=self.episodes, progress=False)
                acted = {name: {"equations": {"groups": rows(found)}} for name in self.planners}
                courses["none"] = np.zeros(1)
            else:
                make = nominal if self.name == "nominal" else known
                for name, controller in zip(self.planners, self.controllers, strict=True):
                    row, course = played(make(controller, seed=self.seed), self.seed, self.episodes)
                    acted[name] = {"equations": row}
                    courses |= {f"{name}|equations|{key}": values for key, values in course.items()}
            tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in courses.items()}
            write_tensors(folder / self.arrays, tensors)
            return {"acted": acted}

        return {"world": self.world, "arm": self.name, "label": REFERENCES[self.name], "seed": self.seed} | first(act)


@dataclass(frozen=True)
class PlannersReferences(References):
    """All references of the setting, each under every planner of the budget."""

    acting: float = 0.4

    def cells(self, scope: Scope) -> list[Cell]:
        """One a reference, seeds outermost."""
        trials = cast(PlannedTrials, scope.budget.trials)
        planners, controllers = zip(*trials.planners, strict=True)
        return [
            PlannersReferenceCell(self.world, name, controllers, seed, trials.episodes, planners)
            for seed in scope.budget.sources
            for name in REFERENCES
        ]
