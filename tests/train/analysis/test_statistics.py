"""Dispersion against loops and the standard library, effects against the paper's own arithmetic, t intervals."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from sprii_train.analysis.statistics import (
    ALIGN_EFFECT,
    BELOW_DECODE,
    CROSS_EFFECT,
    HISTORY_GAIN,
    WRONG_MINUS_MATCHED,
    Interval,
    bonferroni,
    difference,
    extreme_interval,
    interval_difference,
    interval_ratio,
    main_effect,
    mapped,
    mean_of,
    over_readers,
    over_sources,
    paired_power,
    paired_source_interval,
    reduction,
    source_means,
    system_means,
)

NAN = float("nan")


# Sources


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.25], [1e6, 1e6 + 1], [3.0] * 5, list(np.linspace(-1, 2, 7))])
def test_over_sources_equals_the_standard_library(values: list[float]):
    got = over_sources(values)
    assert got.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert got.sd == pytest.approx(statistics.stdev(values), rel=1e-9)
    assert got.n == len(values)


def test_one_source_has_no_spread():
    got = over_sources([0.5])
    assert got.mean == 0.5
    assert math.isnan(got.sd)
    assert got.n == 1


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_over_sources_refuses(values: list):
    with pytest.raises(ValueError, match="non-empty list"):
        over_sources(values)


# Readers within sources


def test_readers_are_averaged_within_a_source():
    grid = {0: [1.0, 2.0, 3.0], 1: [10.0], 5: [4.0, 6.0]}
    got = over_readers(grid)
    assert got.readers == (3, 1, 2)
    assert got.n == 3
    assert got.mean == pytest.approx(statistics.fmean([2.0, 10.0, 5.0]))
    assert got.sd == pytest.approx(statistics.stdev([2.0, 10.0, 5.0]))
    assert got.mean != pytest.approx(np.mean([1, 2, 3, 10, 4, 6]))  # the cells are not one pool
    array = [[1.0, 2.0, 3.0], [NAN, 10.0, NAN], [4.0, NAN, 6.0]]
    assert over_readers(array) == got


def test_a_complete_grid_is_a_plain_mean():
    grid = np.random.default_rng(0).normal(size=(3, 3))
    got = over_readers(grid)
    assert got.mean == pytest.approx(grid.mean(), rel=1e-12)
    assert got.sd == pytest.approx(statistics.stdev(grid.mean(1)), rel=1e-12)
    assert got.sd != pytest.approx(grid.std(ddof=1), rel=0.1)
    assert got.readers == (3, 3, 3)


def test_source_means_keep_further_axes():
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(2, 3, 4, 5))
    errors[1, 0] = NAN
    means, readers = source_means(errors)
    np.testing.assert_allclose(means[0], sum(errors[0]) / 3)
    np.testing.assert_allclose(means[1], (errors[1, 1] + errors[1, 2]) / 2)
    assert readers == (3, 2)
    again, _ = source_means({"a": errors[0], "b": errors[1, 1:]})
    np.testing.assert_array_equal(again, means)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({}, "at least one source"),
        ([1.0, 2.0], r"shape \(sources, readers"),
        ({0: [1.0], "late": []}, "source 'late' has no fitted reader"),
        ([[1.0, 2.0], [NAN, NAN]], "source 1 has no fitted reader"),
        ({0: [1.0, NAN]}, "errors of source 0 must be finite; 1 of 2 are not"),
        ([[1.0, math.inf]], "errors of source 0 must be finite"),
        ({0: [[1.0, 2.0]], 1: [[1.0]]}, r"source 1 have errors of shape \(1,\), those of source 0 \(2,\)"),
        ([[[1.0, NAN]]], "errors of source 0 must be finite"),  # half a reader
        (np.ones((2, 2, 3)), r"one error a reader, got errors of shape \(3,\)"),
    ],
)
def test_over_readers_refuses(errors, message: str):
    with pytest.raises(ValueError, match=message):
        over_readers(errors)


def test_system_means_of_every_layout():
    rng = np.random.default_rng(2)
    cells = rng.normal(size=(2, 3, 4))
    np.testing.assert_allclose(system_means(cells), cells.mean((0, 1)))
    np.testing.assert_allclose(system_means(cells[:, 0]), cells[:, 0].mean(0))
    np.testing.assert_array_equal(system_means(cells[0, 0]), cells[0, 0])
    cells[0, 1:] = NAN  # source 0 has one reader, and still counts a half
    expected = [(cells[0, 0, i] + statistics.fmean(cells[1, :, i])) / 2 for i in range(4)]
    np.testing.assert_allclose(system_means(cells), expected)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ([], "errors must have shape"),
        (np.ones((1, 1, 1, 2)), "errors must have shape"),
        ([3.0], "errors are of 1 system"),
        ([1.0, NAN], "errors must be finite; 1 of 2"),
        ([[1.0, 2.0], [math.inf, 1.0]], "errors must be finite"),
    ],
)
def test_system_means_refuses(errors, message: str):
    with pytest.raises(ValueError, match=message):
        system_means(errors)


# Effects


def test_relative_effects_are_ratios_of_means():
    """A case-wise percentage of 50 and 0 averages to 25; the mean error falls by 45."""
    control, method = np.array([9.0, 1.0]), np.array([4.5, 1.0])
    got = reduction("a", denominator="b")({"a": method.mean(), "b": control.mean()})
    assert got == pytest.approx(45.0)
    assert np.mean(100 * (control - method) / control) == pytest.approx(25.0)


def test_effects_of_the_papers_means():
    """D-Clean's same-donor readers at h32 (`app:horizon`) and SpringWorld's sealed comparison (`app:spring-sealed`)."""
    dclean = {"persistent": 0.000590019, "decode": 0.000763955, "null": 0.059360, "matched": 0.000590, "wrong": 0.1809}
    assert BELOW_DECODE(dclean) == pytest.approx(22.8, abs=0.05)
    assert difference("decode", "persistent")(dclean) == pytest.approx(0.000173937, abs=2e-9)
    assert WRONG_MINUS_MATCHED(dclean) == pytest.approx(0.18031)
    assert HISTORY_GAIN(dclean) == pytest.approx(100 * (1 - 0.000590019 / 0.059360))
    assert BELOW_DECODE({"persistent": 1.0212, "decode": 1.0}) == pytest.approx(-2.12)  # 2.12 % higher, same convention
    spring = {"native": 0.13820, "tds": 0.13030, "align-cross": 0.10740}
    assert reduction("align-cross", denominator="native")(spring) == pytest.approx(22.31, abs=0.05)
    assert reduction("align-cross", denominator="tds")(spring) == pytest.approx(17.54, abs=0.05)


@pytest.mark.parametrize(
    ("depths", "align", "cross"),
    [
        ((0.01179, 0.1922, 0.03197, 0.1820), 0.16526, 0.00499),
        ((0.00310, 0.03124, 0.00886, 0.03033), 0.02480, 0.00243),
        ((0.00016, 0.02383, 0.00033, 0.02395), 0.02365, 0.00015),
    ],
)
def test_main_effects_of_the_papers_valleys(depths, align: float, cross: float):
    """`tab:spring-functional-landscape` prints 4 to 5 decimals of the depths that `app:landscape` contrasts."""
    means = dict(zip(("structure", "align", "cross", "align-cross"), depths, strict=True))
    assert ALIGN_EFFECT(means) == pytest.approx(align, abs=1e-4)
    assert CROSS_EFFECT(means) == pytest.approx(cross, abs=1e-4)


def test_main_effect_without_interaction_is_the_effect():
    means = {"00": 1.0, "10": 3.0, "01": 1.5, "11": 3.5}
    assert main_effect(("10", "00"), ("11", "01"))(means) == pytest.approx(2.0)
    assert main_effect(("01", "00"), ("11", "10"))(means) == pytest.approx(0.5)


def test_contrasts_work_elementwise():
    means = {"a": np.array([1.0, 2.0]), "b": np.array([4.0, 8.0])}
    assert mean_of("a")(means).tolist() == [1.0, 2.0]
    assert difference("a", "b")(means).tolist() == [-3.0, -6.0]
    assert reduction("a", denominator="b")(means).tolist() == [75.0, 75.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_of("c")({"a": 1.0, "b": 2.0}), "no condition 'c'; conditions: a, b"),
        (lambda: difference("a", "c")({"a": 1.0}), "no condition 'c'"),
        (lambda: reduction("a", denominator="b")({"a": 1.0, "b": 0.0}), "mean of 'b' is 0.0; legal"),
        (lambda: reduction("a", denominator="b")({"a": 1.0, "b": np.array([1.0, -2.0])}), "mean of 'b' is -2.0"),
        (lambda: main_effect(), "at least one pair"),
    ],
)
def test_contrasts_refuse(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()


# Paired sources


@pytest.mark.parametrize(
    ("changes", "mean", "low", "high"),
    [
        ([0.1270, 0.4228, 0.1502], 0.2333, -0.1752, 0.6418),
        ([-0.0904, 0.1676, -0.0071], 0.0234, -0.3038, 0.3506),
        ([0.2938, 0.9736, 0.0488], 0.4387, -0.7515, 1.6290),
    ],
)
def test_paired_source_interval_of_the_papers_seeds(changes, mean: float, low: float, high: float):
    """Three rows of `tab:coda-host-contrasts-0`, whose entries are rounded to four decimals."""
    control = np.array([6.39, 6.06, 6.08])
    got = paired_source_interval(control + changes, control)
    assert got[:3] == pytest.approx((mean, low, high), abs=2e-4)
    assert got[3:] == (0.95, 3, "source")


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_paired_source_interval_equals_scipy(level: float):
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 6))
    got = paired_source_interval(a, b, level=level)
    expected = stats.ttest_rel(a, b).confidence_interval(level)
    assert got[:3] == pytest.approx(((a - b).mean(), expected.low, expected.high), rel=1e-10)


def test_paired_source_interval_covers_at_its_level():
    """Three Gaussian sources, 2,000 repetitions: 0.95 within four binomial SD; a normal quantile would cover 0.81."""
    rng = np.random.default_rng(4)
    data = rng.normal(0.3, 1.0, size=(2000, 3))
    intervals = [paired_source_interval(row, np.zeros(3)) for row in data]
    covered = np.mean([i.low <= 0.3 <= i.high for i in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_sources_that_agree_have_an_interval_of_a_point():
    assert paired_source_interval([2.0, 3.0], [1.0, 2.0])[:3] == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [2.0]), "at least 2"),
        (([1.0, 2.0], [1.0, 2.0, 3.0]), r"shapes \(2,\) and \(3,\)"),
        (([[1.0, 2.0]], [[1.0, 2.0]]), "two equally long lists"),
        (([1.0, NAN], [1.0, 2.0]), "source differences must be finite; 1 of 2"),
    ],
)
def test_paired_source_interval_refuses(arguments, message: str):
    with pytest.raises(ValueError, match=message):
        paired_source_interval(*arguments)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95.0, NAN])
def test_a_level_lies_between_0_and_1(level: float):
    with pytest.raises(ValueError, match=f"level is {level}; legal"):
        paired_source_interval([1.0, 2.0], [0.0, 0.0], level=level)


def test_bonferroni():
    assert bonferroni(3) == pytest.approx(1 - 0.05 / 3)
    assert bonferroni(5, 0.9) == pytest.approx(0.98)
    assert bonferroni(1) == pytest.approx(0.95)
    for arguments, message in (((0,), "contrasts is 0"), ((3, 1.0), "level is 1.0")):
        with pytest.raises(ValueError, match=message):
            bonferroni(*arguments)


# Intervals of intervals


def spanning(low: float, estimate: float, high: float) -> Interval:
    return Interval(estimate, low, high, 0.95, 10, "system")


def test_the_interval_of_a_difference_is_that_of_two_independent_normal_means():
    a, b = spanning(2.0 - 1.5, 2.0, 2.0 + 1.5), spanning(-1.0 - 2.0, -1.0, -1.0 + 2.0)
    assert interval_difference(a, b)[:3] == pytest.approx((3.0, 3.0 - 2.5, 3.0 + 2.5))
    skewed = interval_difference(spanning(1.0, 2.0, 5.0), spanning(-4.0, 0.0, 1.0))
    assert skewed[:3] == pytest.approx((2.0, 2.0 - math.hypot(1.0, 1.0), 2.0 + math.hypot(3.0, 4.0)))


def test_the_interval_of_a_ratio_is_of_the_logarithms():
    a, b = spanning(2.0, 4.0, 8.0), spanning(0.5, 1.0, 2.0)
    factor = 2.0 ** math.sqrt(2.0)
    assert interval_ratio(a, b)[:3] == pytest.approx((4.0, 4.0 / factor, 4.0 * factor))
    for other in (spanning(-0.1, 1.0, 2.0), spanning(0.0, 1.0, 2.0)):
        assert interval_ratio(a, other)[1:3] == (-math.inf, math.inf)
        assert interval_ratio(other, a)[1:3] == (-math.inf, math.inf)


def test_intervals_of_differences_cover_at_their_level():
    """Of independent means; of means on the same systems, which share what is hard, they cover more."""
    rng = np.random.default_rng(0)
    half = stats.norm.ppf(0.975)
    inside = {0.0: 0, 0.8: 0}
    for shared in inside:
        for _ in range(2_000):
            x, y = rng.multivariate_normal([1.0, 0.0], [[1.0, shared * 2.0], [shared * 2.0, 4.0]])
            found = interval_difference(spanning(x - half, x, x + half), spanning(y - 2 * half, y, y + 2 * half))
            inside[shared] += found.low <= 1.0 <= found.high
    assert 0.935 < inside[0.0] / 2_000 < 0.965
    assert inside[0.8] / 2_000 > 0.99


def test_the_interval_of_the_least_or_largest_number():
    both = [spanning(0.0, 1.0, 5.0), spanning(-2.0, 2.0, 3.0)]
    assert extreme_interval(both, min) == spanning(-2.0, 1.0, 3.0)
    assert extreme_interval(both, max) == spanning(0.0, 2.0, 5.0)


def test_a_decreasing_function_swaps_the_ends():
    assert mapped(spanning(1.0, 2.0, 4.0), lambda value: -value) == spanning(-4.0, -2.0, -1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [np.array([1.0, 2j]), [1.0, 2j], ["1", "2"], [None, {}]])
def test_what_is_no_real_number_is_not_cut_to_one(values):
    for call in (over_sources, system_means, lambda v: source_means({"a": v}), lambda v: paired_source_interval(v, v)):
        with pytest.raises(ValueError, match=r"^(values|errors|errors of source 'a') is .*; legal: real numbers$"):
            call(values)


def test_the_power_of_paired_sources_is_that_of_simulated_ones():
    rng = np.random.default_rng(0)
    for effect, sd, n in ((-0.02, 0.01, 3), (1.0, 1.0, 8), (0.0, 2.0, 5)):
        draws = effect + sd * rng.normal(size=(20_000, n))
        half = stats.t.ppf(0.975, n - 1) * draws.std(1, ddof=1) / np.sqrt(n)
        away = np.sign(effect) or 1.0
        share = (away * draws.mean(1) > half).mean()
        assert paired_power(effect, sd, n) == pytest.approx(share, abs=0.01)
    assert paired_power(1.0, 1.0, 8, level=0.5) > paired_power(1.0, 1.0, 8)
    with pytest.raises(ValueError, match="sd"):
        paired_power(1.0, 0.0, 3)
