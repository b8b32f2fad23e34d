"""Rows of the pendulum that train nothing, under every planner of a budget: random actions, nominal model, oracle."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from sprii_train.checkpoints import write_tensors
from sprii_train.control.controllers import Config
from sprii_train.control.pendulum_agents import ENV_ID, known, nominal
from sprii_train.distributed import first
from sprii_train.evaluation import RandomAgent, evaluate_agent
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.context_control import played
from sprii_train.experiments.measures.control import groups_of
from sprii_train.experiments.references import REFERENCES
from sprii_train.experiments.sources import Measure
from sprii_train.identity import cell_code
from sprii_train.records import Report
from sprii_train.settings.trials import PlannedTrials


@dataclass(frozen=True)
class PlannersReferenceCell:
    """One seed of one reference: the rows that the measure `context-control` has of a source."""

    world: str
    name: str
    planners: tuple[tuple[str, Config], ...]
    seed: int
    episodes: int

    @property
    def title(self) -> str:
        """Setting, reference and seed."""
        return f"{self.world}-{self.name}-seed{self.seed}"

    @property
    def steps(self) -> int:
        """Nothing is trained."""
        return 0

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

    def identity(self) -> dict[str, Any]:
        """What the row depends on."""
        return asdict(self) | {"planners": repr(self.planners)}

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides."""
        planners = dict.fromkeys(type(controller) for _, controller in self.planners)
        return {"code": cell_code(played, known, nominal, RandomAgent, *planners)}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Act."""

        def act() -> dict[str, Any]:
            acted, courses = {}, {}
            if self.name == "random-policy":
                agent = RandomAgent(seed=self.seed)
                found = evaluate_agent(agent, ENV_ID, seed=self.seed, episodes=self.episodes, progress=False)
                acted = {name: {"equations": {"groups": groups_of(found)}} for name, _ in self.planners}
                courses["none"] = np.zeros(1)
            else:
                make = nominal if self.name == "nominal" else known
                for name, controller in self.planners:
                    row, course = played(make(controller, seed=self.seed), self.seed, self.episodes)
                    acted[name] = {"equations": row}
                    courses |= {f"{name}|equations|{key}": values for key, values in course.items()}
            tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in courses.items()}
            write_tensors(folder / self.arrays, tensors)
            return {"acted": acted}

        return {"world": self.world, "arm": self.name, "label": REFERENCES[self.name], "seed": self.seed} | first(act)


@dataclass(frozen=True)
class PlannersReferences:
    """All references of a setting, whichever arms are trained; attributes as of a `Unit`."""

    world: str
    recipes: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    acting: float = 0.4

    def arms(self, preset: str) -> tuple[str, ...]:
        """None is trained."""
        return ()

    def sources(self, arms: Sequence[str]) -> tuple[str, ...]:
        """None."""
        return ()

    def cells(self, scope: Scope) -> list[Cell]:
        """One a reference, seeds outermost."""
        trials = cast(PlannedTrials, scope.budget.trials)
        return [
            PlannersReferenceCell(self.world, name, trials.planners, seed, trials.episodes)
            for seed in scope.budget.sources
            for name in REFERENCES
        ]
