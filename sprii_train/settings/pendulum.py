"""Pendulum control: CaDM, trained online on what it collects by planning (`app:pendulum-profile`)."""

from pathlib import Path
from typing import Any, get_args

from sprii_envs.banks import Store
from sprii_train.control.assay_bank import PROPERTIES, assay_bank
from sprii_train.control.controllers import CEM, ICEM, Config
from sprii_train.control.loop import ControlRun, iterations_of, train_control
from sprii_train.control.training import ControlTraining
from sprii_train.distributed import world
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.recipes import CONTROL_RECIPES, Recipe
from sprii_train.records import Report
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, Trials, listed

CHEAP = ICEM(horizon=20)
"""64 candidates, 10 elites, 3 iterations: 3,300 model steps a step and episode instead of CEM's 30,000."""


BOTH = CEM(), CHEAP
"""Planners of an evaluation: as published, which statements are judged under, and cheap."""


class PendulumSetting(Setting):
    """A setting whose sources collect their own experience; its store is the log that all of them are probed on."""

    def train(
        self,
        store: Store,
        recipe: Recipe,
        config: CaDMConfig,
        train: ControlRun,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> CaDM:
        """CaDM after all iterations; nothing of the store is read. ValueError in a process group of several ranks."""
        if world() > 1:
            raise ValueError(f"the setting {self.name!r} trains a source in one process, not over {world()} ranks")
        return train_control(train, config, recipe, folder, progress)[0]

    def seconds(self, folder: Path, train: ControlRun) -> float:
        """Of collection and training."""
        return round(sum(i["collection_seconds"] + i["training_seconds"] for i in iterations_of(folder)), 1)

    def check_learner(self, store: Store, recipe: Recipe, config: CaDMConfig) -> None:
        """The loop takes CaDM alone, which is tested."""

    def law(self, train: ControlRun) -> dict[str, Any]:
        """Everything but the device."""
        return train.law()

    def code(self) -> tuple[Any, ...]:
        """The loop, and whatever plans in it."""
        return train_control, *get_args(Config), type(self).learner_config, type(self).train

    def facts(self, budget: Budget) -> dict[str, str]:
        """Budget, planner, learner and training."""
        run, trials, seeds = budget.train, budget.trials, ", ".join(map(str, budget.sources))
        assert trials is not None
        return {
            "Budget": f"iterations: {run.steps}, each of {run.episodes} episodes; seeds of sources: {seeds}; "
            f"evaluation: {trials.episodes} episodes a group and seed; {budget.note}",
            "Planner": f"collects: {run.controller!r}; evaluated: {', '.join(map(repr, trials.controllers))}",
            "Learner": listed(budget.learner),
            "Training": listed(run.training),
        }


TINY = CEM(candidates=8, elites=4, iterations=1, horizon=4), ICEM(candidates=8, elites=4, iterations=1, horizon=4)

PENDULUM_BUDGETS = {
    "smoke": Budget(
        CaDMConfig(encoder=(16, 16, 16), dynamics=(16, 16, 16, 16)),
        ControlRun(
            steps=2, episodes=2, cloned=True,  # so that there are pairs of one system
            controller=TINY[0], training=ControlTraining(epochs=1),
        ),
        (0,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.15,
        trials=Trials(2, seconds=0.6, controllers=TINY),
    ),
    # 30 episodes at a time, so that R7 draws all its 32 systems in half of the updates at least; with 10 it never does
    # before the 11th iteration.
    "quick": Budget(
        CaDMConfig(), ControlRun(steps=6, episodes=30, controller=CHEAP), (0, 1, 2), 1, 3_000,
        "6 iterations of 30 episodes in place of 20 of 10, collected by iCEM with 64 candidates, 10 elites, 3 "
        "iterations and 20 steps in place of CEM with 200, 50, 5 and 30", step_seconds=73.0,
        trials=Trials(10, seconds=710.0, controllers=BOTH),
    ),
    "paper": Budget(
        CaDMConfig(), ControlRun(), (0, 1, 2), 3, None, "the published protocol", step_seconds=155.0,
        trials=Trials(10, seconds=710.0, controllers=BOTH),
    ),
}  # fmt: skip

PENDULUM = PendulumSetting(
    "pendulum",
    assay_bank,
    properties=tuple(PROPERTIES.values()),
    history=11,  # of 10 transitions
    anchors=(10, 70, 130, 190),
    budgets=PENDULUM_BUDGETS,
    observation="observations",
    arms=tuple(CONTROL_RECIPES),
)
