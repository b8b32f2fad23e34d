"""Pushing for planners against the environment's own steps, rewards and states, and what planning achieves."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.envs.poke_world import PROPERTIES, PokeWorld
from sprii_envs.properties import SystemDistribution, SystemSet
from sprii_train.control import push
from sprii_train.control.controllers import ICEM
from sprii_train.control.planning import rollout_score
from sprii_train.control.push_agents import Equations, known, learned, nominal, told
from sprii_train.evaluation import RandomAgent, evaluate_agent
from sprii_train.evaluation.draws import draw
from sprii_train.learners.pooled import PooledConfig, PooledDynamics

CHEAP = ICEM(candidates=32, elites=8, iterations=2, horizon=20)


def play(n: int, steps: int):
    """Systems of all groups, fingers that chase their object, and what Gymnasium's vector environment makes of it.

    Some actions are beyond ±1.
    """
    rng = np.random.default_rng(0)
    values = np.concatenate([draw(push.WORLD, source, n, (1,)).values for source in push.GROUPS.values()])
    env = gym.make_vec(push.ENV_ID, num_envs=len(values), obs_type="state", **push.CONSTANTS)
    observations, _ = env.reset(seed=0, options={"system": values})
    seen, actions, rewards, contacts = [observations], [], [], []
    for _ in range(steps):
        chase = 4.0 * (seen[-1][:, 4:6] - seen[-1][:, :2]) - 0.5 * seen[-1][:, 2:4]
        action = (chase + rng.uniform(-1.0, 1.0, (len(values), 2))).astype(np.float32)
        observation, reward, _, _, info = env.step(action)
        seen.append(observation)
        actions.append(action)
        rewards.append(reward)
        contacts.append(info["contact"])
    env.close()
    return values, np.stack(actions), np.stack(seen), np.stack(rewards), np.stack(contacts)


def test_steps_and_rewards_are_those_of_the_environment_through_contacts():
    values, actions, seen, rewards, contacts = play(40, 25)
    context = torch.tensor(values, dtype=torch.float32)
    for t, action in enumerate(map(torch.from_numpy, actions)):
        before, after = torch.from_numpy(seen[t]), torch.from_numpy(seen[t + 1])
        # The environment keeps float64 states: a step from the float32 observation differs by their rounding, which a
        # contact multiplies by its stiffness.
        assert push.step(before, action, context).numpy() == pytest.approx(seen[t + 1], abs=2e-4)
        assert push.reward(before, action, after).numpy() == pytest.approx(rewards[t], abs=1e-5)
    assert contacts.sum() > 100


def test_a_batch_is_its_rows_one_by_one():
    values, actions, seen, *_ = play(4, 8)
    rows = torch.from_numpy(seen[7]), torch.from_numpy(actions[7]), torch.tensor(values, dtype=torch.float32)
    whole = push.step(*rows)
    alone = torch.cat([push.step(*(part[i : i + 1] for part in rows)) for i in range(len(values))])
    assert torch.equal(whole, alone)


def test_scores_of_equations_are_returns_of_the_environment():
    """Over episodes × candidates: every candidate's score is what the environment pays for these actions."""
    values, _, seen, *_ = play(1, 1)
    candidates = torch.empty(len(values), 3, 6, 2).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    context, start = torch.tensor(values, dtype=torch.float32), torch.from_numpy(seen[1])
    got = rollout_score(push.step, push.reward, start, context)(candidates)
    for e, value in enumerate(values):
        for c in range(3):
            env = gym.make(push.ENV_ID, obs_type="state", **push.CONSTANTS)
            env.reset(options={"system": PROPERTIES.mapping(value), "state": seen[1, e].astype(np.float64)})
            expected = sum(float(env.step(a)[1]) for a in candidates[e, c].numpy())
            assert float(got[e, c]) == pytest.approx(expected, abs=1e-3)


def test_success_asks_for_the_goal_in_every_one_of_the_last_states():
    states = np.zeros((4, 64, 8))
    states[:, :, 4:6] = (0.6, 0.0)
    states[1, -1, 5] = 0.11  # leaves at the end
    states[2, : 64 - push.LAST, 4] = -0.3  # comes just in time
    states[3, 64 - push.LAST, 4] = 0.49  # and a step too late
    assert push.success(states).tolist() == [True, False, True, False]
    assert push.success(states, within=0.12).tolist() == [True] * 4
    with pytest.raises(ValueError, match="last is 65; legal: an integer >= 1, at most 64"):
        push.success(states, last=65)
    with pytest.raises(ValueError, match="within is 0; legal"):
        push.success(states, within=0)


def test_groups_lie_outside_the_declared_ranges():
    ranges = {p.name: (p.low, p.high) for p in PROPERTIES}
    for name, source in push.GROUPS.items():
        values = source.sample(200, np.random.default_rng(0)).values
        inside = np.stack([(low <= v) & (v <= high) for v, (low, high) in zip(values.T, ranges.values(), strict=True)])
        assert inside.all() if name == "ID" else not inside.all(0).any()
        assert inside[2].all()  # stiffness never leaves its range
    assert push.coordinates(np.array([[1.0, 2.0, 1000.0]])) == pytest.approx(np.array([[0.0, 2.0, np.log(1000.0)]]))


def test_the_truth_returns_more_than_nominal_equations_and_those_more_than_chance():
    options = {"groups": {"ID": push.GROUPS["ID"]}, "episodes": 6, "success": push.success}
    options |= {"env_kwargs": {"obs_type": "state", **push.CONSTANTS}, "progress": False}
    returns = [
        float(evaluate_agent(agent, push.ENV_ID, **options).groups["ID"].returns.mean())
        for agent in (RandomAgent(seed=0), nominal(CHEAP, seed=0), known(CHEAP, seed=0))
    ]
    assert returns[0] + 3.0 < returns[1] < returns[2] - 3.0


def test_told_contexts_are_those_of_each_system():
    torch.manual_seed(0)
    learner = PooledDynamics(PooledConfig(context="supervised", label_dim=3, dynamics=(8,)))
    learner.label.copy_(torch.tensor([[0.1, 2.0, 7.0], [0.5, 1.0, 0.8]]))
    agent = told(learner, CHEAP, seed=0)
    agent.tell(np.array([[1.0, 3.0, 2000.0], [2.0, 0.5, 500.0]]))
    expected = [
        [(np.log(1) - 0.1) / 0.5, 1.0, (np.log(2000) - 7) / 0.8],
        [(np.log(2) - 0.1) / 0.5, -1.5, (np.log(500) - 7) / 0.8],
    ]
    assert agent.model.believed.numpy() == pytest.approx(np.array(expected), abs=1e-5)
    with pytest.raises(ValueError, match="a supervised context is told, not inferred"):
        learned(learner, CHEAP, seed=0)


def test_the_oracle_forgets_what_it_was_told():
    agent = known(CHEAP, seed=0)
    agent.tell(np.ones((5, 3)))
    system = SystemSet(PROPERTIES, np.array([[1.0, 1.0, 1000.0]]))
    options = {"env_kwargs": {"obs_type": "state", **push.CONSTANTS}, "progress": False, "success": push.success}
    found = evaluate_agent(agent, push.ENV_ID, groups={"one": system}, episodes=2, **options)
    assert found.told
    assert isinstance(agent.model, Equations)
    assert agent.model.believed.tolist() == [[1.0, 1.0, 1000.0]] * 2


def test_the_world_is_the_registered_one_but_for_its_force():
    assert PokeWorld(force_limit=8.0) == push.WORLD
    assert SystemDistribution(PROPERTIES) == push.GROUPS["ID"]
