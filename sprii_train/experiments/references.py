"""Rows of the pendulum that train nothing: random actions, and planning with equations that are known."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sprii_train.checkpoints import write_tensors
from sprii_train.control.controllers import Config
from sprii_train.control.pendulum_agents import known, nominal, planner_name
from sprii_train.distributed import first
from sprii_train.evaluation import RandomAgent
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.control import acted
from sprii_train.experiments.sources import Measure
from sprii_train.identity import cell_code
from sprii_train.records import Report

REFERENCES = {"random-policy": "Random policy", "nominal": "Nominal model", "oracle": "Oracle dynamics"}
"""Uniform actions, and planning with the equations of m = l = 1 or of the true system."""


@dataclass(frozen=True)
class ReferenceCell:
    """One seed of one reference: the rows by group that the measure `control` has of a source."""

    world: str
    name: str
    controllers: tuple[Config, ...]
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
        return MEASURES["control"]

    @property
    def result(self) -> str:
        """The file of the row."""
        return "control.json"

    @property
    def arrays(self) -> str:
        """The file of the courses."""
        return "control.safetensors"

    def identity(self) -> dict[str, Any]:
        """What the row depends on."""
        return asdict(self) | {"controllers": repr(self.controllers)}

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides."""
        return {"code": cell_code(acted, known, nominal, RandomAgent, *map(type, self.controllers))}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Act."""
        make = nominal if self.name == "nominal" else known
        agents = {
            planner_name(each): RandomAgent(seed=self.seed)
            if self.name == "random-policy"
            else make(each, seed=self.seed)
            for each in self.controllers
        }

        def act() -> dict[str, Any]:
            row, courses = acted(agents, self.seed, self.episodes)
            write_tensors(folder / self.arrays, {name: torch.from_numpy(course) for name, course in courses.items()})
            return row

        return {"world": self.world, "arm": self.name, "label": REFERENCES[self.name], "seed": self.seed} | first(act)


@dataclass(frozen=True)
class References:
    """All references of a setting, whichever arms are trained; attributes as of a `Unit`."""

    world: str
    recipes: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    acting: float = 0.06  # equations cost a thirtieth of a network, and two of three plan

    def arms(self, preset: str) -> tuple[str, ...]:
        """None is trained."""
        return ()

    def sources(self, arms: Sequence[str]) -> tuple[str, ...]:
        """None."""
        return ()

    def cells(self, scope: Scope) -> list[Cell]:
        """One a reference, seeds outermost."""
        spent = scope.budget
        assert spent.trials is not None
        return [
            ReferenceCell(self.world, name, spent.trials.controllers, seed, spent.trials.episodes)
            for seed in spent.sources
            for name in REFERENCES
        ]
