"""What is refused of a setting of one's own before it costs anything: names, budgets, stores, learners' operations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_sources import TRAIN
from tiny_worlds import POKE_LEARNER, POKE_SMALL

from sprii_envs.banks import Bank
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.reproduce import Plan, reproduce
from sprii_train.experiments.targets import target
from sprii_train.learners import JEPA, FCRLConfig
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import POKE, SETTINGS, Budget, Built, register_setting

BUDGET = Budget(POKE_LEARNER, TRAIN, (0,), 1, 4, "three steps", route_steps=4)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (replace(POKE, name="x/y"), r"named 'x/y'; legal: letters, digits"),
        (replace(POKE, name=""), r"named ''; legal"),
        (replace(POKE, name="own", budgets={"mine": BUDGET}), r"the budget 'mine': .*legal: .*smoke, quick, states,"),
        (replace(POKE, name="own", budgets={"smoke": {"steps": 20}}), r"the budget 'smoke': \{'steps': 20\}; legal"),
        ("valves", r"register_setting got 'valves'; legal: a Setting"),
    ],
)  # fmt: skip
def test_registered_is_what_the_command_line_can_run(setting: Any, message: str):
    before = dict(SETTINGS)
    with pytest.raises(ValueError, match=message):
        register_setting(setting)
    assert before == SETTINGS


def test_a_store_function_returns_a_store(tmp_path):
    nothing: Any = lambda folder: None  # noqa: E731
    with pytest.raises(ValueError, match="the store function of the setting 'poke' returned None; legal: a Store"):
        replace(POKE, store=nothing).open_store(tmp_path)


def scalar(self: JEPA, prediction: Any, y: Any) -> Any:
    return (prediction - y).square().mean()


def by_coordinate(self: JEPA, prediction: Any, y: Any) -> Any:
    return (prediction - y).square()


def breaks(self: JEPA, prediction: Any, y: Any) -> Any:
    return {}["positio"]


@pytest.mark.parametrize(
    ("operation", "found", "raised", "message"),
    [
        ("encode_history", None, ValueError, "the setting 'poke': JEPA lacks the operation 'encode_history'"),
        ("task_loss", scalar, ValueError, r"task_loss must return one loss a recipient, \(4,\), got \(\)"),
        ("horizon_losses", by_coordinate, ValueError, r"horizon_losses must return a loss by horizon, \(4, K\)"),
        ("task_loss", breaks, KeyError, "positio"),
    ],
)
def test_operations_are_tried_before_anything_is_trained(
    poke_bank: Bank, operation: str, found: Callable | None, raised: type[Exception], message: str,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    loss = JEPA.horizon_losses if operation == "horizon_losses" else None
    monkeypatch.setattr(JEPA, operation, found)
    if loss is not None:
        monkeypatch.setattr(JEPA, "task_loss", lambda self, prediction, y: loss(self, prediction, y).mean(-1))
    state = torch.get_rng_state()
    with pytest.raises(raised, match=message) as told:
        POKE.check_learner(poke_bank, EVERY_RECIPE["align-cross"], POKE_LEARNER)
    assert torch.equal(torch.get_rng_state(), state)
    if raised is KeyError:
        assert "on the arm 'align-cross', raised in" in told.value.__notes__[0]
        assert __file__ in told.value.__notes__[0]


@pytest.mark.parametrize("arm", ["native", "supervised", "g2", "inferred", "align-random"])
def test_every_arm_can_be_tried_and_leaves_nothing(poke_bank: Bank, arm: str):
    state = torch.get_rng_state()
    POKE.check_learner(poke_bank, EVERY_RECIPE[arm], POKE_LEARNER)
    assert torch.equal(torch.get_rng_state(), state)


def test_reports_try_every_arm_first(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SETTINGS, "poke", replace(POKE, store=Built(POKE_SMALL), budgets={"quick": BUDGET}))
    monkeypatch.setattr(JEPA, "task_loss", scalar)
    with pytest.raises(ValueError, match="task_loss must return"):
        reproduce(Plan(target("tab:fidelity-full"), "quick", tmp_path), "it")
    assert not (tmp_path / "cells").exists()


def test_room_for_the_cases_of_a_measure(poke_bank: Bank):
    _, horizons = MEASURES["bottleneck"].windows or (0, ())
    episodes = np.unique(poke_bank.split("train")["system"], return_counts=True)[1][0]
    steps = int(poke_bank.split("train")["length"].min())
    room = steps - POKE.history - horizons[-1] + 1  # windows of an episode
    enough = episodes * max(1, room)
    if room > 0:
        POKE.check_windows(poke_bank, POKE_LEARNER, int(enough), horizons, "measure bottleneck")
    with pytest.raises(ValueError, match=r"measure bottleneck has case_count .* no room for .* 32 steps after them"):
        POKE.check_windows(poke_bank, POKE_LEARNER, int(enough + episodes), horizons, "measure bottleneck")


def test_an_objective_that_a_learner_refuses_is_refused_before_training(poke_bank: Bank):
    learner = FCRLConfig(observation_dim=8, history=POKE.history)
    with pytest.raises(ValueError, match=r"lambda_x is 0\.1, but FCRL predicts nothing"):
        replace(POKE, observation="states").check_learner(poke_bank, EVERY_RECIPE["align-cross"], learner)
