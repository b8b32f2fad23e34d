"""Cases, donors of other systems, and target statistics against loops."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from value_toys import linear_gaussian

from sprii_train.analysis.populations import (
    Confirmation,
    Development,
    PopulationError,
    Sealed,
    Training,
)
from sprii_train.analysis.value import fit_standardiser, other_system_rows

CASES = linear_gaussian(Training("train"), 6, episodes=3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("query", np.zeros((17, 8)), r"query must have shape \(n, d_q\)"),
        ("query", np.zeros(18), "query"),
        ("context", np.zeros((18, 2, 2)), "context"),
        ("actions", np.zeros((18, 2, 1)), "actions has 2 steps; the last horizon is 3"),
        ("targets", np.zeros((18, 3, 1)), "targets has 3 horizons"),
        ("targets", np.full((18, 2, 1), np.nan), "targets must be finite; 36"),
        ("factors", {"mass": np.ones(17)}, r"factors\['mass'\]"),
        ("strata", np.zeros(17), "strata"),
        ("kinds", np.zeros((18, 1)), "kinds"),
        ("horizons", (3, 1), "increasing"),
        ("horizons", (), "increasing"),
    ],
)
def test_cases_of_another_shape_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(CASES, **{field: value})


def test_take_and_of_kind_keep_rows_together():
    cold = CASES.of_kind("cold")
    rows = np.flatnonzero(CASES.kinds == "cold")
    assert 0 < len(rows) < len(CASES)
    for name in ("systems", "query", "context", "actions", "targets", "strata", "kinds"):
        np.testing.assert_array_equal(getattr(cold, name), getattr(CASES, name)[rows])
    np.testing.assert_array_equal(cold.factors["mass"], CASES.factors["mass"][rows])
    with pytest.raises(ValueError, match=r"kind 'warm'.*cold.*moving"):
        CASES.of_kind("warm")


def test_other_system_rows_deal_whole_systems():
    systems = np.random.default_rng(1).permutation(np.repeat(["a", "b", "c", "d"], [2, 5, 3, 1]))
    rows = other_system_rows(systems, seed=3)
    donor_of = {}
    for s in np.unique(systems):
        own = np.flatnonzero(systems == s)
        (donor,) = np.unique(systems[rows[own]])
        assert donor != s
        donor_of[s] = donor
        members = np.flatnonzero(systems == donor)
        for j, row in enumerate(own):  # the j-th case gets the j-th donor, counted around
            assert rows[row] == members[j % len(members)]
    assert sorted(donor_of.values()) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(rows, other_system_rows(systems, seed=3))
    assert any((rows != other_system_rows(systems, seed=s)).any() for s in range(4, 10))
    with pytest.raises(ValueError, match="at least 2 systems"):
        other_system_rows(np.zeros(5, int), seed=0)


def test_only_the_context_is_exchanged():
    wrong = CASES.mismatched(0)
    np.testing.assert_array_equal(wrong.context, CASES.context[other_system_rows(CASES.systems, 0, CASES.strata)])
    assert not np.isclose(wrong.context, CASES.context).all(1).any()
    for name in ("query", "actions", "targets", "systems"):
        assert getattr(wrong, name) is getattr(CASES, name)
    with pytest.raises(ValueError, match="no context"):
        replace(CASES, context=None).mismatched(0)
    with pytest.raises(ValueError, match="donor rows"):
        CASES.with_context(np.arange(3))


def test_standardiser_pools_cases_and_horizons():
    targets = np.random.default_rng(0).standard_normal((50, 3, 4)) * [1, 10, 0.1, 0] + [0, 5, 0, 7]
    found = fit_standardiser(Training("train"), targets)
    expected = StandardScaler().fit(targets.reshape(-1, 4))
    np.testing.assert_allclose(found.mean, expected.mean_)
    np.testing.assert_allclose(found.scale, expected.scale_)
    np.testing.assert_allclose(found(targets).reshape(-1, 4).mean(0), 0, atol=1e-12)


@pytest.mark.parametrize("population", [Development, Confirmation, Sealed])
def test_target_statistics_come_from_training_systems(population):
    with pytest.raises(PopulationError, match="training systems only"):
        fit_standardiser(population("x"), np.zeros((3, 1, 1)))
