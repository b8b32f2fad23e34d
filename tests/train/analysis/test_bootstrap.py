"""Bootstraps against scipy, exact enumeration of small resamples, closed-form moments, loops and stated coverage."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sprii_train.analysis import bootstrap
from sprii_train.analysis.bootstrap import (
    hierarchical_bootstrap,
    recovery,
    slope_bootstrap,
    source_bootstrap,
    source_system_bootstrap,
    system_bootstrap,
)
from sprii_train.analysis.statistics import (
    ALIGN_EFFECT,
    bonferroni,
    difference,
    mean_of,
    reduction,
    system_means,
)

NAN = float("nan")
DRAWS = 40_000
Q = 5 * math.sqrt(2 * 0.025 * 0.975 / DRAWS) / stats.norm.pdf(1.96)
"""Five SD of the difference of two 2.5 % quantiles of so many draws, in SDs of a near-normal statistic: 0.09."""


def resampled(call, conditions, names=("a",), **options) -> list[np.ndarray]:
    """The resampled means that a bootstrap shows to its contrasts."""
    seen = []

    def spy(means):
        seen.append([means[name] for name in names])
        return means[names[0]]

    call(conditions, {"spy": spy}, seed=0, **options)
    return seen[-1]


def paired(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Skewed errors of two conditions that share most of their variance."""
    rng = np.random.default_rng(seed)
    shared = rng.exponential(size=n)
    return 0.2 + shared + 0.3 * rng.exponential(size=n), 0.1 + 0.8 * shared + 0.3 * rng.exponential(size=n)


# Systems


@pytest.mark.parametrize(
    ("contrast", "statistic"),
    [
        (mean_of("a"), lambda a, b, axis=-1: a.mean(axis)),
        (difference("a", "b"), lambda a, b, axis=-1: a.mean(axis) - b.mean(axis)),
        (reduction("b", denominator="a"), lambda a, b, axis=-1: 100 * (1 - b.mean(axis) / a.mean(axis))),
    ],
)
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_system_bootstrap_equals_scipy(contrast, statistic, level: float):
    a, b = paired(60)
    got = system_bootstrap({"a": a, "b": b}, {"x": contrast}, seed=1, draws=DRAWS, level=level)["x"]
    expected = stats.bootstrap(
        (a, b), statistic, paired=True, method="percentile", n_resamples=DRAWS, confidence_level=level, rng=2
    )
    assert got.estimate == pytest.approx(statistic(a, b))
    error = Q * expected.standard_error
    assert got.low == pytest.approx(expected.confidence_interval.low, abs=error)
    assert got.high == pytest.approx(expected.confidence_interval.high, abs=error)
    assert error < 0.1 * (got.high - got.low)
    assert got[3:] == (level, 60, "system")


def test_slope_equals_scipy_and_polyfit():
    rng = np.random.default_rng(3)
    x = 5 + 2 * rng.normal(size=80)
    y = 0.7 * x + rng.normal(size=(3, 2, 80)) * (1 + np.abs(x - 5))
    got = slope_bootstrap(x, y, seed=1, draws=DRAWS)
    mean = y.mean((0, 1))
    assert got.estimate == pytest.approx(np.polyfit(x, mean, 1)[0], rel=1e-10)
    assert got.estimate == pytest.approx(np.mean([np.polyfit(x, y[s].mean(0), 1)[0] for s in range(3)]), rel=1e-10)
    expected = stats.bootstrap(
        (x, mean),
        lambda a, b: stats.linregress(a, b).slope,  # pyright: ignore[reportAttributeAccessIssue]
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=4000,
        rng=2,
    )
    error = Q * math.sqrt(DRAWS / 4000) * expected.standard_error
    assert got.low == pytest.approx(expected.confidence_interval.low, abs=error)
    assert got.high == pytest.approx(expected.confidence_interval.high, abs=error)
    assert slope_bootstrap(10 * x + 3, y, seed=1, draws=DRAWS)[:3] == pytest.approx([v / 10 for v in got[:3]])


def test_slope_of_a_line_is_the_line():
    x = np.arange(20.0)
    assert slope_bootstrap(x, 3 - 2 * x, seed=0, draws=200)[:3] == pytest.approx((-2, -2, -2))


def test_cells_are_averaged_before_systems_are_resampled():
    rng = np.random.default_rng(4)
    a, b = rng.exponential(size=(3, 3, 30)), rng.exponential(size=(2, 30))
    a[1, 2], a[2, 1:] = NAN, NAN
    effects = {"d": difference("a", "b")}
    got = system_bootstrap({"a": a, "b": b}, effects, seed=5)
    assert got == system_bootstrap({"a": system_means(a), "b": b.mean(0)}, effects, seed=5)
    flat = system_bootstrap({"a": np.nanmean(a, (0, 1)), "b": b.mean(0)}, effects, seed=5)
    assert got["d"].estimate != pytest.approx(flat["d"].estimate, rel=1e-3)


def test_conditions_are_resampled_together():
    a, b = paired(50)
    x, y = resampled(system_bootstrap, {"a": a, "b": b}, ("a", "b"))
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(np.corrcoef(a, b)[0, 1], abs=0.05)
    same = system_bootstrap({"a": a, "b": a + 2.0}, {"d": difference("b", "a")}, seed=0)["d"]
    assert same[:3] == pytest.approx((2.0, 2.0, 2.0))


def test_all_contrasts_see_the_same_draws():
    a, b = paired(50)
    got = system_bootstrap({"a": a, "b": b}, {"+": difference("a", "b"), "-": difference("b", "a")}, seed=0)
    assert got["+"][:3] == pytest.approx((-got["-"].estimate, -got["-"].high, -got["-"].low))


def test_resampled_means_of_three_systems_are_the_27_possible_ones():
    values = np.array([1.0, 2.0, 10.0])
    (got,) = resampled(system_bootstrap, {"a": values}, draws=27_000)
    possible, counts = np.unique([sum(c) for c in itertools.product(values, repeat=3)], return_counts=True)
    found, frequency = np.unique((3 * got).round(9), return_counts=True)
    np.testing.assert_array_equal(found, possible)
    assert stats.chisquare(frequency, 1000 * counts).pvalue > 1e-4


def test_variance_of_resampled_means():
    """σ²/n with denominator n, within five SD of a variance of 40,000 draws; n − 1 would be 11 % off."""
    values = np.random.default_rng(6).normal(size=10)
    (got,) = resampled(system_bootstrap, {"a": values}, draws=DRAWS)
    assert got.var() == pytest.approx(values.var() / 10, rel=5 * math.sqrt(2 / DRAWS))


STRATA = np.random.default_rng(7).permutation(np.repeat(["continuous", "combination", "interpolated"], [30, 5, 12]))


def test_strata_keep_their_sizes():
    conditions = {s: (s == STRATA).astype(float) for s in np.unique(STRATA)}
    got = system_bootstrap(conditions, {s: mean_of(s) for s in conditions}, seed=0, strata=STRATA, draws=500)
    for s, size in zip(("continuous", "combination", "interpolated"), (30, 5, 12), strict=True):
        assert got[s][:3] == pytest.approx((size / 47,) * 3, rel=1e-12)
    loose = system_bootstrap(conditions, {s: mean_of(s) for s in conditions}, seed=0, draws=500)
    assert all(loose[s].high > loose[s].low for s in conditions)


def test_variance_of_stratified_means():
    """Σ (n_s/n)² σ_s²/n_s; means weight systems, not strata."""
    values = np.random.default_rng(8).exponential(size=47) + 5.0 * (STRATA == "combination")
    (got,) = resampled(system_bootstrap, {"a": values}, strata=STRATA, draws=DRAWS)
    parts = [values[s == STRATA] for s in np.unique(STRATA)]
    expected = sum(len(p) * p.var() for p in parts) / 47**2
    assert got.var() == pytest.approx(expected, rel=5 * math.sqrt(2 / DRAWS))
    assert got.mean() == pytest.approx(values.mean(), abs=5 * math.sqrt(expected / DRAWS))
    assert expected < 0.7 * values.var() / 47


def test_each_stratum_is_resampled_from_itself():
    """With one value a stratum, a stratified draw has nothing left to vary."""
    values = np.unique(STRATA, return_inverse=True)[1].astype(float)
    got = system_bootstrap({"a": values}, {"m": mean_of("a")}, seed=0, strata=STRATA, draws=200)["m"]
    assert got[:3] == pytest.approx((values.mean(),) * 3)


def coverage(truth: float, contrast, *, pairs: bool = True) -> float:
    rng, hits = np.random.default_rng(9), 0
    for repetition in range(300):
        shared = rng.exponential(size=100)
        a, b = shared + 0.5 * rng.exponential(size=100), 0.6 * shared + 0.5 * rng.exponential(size=100)
        b = b if pairs else rng.permutation(b)
        i = system_bootstrap({"a": a, "b": b}, {"x": contrast}, seed=repetition, draws=500)["x"]
        hits += i.low <= truth <= i.high
    return hits / 300


@pytest.mark.parametrize(
    ("truth", "contrast"),
    [(0.4, difference("a", "b")), (100 * 0.4 / 1.5, reduction("b", denominator="a")), (1.5, mean_of("a"))],
    ids=["difference", "reduction", "mean"],
)
def test_system_bootstrap_covers_at_its_level(truth: float, contrast):
    """Nominal 0.95, 100 systems, 300 repetitions of 500 draws: the SD of a coverage of 0.94 is 0.014."""
    assert 0.90 <= coverage(truth, contrast) <= 0.98


def test_unpaired_systems_cover_too_much():
    """The bounds above have power: the same means with the systems of b in another order leave them."""
    assert coverage(0.4, difference("a", "b"), pairs=False) > 0.98


def test_balanced_main_effect_of_a_factorial():
    """Additive planted effects over 64 systems: the interval holds the effect, and is the one of the paired column."""
    rng = np.random.default_rng(10)
    base, align, cross = rng.exponential(size=64), 2 + rng.normal(size=64), 0.1 * rng.normal(size=64)
    noise = 0.1 * rng.normal(size=(4, 64))
    recipes = {
        "structure": base + noise[0],
        "align": base + align + noise[1],
        "cross": base + cross + noise[2],
        "align-cross": base + align + cross + noise[3],
    }
    got = system_bootstrap(recipes, {"align": ALIGN_EFFECT}, seed=0)["align"]
    column = (recipes["align"] - recipes["structure"] + recipes["align-cross"] - recipes["cross"]) / 2
    assert got[:3] == pytest.approx(system_bootstrap({"a": column}, {"m": mean_of("a")}, seed=0)["m"][:3])
    assert got.low < 2 < got.high
    assert got.high - got.low == pytest.approx(2 * 1.96 * column.std() / 8, rel=0.1)


def test_an_adjusted_level_widens_the_interval():
    a, b = paired(200)
    plain, adjusted = (
        system_bootstrap({"a": a, "b": b}, {"d": difference("a", "b")}, seed=0, draws=DRAWS, level=level)["d"]
        for level in (0.95, bonferroni(3))
    )
    assert adjusted.level == pytest.approx(0.98333, abs=1e-5)
    ratio = (adjusted.high - adjusted.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(stats.norm.ppf(1 - 0.05 / 6) / stats.norm.ppf(0.975), rel=0.05)


# Purity


CALLS = (system_bootstrap, hierarchical_bootstrap, source_system_bootstrap)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("strata", [None, STRATA])
def test_draws_do_not_depend_on_the_chunk(call, strata, monkeypatch: pytest.MonkeyPatch):
    cells = np.random.default_rng(11).exponential(size=(3, 2, 47))
    whole = resampled(call, {"a": cells}, strata=strata, draws=500)[0]
    monkeypatch.setattr(bootstrap, "CHUNK", 47 * 7 + 3)
    np.testing.assert_allclose(resampled(call, {"a": cells}, strata=strata, draws=500)[0], whole, rtol=1e-12)


@pytest.mark.parametrize("call", CALLS)
def test_a_pure_function_of_the_seed(call):
    cells = {"a": np.random.default_rng(12).exponential(size=(3, 2, 20))}
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (call(cells, {"m": mean_of("a")}, seed=s)["m"] for s in (1, 1, 2))
    assert first == again
    assert first.low != other.low
    assert first.estimate == other.estimate
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_calls_of_one_seed_are_paired():
    """Two calls draw the same systems: the difference of their means is the mean of the difference."""
    a, b = paired(30)
    x, y, d = (resampled(system_bootstrap, {"a": v})[0] for v in (a, b, a - b))
    np.testing.assert_allclose(x - y, d, atol=1e-12)


# Sources, readers and systems


def exact_hierarchical(cells: list[np.ndarray]) -> np.ndarray:
    """The mean of every equally likely resample of sources, of readers in each drawn source, and of systems."""
    s, n = len(cells), cells[0].shape[1]
    least_common = math.lcm(*(math.prod(len(cells[j]) ** len(cells[j]) for j in c) for c in _tuples(s)))
    means = []
    for systems in itertools.product(range(n), repeat=n):
        for sources in _tuples(s):
            readers = [list(itertools.product(range(len(cells[j])), repeat=len(cells[j]))) for j in sources]
            combinations = list(itertools.product(*readers))
            for drawn in combinations:
                parts = [cells[j][list(r)][:, list(systems)].mean() for j, r in zip(sources, drawn, strict=True)]
                means += [np.mean(parts)] * (least_common // len(combinations))
    return np.array(means)


def _tuples(s: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(s), repeat=s))


@pytest.mark.parametrize("readers", [(2, 2), (1, 2), (1, 1)])
def test_hierarchical_bootstrap_equals_its_enumeration(readers: tuple[int, int]):
    rng = np.random.default_rng(13)
    cells = [rng.normal(size=(r, 2)).round(3) for r in readers]
    grid = np.full((2, max(readers), 2), NAN)
    for s, rows in enumerate(cells):
        grid[s, max(readers) - len(rows) :] = rows
    exact = exact_hierarchical(cells)
    (got,) = resampled(hierarchical_bootstrap, {"a": grid}, draws=DRAWS)
    possible, counts = np.unique(exact.round(9), return_counts=True)
    found, frequency = np.unique(got.round(9), return_counts=True)
    np.testing.assert_allclose(found, possible, atol=2e-9)
    assert stats.chisquare(frequency, DRAWS * counts / counts.sum()).pvalue > 1e-4
    i = hierarchical_bootstrap({"a": grid}, {"m": mean_of("a")}, seed=1, draws=DRAWS)["m"]
    assert i.estimate == pytest.approx(np.mean([c.mean() for c in cells]))
    assert i[3:] == (0.95, 2, "source and system" if readers == (1, 1) else "source, reader and system")


def test_hierarchical_variance_in_closed_form():
    """E = source + reader + system effects: σ_s²/S + σ_r²/(SR) + σ_n²/N, as if systems were one draw for all cells."""
    rng = np.random.default_rng(14)
    s, r, n = 4, 3, 12
    source, reader, system = rng.normal(size=s), rng.normal(size=(s, r)), rng.normal(size=n)
    reader -= reader.mean(1, keepdims=True)
    cells = source[:, None, None] + reader[:, :, None] + system
    (got,) = resampled(hierarchical_bootstrap, {"a": cells}, draws=DRAWS)
    parts = source.var() / s, reader.var(1).mean() / (s * r), system.var() / n
    assert min(parts) > 0.1 * sum(parts)  # the test would see each of them missing
    assert got.var() == pytest.approx(sum(parts), rel=0.04)
    (fixed,) = resampled(source_system_bootstrap, {"a": cells}, draws=DRAWS)
    assert fixed.var() == pytest.approx(parts[0] + parts[2], rel=0.04)
    (systems,) = resampled(system_bootstrap, {"a": cells}, draws=DRAWS)
    assert systems.var() == pytest.approx(parts[2], rel=0.04)


@pytest.mark.parametrize("call", [hierarchical_bootstrap, source_system_bootstrap])
def test_strata_keep_their_sizes_in_every_cell(call):
    cells = np.tile(np.unique(STRATA, return_inverse=True)[1].astype(float), (3, 2, 1))
    got = call({"a": cells}, {"m": mean_of("a")}, seed=0, strata=STRATA, draws=200)["m"]
    assert got[:3] == pytest.approx((cells.mean(),) * 3)


def test_hierarchical_conditions_are_paired_on_everything():
    rng = np.random.default_rng(15)
    a = rng.exponential(size=(3, 3, 20))
    a[0, 1] = NAN
    got = hierarchical_bootstrap({"a": a, "b": a + 1.5}, {"d": difference("b", "a")}, seed=0)["d"]
    assert got[:3] == pytest.approx((1.5, 1.5, 1.5))


def test_source_system_bootstrap_equals_a_loop():
    rng = np.random.default_rng(16)
    a, b = rng.exponential(size=(3, 2, 40)), rng.exponential(size=(3, 40))
    got = source_system_bootstrap({"a": a, "b": b}, {"d": difference("a", "b")}, seed=0)["d"]
    change = a.mean(1) - b
    naive = []
    for _ in range(5000):
        sources, systems = rng.integers(0, 3, 3), rng.integers(0, 40, 40)
        naive.append(change[sources][:, systems].mean())
    error = Q * math.sqrt(DRAWS / 5000) * np.std(naive)
    assert got.estimate == pytest.approx(change.mean())
    assert (got.low, got.high) == pytest.approx(np.quantile(naive, [0.025, 0.975]), abs=error)


# Sources alone


def test_source_bootstrap_of_two_sources():
    """Means 1, 2, 2, 3 of equal chance: the 2.5 % quantile is 1; that of a level of 0.4 is 2."""
    scores = {"a": [1.0, 3.0]}
    assert source_bootstrap(scores, {"m": mean_of("a")}, seed=0)["m"] == (2.0, 1.0, 3.0, 0.95, 2, "source")
    assert source_bootstrap(scores, {"m": mean_of("a")}, seed=0, level=0.4)["m"][:3] == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("sources", [3, 5])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_source_bootstrap_takes_every_resample(sources: int, level: float):
    rng = np.random.default_rng(17)
    a, b = rng.normal(3, 1, sources), rng.normal(1, 0.2, sources)
    got = source_bootstrap({"a": a, "b": b}, {"r": lambda m: m["a"] / m["b"]}, seed=0, level=level)["r"]
    every = [np.mean(a[list(c)]) / np.mean(b[list(c)]) for c in itertools.product(range(sources), repeat=sources)]
    low, high = np.quantile(every, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    assert got[:3] == pytest.approx((a.mean() / b.mean(), low, high))
    drawn = rng.integers(0, sources, size=(DRAWS, sources))  # infinitely many draws would give the same
    assert np.quantile(a[drawn].mean(1) / b[drawn].mean(1), (1 - level) / 2, method="inverted_cdf") == pytest.approx(
        low, abs=0.02 * (high - low)
    )


def test_source_bootstrap_draws_when_sources_are_many():
    a, b = paired(12)
    got = source_bootstrap({"a": a, "b": b}, {"d": difference("a", "b")}, seed=0, draws=DRAWS)["d"]
    expected = stats.bootstrap(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis),
        paired=True,
        method="percentile",
        n_resamples=DRAWS,
        rng=2,
    )
    error = Q * expected.standard_error
    assert got.low == pytest.approx(expected.confidence_interval.low, abs=error)
    assert got.high == pytest.approx(expected.confidence_interval.high, abs=error)


def test_recovery_is_a_ratio_of_source_means():
    inferred, random, true = np.array([1.0, 3.0, -1.0]), np.zeros(3), np.array([2.0, 8.0, 1.0])
    got = recovery(inferred, random, true, seed=0)
    assert got.reason == ""
    assert got.interval is not None
    assert got.interval.estimate == pytest.approx(100 * 3 / 11)
    assert got.interval.estimate != pytest.approx(100 * np.mean(inferred / true))
    # The extremes are those of one source three times, each of chance 1/27 > 0.025; neither is clipped.
    assert (got.interval.low, got.interval.high) == pytest.approx((-100.0, 50.0))
    above = recovery([4.0, 5.0], [1.0, 1.0], [2.0, 3.0], seed=0).interval
    assert above is not None
    assert above.estimate == pytest.approx(100 * 7 / 3)


def test_recovery_needs_a_scale():
    """True is better on average but not in every resample of sources: no ratio, and why."""
    got = recovery([0.1, 0.1, 0.1], [0.0, 0.0, 0.3], [1.0, 1.0, 0.25], seed=0)
    assert got.interval is None
    assert "True − Random is -0.05 in one source" in got.reason
    assert recovery([0.1, 0.1], [0.0, 0.0], [1.0, 0.0], seed=0).interval is None
    assert recovery([0.1, 0.1], [0.0, 0.0], [1.0, 1e-3], seed=0).interval is not None


# Refusals


GOOD = np.arange(4.0)


def run(conditions=None, call=system_bootstrap, contrast=None, **options):
    contrast = mean_of("a") if contrast is None else contrast
    return call({"a": GOOD} if conditions is None else conditions, {"m": contrast}, **{"seed": 0, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditions": {}}, "at least one condition"),
        ({"conditions": {"a": [1.0]}}, "errors are of 1 system; legal: at least 2"),
        ({"conditions": {"a": GOOD, "b": GOOD[:3]}}, "'a' has 4 systems, 'b' has 3"),
        ({"conditions": {"a": [1.0, NAN]}}, "errors must be finite"),
        ({"conditions": {"a": [1.0, math.inf]}}, "errors must be finite"),
        ({"level": 1.0}, "level is 1.0"),
        ({"level": 0.0}, "level is 0.0"),
        ({"draws": 39}, r"draws is 39; legal at level 0.95: at least 40"),
        ({"draws": 100, "level": bonferroni(3)}, "at least 120"),
        ({"seed": None}, "seed is None"),
        ({"seed": -1}, "seed is -1"),
        ({"strata": [0, 0, 1]}, r"one label a system, \(4,\), got shape \(3,\)"),
        ({"strata": ["x", "x", "x", "odd"]}, "stratum 'odd' has one system"),
        ({"contrast": mean_of("b")}, "no condition 'b'"),
        ({"contrast": lambda m: np.mean(m["a"])}, "contrast 'm' gives shape"),
        ({"contrast": lambda m: m["a"] * NAN}, "contrast 'm' is nan, and not finite in 10000 of 10000"),
        ({"conditions": {"a": [0.0, 0.0, 1.0]}, "contrast": reduction("a", denominator="a")}, "mean of 'a' is 0.0"),
        ({"call": hierarchical_bootstrap}, "'a' has one source"),
        ({"call": hierarchical_bootstrap, "conditions": {"a": np.ones((1, 2, 4))}}, "'a' has one source"),
        ({"call": hierarchical_bootstrap, "conditions": {}}, "at least one condition"),
        ({"call": hierarchical_bootstrap, "conditions": {"a": np.ones((2, 2, 1))}}, "errors are of 1 system"),
        (
            {"call": hierarchical_bootstrap, "conditions": {"a": np.ones((2, 2, 4)), "b": np.ones((2, 1, 4))}},
            r"'b' has shape \(2, 1, 4\), 'a' \(2, 2, 4\)",
        ),
        (
            {
                "call": hierarchical_bootstrap,
                "conditions": {
                    "a": [[[1.0, 1.0], [NAN, NAN]], [[1.0, 1.0], [1.0, 1.0]]],
                    "b": [[[NAN, NAN], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]],
                },
            },
            "'b' lacks other readers than 'a'",
        ),
        (
            {"call": source_bootstrap, "conditions": {"a": [1.0]}},
            "'a' must be one finite number for each of at least 2",
        ),
        ({"call": source_bootstrap, "conditions": {"a": [1.0, NAN]}}, "'a' must be one finite number"),
        ({"call": source_bootstrap, "conditions": {"a": GOOD, "b": GOOD[:2]}}, "'a' has 4 sources, 'b' has 2"),
        ({"call": source_bootstrap, "conditions": {"a": [1.0, 1j]}}, r"^'a' is \[1.0, 1j\]; legal: real numbers$"),
        ({"conditions": {"a": np.array([1.0, 1j])}}, "^errors is array.*; legal: real numbers$"),
        ({"call": source_bootstrap, "level": 2.0}, "level is 2.0"),
    ],
)
def test_bootstraps_refuse(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        run(**options)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones(5), np.arange(5.0), "x is 1.0 for every system"),
        (np.arange(5.0), np.arange(4.0), "'x' has 5 systems, 'y' has 4"),
        (np.ones((2, 5)), np.arange(5.0), r"x must have shape \(N,\)"),
        # (6/7)^7 = 0.34 of all draws repeat one value, with a variance of rounding errors
        ([0.1] * 6 + [0.7], np.sin(np.arange(7.0)), r"'slope' is .* not finite in 3[2-5]\d\d of 10000"),
    ],
)
def test_slopes_refuse(x, y, message: str):
    with pytest.raises(ValueError, match=message):
        slope_bootstrap(x, y, seed=0)
