"""PokeWorld against an ODE solver, a scalar re-derivation, conservation laws, and its published configuration."""

import math
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import solve_ivp

from sprii_envs.banks.behaviours.poke_modes import PokeModes
from sprii_envs.envs.poke_world import PokeWorld
from sprii_envs.physics import poke
from sprii_envs.properties import SystemDistribution
from sprii_envs.world import rollout

ID = "sprii/PokeWorld-v0"
WORLD = PokeWorld()
REACH = 0.15


def systems(n, seed=0):
    return SystemDistribution(WORLD.properties).sample(n, np.random.default_rng(seed)).values


def bank(n, seed=0, world=WORLD):
    """Rollouts of the bank's behaviour."""
    rng = np.random.default_rng(seed)
    values = systems(n, seed)
    start = world.initial(rng.random((n, 7)), values, None)
    return rollout(world, values, start, PokeModes().policy(rng, world, values, start, 63, None), steps=63)


def anywhere(n, seed=0, speed=4.0):
    """States all over the arena, a third of them with the discs close, and actions."""
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.uniform(-1, 1, (n, 2)), speed * rng.standard_normal((n, 2))] * 2, axis=1)
    state[:, 4:] = np.concatenate([rng.uniform(-0.91, 0.91, (n, 2)), speed * rng.standard_normal((n, 2))], axis=1)
    state[:, :2] = np.clip(state[:, :2], -0.94, 0.94)
    third = n // 3
    state[:third, :2] = state[:third, 4:6] + rng.uniform(-0.15, 0.15, (third, 2))
    return np.asfortranarray(state), rng.uniform(-1.2, 1.2, (n, 2)).astype(np.float32)


def momenta(states, mass):
    """Total momentum (N, T, 2) and angular momentum (N, T) of states (N, T, 8); the finger weighs 1 kg."""
    x, v, y, w = (states[..., i : i + 2] for i in (0, 2, 4, 6))
    cross = lambda a, b: a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]  # noqa: E731
    return v + mass[:, None, None] * w, cross(x, v) + mass[:, None] * cross(y, w)


def energy(states, values):
    """Kinetic and elastic energy of states (N, T, 8)."""
    mass, _, stiffness = values.T[:, :, None]
    kinetic = 0.5 * (states[..., 2:4] ** 2).sum(-1) + 0.5 * mass * (states[..., 6:8] ** 2).sum(-1)
    gap = np.linalg.norm(states[..., 4:6] - states[..., 0:2], axis=-1)
    return kinetic, 0.4 * stiffness * np.maximum(REACH - gap, 0.0) ** 2.5


# --- dynamics ---


def continuous(t, s, system, force):
    """The equations of motion in continuous time, without walls."""
    mass, drag, stiffness = system
    gap, relative = s[4:6] - s[0:2], s[6:8] - s[2:4]
    distance = np.linalg.norm(gap)
    push, depth = np.zeros(2), REACH - distance
    if depth > 0.0:
        normal = gap / distance
        local = 1.5 * stiffness * np.sqrt(depth)
        damping = 2.0 * 0.25 * np.sqrt(local * mass / (mass + 1.0))
        push = max(0.0, stiffness * depth**1.5 - damping * (relative @ normal)) * normal
    return np.concatenate([s[2:4], force - push, s[6:8], push / mass - drag * s[6:8]])


HITS = {
    "head-on": ([-0.3, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0], [0.2, 0.0]),
    "oblique": ([-0.3, -0.06, 1.2, 0.3, 0.05, 0.03, -0.4, 0.1], [0.1, -0.05]),
    "from behind": ([0.3, 0.2, -2.0, -0.5, 0.05, 0.05, -0.5, 0.0], [-0.3, 0.1]),
}


@pytest.mark.parametrize("system", [(0.5, 0.5, 6000.0), (1.0, 2.0, 2000.0), (3.0, 4.0, 500.0)])
@pytest.mark.parametrize("hit", HITS)
def test_a_hit_converges_to_an_ode_solution_linearly_in_the_substep(hit, system):
    start, action = HITS[hit]
    action = np.array(action, np.float32)
    force = 20.0 * action.astype(np.float64)
    solved = solve_ivp(continuous, (0.0, 0.4), start, args=(system, force), rtol=1e-10, atol=1e-12, max_step=2e-3)
    error = {}
    for n in (20, 80, 320, 1280):
        done = rollout(PokeWorld(substeps=n, arena=4.0), [system], start, np.tile(action, (8, 1)))
        assert done.signals["contact"].any()
        error[n] = np.abs(done.states[0, -1] - solved.y[:, -1]).max()
        # Where in a substep the discs meet is a matter of chance, so the error is bounded by a line, not on one.
        assert error[n] < 0.01 * 20 / n
    assert 25.0 < error[20] / error[1280] < 250.0


def test_halving_the_substep_changes_the_median_trajectory_by_less_than_a_thousandth_of_the_arena():
    done = bank(400)
    finer = rollout(PokeWorld(substeps=40), done.values, done.states[:, 0], done.actions)
    change = (finer.states - done.states)[..., [0, 1, 4, 5]].reshape(400, 64, 2, 2)
    largest = np.hypot(change[..., 0], change[..., 1]).max(axis=(1, 2))
    assert np.median(largest) < 1e-3 * 2.0
    assert np.median(largest) > 1e-4  # the two do differ


def scalar_step(state, force, system):
    """One control step in plain Python floats, straight from the definition."""
    mass, drag, stiffness = system
    fx, fy, fu, fv, ox, oy, ou, ov = (float(c) for c in state)
    h, contact, total = 0.05 / 20, False, 0.0
    (fx, fu), (fy, fv) = scalar_wall(fx, fu, 0.94), scalar_wall(fy, fv, 0.94)
    (ox, ou), (oy, ov) = scalar_wall(ox, ou, 0.91), scalar_wall(oy, ov, 0.91)
    for _ in range(20):
        dx, dy = ox - fx, oy - fy
        distance = math.hypot(dx, dy)
        depth, f, nx, ny = REACH - distance, 0.0, 0.0, 0.0
        if depth > 0.0:
            contact, nx, ny = True, dx / distance, dy / distance
            separating = (ou - fu) * nx + (ov - fv) * ny
            damping = 2.0 * 0.25 * math.sqrt(1.5 * stiffness * math.sqrt(depth) * mass / (mass + 1.0))
            f = max(0.0, stiffness * depth**1.5 - damping * separating)
        total += f
        fu, fv = fu + h * (force[0] - f * nx), fv + h * (force[1] - f * ny)
        ou, ov = ou + h * (f * nx / mass - drag * ou), ov + h * (f * ny / mass - drag * ov)
        fx, fy, ox, oy = fx + h * fu, fy + h * fv, ox + h * ou, oy + h * ov
        (fx, fu), (fy, fv) = scalar_wall(fx, fu, 0.94), scalar_wall(fy, fv, 0.94)
        (ox, ou), (oy, ov) = scalar_wall(ox, ou, 0.91), scalar_wall(oy, ov, 0.91)
    return [fx, fy, fu, fv, ox, oy, ou, ov], contact, total / 20


def scalar_wall(x, v, limit):
    if abs(x) > limit:
        return math.copysign(limit, x), (-0.5 * v if x * v > 0 else v)
    return x, v


def test_steps_and_signals_agree_with_a_scalar_re_derivation_all_over_the_arena():
    n = 1500
    values = systems(n)
    state, action = anywhere(n)
    force = WORLD.force(action)
    after, extras = WORLD.step(state, force, WORLD.prepare(values))
    want = [scalar_step(state[i], force[i], values[i]) for i in range(n)]
    assert np.allclose(after, [w[0] for w in want], rtol=1e-10, atol=1e-11)
    assert extras["contact"].tolist() == [w[1] for w in want]
    assert extras["contact_force"].dtype == np.float32
    assert np.allclose(extras["contact_force"], [w[2] for w in want], rtol=1e-6, atol=1e-9)
    assert 0.1 < extras["contact"].mean() < 0.9


def test_rows_without_events_take_a_closed_form_equal_to_the_substeps():
    n = 20_000
    state, action = anywhere(n, seed=1, speed=2.0)
    values = systems(n).copy()
    values[::2, 1] = np.linspace(5.0, 400.0, n // 2)  # strong drag bends the path of the vector between the discs
    state[::2, 6:8] *= 5.0
    force, prepared = WORLD.force(action), WORLD.prepare(values)
    short = poke.step(state, force, prepared, WORLD._scene)
    every = np.ones(n, bool)
    full = poke.step(state, force, prepared, WORLD._scene, substepped=lambda *_: every)
    asked = []
    poke.step(state, force, prepared, WORLD._scene, substepped=lambda *a: asked.append(poke.eventful(*a)) or asked[0])
    assert 0.1 < asked[0].mean() < 0.9
    assert np.abs(short[0] - full[0]).max() < 1e-13
    assert np.array_equal(short[1], full[1])
    assert np.array_equal(short[2], full[2])


def test_results_depend_neither_on_the_number_of_systems_nor_on_memory_order():
    n = 256
    values = systems(n)
    state, action = anywhere(n, seed=2)
    force = WORLD.force(action)
    after, extras = WORLD.step(state, force, WORLD.prepare(values))
    u = np.random.default_rng(2).random((n, 7))
    start = WORLD.initial(u, values, None)
    for size in (1, 3, 17):
        for first in range(0, n, size):
            rows = slice(first, first + size)
            assert WORLD.initial(u[rows], values[rows], None).tobytes() == start[rows].tobytes()
            some, signals = WORLD.step(state[rows].copy("C"), force[rows].copy("C"), WORLD.prepare(values[rows]))
            assert some.tobytes() == after[rows].tobytes()
            for name, signal in signals.items():
                assert np.array_equal(signal, extras[name][rows])


def test_contact_conserves_momentum_and_angular_momentum_without_drag_or_action():
    rng = np.random.default_rng(0)
    n = 200
    values = systems(n).copy()
    values[:, 1] = 0.0
    start = np.zeros((n, 8))
    angle = rng.uniform(0, 2 * np.pi, n)
    start[:, 0], start[:, 1] = 0.2 * np.cos(angle), 0.2 * np.sin(angle)
    start[:, 2:4] = -8.0 * start[:, :2] + rng.uniform(-0.5, 0.5, (n, 2))
    done = rollout(WORLD, values, start, np.zeros((5, 2)))
    assert done.signals["contact"].any(axis=1).all()
    assert np.abs(done.states[..., [0, 1, 4, 5]]).max() < 0.9  # no wall takes momentum away
    momentum, angular = momenta(done.states, values[:, 0])
    assert np.abs(momentum - momentum[:, :1]).max() < 1e-12
    assert np.abs(angular - angular[:, :1]).max() < 1e-12


def test_energy_never_grows_without_action():
    n = 2000
    values = systems(n)
    state, _ = anywhere(n, seed=3, speed=1.5)
    done = rollout(WORLD, values, state, np.zeros((30, 2)))
    kinetic, elastic = energy(done.states, values)
    apart = elastic == 0.0
    both = apart[:, 1:] & apart[:, :-1]
    scale = (kinetic + elastic)[:, :1]
    assert ((np.diff(kinetic, axis=1) / scale)[both] < 1e-14).all()
    # Within a contact the energy of a first-order method wavers by the order of the substep; no walls here.
    done = rollout(PokeWorld(arena=20.0), values, state, np.zeros((30, 2)))
    total = np.add(*energy(done.states, values))
    assert (np.diff(total, axis=1) / total[:, :1]).max() < 5e-3


@pytest.mark.parametrize("deep", [False, True])
def test_the_lightest_and_stiffest_legal_system_is_stable(deep):
    rng = np.random.default_rng(4)
    n = 1000
    values = np.tile([0.1, 0.0, 60000.0], (n, 1))
    state = np.zeros((n, 8))
    angle, gap = rng.uniform(0, 2 * np.pi, n), rng.uniform(*((1e-3, 0.15) if deep else (0.15, 0.3)), n)
    state[:, 0], state[:, 1] = gap * np.cos(angle), gap * np.sin(angle)
    speed, heading = rng.uniform(0, 10, n), angle + np.pi + rng.uniform(-0.5, 0.5, n)
    state[:, 2], state[:, 3] = speed * np.cos(heading), speed * np.sin(heading)
    done = rollout(WORLD, values, state, np.zeros((20, 2)))
    kinetic, elastic = energy(done.states, values)
    assert done.signals["contact"].mean() > 0.03
    assert (kinetic[:, -1] <= kinetic[:, 0] + elastic[:, 0]).all()


def test_the_contact_never_pulls():
    # Shallow overlap, fast separation: damping exceeds the elastic force, so nothing may act.
    state = np.array([[0.0, 0.0, 0.0, 0.0, 0.149, 0.0, 2.0, 0.0]])
    done = rollout(WORLD, [[1.0, 0.0, 2000.0]], state, np.zeros((1, 2)))
    assert done.signals["contact"].all()
    assert done.signals["contact_force"][0, 0] == 0.0
    assert np.allclose(done.states[0, 1], [0, 0, 0, 0, 0.249, 0, 2.0, 0], atol=1e-14)
    assert (bank(100).signals["contact_force"] >= 0.0).all()


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_walls_give_back_half_the_speed_of_each_disc(axis, side):
    for first, limit in ((0, 0.94), (4, 0.91)):
        state = np.zeros((1, 8))
        state[0, [0, 1, 4, 5]] = [-0.4, -0.4, 0.4, 0.4]
        state[0, first + axis] = side * (limit - 0.001)
        state[0, first + 2 + axis] = side * 1.2
        state[0, first + 3 - axis] = 0.3
        after = rollout(WORLD, [[1.0, 0.0, 2000.0]], state, np.zeros((1, 2))).states[0, 1]
        assert after[first + 2 + axis] == pytest.approx(-0.6 * side, rel=1e-12)
        assert after[first + 3 - axis] == pytest.approx(0.3, rel=1e-12)
        # At the wall after the first substep, then 19 substeps back.
        assert after[first + axis] == pytest.approx(side * (limit - 19 * 0.0025 * 0.6), rel=1e-12)


def test_a_finger_pressed_to_the_wall_stays_there_and_an_object_pushed_into_it_stays_inside():
    done = rollout(WORLD, [[0.5, 0.5, 2000.0]], [0.6, 0, 0, 0, 0.8, 0, 0, 0], np.tile([0.5, 0.0], (60, 1)))
    assert done.states[0, :, 4].max() == 0.91
    assert done.states[0, -1, 0] == pytest.approx(0.91 - 0.15 + (10 / 2000) ** (2 / 3), abs=1e-3)
    done = rollout(WORLD, [[1.0, 1.0, 2000.0]], [0.5, 0.5, 0, 0, 0, 0, 0, 0], np.tile([1.0, 1.0], (60, 1)))
    assert np.allclose(done.states[0, -1, :2], 0.94, atol=1e-4)


def test_mass_and_stiffness_act_through_contact_only_and_drag_without_it():
    start, action = [-0.4, 0, 0, 0, 0, 0.0, 0.5, 0.1], np.tile([0.5, 0.05], (20, 1))
    base = np.array([1.0, 1.0, 2000.0])
    rows = np.tile(base, (4, 1))
    rows[1, 0], rows[2, 1], rows[3, 2] = 2.0, 2.0, 4000.0
    done = rollout(WORLD, rows, start, action)
    first = int(done.signals["contact"].argmax(axis=1).min())
    assert 1 < first < 19
    free = done.states[:, : first + 1]
    assert np.array_equal(free[0], free[1])
    assert np.array_equal(free[0], free[3])
    assert np.abs(free[0] - free[2])[..., 4].max() > 1e-3
    for row in (1, 2, 3):
        assert np.abs(done.states[0, -1] - done.states[row, -1]).max() > 1e-2


coordinate = st.floats(-1e6, 1e6) | st.floats(-1.1, 1.1) | st.sampled_from([0.0, 1e-160, 0.15, 0.94, -0.91])


@settings(max_examples=70, deadline=None)
@given(
    state=st.lists(coordinate, min_size=8, max_size=8),
    coincident=st.booleans(),
    mass=st.floats(0.1, 1e300) | st.just(0.1),
    drag=st.floats(0.0, 1e300) | st.floats(0.0, 1e3),
    stiffness=st.floats(5e-324, 6e4) | st.just(6e4),
    actions=st.lists(st.tuples(*[st.floats(-2, 2)] * 2), min_size=4, max_size=4),
)
def test_legal_extremes_stay_finite_and_inside(state, coincident, mass, drag, stiffness, actions):
    if coincident:
        state[4:6] = state[0:2]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        done = rollout(WORLD, [[mass, drag, stiffness]], state, np.array(actions))
    after = done.states[0, 1:]
    assert np.isfinite(after).all()
    assert np.isfinite(done.rewards).all()
    assert np.isfinite(done.signals["contact_force"]).all()
    assert np.abs(after[:, :2]).max() <= 0.94
    assert np.abs(after[:, 4:6]).max() <= 0.91
    assert np.abs(after).max() <= 4e6


def test_substeps_and_constants_must_suit_every_legal_system():
    with pytest.raises(ValueError, match="substeps ≥ 20"):
        PokeWorld(substeps=10)
    with pytest.raises(ValueError, match="substeps ≥ 40"):
        PokeWorld(dt=0.1)
    with pytest.raises(ValueError, match="substeps"):
        PokeWorld(substeps=20.5)
    with pytest.raises(ValueError, match="substeps"):
        PokeWorld(finger_mass=0.01)
    with pytest.raises(ValueError, match=r"start_near is 0\.1"):
        PokeWorld(start_near=0.1)
    with pytest.raises(ValueError, match="goal_x is 2"):
        PokeWorld(goal_x=2)
    for name, value in (("mass", 0.05), ("drag", -1.0), ("stiffness", 1e5), ("stiffness", 0.0)):
        with pytest.raises(ValueError, match=f"property '{name}'"):
            gym.make(ID, system={"mass": 1.0, "drag": 1.0, "stiffness": 2000.0, name: value})


# --- the environment ---


def test_starts_and_properties_have_the_published_distributions():
    n = 8000
    env = gym.make_vec(ID, num_envs=n)
    _, info = env.reset(seed=0)
    s = env.unwrapped.state
    mass, drag, stiffness = info["persistent"].T
    gap = s[:, 0:2] - s[:, 4:6]
    distance, speed = np.hypot(*gap.T), np.hypot(s[:, 6], s[:, 7])
    launched = speed > 0
    assert (distance >= 0.35 - 1e-12).all()
    assert (distance <= 0.6 + 1e-12).all()
    assert (np.abs(s[:, :2]) <= 0.94).all()
    assert (s[:, 2:4] == 0).all()
    assert stats.binomtest(int(launched.sum()), n, 0.25).pvalue > 1e-3
    laws = [
        (s[:, 4], stats.uniform(-0.35, 0.7)),
        (s[:, 5], stats.uniform(-0.35, 0.7)),
        (distance, stats.uniform(0.35, 0.25)),
        (np.arctan2(gap[:, 1], gap[:, 0]), stats.uniform(-np.pi, 2 * np.pi)),
        (speed[launched], stats.uniform(0.5, 1.5)),
        (np.arctan2(s[launched, 7], s[launched, 6]), stats.uniform(-np.pi, 2 * np.pi)),
        (np.log(mass), stats.uniform(np.log(0.5), np.log(6.0))),
        (drag, stats.uniform(0.5, 3.5)),
        (np.log(stiffness), stats.uniform(np.log(500), np.log(12.0))),
    ]
    for sample, law in laws:
        assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    columns = np.stack([s[:, 4], s[:, 5], distance, np.arctan2(gap[:, 1], gap[:, 0]), speed, mass, drag, stiffness])
    assert np.abs(np.corrcoef(columns) - np.eye(8)).max() < 0.05


def test_a_finger_that_would_start_in_a_wall_starts_on_the_other_side():
    u = np.full((1, 7), 0.5)
    u[0, [0, 2, 3]] = [1.0 - 1e-9, 1.0, 0.0]
    state = WORLD.initial(u, np.ones((1, 3)), None)[0]
    assert state[0] == pytest.approx(0.35 - 0.6)


def test_reward_is_the_documented_one_and_actions_clip():
    env = gym.make(ID)
    env.reset(seed=0)
    for action, force in (([0.5, -0.25], [10.0, -5.0]), ([5.0, -9.0], [20.0, -20.0])):
        _, reward, terminated, truncated, _ = env.step(np.array(action, np.float32))
        x, y = env.unwrapped.state[4:6]
        assert reward == pytest.approx(-math.hypot(x - 0.6, y) - 0.0001 * np.dot(force, force), rel=1e-14)
        assert not terminated
        assert not truncated


def test_an_episode_has_64_states_and_every_step_reports_the_contact():
    env = gym.make(ID, obs_type="state", system={"mass": 1.0, "drag": 1.0, "stiffness": 2000.0})
    env.reset(options={"state": [-0.3, 0, 0, 0, 0, 0, 0, 0]})
    reports = []
    for t in range(63):
        *_, truncated, info = env.step(np.array([0.3, 0.0], np.float32))
        assert truncated == (t == 62)
        assert set(info) == {"contact", "contact_force"}
        assert isinstance(info["contact"], bool)
        assert info["contact"] or info["contact_force"] == 0.0
        reports.append(info["contact"])
    assert any(reports)
    assert not all(reports)
    vector = gym.make_vec(ID, num_envs=3, obs_type="state")
    vector.reset(seed=0)
    *_, info = vector.step(np.zeros((3, 2), np.float32))
    assert info["contact"].dtype == np.bool_
    assert info["contact_force"].dtype == np.float32
    assert info["_contact"].all()


def test_observations_are_the_float32_state():
    env = gym.make(ID, obs_type="state")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (8,)
    assert np.array_equal(obs, env.unwrapped.state.astype(np.float32))


@pytest.mark.parametrize("size", [64, 128])
def test_a_frame_shows_finger_object_and_goal_and_nothing_else(size):
    rows, columns = np.mgrid[:size, :size] + 0.5
    scale = size / 2.0
    states = anywhere(50, seed=5)[0]
    frames = WORLD.draw(states, size)
    for frame, state in zip(frames, states, strict=True):
        want = np.zeros((size, size))
        for x, y, radius, grey in ((0.6, 0, 0.04, 64), (*state[4:6], 0.09, 144), (*state[0:2], 0.06, 240)):
            reach = np.hypot(columns - (size / 2 + x * scale), rows - (size / 2 - y * scale))
            want = np.maximum(want, grey * np.clip(radius * scale + 0.5 - reach, 0, 1))
        assert np.abs(frame - want).max() <= 0.51
    still = states.copy()
    still[:, [2, 3, 6, 7]] = 0.0
    assert np.array_equal(WORLD.draw(still, size), frames)


def test_pixels_are_the_default_and_hide_the_system():
    low, high = ({"mass": m, "drag": d, "stiffness": k} for m, d, k in ((0.5, 0.5, 500), (3, 4, 6000)))
    env = gym.make(ID)
    assert env.observation_space.shape == (64, 64, 2)
    one, two = (env.reset(seed=0, options={"system": system})[0] for system in (low, high))
    assert np.array_equal(one, two)
    assert np.array_equal(one[..., 0], one[..., 1])


def test_pictures_for_people_flash_on_contact():
    apart = [-0.5, 0, 0, 0, 0, 0, 0, 0]
    touching = [-0.14, 0, 0, 0, 0, 0, 0, 0]
    pictures = WORLD.picture(np.array([apart, touching]), np.ones((2, 3)), (256, 256))
    assert pictures.shape == (2, 256, 256, 3)
    colours = [pictures[i, 128, int(128 + 128 * x)].tolist() for i, x in ((0, -0.5), (1, -0.17))]
    assert colours[0] != colours[1]
    assert np.ptp(colours[1]) > 100  # a colour, not a grey


def test_constants_are_arguments():
    env = gym.make(ID, obs_type="state", force_limit=2.0, arena=2.0, view_width=4.0)
    env.reset(options={"state": [1.5, 0, 0, 0, -1, 0, 0, 0]})
    obs, *_ = env.step(np.array([0.0, 1.0], np.float32))
    assert obs[:4] == pytest.approx([1.5, 2.0 * 0.0025 * 0.525, 0, 0.1])
    assert replace(WORLD, goal_x=0.0).reward(np.zeros((1, 8)), np.zeros((1, 2)), np.zeros((1, 8))) == 0.0


def test_the_manual_page_states_the_real_defaults():
    page = (Path(__file__).parents[2] / "docs" / "envs" / "poke_world.md").read_text(encoding="utf-8")
    for field in fields(PokeWorld):
        assert f"| `{field.name}` | `{field.default}` |" in page
    for p in PokeWorld.properties:
        assert f"| `{p.name}` | {p.symbol} | {p.unit} | [{p.low:g}, {p.high:g}] |" in page
