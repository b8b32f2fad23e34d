"""Learners beside a setting's own, each at the same budget: what `Budget.others` holds."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from sprii_train.learners.cpc import CPCConfig
from sprii_train.learners.fcrl import TemporalFCRLConfig
from sprii_train.learners.regression import RegressionConfig
from sprii_train.learners.rssm import RSSMConfig
from sprii_train.learners.supervised import SupervisedJEPAConfig
from sprii_train.learners.tds import TDSConfig
from sprii_train.settings.base import Budget, Other

Make = Callable[[str, Budget], Mapping[str, Other]]

STATE_SIZES = range(5)
VISUAL_SIZES = range(7)
"""d of TDS that is selected from (`app:tds-dclean`, `app:tds-spring`)."""

ROLLOUT = 0.03
"""Seconds that two recurrent chains of 16 steps add to an update."""


def with_others(budgets: Mapping[str, Budget], *makes: Make) -> dict[str, Budget]:
    """Budgets with other learners: each make is given a preset and its budget."""
    found = dict(budgets)
    for make in makes:
        found = {name: replace(one, others={**one.others, **make(name, one)}) for name, one in found.items()}
    return found


def tds_of_states(preset: str, budget: Budget) -> dict[str, Other]:
    """`tds-D`: state-space TDS with the networks and the updates of the budget's JEPA, codes of every size."""
    return {
        f"tds-{d}": Other(TDSConfig.like(budget.learner, d, "increments"), budget.train, budget.step_seconds)
        for d in STATE_SIZES
    }


def tds_of_frames(preset: str, budget: Budget) -> dict[str, Other]:
    """`tds` and `tds-D`: visual TDS likewise, as wide as the JEPA's code and compact."""
    sizes = {"tds": budget.learner.persistent} | {f"tds-{d}": d for d in VISUAL_SIZES}
    return {
        name: Other(TDSConfig.like(budget.learner, d, "embedding"), budget.train, budget.step_seconds)
        for name, d in sizes.items()
    }


def temporal_fcrl(preset: str, budget: Budget) -> dict[str, Other]:
    """`fcrl`: contrastive learning of functions with the stem, history encoder and updates of the budget's JEPA."""
    return {"fcrl": Other(TemporalFCRLConfig.like(budget.learner), budget.train, budget.step_seconds)}


def latent_losses(preset: str, budget: Budget) -> dict[str, Other]:
    """`cpc` and `rssm`, with the networks and the updates of the budget's JEPA."""
    rolled = None if budget.step_seconds is None else budget.step_seconds + ROLLOUT
    return {
        "cpc": Other(CPCConfig.like(budget.learner), budget.train, budget.step_seconds),
        "rssm": Other(RSSMConfig.like(budget.learner), budget.train, rolled),
    }


def told_drag(preset: str, budget: Budget) -> dict[str, Other]:
    """`supervised-drag`: the budget's JEPA, whose code is told the drag too, with its updates."""
    return {"supervised-drag": Other(SupervisedJEPAConfig.like(budget.learner), budget.train, budget.step_seconds)}


def told_increments(preset: str, budget: Budget) -> dict[str, Other]:
    """`supervised-split`: the budget's JEPA, told true increments of the state in place of embeddings."""
    return {"supervised-split": Other(RegressionConfig.like(budget.learner), budget.train, budget.step_seconds)}
