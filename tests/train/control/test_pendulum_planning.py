"""Pendulum in torch against the environment's physics, and what planning with the true equations achieves."""

import numpy as np
import pytest
import torch

from sprii_envs.envs.pendulum import Pendulum
from sprii_envs.physics.pendulum import success
from sprii_envs.world import rollout
from sprii_train.control import pendulum
from sprii_train.control.controllers import CEM, ICEM, Config, initial, plan
from sprii_train.control.draws import draw
from sprii_train.control.planning import rollout_score

WORLD = Pendulum()


def transitions(n: int = 4000):
    """Random systems, states (turned up to three times), actions (some beyond ±1), and what the world makes of them."""
    rng = np.random.default_rng(0)
    values = rng.uniform(0.2, 1.8, (n, 2))
    state = np.stack((rng.uniform(-20, 20, n), rng.uniform(-8, 8, n)), axis=1)
    action = rng.uniform(-1.3, 1.3, (n, 1)).astype(np.float32)
    force = WORLD.force(action)
    after, _ = WORLD.step(state, force, WORLD.prepare(values))
    return values, state, action, after, WORLD.reward(state, force, after)


def test_steps_are_those_of_the_environment():
    values, state, action, after, _ = transitions()
    given = torch.from_numpy(WORLD.observe(state)), torch.from_numpy(action), torch.tensor(values, dtype=torch.float32)
    got = pendulum.step(*given).numpy()
    assert got == pytest.approx(WORLD.observe(after), abs=1e-5)
    assert (np.abs(after[:, 1]) == 8.0).sum() > 100  # the clip of the velocity was met


def test_thirty_steps_stay_with_the_environment():
    rng = np.random.default_rng(1)
    values, state = rng.uniform(0.5, 1.5, (200, 2)), np.stack((rng.uniform(2, 4, 200), np.zeros(200)), 1)
    observation, context = torch.from_numpy(WORLD.observe(state)), torch.tensor(values, dtype=torch.float32)
    for action in rng.uniform(-1, 1, (30, 200, 1)).astype(np.float32):
        state, _ = WORLD.step(state, WORLD.force(action), WORLD.prepare(values))
        observation = pendulum.step(observation, torch.from_numpy(action), context)
    assert observation.numpy() == pytest.approx(WORLD.observe(state), abs=1e-4)


def test_rewards_are_those_of_the_environment():
    _, state, action, _, expected = transitions()
    observation = torch.from_numpy(WORLD.observe(state))
    got = pendulum.reward(observation, torch.from_numpy(action)).numpy()
    assert got == pytest.approx(expected, abs=1e-4, rel=1e-5)
    # What a model predicts need not lie on the circle: the angle is what counts.
    scaled = observation * torch.tensor([0.7, 0.7, 1.0])
    assert pendulum.reward(scaled, torch.from_numpy(action)).numpy() == pytest.approx(got, abs=1e-4)


def test_the_nominal_context_is_of_the_declared_system():
    assert pendulum.nominal_context(3).tolist() == [[1.0, 1.0]] * 3


def oracle(config: Config, group: str, episodes: int, nominal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns and successes of episodes planned with the true equations, or with those of the nominal system."""
    drawn = draw(group, episodes, (0,))
    context = pendulum.nominal_context(episodes) if nominal else torch.tensor(drawn.values, dtype=torch.float32)
    warm, noise = initial(config, episodes, 1), torch.Generator().manual_seed(0)

    def policy(_: int, states: np.ndarray) -> np.ndarray:
        nonlocal warm
        observation = torch.from_numpy(WORLD.observe(states))
        score = rollout_score(pendulum.step, pendulum.reward, observation, context, reads_next=False, rows=8192)
        action, warm = plan(config, score, warm, pendulum.bounds(), noise)
        return action.numpy()

    found = rollout(WORLD, drawn.values, drawn.states, policy, steps=200)
    return found.rewards.sum(1), success(found.states)


def test_a_sixth_of_the_published_budget_swings_up_every_pendulum():
    returns, solved = oracle(ICEM(horizon=20), "ID", 8)
    assert solved.all()
    assert -400 < returns.mean() < -200


@pytest.mark.slow
def test_the_published_planner_swings_up_nearly_every_pendulum():
    # Over 480 episodes it solves 98 % and returns −334 (docs/control.md); 30 are too few for a margin.
    returns, solved = oracle(CEM(), "ID", 120)
    assert solved.mean() >= 0.95
    assert -380 < returns.mean() < -280
    assert not oracle(CEM(), "OOD_c3", 10, nominal=True)[1].any()
