"""Pendulum against its published configuration: dynamics, groups, starts, reward, success, and what a frame shows."""

import math
from dataclasses import fields
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from sprii_envs import rendering
from sprii_envs.envs.pendulum import GROUPS, Pendulum
from sprii_envs.physics.pendulum import success, wrap
from sprii_envs.properties import SystemSet
from sprii_envs.world import rollout

ID = "sprii/Pendulum-v0"
WORLD = Pendulum()


def published(theta, speed, action, mass, length):
    """One step of the closed equations in plain Python: (θ, θ̇, reward)."""
    a = min(max(action, -1.0), 1.0)
    wrapped = math.atan2(math.sin(theta), math.cos(theta))
    reward = -(wrapped**2 + 0.1 * speed**2 + 0.001 * a**2)
    acceleration = 3.0 * 10.0 / (2.0 * length) * math.sin(theta) + 3.0 * (2.0 * a) / (mass * length**2)
    speed = speed + 0.05 * acceleration
    return theta + 0.05 * speed, min(max(speed, -8.0), 8.0), reward


# --- dynamics and reward ---


def test_3600_steps_agree_with_the_closed_equations():
    # The motion is unstable, so each step is compared from the state the environment is in, not from the start.
    rng = np.random.default_rng(0)
    envs = [gym.make(ID, systems=group) for group in GROUPS]
    clipped = 0
    for episode in range(18):
        env = envs[episode % len(envs)]
        env.reset(seed=episode)
        u = env.unwrapped
        system = u.system
        for action in rng.uniform(-1.5, 1.5, (200, 1)).astype(np.float32):
            theta, speed, reward = published(*u.state, float(action[0]), system["mass"], system["length"])
            observation, got, *_ = env.step(action)
            assert u.state == pytest.approx([theta, speed], rel=0, abs=1e-12)
            assert got == pytest.approx(reward, rel=0, abs=1e-12)
            assert observation == pytest.approx([math.cos(theta), math.sin(theta), speed], rel=1e-6, abs=1e-6)
            clipped += abs(speed) == 8.0
    assert clipped > 10


def test_random_systems_agree_with_the_closed_equations():
    rng = np.random.default_rng(1)
    values = rng.uniform(0.2, 1.8, (64, 2))
    start = np.stack((rng.uniform(-9, 9, 64), rng.uniform(-8, 8, 64)), axis=1)
    actions = rng.uniform(-1.2, 1.2, (64, 30, 1)).astype(np.float32)
    result = rollout(WORLD, values, start, actions)
    for i in range(64):
        for t in range(30):
            want = published(*result.states[i, t], float(actions[i, t, 0]), *values[i])
            assert [*result.states[i, t + 1], result.rewards[i, t]] == pytest.approx(want, rel=0, abs=1e-12)


def test_gymnasiums_pendulum_moves_alike_at_unit_mass_and_length_until_the_speed_clips():
    ours = gym.make(ID, system={"mass": 1.0, "length": 1.0})
    theirs = gym.make("Pendulum-v1").unwrapped
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for action in np.random.default_rng(2).uniform(-1, 1, (200, 1)).astype(np.float32):
        theirs.state = ours.unwrapped.state
        reward = ours.step(action)[1]
        their_reward = theirs.step(2.0 * action.astype(np.float64))[1]
        assert ours.unwrapped.state == pytest.approx(theirs.state, rel=0, abs=1e-12)
        # Gymnasium charges 0.001·(2a)², we 0.001·a².
        assert reward - their_reward == pytest.approx(0.003 * float(action[0]) ** 2, abs=1e-12)
    assert theirs.max_torque == WORLD.torque_limit
    # At the speed limit Gymnasium clips before it moves the angle.
    ours.reset(options={"state": [1.5, 7.9]})
    theirs.state = np.array([1.5, 7.9])
    ours.step([1.0])
    theirs.step(np.array([2.0]))
    assert ours.unwrapped.state[1] == theirs.state[1] == 8.0
    assert ours.unwrapped.state[0] > theirs.state[0] + 0.04


def swing(dt, start, length=1.0, seconds=2.0):
    """States of a torque-free swing at time step `dt`, (T+1, 2)."""
    steps = round(seconds / dt)
    return rollout(Pendulum(dt=dt), np.array([[1.0, length]]), start, np.zeros((steps, 1))).states[0]


def test_halving_the_step_halves_the_distance_to_the_exact_swing():
    start, length = [2.0, 0.5], 0.8
    exact = solve_ivp(
        lambda t, s: [s[1], 15.0 / length * math.sin(s[0])], (0.0, 2.0), start, method="DOP853", rtol=1e-11, atol=1e-11
    ).y[:, -1]
    errors = [np.abs(swing(dt, start, length)[-1] - exact).max() for dt in (0.01, 0.005, 0.0025, 0.00125)]
    ratios = np.array(errors[:-1]) / errors[1:]
    assert errors[-1] < 0.05
    assert ratios == pytest.approx(2.0, abs=0.1)


def test_a_small_swing_keeps_its_energy_to_first_order_in_the_step():
    def worst(dt):
        angle, velocity = swing(dt, [math.pi + 0.2, 0.0], seconds=10.0).T
        energy = velocity**2 / 6.0 + 5.0 * np.cos(angle)  # ½(ml²/3)θ̇² + mg(l/2)cos θ
        return np.abs(energy - energy[0]).max() / (5.0 + energy[0])

    errors = [worst(dt) for dt in (0.02, 0.01, 0.005)]
    assert errors[0] < 0.1
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)
    assert errors[1] / errors[2] == pytest.approx(2.0, abs=0.1)


def test_the_angle_advances_with_the_unclipped_velocity():
    states = rollout(WORLD, [[0.2, 0.2]], [math.pi / 2, 0.0], [[1.0]]).states[0]
    speed = 0.05 * (15.0 / 0.2 + 6.0 / 0.008)
    assert states[1] == pytest.approx([math.pi / 2 + 0.05 * speed, 8.0], rel=1e-14)
    assert speed > 40.0


def test_wrap_brings_angles_into_the_half_open_circle():
    assert wrap(np.array([0.0, math.pi, -math.pi])).tolist() == [0.0, math.pi, math.pi]
    angle = np.random.default_rng(0).uniform(-200, 200, 10_000)
    want = [math.atan2(math.sin(a), math.cos(a)) for a in angle]
    assert wrap(angle) == pytest.approx(want, rel=0, abs=1e-12)
    whole = np.arange(-30, 31) * 2.0 * math.pi
    assert np.abs(wrap(whole)).max() < 1e-13
    # At hanging the reward must not jump between the two names of the same place.
    rewards = WORLD.reward(np.array([[math.pi, 0.0], [-math.pi, 0.0], [5 * math.pi, 0.0]]), np.zeros((3, 1)), None)
    assert rewards == pytest.approx(-(math.pi**2), rel=1e-13)


@pytest.mark.parametrize("n", [1, 3, 17, 1000])
def test_results_do_not_depend_on_the_batch(n):
    rng = np.random.default_rng(3)
    values = rng.uniform(0.2, 1.8, (1000, 2))
    state = np.stack((rng.uniform(-400, 400, 1000), rng.uniform(-8, 8, 1000)), axis=1)
    action = rng.uniform(-1, 1, (1000, 1)).astype(np.float32)

    def step(rows, order):
        now = np.array(state[rows], order=order)
        force = WORLD.force(action[rows])
        after, _ = WORLD.step(now, force, WORLD.prepare(values[rows]))
        return (
            after,
            WORLD.observe(after),
            WORLD.reward(now, force, after),
            WORLD.initial(state[rows], values[rows], None),
        )

    whole = step(slice(None), "F")
    for first in (0, 1, 501):
        rows = slice(first, first + n)
        for order in ("F", "C"):
            for part, full in zip(step(rows, order), whole, strict=True):
                assert np.array_equal(part, full[rows])


# --- starts, groups, success ---


def test_starts_hang_and_episodes_last_200_steps():
    env = gym.make_vec(ID, num_envs=4000)
    _, info = env.reset(seed=0)
    angle, velocity = env.unwrapped.state.T
    assert stats.kstest(angle, stats.uniform(7 * np.pi / 8, np.pi / 4).cdf).pvalue > 1e-3
    assert stats.kstest(velocity, stats.uniform(-0.2, 0.4).cdf).pvalue > 1e-3
    columns = np.stack([angle, velocity, *info["persistent"].T])
    assert np.abs(np.corrcoef(columns) - np.eye(4)).max() < 0.06
    for t in range(200):
        *_, terminated, truncated, _ = env.step(np.zeros((4000, 1), np.float32))
        assert not terminated.any()
        assert (truncated == (t == 199)).all()


SETS = {
    "OOD_c0": ({0.2, 0.4}, {1.6, 1.8}),
    "OOD_c1": ({0.5, 0.7}, {1.3, 1.5}),
    "OOD_c2": ({1.3, 1.5}, {0.5, 0.7}),
    "OOD_c3": ({1.6, 1.8}, {0.2, 0.4}),
    "ID": ({0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25},) * 2,
}


@pytest.mark.parametrize("group", SETS)
def test_groups_draw_exactly_their_systems(group):
    for systems in (group, GROUPS[group], *([None] if group == "ID" else [])):
        env = gym.make_vec(ID, num_envs=4000, systems=systems)
        _, info = env.reset(seed=0)
        found, counts = np.unique(info["persistent"], axis=0, return_counts=True)
        masses, lengths = SETS[group]
        assert {tuple(row) for row in found.tolist()} == {(m, x) for m in masses for x in lengths}
        assert stats.chisquare(counts).pvalue > 1e-3
        assert (info["extrapolated"] == (group != "ID")).all()
    single = gym.make(ID, systems=group)
    assert single.unwrapped.distribution == GROUPS[group]
    assert gym.make(single.spec).unwrapped.distribution == GROUPS[group]


def test_an_unknown_group_is_refused_with_the_nearest_name():
    for name, near in (("ood_c3", "OOD_c3"), ("OOD-c1", "OOD_c1"), ("id", "ID")):
        with pytest.raises(ValueError, match=f"{name}'; did you mean '{near}'.*OOD_c0, OOD_c1"):
            gym.make(ID, systems=name)
    with pytest.raises(ValueError, match="there are none"):
        gym.make("sprii/D-Clean-v0", systems="ID")


def test_levels_off_by_rounding_do_not_count_as_extrapolation():
    levels = np.arange(0.75, 1.26, 0.05)
    assert levels[-1] > 1.25
    values = np.array([[levels[-1], 0.75 - 1e-16], [1.25 + 1e-6, 1.0], [1.0, 0.749]])
    assert WORLD.properties.extrapolated(values).tolist() == [False, True, True]
    env = gym.make(ID, systems=SystemSet(WORLD.properties, [[levels[-1], 0.1 * 3 + 0.45]]))
    assert env.reset(seed=0)[1]["extrapolated"] is False


def test_success_is_the_last_100_states_within_60_degrees():
    limit = math.pi / 3
    states = np.zeros((7, 201, 2))
    states[:, :101, 0] = math.pi  # the swing-up, and the start, do not count
    states[1, 101, 0] = limit + 1e-9
    states[2, 200, 0] = -limit - 1e-9
    states[3, 101:, 0] = limit * (1 - 1e-12)
    states[4, 101:, 0] = 6 * math.pi - 0.5
    states[5, 150, 0] = math.pi
    states[6, :, 1] = 8.0
    assert success(states).tolist() == [True, False, False, True, True, False, True]
    assert success(states[0]).shape == ()
    assert success(states[0, 100:])
    with pytest.raises(ValueError, match="100 states after actions, got 100 states"):
        success(states[0, 101:])
    assert not success(rollout(WORLD, [[1.0, 1.0]], [math.pi, 0.0], np.zeros((200, 1))).states).any()


def test_initial_states_keep_the_bounds_of_the_observation():
    env = gym.make(ID)
    env.reset(options={"state": [40.0, -8.0]})
    assert env.unwrapped.state.tolist() == [40.0, -8.0]
    with pytest.raises(ValueError, match=r"'velocity' = 8.5: it must be in \[-8, 8\]"):
        env.reset(options={"state": [0.0, 8.5]})
    with pytest.raises(ValueError, match=r"of slot 1 = -9"):
        gym.make_vec(ID, num_envs=2).reset(options={"state": [[0.0, 8.0], [0.0, -9.0]]})


# --- pictures ---


def test_a_frame_shows_the_angle_and_neither_velocity_nor_system():
    systems = ({"mass": 0.2, "length": 1.8}, {"mass": 1.8, "length": 0.2})
    frames = [gym.make(ID, obs_type="pixels").reset(seed=0, options={"system": system})[0] for system in systems]
    assert np.array_equal(*frames)
    one, turned, fast = (
        WORLD.draw([[a, v]] @ np.eye(2), 64)[0] for a, v in ((0.3, 0.0), (0.3 + 4 * np.pi, 0.0), (0.3, 8.0))
    )
    assert np.abs(one.astype(int) - turned).max() <= 1  # 4π more is the same but for rounding
    assert np.array_equal(one, fast)


@pytest.mark.parametrize("size", [64, 128])
def test_a_frame_is_a_pivot_a_rod_and_a_bob(size):
    centres = np.stack(np.meshgrid(*[(np.arange(size) + 0.5) / size * 2.6 - 1.3] * 2), axis=-1)
    x, y = centres[..., 0], -centres[..., 1]
    pixel = 2.6 / size
    for angle in (0.0, 0.4, math.pi / 2, 2.8, math.pi, -1.0, 20.0):
        end = np.array([-math.sin(angle), math.cos(angle)])
        along = np.clip(x * end[0] + y * end[1], 0.0, 1.0)
        far = {
            48: np.hypot(x, y) - 0.12,
            128: np.hypot(x - along * end[0], y - along * end[1]) - 0.06,
            224: np.hypot(x - end[0], y - end[1]) - 0.16,
        }
        want = np.max([grey * np.clip(0.5 - d / pixel, 0, 1) for grey, d in far.items()], axis=0)
        frame = WORLD.draw(np.array([[angle, 0.0]]), size)[0]
        assert np.abs(frame - want).max() <= 0.51
        assert frame.max() == 224


@pytest.mark.parametrize("size", [(480, 480), (96, 128)])
def test_pictures_of_many_are_shapes_mixed_over_whole_frames(size):
    """Blocks and boxes, which `picture` mixes by, change no pixel."""
    rng, n = np.random.default_rng(0), 12
    state = rng.normal(size=(n, 2)) * (2.0, 1.0)
    values = rng.uniform(0.1, 2.5, (n, 2))
    heavy = np.clip((values[:, :1] - 0.2) / 1.6, 0, 1)
    shade = (1 - heavy) * (120, 200, 250) + heavy * (235, 70, 50)
    pivot, tip = WORLD._ends(state, np.minimum(values[:, 1], 1.9), 4.0, size)
    scale = size[1] / 4.0
    frame = np.full((n, *size, 3), (18, 20, 28), np.float32)
    for shapes, colour in (
        ([rendering.disc(pivot, scale, 255, size)], np.full((n, 3), (32, 36, 48))),
        (rendering.segment(pivot, tip, 0.1 * scale, 255, size), shade),
        ([rendering.disc(pivot, 0.05 * scale, 255, size)], np.full((n, 3), (18, 20, 28))),
    ):
        cover = rendering.draw(shapes, n, size)[..., None] * np.float32(1 / 255)
        frame += cover * (colour[:, None, None].astype(np.float32) - frame)
    assert np.array_equal(WORLD.picture(state, values, size), (frame + 0.5).astype(np.uint8))


def test_pictures_for_people_show_the_system():
    env = gym.make_vec(ID, num_envs=3, render_mode="rgb_array")
    system = {"mass": [1.0, 1.8, 1.0], "length": [1.0, 1.0, 0.4]}
    env.reset(seed=0, options={"system": system, "state": [0.3, 0.0]})
    pictures = env.render()
    assert pictures[0].shape == (256, 256, 3)
    assert pictures[0].dtype == np.uint8
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])
    single = gym.make(ID, render_mode="rgb_array", system={"mass": 1.0, "length": 1.0})
    single.reset(options={"state": [0.3, 0.0]})
    assert np.array_equal(single.render(), pictures[0])


def test_constants_are_arguments_and_are_checked():
    env = gym.make(ID, gravity=0.0, torque_limit=1.0, dt=0.1, system={"mass": 2.0, "length": 0.5})
    env.reset(options={"state": [0.0, 0.0]})
    _, reward, *_ = env.step(np.array([-2.0], np.float32))
    assert env.unwrapped.state == pytest.approx([-0.06, -0.6], rel=1e-14)
    assert reward == pytest.approx(-0.001, rel=1e-14)
    for name, value in (("dt", 0.0), ("gravity", -1.0), ("start_angle", 4.0), ("start_speed", 9.0), ("rod_grey", 0)):
        with pytest.raises(ValueError, match=name):
            gym.make(ID, **{name: value})


def test_the_manual_page_states_the_real_defaults():
    page = (Path(__file__).parents[2] / "docs" / "envs" / "pendulum.md").read_text(encoding="utf-8")
    for field in fields(Pendulum):
        assert f"| `{field.name}` | `{field.default}` |" in page
    for p in Pendulum.properties:
        assert f"| `{p.name}` | {p.symbol} | {p.unit} | [{p.low:g}, {p.high:g}] |" in page
    for name, group in GROUPS.items():
        lists = [
            ", ".join(f"{v:.2f}" if name == "ID" else f"{v:g}" for v in dict(group.levels)[p])
            for p in ("mass", "length")
        ]
        assert f"| `{name}` | {lists[0]} | {lists[1]} |" in page
