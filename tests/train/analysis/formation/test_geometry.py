"""Distances of codes against double loops, scipy, closed forms and planted effects."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from planted_codes import HELD_OUT, TRAIN, directions, planted
from scipy import stats

from sprii_train.analysis.formation import (
    SPRING_FACTORS,
    Factor,
    between_within,
    partial_distance_correlation,
    partial_geometry,
    partial_spearman,
    rollout_means,
    standardise,
    system_centroids,
)
from sprii_train.analysis.populations import Sample

Array = NDArray[np.float64]
A, B = Factor("a"), Factor("b")

# Within and between


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


@pytest.mark.parametrize(("system", "rollout"), [(0.0, 1.0), (0.5, 0.7), (2.0, 3.0)])
def test_ratio_of_planted_codes(system: float, rollout: float):
    """Codes = factor + system noise s + rollout noise r, standardised: between/within = (1 + s² + r²/R)/r².

    Relative error of a variance over S·d = 16,000 terms: √(2/16,000) = 1.1 %, so 5 % is over four of them.
    """
    train, held_out = (
        rollout_means(planted(p, np.eye(8), systems=2000, windows=2, noise=(system, rollout, 0.0)))
        for p in (TRAIN, HELD_OUT)
    )
    got = between_within(standardise(train.codes, held_out.codes)[1], held_out.systems)
    total = 1.0 + system**2 + rollout**2
    assert got.within == pytest.approx(2 * 8 * rollout**2 / total, rel=0.05)
    assert got.between == pytest.approx(2 * 8 * (1.0 + system**2 + rollout**2 / 4) / total, rel=0.05)
    assert got.ratio == pytest.approx((1.0 + system**2 + rollout**2 / 4) / rollout**2, rel=0.05)


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


def test_columns_of_other_scales_stay():
    """A column is judged by its own size, and one whose SD is just above the floor is live."""
    rng = np.random.default_rng(5)
    train = rng.standard_normal((50, 3)) * [1e8, 1.0, 3e-6]
    np.testing.assert_allclose(standardise(train)[0].std(0), 1.0)
    assert not standardise(train * [1.0, 1.0, 0.1])[0][:, 2].any()


def test_standardise_gives_float64():
    a, b = standardise(np.ones((3, 2), np.float32) * np.arange(3)[:, None], np.ones((1, 2), np.float32))
    assert (a.dtype, b.dtype) == (np.float64, np.float64)


# Partial correlation of ranks


def by_residuals(x: Array, y: Array, controls: Sequence[Array]) -> float:
    """As the definition says: rank, regress, correlate the residuals."""
    design = np.column_stack([np.ones(len(x)), *(stats.rankdata(c) for c in controls)])
    rest = []
    for v in (x, y):
        ranks = stats.rankdata(v)
        rest.append(ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0])
    return float(stats.pearsonr(*rest).statistic)


def columns(n: int, *, levels: int | None, seed: int = 0) -> Array:
    """Four correlated columns (4, n), continuous or with many ties."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 4)) @ rng.standard_normal((4, 4))
    return (np.round(values * levels / 4) if levels else values).T


@pytest.mark.parametrize("levels", [None, 4, 1])
@pytest.mark.parametrize("controls", [1, 2])
def test_partial_spearman_equals_correlated_residuals(levels: int | None, controls: int):
    x, y, *others = columns(300, levels=levels)
    got = partial_spearman(x, y, others[:controls])
    assert got == pytest.approx(by_residuals(x, y, others[:controls]), abs=1e-10)


def test_partial_spearman_without_controls_is_spearman():
    x, y, _, _ = columns(200, levels=3)
    assert partial_spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_partial_spearman_of_one_control_is_the_recursive_formula():
    x, y, z, _ = columns(200, levels=2, seed=1)
    xy, xz, yz = (stats.spearmanr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, [z]) == pytest.approx(expected, abs=1e-12)


def test_partial_spearman_is_the_inverse_of_the_correlation_matrix():
    """The definition of pingouin's and R's partial correlations."""
    values = columns(200, levels=None, seed=2)
    precision = np.linalg.inv(np.asarray(stats.spearmanr(values.T).statistic))
    expected = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
    assert partial_spearman(values[0], values[1], values[2:]) == pytest.approx(expected, abs=1e-10)


def test_partial_spearman_of_what_has_nothing_left():
    x, y, z, _ = columns(100, levels=None)
    assert partial_spearman(np.ones(100), y, [z]) == 0.0
    assert partial_spearman(x, z, [np.exp(z)]) == 0.0  # the same ranks
    assert partial_spearman(x, y, [z, 2.0 * z + 1.0]) == pytest.approx(partial_spearman(x, y, [z]), abs=1e-10)
    assert partial_spearman(x, y, [np.ones(100), z]) == pytest.approx(partial_spearman(x, y, [z]), abs=1e-12)


# Partial geometry


def pairs(values: Array) -> Array:
    return np.array([np.linalg.norm(values[i] - values[j]) for i in range(len(values)) for j in range(i)])


def systems(n: int = 30, *, seed: int = 0) -> Sample:
    rng = np.random.default_rng(seed)
    factors = {"mass": rng.uniform(0.5, 2, n), "drag": rng.uniform(0.25, 1.5, n), "stiffness": rng.uniform(4, 25, n)}
    codes = np.column_stack([np.log(factors["mass"]), 0.5 * factors["drag"], factors["stiffness"] / factors["mass"]])
    return Sample(HELD_OUT, codes + 0.3 * rng.standard_normal((n, 3)), rng.permutation(n), factors)


def test_partial_geometry_by_hand():
    sample = systems()
    d = {f.name: pairs(f.of(sample.factors)[:, None]) for f in SPRING_FACTORS}
    code = pairs(sample.codes)
    got = partial_geometry(sample, SPRING_FACTORS)
    held = {
        "mass": ("drag", "stiffness"),
        "drag": ("mass", "stiffness"),
        "stiffness": ("mass", "drag"),
        "stiffness_over_mass": ("drag",),
    }
    assert set(got) == set(held)
    for name, controls in held.items():
        assert got[name] == pytest.approx(by_residuals(code, d[name], [d[c] for c in controls]), abs=1e-10), name
    assert len({round(value, 3) for value in got.values()}) == 4


def test_partial_geometry_with_named_controls():
    sample = systems()
    mass = Factor("mass", log=True, controls=())
    expected = stats.spearmanr(pairs(sample.codes), pairs(mass.of(sample.factors)[:, None])).statistic
    assert partial_geometry(sample, (mass, *SPRING_FACTORS[1:]))["mass"] == pytest.approx(expected, abs=1e-12)


def test_the_logarithm_changes_the_distances():
    sample = systems()
    linear, log = (partial_geometry(sample, (Factor("mass", log=log),))["mass"] for log in (False, True))
    assert abs(linear - log) > 0.01


def test_equal_steps_between_levels_are_ties():
    """Levels 0.1 apart differ by 0.1 give or take a rounding error; their distances must tie as those of integers."""
    rng = np.random.default_rng(3)
    level = rng.integers(0, 10, (50, 2))
    codes = rng.standard_normal((50, 4)) + level[:, :1] / 3
    given = [
        Sample(HELD_OUT, codes, np.arange(50), dict(zip("ab", (0.1 + step * level).T, strict=True)))
        for step in (0.1, 1.0)
    ]
    distances = pairs(given[0].factors["a"][:, None])
    assert len(np.unique(distances)) > len(np.unique(pairs(1.0 * level[:, :1])))
    assert partial_geometry(given[0], (A, B)) == pytest.approx(partial_geometry(given[1], (A, B)), abs=1e-12)


def test_partial_geometry_does_not_depend_on_axes_order_or_scale():
    sample = systems()
    rotation = np.linalg.qr(np.random.default_rng(4).standard_normal((3, 3)))[0]
    order = np.random.default_rng(5).permutation(30)
    moved = Sample(
        HELD_OUT,
        (7.0 * sample.codes @ rotation + 3.0)[order],
        sample.systems[order],
        {name: column[order] for name, column in sample.factors.items()},
    )
    assert partial_geometry(moved, SPRING_FACTORS) == pytest.approx(partial_geometry(sample, SPRING_FACTORS), abs=1e-12)


def independent_pairs(content: Array, noise: float, n: int, seed: int) -> tuple[float, float]:
    """Partial correlations of a and b for pairs of systems drawn anew each time: no pair shares a system."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((2, n, 2))
    codes = factors @ content + noise * rng.standard_normal((2, n, content.shape[1]))
    code = np.sqrt(((codes[0] - codes[1]) ** 2).sum(1))
    a, b = np.abs(factors[0] - factors[1]).T
    return by_residuals(code, a, [b]), by_residuals(code, b, [a])


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.4, 1.2), (0.7, 0.7)])
def test_partial_geometry_of_planted_codes(weights: tuple[float, float]):
    """ρ of 300 systems is that of 100,000 independent pairs: its SD is 0.02, so 0.04 is over three errors of four."""
    content = np.array(weights)[:, None] * directions(2, 6)
    expected = independent_pairs(content, 0.4, 100_000, seed=1)
    samples = [
        system_centroids(planted(HELD_OUT, content, systems=300, rollouts=1, noise=(0.4, 0.0, 0.0), seed=seed))
        for seed in range(4)
    ]
    got = np.mean([list(partial_geometry(sample, (A, B)).values()) for sample in samples], axis=0)
    np.testing.assert_allclose(got, expected, atol=0.04)
    assert (np.array(expected) > 0.1).tolist() == [w > 0.0 for w in weights]


def test_partial_geometry_of_codes_without_information():
    """Mean ρ of 100 populations of 40 systems is within four standard errors of 0, and content is far outside."""
    rho = np.array(
        [
            list(partial_geometry(planted(HELD_OUT, np.zeros((2, 5)), systems=40, rollouts=1, seed=s), (A, B)).values())
            for s in range(100)
        ]
    )
    assert (np.abs(rho.mean(0) / (rho.std(0, ddof=1) / 10)) < 4).all()
    assert (rho.std(0) < 0.15).all()
    signal = planted(HELD_OUT, directions(2, 5), systems=40, rollouts=1, noise=(0.0, 0.3, 0.0))
    assert min(partial_geometry(signal, (A, B)).values()) > 4 * rho.std(0).max()


def test_a_control_takes_away_what_only_correlates():
    """b follows a, codes hold a alone: the plain correlation with b is large, the partial one is not."""
    rng = np.random.default_rng(6)
    a = rng.standard_normal(300)
    b = a + 0.5 * rng.standard_normal(300)
    codes = a[:, None] + 0.05 * rng.standard_normal((300, 2))
    sample = Sample(HELD_OUT, codes, np.arange(300), {"a": a, "b": b})
    assert partial_geometry(sample, (B,))["b"] > 0.5
    assert abs(partial_geometry(sample, (A, B))["b"]) < 0.1


def test_collapsed_codes_order_nothing():
    sample = Sample(HELD_OUT, np.ones((4, 2)), np.arange(4), {"a": np.arange(4.0), "b": np.array([0.0, 3.0, 1.0, 1.0])})
    assert partial_geometry(sample, (A, B)) == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize(
    ("ids", "a", "message"),
    [
        ([0, 0, 1, 2], [0.0, 0.0, 1.0, 2.0], "one code for each of >= 3 systems, got 4 for 3"),
        ([0, 1], [0.0, 1.0], "one code for each of >= 3 systems, got 2 for 2"),
        ([0, 1, 2], [1.0, 1.0, 1.0], "'a' is the same in all 3 systems"),
    ],
)
def test_partial_geometry_refuses(ids: list[int], a: list[float], message: str):
    sample = Sample(HELD_OUT, np.arange(2.0 * len(ids)).reshape(-1, 2), np.array(ids), {"a": np.array(a)})
    with pytest.raises(ValueError, match=message):
        partial_geometry(sample, (A,))


# Partial distance correlation


def u_centred(values: Array) -> Array:
    """Székely and Rizzo's definition 2, entry by entry."""
    n = len(values)
    d = [[math.dist(a, b) for b in values] for a in values]
    rows, total = [sum(row) / (n - 2) for row in d], sum(map(sum, d)) / ((n - 1) * (n - 2))
    return np.array([[0.0 if i == j else d[i][j] - rows[i] - rows[j] + total for j in range(n)] for i in range(n)])


def inner(a: Array, b: Array) -> float:
    n = len(a)
    return float(sum(a[i, j] * b[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 3)))


def test_partial_distance_correlation_is_the_recursive_formula():
    """(R*(x,y) − R*(x,z) R*(y,z)) / (√(1 − R*(x,z)²) √(1 − R*(y,z)²)), every R* by the definition."""
    sample = systems(12)
    x = u_centred(sample.codes)
    got = partial_distance_correlation(sample, SPRING_FACTORS)
    coordinates = {f.name: f.of(sample.factors) for f in SPRING_FACTORS}
    for name, controls in (("mass", ("drag", "stiffness")), ("stiffness_over_mass", ("drag",))):
        y = u_centred(coordinates[name][:, None])
        z = u_centred(np.column_stack([coordinates[c] / coordinates[c].std() for c in controls]))
        xy, xz, yz = (inner(a, b) / math.sqrt(inner(a, a) * inner(b, b)) for a, b in ((x, y), (x, z), (y, z)))
        expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
        assert got[name] == pytest.approx(expected, abs=1e-10), name


def test_distance_correlation_without_information_of_the_factor_and_of_a_control():
    """Mean 0 over populations of codes without information; 1 for the factor itself; a control takes its share away."""
    without = np.array(
        [
            list(
                partial_distance_correlation(
                    planted(HELD_OUT, np.zeros((2, 5)), systems=20, rollouts=1, seed=s), (A, B)
                ).values()
            )
            for s in range(100)
        ]
    )
    assert (np.abs(without.mean(0) / (without.std(0, ddof=1) / 10)) < 4).all()
    rng = np.random.default_rng(6)
    a = rng.standard_normal(200)
    b = a + 0.5 * rng.standard_normal(200)
    sample = Sample(HELD_OUT, a[:, None], np.arange(200), {"a": a, "b": b})
    assert partial_distance_correlation(sample, (A,))["a"] == pytest.approx(1.0)
    assert partial_distance_correlation(sample, (B,))["b"] > 0.5
    assert abs(partial_distance_correlation(sample, (A, B))["b"]) < 1e-9  # the code is a function of its control
    collapsed = Sample(HELD_OUT, np.ones((5, 2)), np.arange(5), {"a": np.arange(5.0)})
    assert partial_distance_correlation(collapsed, (A,)) == {"a": 0.0}
    with pytest.raises(ValueError, match=">= 4 systems, got 3"):
        partial_distance_correlation(Sample(HELD_OUT, a[:3, None], np.arange(3), {"a": a[:3]}), (A,))
