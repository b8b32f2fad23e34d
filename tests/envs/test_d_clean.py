"""D-Clean against its published configuration: dynamics, starts, reward, and what a frame shows."""

from dataclasses import fields
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from sprii_envs import rendering
from sprii_envs.envs.d_clean import DClean
from sprii_envs.world import rollout

ID = "sprii/D-Clean-v0"


def test_an_episode_agrees_with_an_ode_solver_at_the_published_constants():
    env = gym.make(ID, system={"drag": 1.7})
    env.reset(seed=0)
    u = env.unwrapped
    state = u.state
    for action in np.random.default_rng(0).uniform(-1, 1, (63, 2)).astype(np.float32):
        env.step(action)
        force = 4.0 * action.astype(np.float64)
        solution = solve_ivp(
            lambda t, s, f=force: np.concatenate([s[2:], f - 1.7 * s[2:]]),
            (0.0, 0.05),
            state,
            rtol=1e-12,
            atol=1e-14,
            method="DOP853",
        )
        state = solution.y[:, -1]
    assert np.allclose(u.state, state, rtol=1e-9, atol=1e-11)


def test_without_drag_or_force_the_mass_coasts():
    states = rollout(DClean(), np.zeros((1, 1)), [0.0, 0.0, 1.0, -2.0], np.zeros((63, 2))).states[0]
    assert np.allclose(states[-1], [3.15, -6.3, 1.0, -2.0], rtol=1e-14)


def test_starts_and_drags_have_the_published_distributions():
    env = gym.make_vec(ID, num_envs=4000)
    _, info = env.reset(seed=0)
    x, y, vx, vy = env.unwrapped.state.T
    for sample, law in (
        (x, stats.uniform(-1, 2)),
        (y, stats.uniform(-1, 2)),
        (np.hypot(vx, vy), stats.uniform(0, 2)),
        (np.arctan2(vy, vx), stats.uniform(-np.pi, 2 * np.pi)),
        (info["persistent"][:, 0], stats.uniform(0.5, 3.5)),
    ):
        assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    columns = np.stack([x, y, np.hypot(vx, vy), np.arctan2(vy, vx), info["persistent"][:, 0]])
    assert np.abs(np.corrcoef(columns) - np.eye(5)).max() < 0.06


def test_reward_is_the_documented_one_and_actions_clip():
    env = gym.make(ID)
    env.reset(seed=0)
    for action, force in (([0.5, -0.25], [2.0, -1.0]), ([5.0, -9.0], [4.0, -4.0])):
        _, reward, *_ = env.step(np.array(action, np.float32))
        s = env.unwrapped.state
        want = -(s[:2] @ s[:2] + 0.1 * (s[2:] @ s[2:]) + 0.001 * np.dot(force, force))
        assert reward == pytest.approx(want, rel=1e-14)


def test_observations_are_the_float32_state_and_never_the_drag():
    env = gym.make(ID)
    obs, _ = env.reset(seed=0)
    assert obs.dtype == np.float32
    assert np.array_equal(obs, env.unwrapped.state.astype(np.float32))
    assert env.observation_space.shape == (4,)
    assert np.isfinite(env.observation_space.high).all()


@pytest.mark.parametrize("size", [64, 128, (48, 64)])
def test_pixels_are_the_present_and_the_previous_frame(size):
    env = gym.make(ID, obs_type="pixels", image_size=size)
    obs, _ = env.reset(seed=0)
    height, width = rendering.image_size(size)
    assert obs.shape == (height, width, 2)
    assert obs.dtype == np.uint8
    assert np.array_equal(obs[..., 0], obs[..., 1])
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32):
        before = obs
        obs, *_ = env.step(action)
        assert np.array_equal(obs[..., 1], before[..., 0])
        x, y = env.unwrapped.state[:2]
        rows, columns = np.mgrid[:height, :width] + 0.5
        scale = width / 6.0
        reach = np.hypot(columns - (width / 2 + x * scale), rows - (height / 2 - y * scale))
        want = 224 * np.clip(0.15 * scale + 0.5 - reach, 0, 1)
        assert np.abs(obs[..., 0] - want).max() <= 0.51


def test_a_frame_shows_neither_drag_nor_velocity():
    world = DClean()
    a = world.draw(np.array([[0.3, 0.4, 0.0, 0.0]]), 64)
    b = world.draw(np.array([[0.3, 0.4, 9.0, -9.0]]), 64)
    assert np.array_equal(a, b)
    frames = [
        gym.make(ID, obs_type="pixels").reset(seed=0, options={"system": {"drag": drag}})[0] for drag in (0.5, 4.0)
    ]
    assert np.array_equal(*frames)


def test_the_view_holds_nearly_every_frame_of_the_published_behaviour():
    rng = np.random.default_rng(0)
    world, n = DClean(), 500
    drag = rng.uniform(0.5, 4.0, (n, 1))
    start = world.initial(rng.random((n, 4)), drag, None)
    forces = np.zeros((n, 63, 2))
    for i in range(n):
        t = 0
        while t < 63:
            length = rng.integers(3, 9)
            angle, push = rng.uniform(0, 2 * np.pi), rng.uniform(0, 1) * (rng.random() >= 0.3)
            forces[i, t : t + length] = push * np.array([np.cos(angle), np.sin(angle)])
            t += length
    positions = rollout(world, drag, start, forces).states[..., :2]
    assert (np.abs(positions).max(axis=-1) < 3.0).mean() > 0.98


def test_pictures_for_people_are_larger_and_coloured():
    env = gym.make(ID, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (256, 256, 3)
    assert picture.dtype == np.uint8
    vector = gym.make_vec(ID, num_envs=2, render_mode="rgb_array")
    vector.reset(seed=0)
    pictures = vector.render()
    assert len(pictures) == 2
    assert np.array_equal(pictures[0], picture)


def test_constants_are_arguments():
    env = gym.make(ID, mass=2.0, force_limit=1.0, dt=0.1, system={"drag": 0.0})
    env.reset(options={"state": [0, 0, 0, 0]})
    env.step(np.array([1.0, 0.0], np.float32))
    assert np.allclose(env.unwrapped.state, [0.0025, 0.0, 0.05, 0.0])


def test_the_manual_page_states_the_real_defaults():
    page = (Path(__file__).parents[2] / "docs" / "envs" / "d_clean.md").read_text(encoding="utf-8")
    for field in fields(DClean):
        assert f"| `{field.name}` | `{field.default}` |" in page
    for p in DClean.properties:
        assert f"| `{p.name}` | {p.symbol} | {p.unit} | [{p.low:g}, {p.high:g}] |" in page
