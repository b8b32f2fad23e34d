"""Projections of planted displacements and the bootstrap of their contrasts."""

import numpy as np
import pytest

from sprii_train.analysis.use.direction import Projection, along, contrasts, projection


def planted(gain: float, seed: int, n: int = 40, noise: float = 0.0) -> Projection:
    """Three queries a system with Δẑ = gain·Δz^cf + noise."""
    rng = np.random.default_rng(seed)
    moved = rng.normal(size=(3 * n, 6)) * rng.gamma(1.0, size=(3 * n, 1))
    systems = np.random.default_rng(99).permutation(np.repeat(np.arange(n), 3))
    return projection(gain * moved + noise * rng.normal(size=moved.shape), moved, systems)


@pytest.mark.parametrize(("gain", "value"), [(1.0, 1.0), (-1.0, -1.0), (0.0, 0.0), (0.3, 0.3)])
def test_gain_along_the_counterfactual(gain: float, value: float):
    assert along([planted(gain, 0)]) == pytest.approx(value, abs=1e-15)


def test_what_is_orthogonal_does_not_count():
    moved = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert along([projection(np.array([[0.0, 5.0], [0.0, -3.0]]), moved, [0, 1])]) == 0.0


def test_a_ratio_of_sums_within_sources_then_their_mean():
    rng = np.random.default_rng(1)
    sources, expected = [], []
    systems = np.array([3, 1, 3, 2, 2, 2])
    for _ in range(3):
        predicted, wanted = rng.normal(size=(2, 6, 4))
        one = projection(predicted, wanted, systems)
        assert one.systems.tolist() == [1, 2, 3]
        assert one.numerators[2] == pytest.approx(sum(predicted[i] @ wanted[i] for i in (0, 2)))
        assert one.denominators[1] == pytest.approx(sum(wanted[i] @ wanted[i] for i in (3, 4, 5)))
        sources.append(one)
        expected.append((predicted * wanted).sum() / (wanted**2).sum())
    assert along(sources) == pytest.approx(np.mean(expected))


def test_contrasts_of_planted_gains():
    """Gains of exact responses are the same in every draw: intervals of no width around the planted contrasts."""
    found = contrasts(
        mass=([planted(0.5, 0), planted(0.7, 1)], [planted(0.2, 2)]),
        drag=([planted(0.1, 3)], [planted(0.4, 4), planted(0.6, 5)]),
        seed=0,
        draws=200,
    )
    for name, value in (("mass", 0.4), ("drag", 0.4), ("sum", 0.8)):
        assert found[name].estimate == pytest.approx(value)
        assert found[name].low == pytest.approx(value)
        assert found[name].high == pytest.approx(value)


def test_intervals_have_the_width_of_the_delta_method():
    """SE of a ratio of sums: √(Σ(num − P·den)²)/Σden; the two independent ratios of Δ_m add in quadrature."""
    one, two = planted(0.5, 0, n=300, noise=2.0), planted(0.3, 1, n=300, noise=2.0)
    found = contrasts(mass=([one], [two]), drag=([two], [two]), seed=1, draws=4000)
    variance = 0.0
    for p in (one, two):
        ratio = p.numerators.sum() / p.denominators.sum()
        variance += np.square(p.numerators - ratio * p.denominators).sum() / p.denominators.sum() ** 2
    assert found["mass"].high - found["mass"].low == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.1)
    assert found["mass"].low < along([one]) - along([two]) < found["mass"].high
    assert (found["drag"].low, found["drag"].high) == (0.0, 0.0)


def test_all_statistics_see_the_same_systems():
    """Δ_γ = −Δ_m in every draw, so that their sum never leaves 0, although each of them varies."""
    one, two = planted(0.5, 0, noise=2.0), planted(0.3, 1, noise=2.0)
    found = contrasts(mass=([one], [two]), drag=([one], [two]), seed=2, draws=500)
    assert found["mass"].high - found["mass"].low > 0.05
    assert found["drag"].estimate == pytest.approx(-found["mass"].estimate)
    np.testing.assert_allclose([found["sum"].low, found["sum"].high], 0.0, atol=1e-12)


def test_refuses_what_has_no_direction():
    still = projection(np.ones((2, 3)), np.zeros((2, 3)), [0, 1])
    with pytest.raises(ValueError, match="moves in none"):
        along([still])
    with pytest.raises(ValueError, match="at least one source"):
        along([])
    other = projection(np.ones((2, 3)), np.ones((2, 3)), [0, 2])
    with pytest.raises(ValueError, match="the same systems"):
        along([still, other])
    with pytest.raises(ValueError, match=r"displacements \(r, D\) twice"):
        projection(np.ones((2, 3)), np.ones((2, 4)), [0, 1])
