"""Formation measures against scikit-learn by hand, naive loops and planted codes of known answer."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sprii_train.analysis.formation import (
    RIDGE_PENALTIES,
    between_within,
    centroids,
    ridge_probe,
    standardise,
)

Array = NDArray[np.float64]


def planted(noise: float, *, systems: int = 60, rollouts: int = 6, d: int = 5, seed: int = 0):
    """Codes that carry a system's factor in a random direction, plus noise; factor and noise are standard."""
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal(2 * systems)
    direction = np.linalg.qr(rng.standard_normal((d, d)))[0][0]
    ids = np.repeat(np.arange(2 * systems), rollouts)
    codes = factor[ids][:, None] * direction + noise * rng.standard_normal((len(ids), d))
    half = systems * rollouts
    return codes[:half], factor[ids][:half], codes[half:], factor[ids][half:], ids[:half]


# Ridge


def by_hand(train: Array, target: Array, test: Array, test_target: Array, systems: Array) -> float:
    """Grouped folds as GroupKFold documents them, one loop a penalty."""
    ids, inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)
    folds, load, fold_of = min(5, len(ids)), np.zeros(5), np.zeros(len(ids), int)
    for group in np.argsort(counts)[::-1]:  # the largest group first, to the lightest fold
        fold_of[group] = int(np.argmin(load[:folds]))
        load[fold_of[group]] += counts[group]
    fold = fold_of[inverse]

    def r2(fit_on: Array, y: Array, at: Array, truth: Array, penalty: float) -> float:
        mean, sd = fit_on.mean(0), fit_on.std(0)
        model = Ridge(penalty).fit((fit_on - mean) / sd, y)
        residual = truth - model.predict((at - mean) / sd)
        return 1.0 - float((residual**2).sum() / ((truth - truth.mean()) ** 2).sum())

    scores = []
    for penalty in RIDGE_PENALTIES:
        parts = [
            r2(train[fold != k], target[fold != k], train[fold == k], target[fold == k], penalty) for k in range(folds)
        ]
        scores.append(np.mean(parts))
    return r2(train, target, test, test_target, RIDGE_PENALTIES[int(np.argmax(scores))])


@pytest.mark.parametrize("noise", [0.1, 1.0, 4.0])
def test_ridge_probe_equals_the_procedure_by_hand(noise: float):
    data = planted(noise, systems=13)
    assert ridge_probe(*data) == pytest.approx(by_hand(*data), abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_ridge_probe_of_planted_codes(noise: float):
    """The best linear reader of factor + noise explains 1/(1 + noise²); 400 systems."""
    expected = 1.0 / (1.0 + noise**2)
    assert ridge_probe(*planted(noise, systems=400)) == pytest.approx(expected, abs=1e-6 if noise == 0 else 0.05)


def test_ridge_probe_of_codes_without_information():
    train, target, test, test_target, systems = planted(1.0, systems=200)
    rng = np.random.default_rng(5)
    r2 = ridge_probe(rng.standard_normal(train.shape), target, rng.standard_normal(test.shape), test_target, systems)
    assert r2 == pytest.approx(0.0, abs=0.03)


def test_ridge_probe_never_sees_the_test_rows():
    """The prediction for one test row does not depend on the others, so R² is a mean of fixed residuals."""
    train, target, test, test_target, systems = planted(0.7, systems=20)
    whole = ridge_probe(train, target, test, test_target, systems)
    doubled = ridge_probe(train, target, np.r_[test, test], np.r_[test_target, test_target], systems)
    assert doubled == pytest.approx(whole, abs=1e-12)


def test_ridge_probe_ignores_the_scale_of_a_feature():
    train, target, test, test_target, systems = planted(0.7, systems=20)
    scale, shift = np.array([1e-3, 1.0, 50.0, 7.0, 1e3]), np.arange(5.0)
    moved = ridge_probe(train * scale + shift, target, test * scale + shift, test_target, systems)
    assert moved == pytest.approx(ridge_probe(train, target, test, test_target, systems), abs=1e-8)


# Distances


def naive_geometry(codes: Array, systems: Array) -> tuple[float, float]:
    ids = sorted(set(systems.tolist()))
    within, means = [], []
    for i in ids:
        own = codes[systems == i]
        pairs = [((a - b) ** 2).sum() for k, a in enumerate(own) for b in own[k + 1 :]]
        within.append(np.mean(pairs))
        means.append(own.mean(0))
    between = [((a - b) ** 2).sum() for k, a in enumerate(means) for b in means[k + 1 :]]
    return float(np.mean(within)), float(np.mean(between))


def test_between_within_equals_the_double_loop():
    rng = np.random.default_rng(0)
    systems = np.array([7, 3, 3, 7, 9, 9, 9, 7, 7, 3, 9])  # unequal sizes, ids in no order
    codes = rng.standard_normal((11, 4)) * 3 + systems[:, None]
    got = between_within(codes, systems)
    within, between = naive_geometry(codes, systems)
    assert got.within == pytest.approx(within, rel=1e-12)
    assert got.between == pytest.approx(between, rel=1e-12)
    assert got.ratio == pytest.approx(between / within, rel=1e-12)
    assert between_within(codes, systems.astype(str)) == pytest.approx(tuple(got))


def test_between_within_closed_form():
    """Codes ±1 about system means 0 and 10: within = 4, between = 100."""
    assert tuple(between_within(np.array([[-1.0], [1.0], [9.0], [11.0]]), np.array([0, 0, 1, 1]))) == (
        4.0,
        100.0,
        25.0,
    )


@pytest.mark.parametrize("rollouts", [2, 4, 8])
def test_between_within_without_information(rollouts: int):
    """1/R, whatever the dimension; within five standard errors of √(2·(1 + 1/(R−1))/(S·d)) relative."""
    s, d = 500, 8
    codes = np.random.default_rng(1).standard_normal((s * rollouts, d))
    error = 5 * math.sqrt(2.0 * (1 + 1 / (rollouts - 1)) / (s * d)) / rollouts
    assert between_within(codes, np.repeat(np.arange(s), rollouts)).ratio == pytest.approx(1 / rollouts, abs=error)


def test_between_within_of_perfect_codes():
    got = between_within(np.repeat(np.eye(3), 2, axis=0), np.repeat([0, 1, 2], 2))
    assert got.within == 0.0
    assert got.between == pytest.approx(2.0)
    assert got.ratio == math.inf


@pytest.mark.parametrize("systems", [[0, 0, 1], [0, 0, 0], [0, 1, 2]])
def test_between_within_refuses(systems: list[int]):
    with pytest.raises(ValueError, match="needs >= 2 systems with >= 2 codes each"):
        between_within(np.zeros((3, 2)), np.array(systems))


def test_centroids():
    rng = np.random.default_rng(2)
    systems = rng.permutation(np.repeat([4, 1, 8, 6], [2, 3, 1, 5]))
    codes = rng.standard_normal((11, 3))
    means, first = centroids(codes, systems)
    for k, i in enumerate([1, 4, 6, 8]):
        members = [row for row in range(11) if systems[row] == i]
        np.testing.assert_allclose(means[k], sum(codes[m] for m in members) / len(members), rtol=1e-12)
        assert first[k] == members[0]


# Standardisation


def test_standardise_by_training_rows():
    rng = np.random.default_rng(3)
    train, test = rng.standard_normal((50, 4)) * [1, 10, 0.1, 3] + 2, rng.standard_normal((20, 4))
    a, b = standardise(train, test)
    np.testing.assert_allclose(a, (train - train.mean(0)) / train.std(0), rtol=1e-12)
    np.testing.assert_allclose(b, (test - train.mean(0)) / train.std(0), rtol=1e-12)
    assert len(standardise(train)) == 1
    assert len(standardise(train, test, test)) == 3


def test_constant_columns_become_zero():
    """A dead code dimension must not be blown up to unit variance by rounding noise, nor its test rows."""
    rng = np.random.default_rng(4)
    train, test = rng.standard_normal((50, 3)), rng.standard_normal((20, 3))
    train[:, 1] = 0.3 + 1e-9 * rng.standard_normal(50)
    before = train.copy(), test.copy()
    a, b = standardise(train, test)
    assert not a[:, 1].any()
    assert not b[:, 1].any()
    np.testing.assert_allclose(a[:, [0, 2]].std(0), 1.0)
    assert (train == before[0]).all()
    assert (test == before[1]).all()
