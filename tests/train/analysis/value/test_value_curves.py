"""Horizon curves, recipient prefixes, targeted utility and realization rows from errors of known answer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import linregress
from value_toys import READER, linear_gaussian

from sprii_train.analysis.populations import Development, PopulationError, Training
from sprii_train.analysis.statistics import HISTORY_GAIN, mean_of
from sprii_train.analysis.value import (
    DECODE_MINUS_PERSISTENT,
    FitConfig,
    by_system,
    fit_reader,
    horizon_curve,
    prefix_errors,
    reader_errors,
    realization_row,
    targeted_utility,
)

RNG = np.random.default_rng(0)
HORIZONS = (1, 4, 16)


# Horizons


def test_the_gain_is_a_ratio_of_means_at_each_horizon():
    """Null errors are heavy-tailed over systems; a gain common to all has no sampling error."""
    null = np.exp(2 * RNG.standard_normal((1, 1, 50, 3))) * np.ones((3, 2, 1, 1))
    gain = np.array([0.05, 0.2, 0.4])
    curve = horizon_curve({"null": null, "persistent": (1 - gain) * null}, HISTORY_GAIN, HORIZONS, seed=0, draws=200)
    assert tuple(curve) == HORIZONS
    for g, interval in zip(gain, curve.values(), strict=True):
        np.testing.assert_allclose([interval.estimate, interval.low, interval.high], 100 * g)


def test_decode_minus_persistent_brackets_a_planted_gap():
    persistent = RNG.random((3, 3, 80, 3))
    decode = persistent + 0.1 + 0.05 * RNG.standard_normal((1, 1, 80, 3))
    curve = horizon_curve(
        {"persistent": persistent, "decode": decode}, DECODE_MINUS_PERSISTENT, HORIZONS, seed=0, draws=500
    )
    for interval in curve.values():
        assert 0.08 < interval.low < 0.1 < interval.high < 0.12  # ± 2 × 0.05/√80


def test_strata_keep_their_sizes_in_every_draw():
    errors = np.repeat([1.0, 5.0], [10, 30])[:, None] * np.ones(3)
    strata = np.repeat(["interpolation", "continuous"], [10, 30])
    kept, free = (
        horizon_curve({"wrong": errors}, mean_of("wrong"), HORIZONS, seed=0, strata=s, draws=200)[4]
        for s in (strata, None)
    )
    assert kept.low == kept.high == 4.0
    assert free.low < 4.0 < free.high
    with pytest.raises(ValueError, match="3 horizons"):
        horizon_curve({"wrong": errors}, mean_of("wrong"), (1, 4), seed=0)


# Recipient prefix


def test_prefix_errors_are_those_of_readers_fitted_for_each_prefix():
    train = linear_gaussian(Training("train"), 40, features=3)
    test = linear_gaussian(Development("validation"), 10, features=3)
    config = replace(READER, fit=FitConfig(updates=5, batch=16))
    found = prefix_errors(train, test, config, (0, 1), arms=("null", "oracle"), prefixes=(0, 2))
    assert list(found) == ["null", "oracle"]
    assert found["null"].shape == (2, 2, 10, 2)
    reader = fit_reader(train, "oracle", replace(config, prefix=2), 1)
    np.testing.assert_array_equal(found["oracle"][1, 1], by_system(reader_errors(reader, test), test.systems))
    with pytest.raises(PopulationError):
        prefix_errors(test, test, config, (0,))


# Targeted utility


def planted(slopes, systems=300, noise=0.02):
    """Errors (S, R, N) of two recipes whose difference in gains has these slopes over dominance."""
    d = 2 + 3 * RNG.standard_normal(systems)
    shape = (len(slopes), 3, systems)
    null_1, null_2 = 1 + RNG.random(shape), 1 + RNG.random(shape)
    gain_2 = 0.1 * RNG.random(shape)
    gain_1 = gain_2 + np.array(slopes)[:, None, None] * d - 0.05 + noise * RNG.standard_normal(shape)
    return (null_1, null_1 - gain_1), (null_2, null_2 - gain_2), d


def test_targeted_slopes_are_least_squares_by_source():
    slopes = (0.03, -0.01, 0.02)
    first, second, d = planted(slopes)
    found = targeted_utility(first, second, d, seed=0, draws=500)
    for s in range(3):
        utility = ((first[0] - first[1]) - (second[0] - second[1]))[s].mean(0)
        np.testing.assert_allclose(found.sources[s], linregress(d, utility).slope)
    np.testing.assert_allclose(found.sources, slopes, atol=0.002)
    np.testing.assert_allclose(found.mean.estimate, found.sources.mean())
    assert found.mean.low < np.mean(slopes) < found.mean.high
    assert found.mean.high - found.mean.low < 0.004


def test_targeted_utility_refuses_unlike_grids():
    first, second, d = planted((0.1, 0.2))
    with pytest.raises(ValueError, match="must agree"):
        targeted_utility(first, (second[0][:1], second[1][:1]), d, seed=0)
    with pytest.raises(ValueError, match="must agree"):
        targeted_utility(first, second, d[:-1], seed=0)


# Realization


def test_a_realization_row_averages_readers_within_sources():
    m1 = {0: [1.0, 2.0], 1: [4.0]}
    m2 = {0: [0.5, 2.5], 1: [3.0]}
    row = realization_row(m1, m2, ({0: [1.0, 1.0], 1: [1.0]}, {0: [0.8, 0.6], 1: [0.9]}))
    assert row.readers == (2, 1)
    assert (row.m1, row.m2, row.gain) == (2.75, 2.25, 0.5)
    np.testing.assert_allclose(row.weighted_gain, 1.0 - (0.7 + 0.9) / 2)
    np.testing.assert_allclose(row.reduction, ((50 - 25) / 2 + 25) / 2)
    assert row.favouring == 2


def test_a_three_by_three_grid_and_a_reader_not_fitted():
    m1, m2 = 1 + RNG.random((3, 3)), RNG.random((3, 3))
    assert realization_row(m1, m2).favouring == 9
    assert realization_row(m1, m2).weighted_gain is None
    for grid in (m1, m2):
        grid[1, 2] = np.nan
    row = realization_row(m1, m2)
    assert row.readers == (3, 2, 3)
    np.testing.assert_allclose(row.gain, np.nanmean(m1 - m2, axis=1).mean())
    with pytest.raises(ValueError, match="fitted in pairs"):
        realization_row(m1, RNG.random((3, 3)))
