"""SpringWorld: starts, endings, force, reward, and what its pixels show and hide."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sprii_envs  # noqa: F401
from sprii_envs.envs.spring_world import SpringWorld
from sprii_envs.world import rollout

WORLD = SpringWorld()
NOMINAL = WORLD.properties.nominal[None]
STRAINS = {"forced": (0.04, 0.08), "free": (0.08,), "moving": (0.08,)}
SPEEDS = {"glide": (0.1, 0.17), "moving": (0.01, 0.04)}


@pytest.mark.parametrize("kind", WORLD.queries)
def test_each_kind_of_start_is_what_the_manual_says(kind):
    n = 4000
    states = WORLD.initial(np.random.default_rng(0).random((n, 6)), np.repeat(NOMINAL, n, 0), kind)
    centre, separation = 0.5 * (states[:, :2] + states[:, 2:4]), states[:, 2:4] - states[:, :2]
    extent = 0.06 if kind == "cold" else 0.08
    assert np.abs(centre).max() <= extent
    assert centre.max() > 0.97 * extent
    strain = np.hypot(*separation.T) / 0.35 - 1.0
    allowed = np.array([s * v for v in STRAINS.get(kind, (0.0,)) for s in (-1, 1)])
    assert np.abs(strain[:, None] - allowed).min(1).max() < 1e-12
    shares = [np.mean(np.abs(strain - a) < 1e-9) for a in np.unique(allowed)]
    assert np.allclose(shares, 1 / len(shares), atol=4 * np.sqrt(0.25 / n))
    assert np.array_equal(states[:, 4:6], states[:, 6:8])
    speed, (low, high) = np.hypot(states[:, 4], states[:, 5]), SPEEDS.get(kind, (0.0, 0.0))
    assert low - 1e-12 <= speed.min() <= speed.max() <= high + 1e-12
    turn = np.arctan2(separation[:, 1], separation[:, 0])
    if high:  # the pair drifts half a radian from the spring's direction
        heading = np.arctan2(states[:, 5], states[:, 4]) - turn
        assert np.abs(np.exp(1j * heading) - np.exp(0.5j)).max() < 1e-12
    assert abs(np.exp(1j * turn).mean()) < 5 / np.sqrt(n)


def test_the_query_reaches_the_start_through_reset():
    env = gym.make("sprii/SpringWorld-v0", obs_type="state")
    observation, _ = env.reset(seed=0, options={"query": "static"})
    assert not observation[4:].any()
    vector = gym.make_vec("sprii/SpringWorld-v0", num_envs=5, obs_type="state")
    assert not vector.reset(seed=0, options={"query": "cold"})[0][:, 4:].any()
    with pytest.raises(ValueError, match="did you mean 'static'"):
        env.reset(options={"query": "statick"})


@given(st.floats(-3, 3, width=32), st.floats(-3, 3, width=32))
@settings(max_examples=100, deadline=None)
def test_the_force_keeps_its_direction_and_is_at_most_one_newton(x, y):
    fx, fy = WORLD.force(np.array([[x, y]], np.float32))[0]
    norm = np.hypot(x, y)
    assert np.hypot(fx, fy) == pytest.approx(min(norm, 1.0), abs=1e-12)
    assert fx * y == pytest.approx(fy * x, abs=1e-9)


def test_only_ball_1_is_pushed():
    states = rollout(WORLD, [[1.0, 0.75, 0.0]], [-0.2, 0, 0.2, 0, 0, 0, 0, 0], np.ones((5, 2), np.float32)).states[0]
    assert np.abs(states[:, [2, 3, 6, 7]] - states[0, [2, 3, 6, 7]]).max() < 1e-15
    assert states[-1, 4] > 0.1


def test_leaving_the_view_and_coming_too_close_truncate_with_a_reason():
    env = gym.make("sprii/SpringWorld-v0", obs_type="state", system={"mass": 1.0, "drag": 0.0, "stiffness": 0.0})
    for state, reason in (
        ([0.5, 0, 0.89, 0, 0, 0, 1.0, 0], "out of view"),
        ([-0.5, -0.89, 0, 0, 0, -1.0, 0, 0], "out of view"),
        ([-0.07, 0, 0.07, 0, 0.5, 0, 0, 0], "too close"),
    ):
        env.reset(options={"state": state})
        _, _, terminated, truncated, info = env.step(np.zeros(2))
        assert (terminated, truncated, info["reason"]) == (False, True, reason)
        assert info["reason"] in WORLD.endings
    env.reset(options={"state": [-0.2, 0, 0.2, 0, 0, 0, 0, 0]})
    assert env.step(np.zeros(2))[4] == {}
    vector = gym.make_vec("sprii/SpringWorld-v0", num_envs=3, obs_type="state")
    start = np.array([[0.5, 0, 0.89, 0, 0, 0, 1.0, 0], [-0.2, 0, 0.2, 0, 0, 0, 0, 0], [-0.07, 0, 0.07, 0, 2, 0, 0, 0]])
    vector.reset(options={"state": start})
    _, _, _, truncated, info = vector.step(np.zeros((3, 2)))
    assert truncated.tolist() == info["_reason"].tolist() == [True, False, True]
    assert info["reason"].tolist() == ["out of view", None, "too close"]


def test_the_limits_are_where_the_manual_says():
    still = np.zeros((1, 8))
    for x, valid in ((0.9 - 1e-9, True), (0.9 + 1e-9, False)):
        still[0, :4] = (0.0, 0.0, x, 0.0)
        assert (WORLD.end(still, {}).truncated is None) is valid
    for gap, valid in ((0.12 + 1e-9, True), (0.12 - 1e-9, False)):
        still[0, :4] = (0.0, 0.0, 0.0, gap)
        assert (WORLD.end(still, {}).truncated is None) is valid


def test_the_reward_is_the_documented_one():
    rng = np.random.default_rng(3)
    env = gym.make("sprii/SpringWorld-v0", obs_type="state")
    env.reset(seed=1)
    for _ in range(5):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        _, reward, *_ = env.step(action)
        s, force = env.unwrapped.state, np.float64(action) / max(1.0, np.hypot(*np.float64(action)))
        centre = 0.5 * (s[:2] + s[2:4])
        assert reward == pytest.approx(-(centre @ centre + 0.1 * s[4:] @ s[4:] + 0.001 * force @ force), abs=1e-14)


def frames(states, size=128):
    return WORLD.draw(np.asfortranarray(np.atleast_2d(states)), size).astype(np.float64)


@pytest.mark.parametrize("size", [64, 128])
def test_the_brightness_centroid_follows_a_ball_to_a_twentieth_of_a_pixel(size):
    # Ball 2 alone: grey above ball 1's and the line's 96 belongs to it, so its own centroid is that of the whole disc
    # drawn with the others out of the picture.
    world = SpringWorld(first_grey=1, line_grey=1)
    rng = np.random.default_rng(0)
    place = rng.uniform(-0.5, 0.5, (300, 2))
    states = np.zeros((300, 8))
    states[:, :2], states[:, 2:4] = 0.8, place
    seen = world.draw(np.asfortranarray(states), size).astype(np.float64)
    seen[seen <= 1] = 0.0
    rows, columns = np.mgrid[:size, :size] + 0.5
    mass = seen.sum((1, 2))
    x, y = (seen * columns).sum((1, 2)) / mass, (seen * rows).sum((1, 2)) / mass
    assert np.abs(x - (place[:, 0] + 1.0) * size / 2).max() < 0.05
    assert np.abs(y - (1.0 - place[:, 1]) * size / 2).max() < 0.05


def test_a_small_motion_changes_the_frame_a_little():
    # A step of 0.01 pixel changes no pixel by more than 0.01 pixel times the steepest edge (one grey range a pixel).
    state = np.array([-0.1, 0.03, 0.2, -0.04, 0, 0, 0, 0])
    before = frames(state)
    for shift in np.linspace(0.0, 1.0, 101)[1:]:
        moved = state.copy()
        moved[[0, 2]] += shift * 2.0 / 128
        after = frames(moved)
        assert np.abs(after - before).max() <= 224 * 0.01 * 1.05 + 1.0
        before = after
    assert np.array_equal(before[0][:, 1:], frames(state)[0][:, :-1])


def test_hidden_properties_do_not_show_in_any_frame():
    env = gym.make_vec("sprii/SpringWorld-v0", num_envs=4)
    state = WORLD.initial(np.random.default_rng(0).random((1, 6)), NOMINAL, None)[0]
    corners = np.array([[0.5, 0.25, 4.0], [2.0, 0.25, 4.0], [0.5, 1.5, 4.0], [0.5, 0.25, 25.0]])
    observation, _ = env.reset(seed=0, options={"system": corners, "state": state})
    assert (observation == observation[0]).all()
    assert np.array_equal(observation[..., 0], observation[..., 1])


def test_greys_and_geometry_of_a_frame():
    frame = frames([-0.3, 0, 0.3, 0, 0, 0, 0, 0])[0]
    centre, at = 64, lambda x: int(64 + 64 * x)
    assert frame[centre, at(-0.3)] == 96
    assert frame[centre, at(0.3)] == 224
    assert 0 < frame[centre - 1 : centre + 1, at(0.0)].max() <= 40
    assert not frame[: centre - 5].any()
    ball = frame[:, at(0.3) - 5 : at(0.3) + 5]
    assert (ball > 112).sum() == pytest.approx(np.pi * (0.05 * 64) ** 2, rel=0.1)


def test_a_picture_for_people_may_show_the_system():
    env = gym.make("sprii/SpringWorld-v0", render_mode="rgb_array")
    state = [-0.2, 0, 0.2, 0, 0, 0, 0, 0]
    env.reset(options={"state": state, "system": {"mass": 0.5, "drag": 1.0, "stiffness": 4.0}})
    light = env.render()
    env.reset(options={"state": state, "system": {"mass": 2.0, "drag": 1.0, "stiffness": 25.0}})
    heavy = env.render()
    assert light.shape == heavy.shape == (256, 256, 3)
    assert not np.array_equal(light, heavy)
