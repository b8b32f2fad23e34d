"""The supervised split: sizes, its loss by hand, increments as a bank's states have them, and SpringWorld's arm."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from controlled_windows import Carts
from tiny_worlds import SPRING_LEARNER

from sprii_envs.banks import Bank
from sprii_train.increments import IncrementReader
from sprii_train.learners import JEPAConfig, Regression, RegressionConfig
from sprii_train.protocol import Objective, check_learner, encode, training_loss
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import SPRING

STATES = RegressionConfig(
    observation_dim=1, action_dim=1, state_dim=1, history=9, horizons=(1, 4), embedding=16, persistent=6, current=4,
    width=16, layers=1, heads=2, head_width=16, observation_width=16, predictor_width=16, dropout=0.0,
)  # fmt: skip


def carts(seed: int, step: int, pairs: int = 24):
    windows = Carts(seed)(step, pairs)
    return windows._replace(labels=(windows.future_observations - windows.observations[:, -1:]).flatten(1))


def test_its_size_is_the_jepas_but_for_eight_outputs() -> None:
    with torch.device("meta"):
        learner = Regression(RegressionConfig.like(JEPAConfig(image=128, history=96, norm="snapshot")))
    assert sum(p.numel() for p in learner.parameters()) == 4_525_632 - (256 + 1) * 128 + (256 + 1) * 8


def test_the_loss_is_of_standardised_increments() -> None:
    torch.manual_seed(0)
    learner, windows = Regression(STATES), carts(0, 0)
    with pytest.raises(ValueError, match="Regression has taken no statistics"):
        learner.prepare(windows)
    learner.fit_statistics(windows)
    check_learner(learner, windows)
    batch = learner.eval().prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    states = np.asarray(windows.observations[:, -1:].double())
    increments = np.asarray(windows.future_observations.double()) - states
    y = (increments - increments.mean(0)) / increments.std(0)
    found = learner.predict(codes.z_s, codes.z_p, batch.u).detach().double().numpy()
    assert found.shape == (48, 2, 1)
    assert loss.item() == pytest.approx(((found - y) ** 2).mean(), rel=1e-5)
    assert set(parts) == {"self", "target_variance"}
    assert parts["target_variance"].item() == pytest.approx(48 / 47, rel=1e-4)
    future = windows._replace(future_observations=1e3 + windows.future_observations)
    torch.testing.assert_close(learner.prepare(future).history[0], batch.history[0])  # what comes after is not read
    with pytest.raises(ValueError, match=r"windows have labels \(3,\); legal: increments of 1 coordinates at 2"):
        learner.prepare(windows._replace(labels=torch.zeros(48, 3)))


def test_its_error_on_other_carts_falls_below_that_of_the_mean_change() -> None:
    torch.manual_seed(0)
    learner = Regression(STATES)
    learner.fit_statistics(carts(3, 0, 200))
    steps = torch.optim.AdamW(learner.parameters(), 3e-3)
    for step in range(150):
        loss, _ = training_loss(learner.train(), carts(1, step), Objective())
        steps.zero_grad()
        loss.backward()
        steps.step()
    loss, parts = training_loss(learner.eval(), carts(2, 0, 200), Objective())
    assert loss.item() < 0.5 * parts["target_variance"].item()


def test_springworlds_arm_reads_increments_of_its_states(spring_bank: Bank) -> None:
    config = RegressionConfig.like(SPRING_LEARNER)
    reader = SPRING.reader(spring_bank, config)
    assert isinstance(reader, IncrementReader)
    table = SPRING.episodes(spring_bank, "train")
    episodes, starts = table["episode"][:3], np.array([0, 1, 2])
    labels = reader.read(episodes, starts).labels
    assert labels is not None
    for episode, start, row in zip(episodes, starts, labels.numpy(), strict=True):
        length = start + reader.history + reader.horizons[-1]
        states = spring_bank.windows("states", np.array([episode]), np.array([0]), length)[0]
        now = states[start + reader.history - 1]
        expected = [states[start + reader.history - 1 + h] - now for h in reader.horizons]
        np.testing.assert_allclose(row, np.concatenate(expected), rtol=1e-4, atol=1e-6)
    assert reader.histories(episodes, starts).labels is None


def test_every_budget_has_it_with_the_networks_of_its_own_learner() -> None:
    assert EVERY_RECIPE["supervised-split"].objective == Objective()
    for budget in SPRING.budgets.values():
        other = budget.others["supervised-split"]
        assert (other.learner, other.train) == (RegressionConfig.like(budget.learner), budget.train)
    with pytest.raises(ValueError, match=r"RegressionConfig\.context is 'supervised'; legal: split, monolithic"):
        replace(STATES, context="supervised")
    with pytest.raises(ValueError, match=r"RegressionConfig\.state_dim is 0; legal: an integer >= 1"):
        replace(STATES, state_dim=0)
