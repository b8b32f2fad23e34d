"""A GRU that is planned with: against torch's own recurrence, full re-encoding, and a world whose gain is hidden."""

import numpy as np
import pytest
import torch
from linear_world import PROPERTIES, collect, rollout
from torch import Tensor

from sprii_train.checkpoints import load, save
from sprii_train.control.agent import PlanningAgent, planning_policy
from sprii_train.control.controllers import CEM
from sprii_train.control.experience import Experience
from sprii_train.control.models import MODELS
from sprii_train.control.planning import rollout_score
from sprii_train.control.recurrent import RecurrentConfig, RecurrentModel, fit_recurrent
from sprii_train.learners.histories import History, append, empty_history, window_history

CONFIG = RecurrentConfig(observation_dim=3, action_dim=2, history=9, width=6, head_width=5)


def made() -> RecurrentModel:
    """Untrained, with statistics that are not the initial ones."""
    torch.manual_seed(0)
    model = RecurrentModel(CONFIG).eval()
    for name in ("observation", "action", "change"):
        model.get_buffer(name)[0].normal_()
        model.get_buffer(name)[1].uniform_(0.5, 2.0)
    return model


@torch.no_grad()
def test_a_carried_state_is_that_of_the_whole_history_read_again():
    """Three transitions seen and five imagined, under a cell of torch's that is given the same weights."""
    model, generator = made(), torch.Generator().manual_seed(1)
    observations, actions = torch.randn(2, 4, 3, generator=generator), torch.randn(2, 8, 2, generator=generator)
    context = model.context(window_history(observations, actions[:, :3], 9))
    state, course = model.state(observations[:, -1], context), list(observations.unbind(1))
    for t in range(3, 8):
        state = model.step(state, actions[:, t], context)
        course.append(model.observed(state))
        again = model.context(window_history(torch.stack(course, 1), actions[:, : t + 1], 9))
        torch.testing.assert_close(state[:, 3:], again)
    cell = torch.nn.GRUCell(5, 6)
    for name, value in model.network.named_parameters():
        getattr(cell, name.removesuffix("_l0")).copy_(value)
    (o_mean, o_sd), (a_mean, a_sd), (mean, sd) = (model.get_buffer(x) for x in ("observation", "action", "change"))
    hidden = torch.zeros(2, 6)
    for t in range(8):
        hidden = cell(torch.cat([(course[t] - o_mean) / o_sd, (actions[:, t] - a_mean) / a_sd], 1), hidden)
        if t >= 3:
            torch.testing.assert_close(course[t + 1], course[t] + mean + sd * model.head(hidden))
    torch.testing.assert_close(state[:, 3:], hidden)
    trained = model.changes(torch.stack(course[:-1], 1), actions)  # what training compares with the data
    torch.testing.assert_close(trained[:, -1], (course[8] - course[7] - mean) / sd, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_batched_is_single():
    """Contexts of episodes of different ages, and returns of all candidates."""
    model = made()
    ages = (0, 4, 9)
    histories = [window_history(torch.randn(1, n + 1, 3), torch.randn(1, n, 2), 9) for n in ages]
    together = History(*(torch.cat(slots) for slots in zip(*histories, strict=True)))
    contexts = model.context(together)
    torch.testing.assert_close(contexts, torch.cat([model.context(each) for each in histories]))
    assert not contexts[0].any()
    assert contexts[1:].any()
    observations, plans = torch.randn(3, 3), torch.randn(3, 4, 5, 2)

    def reward(state: Tensor, action: Tensor, after: Tensor) -> Tensor:
        return model.observed(after).sum(1) - action.square().sum(1)

    found = rollout_score(model.step, reward, model.state(observations, contexts), contexts)(plans)
    for e in range(3):
        for n in range(4):
            state, total = model.state(observations[e : e + 1], contexts[e : e + 1]), 0.0
            for action in plans[e, n]:
                state = model.step(state, action[None], contexts[e : e + 1])
                total += float(state[0, :3].sum() - action.square().sum())
            assert found[e, n].item() == pytest.approx(total, rel=1e-4, abs=1e-4)


def test_a_reward_of_observations_gets_observations():
    model, shapes = made(), set()

    def reward(observation: Tensor, action: Tensor, after: Tensor | None) -> Tensor:
        shapes.add((observation.shape[1], action.shape[1], None if after is None else after.shape[1]))
        return -observation.square().sum(1)

    bounds = -torch.ones(2), torch.ones(2)
    for reads_next in (True, False):
        policy = planning_policy(model, reward, bounds, CEM(4, 2, 1, 2), 2, seed=0, reads_next=reads_next)
        assert policy(np.zeros((2, 3), np.float32)).shape == (2, 2)
    assert shapes == {(3, 2, 3), (3, 2, None)}


def hidden(number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain and drift of systems of `linear_world`, by number."""
    return 0.5 + (number * 7 % 11) / 10, 0.2 + (number * 3 % 13) / 12


def pushed(number: np.ndarray) -> Experience:
    """An episode of each system, under any actions in ±1."""
    rng, store = np.random.default_rng(len(number)), Experience(2, 1, PROPERTIES)
    actions = rng.uniform(-1, 1, (len(number), 12, 1)).astype(np.float32)
    states = rollout(rng.normal(size=(len(number), 2)), actions, *hidden(number))
    store.add(states, actions, [f"system-{i}" for i in number], np.stack(hidden(number), 1))
    return store


@pytest.fixture(scope="module")
def fitted() -> tuple[RecurrentModel, float]:
    """On systems 0 to 29, whose gain and drift are hidden."""
    torch.manual_seed(0)
    model = RecurrentModel(RecurrentConfig(observation_dim=2, action_dim=1, history=8, width=32, head_width=32))
    error = fit_recurrent(model, pushed(np.arange(240) % 30), steps=400, batch=64, learning_rate=1e-2)
    return model.eval(), error


def test_what_is_hidden_is_read_off_the_history(fitted):
    """On systems that were not trained on: without a history the error is the variance of what is hidden."""
    model, error = fitted
    assert error < 0.2
    before, action, after = (torch.from_numpy(x).view(20, 12, -1) for x in pushed(np.arange(60, 80)).transitions())
    with torch.no_grad():
        found = model.changes(before[:, :8], action[:, :8])
    mean, sd = model.get_buffer("change")
    errors = (found - ((after - before)[:, :8] - mean) / sd).square().mean((0, 2))
    assert errors[0] > 0.1
    assert errors[3:].mean() < errors[0] / 3


def test_a_saved_model_plans_as_before(tmp_path):
    model = made()
    save(model, tmp_path / "model", also=MODELS)
    again = load(tmp_path / "model", also=MODELS)
    acted = []
    for each in (model, again):
        agent = PlanningAgent(
            each, CEM(8, 2, 1, 3), lambda o, a, n: -n.square().sum(1), bounds=(-torch.ones(2), torch.ones(2))
        )
        agent.check_sizes(3, 2)
        agent.reset(2)
        acted.append([agent.act(np.full((2, 3), t, np.float32)) for t in (0.0, 0.5, 1.0)])
    np.testing.assert_array_equal(*acted)


def test_experience_that_is_too_short_is_refused():
    store: Experience = collect([1, 2], steps=5)
    model = RecurrentModel(RecurrentConfig(observation_dim=2, action_dim=1, history=8))
    with pytest.raises(ValueError, match="2 episodes have fewer than 8 transitions"):
        fit_recurrent(model, store, steps=1)
    running = append(empty_history(1, 8, 2, 1), *(torch.ones(1, n) for n in (2, 1, 2)))
    assert model.context(running).shape == (1, 96)
