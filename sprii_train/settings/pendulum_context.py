"""Pendulums whose context is to be inferred, from a log of ID episodes: what a planner's model knows of its system."""

from typing import Any, cast

from sprii_envs.banks import Store
from sprii_train.control.assay_bank import PROPERTIES, assay_bank
from sprii_train.control.controllers import CONTROLLERS, ICEM, MPPI, Config
from sprii_train.data import WindowReader
from sprii_train.fit import TrainConfig
from sprii_train.learners.cadm import CaDMConfig
from sprii_train.learners.contextual import ContextualConfig
from sprii_train.settings.base import SMOKE_NOTE, Budget, Other, Setting, listed
from sprii_train.settings.trials import PlannedTrials


class PendulumContext(Setting):
    """Logged episodes of ID systems; a model that is told what persists reads it as labels."""

    def reader(self, store: Store, config: Any) -> WindowReader:
        """See `Setting`."""
        if getattr(config, "contexts", None) != "labelled":
            return super().reader(store, config)
        return WindowReader(
            store, self.history, config.horizons, self.properties, observation=self.observation, action=self.action
        )

    def facts(self, budget: Budget) -> dict[str, str]:
        """See `Setting`; and the planners."""
        trials = cast(PlannedTrials, budget.trials)
        return super().facts(budget) | {
            "Evaluation": f"{trials.episodes} episodes a group and seed",
            "Planners": "; ".join(f"{name}: {listed(controller)}" for name, controller in trials.planners),
        }


def _budget(
    cadm: CaDMConfig, hidden: tuple[int, ...], train: TrainConfig, sources: tuple[int, ...], trials: PlannedTrials,
    note: str, step_seconds: float, *, judged: bool = True,
) -> Budget:  # fmt: skip
    others = {
        "cadm": Other(cadm, train, step_seconds),
        "labelled": Other(ContextualConfig(contexts="labelled", context=2, hidden=hidden), train, step_seconds),
        "encoded": Other(
            ContextualConfig(contexts="encoded", context=3, hidden=hidden, encoder=hidden), train, step_seconds
        ),
        "fitted": Other(ContextualConfig(contexts="fitted", context=3, hidden=hidden), train, step_seconds),
    }
    return Budget(
        cadm, train, sources, 1, 3_000 if judged else 20, note, judged=judged, step_seconds=step_seconds, trials=trials,
        others=others,
    )  # fmt: skip


_SMALL = CaDMConfig(context=3, encoder=(64, 64), dynamics=(64, 64), encoder_decay=(0.0,) * 3, dynamics_decay=(0.0,) * 3)
_TRAIN = TrainConfig(
    steps=3_000, pairs=32, learning_rate=3e-3, weight_decay=1e-5, warmup=300, precision="fp32", checkpoint_every=3_000
)
_PLANNERS: tuple[tuple[str, Config], ...] = (("icem", ICEM(horizon=20)), ("mppi", MPPI(candidates=300, horizon=20)))

PENDULUM_CONTEXT = PendulumContext(
    "pendulum-context",
    assay_bank,
    properties=tuple(PROPERTIES.values()),
    history=11,  # of 10 transitions
    anchors=(10, 70, 130, 180),
    observation="observations",
    budgets={
        "smoke": _budget(
            CaDMConfig(context=2, encoder=(16,), dynamics=(16,), encoder_decay=(0.0,) * 2, dynamics_decay=(0.0,) * 2),
            (16,), TrainConfig(steps=20, pairs=8, warmup=2, precision="fp32"), (0,),
            PlannedTrials(
                2, seconds=2.0, histories=64,
                planners=(
                    ("icem", ICEM(candidates=6, elites=3, iterations=1, horizon=3)),
                    ("mppi", MPPI(candidates=6, horizon=3)),
                ),
            ),
            SMOKE_NOTE, 0.01, judged=False,
        ),
        "quick": _budget(
            _SMALL, (64, 64), _TRAIN, (0, 1, 2), PlannedTrials(10, seconds=50.0, planners=_PLANNERS),
            "networks of two layers of 64, trained on the log of 81 ID systems; not the paper's", 0.008,
        ),
        "paper": _budget(
            CaDMConfig(), (200, 200, 200, 200), TrainConfig(steps=20_000, pairs=48, precision="fp32"), (0, 1, 2),
            PlannedTrials(30, seconds=3_600.0, planners=(*_PLANNERS, ("cem", CONTROLLERS["cem"]))),
            "networks as large as CaDM's published ones, and its published planner besides; not the paper's", 0.06,
        ),
    },
)  # fmt: skip
"""The log is the one that checkpoints of `pendulum` are probed on (`app:pendulum-control`)."""
