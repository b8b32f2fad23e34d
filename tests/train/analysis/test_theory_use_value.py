"""Δ_spec and Proposition 4 against Monte Carlo, regressions that know no formula, and sums over a joint law."""

import itertools

import numpy as np
import pytest
from theory_bank import Z, make_bank

from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler
from sprii_train.analysis.theory import (
    categorical_readers,
    cold_start,
    log_gain,
    specificity,
    squared_gain,
)

N = 200_000


def near(samples: np.ndarray, expected: float, z: float = Z) -> bool:
    """Whether the mean is within z standard errors."""
    return bool(abs(samples.mean() - expected) < z * samples.std(ddof=1) / np.sqrt(len(samples)))


# Use


def test_specificity_is_the_difference_of_risks_for_any_predictor():
    rng = np.random.default_rng(0)
    y, m, s = rng.standard_normal((3, 500, 4)) + 0.2
    found = specificity(y, m, s)
    assert found.total == pytest.approx((((y - s) ** 2).sum(1) - ((y - m) ** 2).sum(1)).mean())
    assert found.total == pytest.approx(found.sensitivity + found.cross)
    assert found.sensitivity == pytest.approx(((s - m) ** 2).sum(1).mean())


def donors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recipients, matched donors and deranged donors of one bank, in rows."""
    table = make_bank().table
    matched = PairSampler(table, SAME_SYSTEM, seed=1, distinct="system")
    wrong = PairSampler(table, SAME_SYSTEM, Derangement(), seed=1, distinct="system")
    pairs = [(matched.batch(i, 100), wrong.batch(i, 100)) for i in range(500)]
    recipient, m, s = (
        np.concatenate(x) for x in zip(*((a.recipient, a.donor, b.donor) for a, b in pairs), strict=True)
    )
    return recipient, m, s


def test_the_cross_term_vanishes_for_the_conditional_mean_and_not_for_others():
    # The donor carries θ without noise, so E[Y | D_m] = θ, and a wrong donor adds nothing.
    bank = make_bank()
    recipient, m, s = donors()
    rng = np.random.default_rng(2)
    theta = bank.factors[:, 1]
    y = theta[recipient] + rng.standard_normal(len(recipient))
    best = specificity(y, theta[m], theta[s])
    cross = 2 * (y - theta[m]) * (theta[m] - theta[s])
    assert best.cross == pytest.approx(cross.mean())
    assert near(cross, 0.0)
    assert best.total == pytest.approx(best.sensitivity, rel=0.05)
    # Reliance twice too strong gains half of what it moves.
    double = specificity(y, 2 * theta[m], 2 * theta[s])
    assert double.sensitivity == pytest.approx(4 * best.sensitivity)
    assert double.total == pytest.approx(double.sensitivity / 2, rel=0.05)
    # Reliance with a sign that says nothing: as sensitive as the best, and nothing gained; the terms cancel.
    sign = rng.choice([-1.0, 1.0], len(y))
    idle = specificity(y, sign * theta[m], sign * theta[s])
    assert idle.sensitivity == pytest.approx(best.sensitivity)
    assert abs(idle.total) < 0.05 * idle.sensitivity


# Value, squared loss


@pytest.mark.parametrize(
    ("prior", "recipient", "donor", "a", "r"), [(1, 1, 1, 1, 1), (2, 0.3, 1.5, -2, 1), (0.5, 9, 2, 3, 4)]
)
def test_cold_start_by_regression_on_drawn_data(prior, recipient, donor, a, r):
    rng = np.random.default_rng(0)
    theta = np.sqrt(prior) * rng.standard_normal(N)
    x = theta + np.sqrt(recipient) * rng.standard_normal(N)
    d = theta + (np.sqrt(donor) * rng.standard_normal((r, N))).mean(0)
    y = a * theta + rng.laplace(size=N)  # any centred noise will do
    f0 = x * (x @ y) / (x @ x)  # linear readers are optimal for Gaussians
    both = np.stack([x, d], 1)
    fd = both @ np.linalg.lstsq(both, y, rcond=None)[0]
    saved = (y - f0) ** 2 - (y - fd) ** 2
    expected = cold_start(prior, recipient, donor, a, r)
    assert near(saved, expected.value)
    assert not near(saved, 0.8 * expected.value)
    assert expected.recipient_variance == pytest.approx(((y - f0) ** 2).mean() / a**2 - 2 / a**2, rel=0.03)
    assert expected.value == pytest.approx(a**2 * (expected.recipient_variance - expected.donor_variance))
    assert squared_gain(f0, fd).value == pytest.approx(expected.value, rel=0.05)


def test_a_cold_recipient_gains_most_and_repetitions_level_off():
    values = [cold_start(1.0, noise, 0.5).value for noise in (0.1, 1.0, 10.0, 1e9)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(1 / 1.5)
    assert cold_start(1.0, 1.0, 0.5, 3.0, 10**9).value == pytest.approx(9 * 0.5)


def test_readers_of_squared_loss_save_value_plus_excess():
    rng = np.random.default_rng(1)
    x, d = rng.standard_normal((2, N))
    m0, md = np.stack([x**2, 0 * x], 1), np.stack([x**2 + d, np.sin(d) * x], 1)  # E[md | x] = m0
    y = md + rng.standard_normal((N, 2))
    f0, fd = np.stack([0.5 * x, 0 * x + 0.3], 1), np.stack([x**2 + 0.2, d], 1)
    gain = squared_gain(m0, md, f0, fd)
    assert near(((y - f0) ** 2).sum(1) - ((y - fd) ** 2).sum(1), gain.total)
    assert near(((y - m0) ** 2).sum(1) - ((y - md) ** 2).sum(1), gain.value)
    assert min(gain) > 0 or gain.total < gain.value
    assert squared_gain(m0, md).total == gain.value


def test_accessible_and_irrelevant_is_worth_nothing():
    rng = np.random.default_rng(3)
    f1 = rng.integers(2, size=1000)  # D = F₁, Y = F₂ independent of it
    joint = np.full((1, 2, 2), 0.25)
    p0, pd, weights = categorical_readers(joint)
    assert log_gain(p0, pd, weights=weights).value == pytest.approx(0.0, abs=1e-12)
    assert squared_gain(np.full(1000, 0.5), np.full(1000, 0.5) + 0 * f1).value == 0.0


# Value, log loss


def joint_law(seed: int) -> np.ndarray:
    joint = np.random.default_rng(seed).gamma(0.5, size=(3, 4, 5))
    joint[0, 1] = 0.0  # an (x, d) that never occurs
    joint[2, :, 3] = 0.0  # an outcome that x = 2 excludes
    return joint / joint.sum()


@pytest.mark.parametrize("seed", range(3))
def test_log_loss_value_is_conditional_mutual_information(seed):
    joint = joint_law(seed)
    slow = 0.0
    for x, d, y in itertools.product(range(3), range(4), range(5)):
        if joint[x, d, y] > 0:
            slow += joint[x, d, y] * np.log(
                joint[x, d, y] * joint[x].sum() / (joint[x, d].sum() * joint[x, :, y].sum())
            )
    p0, pd, weights = categorical_readers(joint)
    assert len(weights) == 11
    assert log_gain(p0, pd, weights=weights).value == pytest.approx(slow)


def test_readers_of_log_loss_save_value_plus_excess():
    joint = joint_law(5)
    p0, pd, weights = categorical_readers(joint)
    rng = np.random.default_rng(6)
    q0 = rng.dirichlet(np.ones(5), 3)[np.nonzero(joint.sum(2))[0]]  # a reader of x only
    qd = 0.8 * pd + 0.2 / 5
    gain = log_gain(p0, pd, q0, qd, weights)
    row = rng.choice(len(weights), N, p=weights)
    y = (rng.random((N, 1)) > pd[row].cumsum(1)[:, :-1]).sum(1)
    assert near(np.log(qd[row, y]) - np.log(q0[row, y]), gain.total)
    assert near(np.log(pd[row, y]) - np.log(p0[row, y]), gain.value)
    assert gain.total == pytest.approx(gain.value + gain.excess_without - gain.excess_with)
    assert not near(np.log(qd[row, y]) - np.log(q0[row, y]), gain.value)


HALF = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_gain(HALF, HALF, [[1.0, 0.0]]), "reader_without gives probability 0"),
        (lambda: log_gain(HALF, [[0.5, 0.6]]), "law_with must hold"),
        (lambda: log_gain(HALF, HALF, weights=[0.5]), "weights must be 1 prob"),
        (lambda: categorical_readers(np.ones((2, 2))), "P\\(X, D, Y\\)"),
        (lambda: squared_gain([0.0], [0.0, 1.0]), "mean_with must have shape"),
        (lambda: specificity([0.0], [0.0, 1.0], [0.0]), "matched must have shape"),
        (lambda: cold_start(0.0, 1.0, 1.0), "prior_variance is"),
        (lambda: cold_start(1.0, 1.0, 1.0, repetitions=0), "repetitions is"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
