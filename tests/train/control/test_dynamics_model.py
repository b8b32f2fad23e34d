"""What a planner gives a model: observations and actions of its history, a state of its own, a reward of its own."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_train.control import pendulum
from sprii_train.control.agent import PlanningAgent, planning_policy
from sprii_train.control.controllers import CEM, initial, plan
from sprii_train.control.pendulum_agents import ENV_ID, KnownModel, learned
from sprii_train.control.planning import rollout_score
from sprii_train.evaluation import evaluate_agent
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.histories import History, append, empty_history, window_history

SMALL = CEM(candidates=8, elites=4, iterations=2, horizon=5)


def test_histories_hold_transitions():
    generator = torch.Generator().manual_seed(0)
    observations, actions = (torch.randn(2, n, size, generator=generator) for n, size in ((6, 3), (5, 1)))
    running = empty_history(2, 4, 3, 1)
    for t in range(5):
        running = append(running, observations[:, t], actions[:, t], observations[:, t + 1])
    assert torch.equal(running.observations, observations[:, 1:5])
    assert torch.equal(running.after, observations[:, 2:6])
    assert torch.equal(running.differences, observations[:, 2:6] - observations[:, 1:5])
    assert running.mask.all()
    short = window_history(observations[:, :3], actions[:, :2], 4)
    assert short.mask.tolist() == [[True, True, False, False]] * 2
    assert not short.observations[:, 2:].any()


def test_cadm_acts_as_with_histories_of_differences_alone():
    """Against its encoder fed by hand, from differences and actions only, to the last bit."""
    learner = CaDM(CaDMConfig(history=4, encoder=(8, 8, 8), dynamics=(8, 8, 8, 8)), seed=1).eval()
    agent = learned(learner, SMALL, seed=5)
    own = evaluate_agent(agent, ENV_ID, groups=["OOD_c3"], episodes=3, record=True).groups["OOD_c3"]
    assert own.states is not None
    assert own.actions is not None
    observations = torch.from_numpy(pendulum.WORLD.observe(own.states.reshape(-1, 2)).astype(np.float32))
    observations = observations.view(3, -1, 3)
    warm, generator = initial(SMALL, 3, 1, "cpu"), torch.Generator().manual_seed(5)
    actions: list[Tensor] = []
    for t in range(12):
        past = range(max(0, t - 4), t)
        empty = [torch.zeros(3, size * (4 - len(past))) for size in (3, 1)]
        differences = torch.cat([*(observations[:, i + 1] - observations[:, i] for i in past), empty[0]], 1)
        taken = torch.cat([*(actions[i] for i in past), empty[1]], 1)
        with torch.inference_mode():
            context = learner.encode(torch.cat([differences, taken], 1)).transpose(0, 1).flatten(1)
        score = rollout_score(learner.step, pendulum.reward, observations[:, t], context, reads_next=False)
        action, warm = plan(SMALL, score, warm, pendulum.bounds(), generator)
        actions.append(action)
    np.testing.assert_array_equal(torch.stack(actions, 1).numpy(), own.actions[:, :12].astype(np.float32))


class Turned(KnownModel):
    """The equations in coordinates of its own, twice the observation and the mass behind it, with its own reward."""

    def state(self, observation: Tensor, context: Tensor) -> Tensor:
        return torch.cat([2.0 * observation, context[:, :1]], 1)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        after = super().step(observation[:, :3] / 2.0, action, context)
        return torch.cat([2.0 * after, observation[:, 3:]], 1)

    def reward(self, state: Tensor, action: Tensor, after: Tensor | None) -> Tensor:
        return pendulum.reward(state[:, :3] / 2.0, action)


def test_a_model_may_step_states_of_its_own_and_pay_itself():
    believed = torch.tensor([[0.7, 0.9]])
    plain = PlanningAgent(KnownModel(believed), SMALL, pendulum.reward)
    own = PlanningAgent(Turned(believed), SMALL)
    one, two = (evaluate_agent(a, ENV_ID, groups={"ID": 2}, record=True).groups["ID"].actions for a in (plain, own))
    assert one is not None
    np.testing.assert_array_equal(one, two)  # halving is exact
    with pytest.raises(ValueError, match="reward is None; legal: a function of state"):
        PlanningAgent(KnownModel(believed), SMALL)
    with pytest.raises(ValueError, match="reward is None; legal"):
        planning_policy(KnownModel(believed), None, pendulum.bounds(), SMALL, 1, seed=0)


def test_bounds_that_were_not_given_are_of_the_environment_that_was_checked_last():
    class Still:
        history = 1

        def context(self, history: History) -> Tensor:
            return torch.zeros(len(history.filled), 1)

        def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
            return observation

    agent = PlanningAgent(Still(), SMALL, lambda seen, action, after: action.sum(1))
    for env_id in (ENV_ID, "sprii/PokeWorld-v0", ENV_ID):
        kwargs = {} if env_id == ENV_ID else {"obs_type": "state"}
        env = gym.make_vec(env_id, num_envs=1, **kwargs)
        agent.check(env)
        agent.reset(2)
        size, actions = env.single_observation_space.shape[0], env.single_action_space.shape[0]  # type: ignore[index]
        assert agent.act(np.zeros((2, size), np.float32)).shape == (2, actions)
        env.close()
    assert agent.bounds is None


def test_a_context_reads_the_observations():
    """A model whose context is where the last action was taken; the encoder's padding is not read."""

    class Place(KnownModel):
        def context(self, history: History) -> Tensor:
            at = (history.filled - 1).clamp(min=0)
            seen.append(history.observations[torch.arange(len(at)), at])
            return super().context(history)

    seen: list[Tensor] = []
    agent = PlanningAgent(Place(torch.ones(1, 2), history=3), SMALL, pendulum.reward)
    own = evaluate_agent(agent, ENV_ID, groups={"ID": 2}, record=True).groups["ID"]
    assert own.states is not None
    seen = seen[-200:]
    for t in (1, 3, 7):
        np.testing.assert_allclose(seen[t], pendulum.WORLD.observe(own.states[:, t - 1]), atol=1e-6)
