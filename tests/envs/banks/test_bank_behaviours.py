"""The law of the behaviour policy. Statistical tests reject a correct build with probability `ALPHA` each."""

import itertools

import numpy as np
import pytest
from scipy import stats

from sprii_envs.banks import D_CLEAN, ForceSegments, behaviours
from sprii_envs.envs.d_clean import DClean

ALPHA = 1e-4
EPISODES, STEPS = 4000, 63


@pytest.fixture(scope="module")
def actions():
    return D_CLEAN.behaviour.actions(np.random.default_rng(7), EPISODES, STEPS)


def first_segments(actions):
    """Length and force of each episode's first segment, where it can be told from the second."""
    changed = (actions[:, 1:] != actions[:, :1]).any(axis=2)
    return changed.argmax(axis=1) + 1, actions[:, 0]


def test_shape_type_and_range(actions):
    assert actions.shape == (EPISODES, STEPS, 2)
    assert actions.dtype == np.float32
    assert np.linalg.norm(actions.astype(np.float64), axis=2).max() <= 1 + 1e-7


def test_segments_last_three_to_eight_steps_uniformly(actions):
    lengths, force = first_segments(actions)
    pushed = lengths[(force != 0).any(axis=1)]  # two zero segments in a row look like one
    counts = np.bincount(pushed, minlength=9)
    assert counts[:3].sum() == 0
    assert len(counts) == 9
    assert stats.chisquare(counts[3:]).pvalue > ALPHA


def test_every_segment_inside_the_episode_keeps_to_the_lengths(actions):
    changed = (actions[:, 1:] != actions[:, :-1]).any(axis=2)
    for row, episode in zip(changed[:200], actions[:200], strict=True):
        ends = np.flatnonzero(row) + 1
        for begin, end in itertools.pairwise(ends):
            assert end - begin >= 3
            assert end - begin <= 8 or not episode[begin].any()


def test_rest_has_probability_point_three(actions):
    resting = int((~first_segments(actions)[1].any(axis=1)).sum())
    assert stats.binomtest(resting, EPISODES, 0.3).pvalue > ALPHA


def test_magnitude_is_uniform_up_to_four_newtons_in_any_direction(actions):
    force = 4.0 * first_segments(actions)[1].astype(np.float64)
    force = force[force.any(axis=1)]
    assert stats.kstest(np.hypot(*force.T), stats.uniform(0, 4).cdf).pvalue > ALPHA
    angle = np.arctan2(force[:, 1], force[:, 0])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > ALPHA


def test_later_segments_follow_the_same_law(actions):
    """At a fixed late step the segment's force has the same law as the first one's, whatever its length."""
    late = 4.0 * actions[:, 40].astype(np.float64)
    assert stats.binomtest(int((~late.any(axis=1)).sum()), EPISODES, 0.3).pvalue > ALPHA
    late = late[late.any(axis=1)]
    assert stats.kstest(np.hypot(*late.T), stats.uniform(0, 4).cdf).pvalue > ALPHA


def test_pure_function_of_the_generator():
    a, b = (ForceSegments().actions(np.random.default_rng(3), 5, 10) for _ in range(2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, ForceSegments().actions(np.random.default_rng(4), 5, 10))


def test_the_policy_is_open_loop():
    values, start = np.ones((5, 1)), np.zeros((5, 4))
    given = ForceSegments().policy(np.random.default_rng(3), DClean(), values, start, 10, None)
    assert np.array_equal(given, ForceSegments().actions(np.random.default_rng(3), 5, 10))


def test_one_step_episode():
    assert ForceSegments().actions(np.random.default_rng(0), 2, 1).shape == (2, 1, 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shortest": 0}, "shortest"),
        ({"longest": 2}, "shortest"),
        ({"rest": 1.5}, "rest"),
        ({"largest": -1}, "largest"),
    ],
)
def test_illegal_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        ForceSegments(**wrong)


def test_round_trip_is_strict():
    data = behaviours.to_dict(ForceSegments(rest=0.5))
    assert behaviours.from_dict(data) == ForceSegments(rest=0.5)
    with pytest.raises(ValueError, match="unknown behaviour kind 'walk'"):
        behaviours.from_dict({**data, "kind": "walk"})
    with pytest.raises(ValueError, match="needs exactly"):
        behaviours.from_dict({**data, "speed": 1})
