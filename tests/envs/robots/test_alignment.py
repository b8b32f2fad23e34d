"""Joins beside a search by brute force, and rotations beside scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from sprii_envs.robots.alignment import NONE, as_of, continuous, joined, series, unbroken
from sprii_envs.robots.splits import counts, split_tasks, told

TIMES = st.lists(st.integers(0, 40), max_size=12)


@given(TIMES, TIMES)
def test_the_last_sample_that_is_not_later(times, at):
    ordered = np.array(sorted(times), np.int64)
    for when, index in zip(at, as_of(ordered, np.array(at, np.int64)), strict=True):
        before = [i for i, t in enumerate(ordered) if t <= when]
        assert index == (before[-1] if before else NONE)


@given(TIMES, TIMES.map(sorted), st.integers(1, 5))
def test_nothing_behind_a_time_changes_what_is_known_at_it(times, at, step):
    values = [[float(i)] for i in range(len(times))]
    whole = series(times, np.reshape(values, (-1, 1)))
    for when in at:
        early = [i for i, t in enumerate(times) if t <= when]
        part = series([times[i] for i in early], np.reshape([values[i] for i in early], (-1, 1)))
        one, other = (joined(each, np.array([when])) for each in (whole, part))
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_ages_and_what_is_known_of_nothing():
    values, age = joined(series([30.0, 10.0], [[3.0], [1.0]]), np.array([5, 10, 29, 31]))
    np.testing.assert_array_equal(values, [[np.nan], [1.0], [1.0], [3.0]])
    np.testing.assert_array_equal(age, [np.inf, 0, 19, 1])
    values, age = joined(series([], np.zeros((0, 2))), np.array([1]))
    assert np.isnan(values).all()
    assert values.shape == (1, 2)


@pytest.mark.parametrize("time", [np.nan, np.inf, 1e300])
def test_times_that_are_none_are_refused(time):
    with pytest.raises(ValueError, match="no number of milliseconds"):
        series([1.0, time], [[0.0], [0.0]])


def test_signs_of_quaternions_are_continuous():
    rng = np.random.default_rng(0)
    smooth = Rotation.from_rotvec(np.cumsum(rng.normal(size=(200, 3)) * 0.2, axis=0)).as_quat()
    signs = rng.choice([-1.0, 1.0], size=(200, 1))
    found = continuous(signs * smooth)
    assert ((found[1:] * found[:-1]).sum(axis=1) > 0).all()
    np.testing.assert_array_equal(found[0], signs[0] * smooth[0])
    np.testing.assert_allclose(
        Rotation.from_quat(found).as_matrix(), Rotation.from_quat(smooth).as_matrix(), atol=1e-12
    )


@given(st.lists(st.booleans(), max_size=12))
def test_frames_are_cut_at_their_ends_and_holes_are_found(flags):
    kept, hole = unbroken(np.array(flags, bool))
    there = [i for i, flag in enumerate(flags) if flag]
    assert list(range(len(flags)))[kept] == (list(range(there[0], there[-1] + 1)) if there else [])
    assert hole == next((i for i in range(kept.start, kept.stop) if not flags[i]), None)


def test_tasks_are_split_as_published():
    assert counts(124) == (74, 25, 25)
    names = [f"task_{i:04d}" for i in range(124)]
    splits = split_tasks(reversed(names), 7)
    order = np.random.default_rng(7).permutation(124)
    assert [splits[names[i]] for i in order] == ["train"] * 74 + ["validation"] * 25 + ["test"] * 25
    assert told(splits) == "124 tasks: 74 train, 25 validation, 25 test"
    assert split_tasks(names, 8) != splits


@given(st.integers(0, 400))
def test_other_numbers_of_tasks_keep_the_proportion(tasks):
    train, validation, test = counts(tasks)
    assert train + validation + test == tasks
    assert validation == test
    assert abs(validation - tasks * 25 / 124) <= 0.5
    assert tasks in (0, 124) or "scaled from 74, 25 and 25 of 124" in told(split_tasks(map(str, range(tasks)), 0))
