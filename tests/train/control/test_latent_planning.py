"""Planning in embeddings: against the learner called by hand, and against the optimum of a linear latent."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_envs.banks import ArrayStore
from sprii_envs.relations import EpisodeTable
from sprii_train.checkpoints import load, save
from sprii_train.control.agent import PlanningAgent, planning_policy
from sprii_train.control.controllers import CEM
from sprii_train.control.experience import Experience
from sprii_train.control.latent import (
    LatentConfig,
    LatentModel,
    ShortHistories,
    fit_reward,
    fit_transition,
    goal_reward,
    one_step,
)
from sprii_train.control.models import MODELS
from sprii_train.control.planning import rollout_score
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.learners import JEPAConfig
from sprii_train.learners.histories import History, append, empty_history
from sprii_train.protocol import check_learner

CONFIG = JEPAConfig(
    observation_dim=3, action_dim=2, history=5, horizons=(1, 3), embedding=8, persistent=4, current=6, width=8,
    layers=1, heads=2, head_width=8, observation_width=8, predictor_width=8, action_feature=4, horizon_feature=3,
    sigreg_slices=4,
)  # fmt: skip


def made(seed: int = 0) -> LatentModel:
    """Untrained, in evaluation mode, with statistics and a prior that are not the initial ones."""
    torch.manual_seed(seed)
    model = LatentModel(LatentConfig(CONFIG, head_width=8)).eval()
    model.learner.encoder_norm.get_buffer("running_mean").normal_(std=0.1)
    model.get_buffer("prior").normal_()
    model.get_buffer("paid").copy_(torch.tensor([-3.0, 2.0]))
    return model


def running(observations: Tensor, actions: Tensor, slots: int) -> History:
    """Histories of episodes (B, T + 1, S), (B, T, A), one transition after another."""
    history = empty_history(len(actions), slots, observations.shape[2], actions.shape[2])
    for t in range(actions.shape[1]):
        history = append(history, observations[:, t], actions[:, t], observations[:, t + 1])
    return history


@torch.no_grad()
def test_one_step_is_what_the_learner_predicts_at_horizon_1():
    learner, (z_s, z_p, u) = made().learner, (torch.randn(7, 6), torch.randn(7, 4), torch.randn(7, 3, 2))
    predicted = learner.predict(z_s, z_p, u)
    torch.testing.assert_close(one_step(learner, z_s, z_p, u[:, 0]), predicted[:, 0])
    assert (one_step(learner, z_s, z_p, u[:, 0]) - predicted[:, 1]).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("seen", [1, 3, 4, 6])
def test_a_plan_is_the_learners_calls_one_by_one(seen: int):
    """Two episodes × three candidates in one program, against single rows: windows cut by hand, predictions chained."""
    model, generator = made(), torch.Generator().manual_seed(seen)
    observations, actions = (
        torch.randn(2, seen + 1, 3, generator=generator),
        torch.randn(2, seen, 2, generator=generator),
    )
    plans = torch.randn(2, 3, 4, 2, generator=generator)
    context = model.context(running(observations, actions, model.history))
    score = rollout_score(model.step, model.reward, model.state(observations[:, -1], context), context)
    learner, found = model.learner, score(plans)
    for e in range(2):
        embedded = learner.target(observations[e, -5:])
        z_p = learner.encode_history((embedded[None], actions[e : e + 1, -4:]))
        torch.testing.assert_close(context[e : e + 1], z_p)
        for n in range(3):
            embedding, total = learner.target(observations[e, -1:]), torch.zeros(1)
            for action in plans[e, n]:
                total = total - 3.0 + 2.0 * model.head(torch.cat([embedding[0], action]))
                u = torch.stack([action, torch.full((2,), 9.0), torch.full((2,), -9.0)])
                embedding = learner.predict(learner.encode_current(embedding), z_p, u[None])[:, 0]
            torch.testing.assert_close(found[e, n], total[0], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_contexts_of_episodes_of_different_ages_are_those_of_each_alone():
    """Beginners have the prior, and nothing in empty slots is read."""
    model = made()
    histories = [running(torch.randn(1, n + 1, 3), torch.randn(1, n, 2), 4) for n in (0, 2, 4)]
    together = History(*(torch.cat(slots) for slots in zip(*histories, strict=True)))
    contexts = model.context(together)
    torch.testing.assert_close(contexts, torch.cat([model.context(each) for each in histories]))
    assert torch.equal(contexts[0], model.get_buffer("prior"))
    beyond = ~together.mask[..., None]
    littered = together._replace(
        observations=together.observations + 5.0 * beyond, after=together.after + 5.0 * beyond,
        actions=together.actions + 5.0 * beyond,
    )  # fmt: skip
    torch.testing.assert_close(model.context(littered)[1:], contexts[1:])


def test_the_head_learns_rewards_and_the_learner_stays():
    model, rng = made(), torch.Generator().manual_seed(0)
    before = {name: value.clone() for name, value in model.learner.state_dict().items()}
    observations, actions = torch.randn(600, 3, generator=rng), torch.randn(600, 2, generator=rng)
    rewards = 100.0 * observations[:, 0] - 20.0 * actions[:, 1].square()
    error = fit_reward(model, observations, actions, rewards, steps=400, batch=128, learning_rate=1e-2)
    with torch.no_grad():
        context = torch.zeros(600, 4)
        found = model.reward(model.state(observations, context), actions)
        each = [model.state(o[None], context[:1])[None] for o in observations]
        alone = [model.learner.encode_history((e, torch.zeros(1, 0, 2))) for e in each]
    assert error == pytest.approx(float((found - rewards).square().mean() / rewards.var(correction=0)), rel=1e-4)
    assert error < 0.2
    torch.testing.assert_close(model.get_buffer("prior"), torch.cat(alone).mean(0))
    assert all(torch.equal(value, before[name]) for name, value in model.learner.state_dict().items())


def drifting(seed: int, episodes: int = 24, steps: int = 14) -> Experience:
    """o' = 0.9 o + G a."""
    rng, gain = np.random.default_rng(seed), np.array([[0.5, 0.0, 0.3], [0.0, -0.4, 0.2]])
    done = rng.normal(size=(episodes, steps, 2))
    seen = [rng.normal(size=(episodes, 3))]
    for t in range(steps):
        seen.append(0.9 * seen[-1] + done[:, t] @ gain)
    found = Experience(3, 2, ("mass",))
    found.add(np.stack(seen, 1), done, [f"s{i}" for i in range(episodes)], np.arange(episodes, dtype=float)[:, None])
    return found


def test_the_transition_learns_chains_and_the_learner_stays():
    """Five steps ahead in new episodes: nearer the truth than where the chain began, and than the predictor's."""
    torch.manual_seed(0)
    learner = made().learner
    model = LatentModel(LatentConfig(CONFIG, head_width=8, transition_width=32), learner).eval()
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    loss = fit_transition(model, drifting(0), steps=300, horizon=5, batch=32, learning_rate=5e-3)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    fresh = drifting(1)
    seen, done = (torch.from_numpy(x) for x in fresh.windows(np.arange(24), np.zeros(24, np.int64), 10))
    with torch.no_grad():
        truth, codes = learner.target(seen[:, 9]), model.context(running(seen[:, :5], done[:, :4], 4))
        own = other = start = learner.target(seen[:, 4])
        for action in done[:, 4:].unbind(1):
            own = model.step(own, action, codes)
            other = one_step(learner, learner.encode_current(other), codes, action)
        errors = [float((each - truth).square().mean()) for each in (own, other, start)]
    assert errors[0] < 0.3 * min(errors[1:])
    assert 0.0 < loss < 0.3


@torch.no_grad()
def test_an_unfitted_transition_adds_its_change():
    model = LatentModel(LatentConfig(CONFIG, transition_width=8), made().learner).eval()
    model.get_buffer("change").copy_(torch.stack([torch.arange(8.0), torch.full((8,), 2.0)]))
    e, a, c = torch.randn(5, 8), torch.randn(5, 2), torch.randn(5, 4)
    assert model.transition is not None
    torch.testing.assert_close(
        model.step(e, a, c), e + torch.arange(8.0) + 2.0 * model.transition(torch.cat([e, c, a], 1))
    )


def test_chains_need_a_transition_and_long_episodes():
    with pytest.raises(ValueError, match="transition_width is 0; legal for fit_transition"):
        fit_transition(made(), drifting(0))
    model = LatentModel(LatentConfig(CONFIG, transition_width=8), made().learner)
    with pytest.raises(ValueError, match="24 episodes have fewer than 20 transitions, a history and a chain"):
        fit_transition(model, drifting(0))


def test_a_goal_is_reached_at_its_own_embedding():
    model, goal = made(), torch.tensor([1.0, 0.0, -1.0])
    reward = goal_reward(model, goal)
    with torch.no_grad():
        states = model.learner.target(torch.stack([goal, goal + 1.0]))
        found = reward(states, torch.zeros(2, 2), None)
    assert found[0].item() == pytest.approx(0.0, abs=1e-10)
    assert found[1].item() == pytest.approx(-(states[1] - states[0]).square().mean().item(), rel=1e-4)


@dataclass
class LinearLatent:
    """z' = F z + g·c a of z = M o, o = z's first two numbers; c is read off the last transition, exactly."""

    lift: Tensor  # M, (3, 2)
    free: Tensor  # F, (3, 3)
    gain: Tensor  # g, (3,)
    cost: float
    history: int = 2

    def state(self, observation: Tensor, context: Tensor) -> Tensor:
        return observation @ self.lift.T

    def step(self, state: Tensor, action: Tensor, context: Tensor) -> Tensor:
        return state @ self.free.T + context * action * self.gain

    def context(self, history: History) -> Tensor:
        """c, of what the last action added to the second coordinate; 1 before there is any."""
        rows, last = torch.arange(len(history.filled)), (history.filled - 1).clamp_min(0)
        before, action, after = (each[rows, last] for each in history[:3])
        added = (after - (before @ self.lift.T) @ self.free.T[:, :2])[:, 1:2]
        known = torch.where(action.abs() > 1e-6, added / (self.gain[1] * action), torch.ones(()))
        return torch.where((history.filled > 0)[:, None], known, 1.0)

    def reward(self, state: Tensor, action: Tensor, after: Tensor) -> Tensor:
        return -after.square().sum(1) - self.cost * action.square().sum(1)


def lqr(free: np.ndarray, gain: np.ndarray, cost: float, horizon: int) -> np.ndarray:
    """First gain of the finite-horizon regulator of Σ |z_{t+1}|² + cost·a²: a = −k z."""
    value = np.zeros_like(free)
    k = np.zeros((1, len(free)))
    for _ in range(horizon):
        q = value + np.eye(len(free))
        k = (gain @ q @ free)[None] / (cost + gain @ q @ gain)
        closed = free - np.outer(gain, k)
        value = closed.T @ q @ closed + cost * k.T @ k
    return k


def test_planning_in_a_linear_latent_is_the_linear_regulator():
    """Four systems whose gains are inferred from one step; actions of CEM against Riccati's."""
    lift = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -0.3]])
    free = torch.tensor([[1.0, 0.2, 0.0], [-0.1, 0.9, 0.1], [0.0, 0.0, 0.5]])
    gain = torch.tensor([0.0, 1.0, 0.2])
    gains = np.array([0.5, 1.0, 2.0, -1.5])
    model, horizon = LinearLatent(lift, free, gain, cost=0.5), 4
    controller = CEM(candidates=400, elites=40, iterations=25, horizon=horizon)
    bounds = torch.tensor([-4.0]), torch.tensor([4.0])
    policy = planning_policy(model, None, bounds, controller, 4, seed=0)
    o = np.tile(np.array([[1.0, -0.5]], np.float32), (4, 1))
    first = policy(o)[:, 0]
    z = o @ lift.numpy().T
    np.testing.assert_allclose(first, -(z @ lqr(free.numpy(), gain.numpy(), 0.5, horizon).T)[:, 0], atol=0.03)
    o = (z @ free.numpy().T + (gains * first)[:, None] * gain.numpy())[:, :2].astype(np.float32)
    second, z = policy(o)[:, 0], o @ lift.numpy().T
    for e, c in enumerate(gains):
        best = -(lqr(free.numpy(), c * gain.numpy(), 0.5, horizon) @ z[e])[0]
        assert second[e] == pytest.approx(best, abs=0.03)
        assert np.sign(second[e]) == np.sign(best)


def test_a_saved_model_plans_as_before(tmp_path):
    model = made()
    save(model, tmp_path / "model", also=MODELS)
    again = load(tmp_path / "model", also=MODELS)
    acted = []
    for each in (model, again):
        agent = PlanningAgent(
            each, CEM(candidates=8, elites=2, iterations=1, horizon=3), bounds=(-torch.ones(2), torch.ones(2))
        )
        agent.check_sizes(3, 2)
        agent.reset(2)
        acted.append([agent.act(np.full((2, 3), t, np.float32)) for t in (0.0, 0.5, 1.0)])
    np.testing.assert_array_equal(*acted)
    assert again.config == model.config
    with pytest.raises(ValueError, match="LatentModel is not a registered learner"):
        save(model, tmp_path / "other")


def test_short_histories_are_the_ends_of_whole_ones():
    rng = np.random.default_rng(0)
    table = EpisodeTable({"episode": range(8), "system": [f"s{i // 2}" for i in range(8)], "length": [20] * 8})
    store = ArrayStore(table, {"states": rng.normal(size=(8, 20, 3)), "actions": rng.normal(size=(8, 19, 2))})
    whole = PairedWindows(WindowReader(store, 5, (1, 3)), pairs=3)
    short, lengths = ShortHistories(whole), set()
    for step in range(40):
        found, full = short(step), whole(step)
        n = found.observations.shape[1]
        lengths.add(n)
        assert torch.equal(found.observations, full.observations[:, 5 - n :])
        assert torch.equal(found.actions, full.actions[:, full.actions.shape[1] - n + 1 :])
        assert torch.equal(found.future_actions, full.future_actions)
    assert lengths == {1, 2, 3, 4, 5}
    assert torch.equal(short(7).observations, short(7).observations)
    assert short.identity() != whole.identity()
    check_learner(made().learner, short(0))


@pytest.mark.parametrize("wrong", [{"context": "monolithic"}, {"horizons": (2, 3)}, {"image": 16}])
def test_learners_whose_predictions_cannot_be_chained_are_refused(wrong):
    with pytest.raises(ValueError, match="1 among the horizons"):
        LatentConfig(replace(CONFIG, **wrong))
    with pytest.raises(ValueError, match="head_width is 0"):
        LatentConfig(CONFIG, head_width=0)
    assert LatentConfig(asdict(CONFIG)).jepa == CONFIG  # type: ignore[arg-type]
