"""Planted effects: codes of known factor content give the known ratio, R², partial ρ, valley depth and intervals.

Coverage is counted over N repetitions of the data: a share of 0.95 then has a standard error of √(0.95 · 0.05 / N). The
bounds leave three of them, and 0.01 more below, for percentile intervals of about a hundred systems are a little short.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, spearmanr

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.formation import Factor, measure_formation
from sprii_train.analysis.populations import Development, Population, Sample, Training
from sprii_train.analysis.statistics import mean_of
from sprii_train.analysis.use.direction import Projection, contrasts, projection
from sprii_train.analysis.use.landscape import grid_errors, valley, valley_depth
from sprii_train.analysis.value import Cases, FitConfig, ReaderConfig
from sprii_train.analysis.value.readers import Reader, fit_reader

TRAIN, HELD_OUT = Training("train"), Development("validation")
GAINS = np.array([1.0, 0.6])  # of factors a and b, a dimension each
NOISE = 0.7  # SD of a rollout's code, per dimension
ROLLOUTS = 4

LEVELS = np.linspace(-1.5, 1.5, 5)  # of a
SLOPE = 0.8  # of the target on a


def codes_of(factors: NDArray, rng: np.random.Generator) -> NDArray:
    """z = (g_a a, g_b b) + noise, (…, 2)."""
    return factors * GAINS + NOISE * rng.standard_normal(factors.shape)


# Formation


def sample(population: Population, systems: int) -> Sample:
    """Systems of standard normal factors, a code a rollout."""
    rng = np.random.default_rng(population.may_fit)
    factors = rng.standard_normal((systems, 2)).repeat(ROLLOUTS, axis=0)
    ids = np.arange(systems).repeat(ROLLOUTS)
    return Sample(population, codes_of(factors, rng), ids, dict(zip("ab", factors.T, strict=True)))


def partial_rho(pairs: int = 200_000) -> list[float]:
    """ρ of centroid distance with |Δa| given |Δb| and the reverse, by the textbook formula over independent pairs."""
    rng = np.random.default_rng(9)
    one, other = rng.standard_normal((2, pairs, 2))
    blur = NOISE / np.sqrt(ROLLOUTS) * rng.standard_normal((2, pairs, 2))
    moved = ((one - other) * GAINS + blur[0] - blur[1]) / np.sqrt(GAINS**2 + NOISE**2)
    r: Any = spearmanr(np.column_stack([np.linalg.norm(moved, axis=1), np.abs(one - other)]))[0]
    return [
        (r[0, i] - r[0, j] * r[i, j]) / np.sqrt((1 - r[0, j] ** 2) * (1 - r[i, j] ** 2)) for i, j in ((1, 2), (2, 1))
    ]


def test_formation_of_planted_codes():
    row = measure_formation(
        sample(TRAIN, 1200), sample(HELD_OUT, 1200), (Factor("a"), Factor("b")), seed=0, probes=("ridge",),
        levels=("centroid", "window"),
    ).row()  # fmt: skip
    signal, noise = GAINS**2, NOISE**2
    # Codes are standardised by the SD of a rollout's code, dimension by dimension.
    within = 2 * (noise / (signal + noise)).sum()
    between = 2 * ((signal + noise / ROLLOUTS) / (signal + noise)).sum()
    assert row["ratio"] == pytest.approx(between / within, rel=0.06)
    for i, name in enumerate("ab"):
        assert row[f"window_ridge_{name}"] == pytest.approx(signal[i] / (signal[i] + noise), abs=0.05)
        assert row[f"centroid_ridge_{name}"] == pytest.approx(signal[i] / (signal[i] + noise / ROLLOUTS), abs=0.05)
    assert [row["rho_a"], row["rho_b"]] == pytest.approx(partial_rho(), abs=0.04)


# Use


def known_depth() -> float:
    """Of the best reader of z, which expects a = k z_a with k g = R²: (R² l − m)² off and on the diagonal, by hand."""
    r = GAINS[0] ** 2 / (GAINS[0] ** 2 + NOISE**2)
    grid = SLOPE**2 * (r * LEVELS[:, None] - LEVELS) ** 2
    on = np.trace(grid) / 5
    return float((grid.sum() - 5 * on) / 20 - on)


def planted_grids(systems: int, seed: int, predict: Callable[[NDArray], NDArray]) -> NDArray:
    """Grids (n, 5, 5): donors' a at each level, the same b, predictions against the noiseless targets."""
    rng = np.random.default_rng(seed)
    factors = np.stack([np.broadcast_to(LEVELS, (systems, 5)), np.tile(rng.standard_normal((systems, 1)), 5)], axis=-1)
    predicted = predict(codes_of(factors, rng))
    return grid_errors(predicted[..., None], np.broadcast_to(SLOPE * LEVELS[:, None], (systems, 5, 1)))


def best(codes: NDArray) -> NDArray:
    """SLOPE · E[a | z]."""
    return SLOPE * GAINS[0] / (GAINS[0] ** 2 + NOISE**2) * codes[..., 0]


def cases(population: Population, codes: NDArray, targets: NDArray) -> Cases:
    """Recipients that all look alike."""
    n = len(codes)
    return Cases(
        population, np.arange(n), np.zeros((n, 2)), codes, {"a": np.ones(n)}, np.zeros((n, 1, 1)),
        targets.reshape(n, 1, 1), (1,),
    )  # fmt: skip


def test_a_fitted_reader_has_the_known_valley():
    rng = np.random.default_rng(4)
    factors = rng.standard_normal((6000, 2))
    targets = SLOPE * factors[:, 0] + 0.3 * rng.standard_normal(6000)
    train = cases(TRAIN, codes_of(factors, rng), targets)
    fit = FitConfig(updates=400, batch=256, learning_rate=5e-3, schedule="cosine")
    config = ReaderConfig(query=2, slot=2, horizon=2, width=16, fit=fit)
    found = {}
    for arm in ("persistent", "null"):
        reader = fit_reader(train, arm, config, 0)

        def predict(codes: NDArray, reader: Reader = reader) -> NDArray:
            flat = codes.reshape(-1, 2)
            return reader.predict(cases(HELD_OUT, flat, np.zeros(len(flat)))).reshape(codes.shape[:-1])

        found[arm] = valley(planted_grids(400, 5, predict))
    assert found["persistent"].depth == pytest.approx(known_depth(), rel=0.08)
    assert found["persistent"].rho > 0.8
    assert found["null"].depth == 0.0


# Coverage


def check_coverage(covered: NDArray[np.bool_]) -> None:
    """Within the bounds of the module's docstring."""
    share, error = covered.mean(), np.sqrt(0.95 * 0.05 / covered.size)
    assert 0.94 - 3 * error < share < 0.95 + 3 * error


def test_these_bounds_tell_a_level_from_a_lower_one():
    """An interval that covers 0.90 is caught in 99 of 100 cases at 2,000 repetitions, and in 4 of 5 at 600."""
    for count, power in ((2000, 0.99), (600, 0.8)):
        least = 0.94 - 3 * np.sqrt(0.95 * 0.05 / count)
        assert binom.cdf(np.floor(least * count), count, 0.90) > power


def test_intervals_of_the_depth_cover_it():
    """2,000 repetitions of 64 systems, whose resamples they share."""
    repetitions, systems = 2000, 64
    depths = valley_depth(planted_grids(repetitions * systems, 6, best)).reshape(repetitions, systems)
    assert depths.mean() == pytest.approx(known_depth(), rel=0.01)
    columns = {str(i): column for i, column in enumerate(depths)}
    found = system_bootstrap(columns, {name: mean_of(name) for name in columns}, seed=0, draws=2_000)
    check_coverage(np.array([each.low <= known_depth() <= each.high for each in found.values()]))


def projections(share: float, rng: np.random.Generator, systems: int = 96) -> Projection:
    """Displacements that are a share of the counterfactual's, of very unlike size by system, and noise; 3 queries."""
    size = np.exp(0.5 * rng.standard_normal((systems, 1, 1)))
    wanted = size * rng.standard_normal((systems, 3, 8))
    moved = share * wanted + size * rng.standard_normal(wanted.shape)
    return projection(moved.reshape(-1, 8), wanted.reshape(-1, 8), np.arange(systems).repeat(3))


def test_intervals_of_directions_cover_them():
    """600 repetitions, two sources a relation: Δ_m = 0.5 − 0.2 and Δ_γ = 0.6 − 0.1."""
    rng, covered = np.random.default_rng(7), []
    for _ in range(600):
        m1, m2, d1, d2 = ([projections(share, rng) for _ in range(2)] for share in (0.5, 0.2, 0.1, 0.6))
        found = contrasts((m1, m2), (d1, d2), seed=0, draws=500)
        truth = {"mass": 0.3, "drag": 0.5, "sum": 0.8}
        covered.append([found[name].low <= value <= found[name].high for name, value in truth.items()])
    for column in np.transpose(covered):
        check_coverage(column)
