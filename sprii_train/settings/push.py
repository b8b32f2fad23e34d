"""Pushing PokeWorld's object to its goal: dynamics learned offline on states, acted with in systems met and unmet."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sprii_envs.banks import POKE_ORIGINAL, Store
from sprii_envs.banks.behaviours import PokeModes
from sprii_train.control.controllers import ICEM, MPPI, Config
from sprii_train.control.push import CONSTANTS, coordinates
from sprii_train.data import Rows, WindowReader
from sprii_train.fit import TrainConfig
from sprii_train.learners.pooled import PooledConfig
from sprii_train.protocol import Windows
from sprii_train.settings.base import SMOKE_NOTE, Budget, Built, Setting, Trials

VIGOROUS = PokeModes(pursuit=0.45, strike=0.3, approach=0.7, blow=0.9, damping=0.5, turbulence=0.5, noise=0.2)
"""The modes of PokeWorld's banks with more of their force and less of their brake: a planner pushes hard."""

PUSH_BANK = POKE_ORIGINAL.replace(
    name="poke-push", systems={"train": 1000, "validation": 100}, behaviour=VIGOROUS, nested=False, frames=None,
    constants={**POKE_ORIGINAL.constants, **CONSTANTS},
)  # fmt: skip
"""4 episodes of 64 states of every system of the declared ranges."""


@dataclass(frozen=True)
class PlannedTrials(Trials):
    """Episodes that planners act in.

    Attributes:
        planners: name → controller.
    """

    planners: tuple[tuple[str, Config], ...] = ()


class CoordinateReader(WindowReader):
    """Windows whose labels are the properties on their declared scales, as they come."""

    def histories(self, episodes: Rows, starts: Rows) -> Windows:
        """See `WindowReader`."""
        found, table = super().histories(episodes, starts), self.bank.table
        if found.labels is None:
            return found
        rows = self._row(self._episodes(episodes))
        values = np.stack([np.asarray(table[name], np.float64)[rows] for name in self.properties], axis=1)
        return found._replace(labels=torch.from_numpy(coordinates(values).astype(np.float32)))


class PushSetting(Setting):
    """A setting whose supervised arm is told the properties on their declared scales."""

    def reader(self, store: Store, config: Any) -> WindowReader:
        """See `Setting`."""
        labels = self.properties if config.context == "supervised" else ()
        return CoordinateReader(store, self.history, config.horizons, labels)

    def facts(self, budget: Budget) -> dict[str, str]:
        """Planners besides."""
        assert isinstance(budget.trials, PlannedTrials)
        planners = "; ".join(f"{name}: {controller!r}" for name, controller in budget.trials.planners)
        return super().facts(budget) | {"Planners": f"{planners}; {budget.trials.episodes} episodes a group"}


PLANNERS: tuple[tuple[str, Config], ...] = (
    ("icem", ICEM(horizon=20)),
    ("mppi", MPPI(horizon=20, candidates=300)),
)
SMALL: tuple[tuple[str, Config], ...] = (("icem", ICEM(candidates=8, elites=4, iterations=1, horizon=4)),)

PUSH_BUDGETS = {
    "smoke": Budget(
        PooledConfig(encoder=(8,), dynamics=(8,), persistent=3),
        TrainConfig(steps=20, pairs=12, warmup=5, checkpoint_every=10, log_every=5, precision="fp32"),
        (0,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.02,
        store=Built(PUSH_BANK.replace(systems={"train": 30, "validation": 10})),
        trials=PlannedTrials(2, seconds=1.0, planners=SMALL),
    ),
    "quick": Budget(
        PooledConfig(),
        TrainConfig(
            steps=6_000, pairs=64, learning_rate=2e-3, weight_decay=1e-4, warmup=200, checkpoint_every=1_000,
            precision="fp32",
        ),
        (0,), 1, None, "one seed; not in the paper", step_seconds=0.025,
        trials=PlannedTrials(20, seconds=60.0, planners=PLANNERS),
    ),
}  # fmt: skip

PUSH = PushSetting(
    "push",
    Built(PUSH_BANK),
    properties=("mass", "drag", "stiffness"),
    history=33,  # of 32 transitions
    anchors=(32, 40, 48, 53),
    budgets=PUSH_BUDGETS,
    arms=("structure", "align-cross", "supervised"),
)
