"""Learners beside a setting's own: which budget an arm has, and what training makes of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sprii_envs.banks import D_CLEAN as PROTOCOL
from sprii_envs.banks import build
from sprii_train.experiments.groups import Scope
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.protocol import Objective, Windows
from sprii_train.recipes import Compared, Recipe
from sprii_train.settings import named_setting
from sprii_train.settings.base import Budget, Other

SMALL = JEPAConfig(width=8, layers=1, heads=2, persistent=3, sigreg_slices=4)
TRAIN = TrainConfig(steps=4, pairs=2, warmup=0)
BUDGET = replace(named_setting("d-clean").budget("smoke"), others={"small": Other(SMALL, replace(TRAIN, steps=7), 0.5)})
ARM = Compared("small", "Small", Objective(), learner="small")


def test_an_arm_of_another_learner_has_that_learners_budget() -> None:
    own = BUDGET.of(ARM)
    assert (own.learner, own.train.steps, own.step_seconds) == (SMALL, 7, 0.5)
    assert own.sources == BUDGET.sources
    assert BUDGET.of(Recipe("any", "Any", Objective())) is BUDGET


def test_a_change_of_training_reaches_every_learner() -> None:
    changed = BUDGET.trained(steps=3, device="meta")
    assert {own.train.steps for own in (changed, changed.of(ARM))} == {3}
    assert {own.train.device for own in (changed, changed.of(ARM))} == {"meta"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: BUDGET.of(replace(ARM, learner="smal")),
            r"the arm 'small' asks for the learner 'smal', which .* legal: small",
        ),
        (lambda: Compared("a", "A", Objective()), r"Compared\.learner is ''"),
        (lambda: Other(SMALL, 3), r"Other\.train is 3, which has no steps"),
        (lambda: Budget(SMALL, 3, (0,), 1, 1, ""), r"Budget\.train is 3, which has no steps"),
    ],
)
def test_what_is_refused(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


class Told(JEPA):
    """A learner that asks how windows are distributed."""

    def fit_statistics(self, windows: Windows) -> None:
        self.register_buffer("seen", torch.stack([windows.observations.mean((0, 1)), windows.observations.std((0, 1))]))


def test_a_learner_that_asks_is_told_of_training_systems(tmp_path, monkeypatch) -> None:
    setting = named_setting("d-clean")
    bank = build(PROTOCOL.replace(systems={"train": 40, "validation": 4, "test": 4}), tmp_path / "bank")
    monkeypatch.setattr("sprii_train.settings.base.learner_of", lambda config: ("told", Told))
    found = setting.fresh(bank, SMALL)
    rows = bank.split("train")["episode"]
    states = bank.windows("states", rows, np.zeros(len(rows), int), 64)
    # Windows lie anywhere in the episodes of all systems: moments of 80 of them against those of everything.
    np.testing.assert_allclose(found.seen[1], states.std((0, 1)), rtol=0.3)
    assert torch.equal(found.seen, setting.fresh(bank, SMALL).seen)


def test_cells_of_an_arm_have_its_learner(monkeypatch) -> None:
    from sprii_train.experiments import groups

    monkeypatch.setitem(groups.EVERY_RECIPE, "small", ARM)

    class Named:
        name, fingerprint = "folder", "f"

    scope = Scope(named_setting("d-clean"), BUDGET, ("small", "structure"), Named())  # type: ignore[arg-type]
    cells = groups.Group("d-clean", ("small", "structure")).cells(scope)
    assert [(cell.learner, cell.train.steps) for cell in cells] == [(SMALL, 7), (BUDGET.learner, BUDGET.train.steps)]
