"""The spring's integrator against scipy's at 1e-12, and against what mechanics says."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sprii_envs.banks.behaviours.spring_episodes import SpringEpisodes
from sprii_envs.envs.spring_world import SpringWorld
from sprii_envs.physics import inertial, spring
from sprii_envs.world import rollout

WORLD = SpringWorld()
LEVELS = np.array([[0.5, 0.8, 1.1, 1.4, 1.7, 2.0], [0.25, 0.5, 0.75, 1.0, 1.25, 1.5], [4, 8.2, 12.4, 16.6, 20.8, 25]])


def reference(start, forces, mass, drag, stiffness, steps_each=1):
    """States (T+1, 8) by DOP853 at 1e-12, restarted at every change of force."""

    def derivative(t, y, fx, fy):
        x1, y1, x2, y2, vx1, vy1, vx2, vy2 = y
        dx, dy = x2 - x1, y2 - y1
        d = np.hypot(dx, dy)
        pull = stiffness * (d - WORLD.rest_length) / d
        first = (fx + pull * dx) / mass - drag * vx1, (fy + pull * dy) / mass - drag * vy1
        return [vx1, vy1, vx2, vy2, *first, -pull * dx / mass - drag * vx2, -pull * dy / mass - drag * vy2]

    states = [np.array(start)]
    for force in forces:
        done = solve_ivp(derivative, (0, WORLD.dt), states[-1], "DOP853", rtol=1e-12, atol=1e-13, args=tuple(force))
        states.append(done.y[:, -1])
    return np.array(states)


def systems(n, rng):
    """Corners of the range first, the extrapolated ones among them, then random ones."""
    corners = np.array([[m, g, k] for m in (0.4, 0.5, 2.2) for g in (0.2, 1.8) for k in (3.5, 25.0, 28.0)])
    some = rng.uniform([0.5, 0.25, 4.0], [2.0, 1.5, 25.0], (max(n - len(corners), 0), 3))
    return rng.permuted(np.concatenate((corners, some)), axis=0)[:n]


@pytest.mark.parametrize("kind", SpringEpisodes.episode_kinds)
def test_trajectories_are_within_1e_8_of_the_solution_in_every_kind_of_episode(kind):
    rng = np.random.default_rng(5)
    values = systems(6, rng)
    values[0] = (0.4, 0.2, 28.0)  # the fastest spring there is
    start = WORLD.initial(rng.random((6, 6)), values, kind)
    actions = SpringEpisodes().policy(rng, WORLD, values, start, 127, kind)
    states = rollout(WORLD, values, start, actions).states
    for i in range(6):
        exact = reference(start[i], WORLD.force(actions[i]), *values[i])
        assert np.abs(states[i] - exact).max() < 1e-8


def test_full_force_in_random_directions_is_within_1e_8_too():
    rng = np.random.default_rng(6)
    values = np.array([[0.5, 0.25, 25.0], [0.5, 0.25, 4.0], [2.0, 1.5, 25.0]])
    start = WORLD.initial(rng.random((3, 6)), values, None)
    actions = np.repeat(rng.uniform(-1, 1, (3, 12, 2)), 8, axis=1).astype(np.float32)
    states = rollout(WORLD, values, start, actions).states
    for i in range(3):
        assert np.abs(states[i] - reference(start[i], WORLD.force(actions[i]), *values[i])).max() < 1e-8


def test_the_centre_moves_as_one_body_of_twice_the_mass_whatever_the_stiffness():
    rng = np.random.default_rng(1)
    values = np.tile([[0.7, 0.6, 0.0]], (9, 1))
    values[:, 2] = np.linspace(0.0, 28.0, 9)
    start = WORLD.initial(rng.random((1, 6)), values[:1], "moving")[0]
    actions = rng.uniform(-1, 1, (95, 2)).astype(np.float32)
    states = rollout(WORLD, values, start, actions).states
    centre = 0.5 * (states[:, :, 0:2] + states[:, :, 2:4])
    assert np.abs(centre - centre[0]).max() < 1e-14
    body = np.concatenate((0.5 * (start[0:2] + start[2:4]), start[4:6]))[None]
    constants = inertial.coefficients(np.array([0.6]), np.array([1.4]), WORLD.dt)
    for t, force in enumerate(WORLD.force(actions)):
        body = inertial.step(body, force[None], constants)
        assert np.abs(centre[3, t + 1] - body[0, :2]).max() < 1e-13


def energy(states, mass, stiffness):
    stretch = np.hypot(states[..., 2] - states[..., 0], states[..., 3] - states[..., 1]) - WORLD.rest_length
    return 0.5 * mass * (states[..., 4:] ** 2).sum(-1) + 0.5 * stiffness * stretch**2


def test_energy_is_kept_without_drag_and_never_grows_with_it():
    rng = np.random.default_rng(2)
    n = 64
    values = rng.uniform([0.5, 0.25, 4.0], [2.0, 1.5, 25.0], (n, 3))
    start = WORLD.initial(rng.random((n, 6)), values, "moving")
    start[:, 4:] += rng.uniform(-0.2, 0.2, (n, 4))
    still = np.zeros((95, 2), np.float32)
    mass, stiffness = values[:, 0, None], values[:, 2, None]
    kept = energy(rollout(WORLD, values * (1.0, 0.0, 1.0), start, still).states, mass, stiffness)
    assert np.abs(kept / kept[:, :1] - 1.0).max() < 1e-9
    lost = energy(rollout(WORLD, values, start, still).states, mass, stiffness)
    assert (np.diff(lost, axis=1) <= 0.0).all()


def test_energy_is_lost_at_the_rate_drag_says():
    # dE/dt = −γ·m·(v1² + v2²), integrated along a finely sampled trajectory.
    world = SpringWorld(dt=0.005)
    values = np.array([[0.8, 0.9, 18.0]])
    start = np.array([-0.2, 0.0, 0.2, 0.05, 0.1, 0.2, -0.1, 0.0])
    states = rollout(world, values, start, np.zeros((400, 2), np.float32)).states[0]
    power = 0.9 * 0.8 * (states[:, 4:] ** 2).sum(-1)
    spent = np.trapezoid(power, dx=world.dt)
    total = energy(states, 0.8, 18.0)
    assert total[0] - total[-1] == pytest.approx(spent, rel=1e-4)


def test_halving_the_control_step_shows_order_ten():
    values, start = np.array([[0.4, 0.2, 7.0]]), [-0.15, 0.0, 0.21, 0.0, 0.1, 0.3, 0.0, -0.2]

    def error(dt):
        steps = round(1.6 / dt)
        states = rollout(SpringWorld(dt=dt), values, start, np.zeros((steps, 2), np.float32)).states[0]
        return np.abs(states[-1] - exact).max()

    exact = rollout(SpringWorld(dt=0.00625), values, start, np.zeros((256, 2), np.float32)).states[0, -1]
    assert 2.0**8 < error(0.1) / error(0.05) < 2.0**12


@pytest.mark.parametrize(
    "values", [(1.0, 0.5, 2000.0), (0.01, 0.5, 25.0), (1.0, 150.0, 10.0), (0.5, 200.0, 2000.0), (0.01, 0.0, 2000.0)]
)
def test_systems_far_beyond_the_range_divide_the_step_and_stay_accurate(values):
    start = np.array([-0.15, 0.0, 0.21, 0.02, 0.1, 0.3, 0.0, -0.2])
    actions = np.repeat(np.random.default_rng(3).uniform(-1, 1, (3, 2)), 4, axis=0).astype(np.float32)
    states = rollout(WORLD, [values], start, actions).states[0]
    assert np.abs(states - reference(start, WORLD.force(actions), *values)).max() < 1e-7
    mixed = rollout(WORLD, [WORLD.properties.nominal, values, (1.0, 0.5, 300.0)], start, actions)
    assert np.array_equal(mixed.states[1], states)


@pytest.mark.parametrize("n", [2, 3, 17, 257])
def test_one_system_and_many_agree_bit_for_bit(n):
    rng = np.random.default_rng(n)
    values = rng.uniform([0.4, 0.0, 0.0], [2.2, 1.8, 28.0], (n, 3))
    start = WORLD.initial(rng.random((n, 6)), values, None)
    actions = rng.uniform(-1.5, 1.5, (n, 20, 2)).astype(np.float32)
    together = rollout(WORLD, values, start, actions)
    for i in range(min(n, 9)):
        alone = rollout(WORLD, values[i], start[i], actions[i])
        assert np.array_equal(alone.states[0], together.states[i])
        assert np.array_equal(alone.rewards[0], together.rewards[i])


def test_coinciding_balls_stay_finite():
    values = WORLD.properties.nominal[None]
    states = rollout(WORLD, values, np.zeros(8), np.ones((30, 2), np.float32)).states
    assert np.isfinite(states).all()


def test_coefficients_are_given_per_system():
    mass, drag, stiffness = np.array([0.5, 2.0]), np.array([0.0, 1.5]), np.array([4.0, 25.0])
    both = spring.coefficients(mass, drag, stiffness, 0.35, 0.05)
    for field, one in zip(both, spring.coefficients(mass[1:], drag[1:], stiffness[1:], 0.35, 0.05), strict=True):
        assert np.array_equal(field[1:], one)
