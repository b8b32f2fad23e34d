"""What `app:measurements` computes from errors: dispersion over sources, paired effects, intervals over sources.

A *contrast* is a function of the means of conditions by name. The same contrast gives a point estimate and, in
`analysis.bootstrap`, its interval, so that a relative effect is a ratio of mean errors and never a mean of ratios.

    reduction("sprii", denominator="native")        complete-method improvement
    reduction("persistent", denominator="null")     history gain of fresh readers (`HISTORY_GAIN`)
    reduction("persistent", denominator="decode")   direct context against decoded parameters (`BELOW_DECODE`)
    difference("wrong", "matched")                  reliance on the supplied donor (`WRONG_MINUS_MATCHED`)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from sprii_envs.arguments import integer, number, shown

Array = NDArray[np.float64]
Contrast = Callable[[Mapping[str, Any]], Any]
"""Means by condition, as numbers or as equally long arrays of resampled means → the effect, elementwise."""


class Spread(NamedTuple):
    """Mean over sources, sample SD (n − 1; NaN for one source) and the number of sources."""

    mean: float
    sd: float
    n: int


class GridSpread(NamedTuple):
    """A `Spread` over sources of readers' means, with the number of readers fitted on each source."""

    mean: float
    sd: float
    n: int
    readers: tuple[int, ...]


class Interval(NamedTuple):
    """An estimate with its interval at `level`, from `n` of the resampled `unit`."""

    estimate: float
    low: float
    high: float
    level: float
    n: int
    unit: str


def floats(name: str, values: ArrayLike) -> Array:
    """Real numbers as an array; ValueError for text, complex and other values, which NumPy would cut to fit."""
    array = np.asarray(values)
    try:
        if array.dtype.kind in "biufO":
            return np.asarray(array, np.float64)
    except (TypeError, ValueError):  # of objects
        pass
    raise ValueError(f"{name} is {shown(values)}; legal: real numbers")


# Dispersion


def over_sources(values: Sequence[float] | Array) -> Spread:
    """Mean ± SD over independently trained sources."""
    array = floats("values", values)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"over_sources needs a non-empty list of numbers, got shape {array.shape}")
    return Spread(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else float("nan"), len(array))


def over_readers(errors: ArrayLike | Mapping[Any, ArrayLike]) -> GridSpread:
    """Mean ± source SD of a grid of fitted readers: readers within a source first, then sources equally.

    Args:
        errors: source → the errors of its readers (R_s,), or an array (S, R) in which NaN is a reader not fitted.

    Raises:
        ValueError: see `source_means`; or if the errors have further axes.
    """
    means, readers = source_means(errors)
    if means.ndim != 1:
        raise ValueError(f"over_readers needs one error a reader, got errors of shape {means.shape[1:]} each")
    return GridSpread(*over_sources(means), readers)


def source_means(errors: ArrayLike | Mapping[Any, ArrayLike]) -> tuple[Array, tuple[int, ...]]:
    """Errors (S, …) averaged over each source's readers, and the numbers of readers (S,), which may differ.

    Args:
        errors: source → its readers' errors (R_s, …), or an array (S, R, …) in which a cell of NaN is a reader not
            fitted.

    Raises:
        ValueError: for a source without readers, readers of unlike shapes, or values that are not finite.
    """
    grid = reader_grid(errors)
    return np.stack([readers.mean(0) for readers in grid]), tuple(len(readers) for readers in grid)


def reader_grid(errors: ArrayLike | Mapping[Any, ArrayLike]) -> list[Array]:
    """The fitted cells (R_s, …) of each source; arguments and errors as in `source_means`."""
    if isinstance(errors, Mapping):
        names = list(errors)
        grid = [floats(f"errors of source {name!r}", readers) for name, readers in errors.items()]
    else:
        array = floats("errors", errors)
        if array.ndim < 2:
            raise ValueError(f"a grid of readers must have shape (sources, readers, …), got {array.shape}")
        missing = np.asarray(np.isnan(array).all(axis=tuple(range(2, array.ndim))))
        names = list(range(len(array)))
        grid = [readers[~gone] for readers, gone in zip(array, missing, strict=True)]
    if not grid:
        raise ValueError("a grid of readers needs at least one source, got none")
    for name, readers in zip(names, grid, strict=True):
        if readers.ndim < 1 or not readers.size:
            raise ValueError(f"source {name!r} has no fitted reader; legal: at least one")
        if readers.shape[1:] != grid[0].shape[1:]:
            raise ValueError(
                f"readers of source {name!r} have errors of shape {readers.shape[1:]}, those of source {names[0]!r} "
                f"{grid[0].shape[1:]}; legal: one shape"
            )
        _check_finite(f"errors of source {name!r}", readers)
    return grid


def system_means(errors: ArrayLike) -> Array:
    """One error a system, (N,): readers averaged within a source, then sources equally.

    Args:
        errors: (N,), (S, N) of sources, or (S, R, N) of sources and readers in which a cell of NaN is a reader not
            fitted.

    Raises:
        ValueError: for another number of axes, fewer than two systems, or values that are not finite.
    """
    array = floats("errors", errors)
    if array.ndim not in (1, 2, 3) or not array.size:
        raise ValueError(f"errors must have shape (N,), (sources, N) or (sources, readers, N), got {array.shape}")
    if array.shape[-1] < 2:
        raise ValueError(f"errors are of {array.shape[-1]} system; legal: at least 2")
    if array.ndim == 3:
        array, _ = source_means(array)
    _check_finite("errors", array)
    return array.mean(0) if array.ndim == 2 else array


# Paired effects: contrasts of means


def mean_of(name: str) -> Contrast:
    """The mean of one condition."""
    return lambda means: _mean(means, name)


def difference(minuend: str, subtrahend: str) -> Contrast:
    """One mean minus another, in the units of the error."""
    return lambda means: _mean(means, minuend) - _mean(means, subtrahend)


def reduction(name: str, *, denominator: str) -> Contrast:
    """By how many percent of the denominator's mean error the mean error of `name` is lower.

    ValueError where a mean of the denominator is not above 0.
    """

    def effect(means: Mapping[str, Any]) -> Any:
        control = _mean(means, denominator)
        if not np.all(control > 0):
            raise ValueError(f"the mean of {denominator!r} is {np.min(control)}; legal for a denominator: above 0")
        return 100.0 * (control - _mean(means, name)) / control

    return effect


def main_effect(*pairs: tuple[str, str]) -> Contrast:
    """Balanced factorial main effect: the mean over pairs (with, without the factor) of their difference.

    `ALIGN_EFFECT` is (Align − Structure + Align+Cross − Cross)/2 (`app:landscape`).
    """
    if not pairs:
        raise ValueError("main_effect needs at least one pair (with, without), got none")
    return lambda means: sum(_mean(means, a) - _mean(means, b) for a, b in pairs) / len(pairs)


HISTORY_GAIN = reduction("persistent", denominator="null")
BELOW_DECODE = reduction("persistent", denominator="decode")
WRONG_MINUS_MATCHED = difference("wrong", "matched")
ALIGN_EFFECT = main_effect(("align", "structure"), ("align-cross", "cross"))
CROSS_EFFECT = main_effect(("cross", "structure"), ("align-cross", "align"))


def _mean(means: Mapping[str, Any], name: str) -> Any:
    if name not in means:
        raise ValueError(f"no condition {name!r}; conditions: {', '.join(means)}")
    return means[name]


# Intervals


def paired_source_interval(values: ArrayLike, control: ArrayLike, *, level: float = 0.95) -> Interval:
    """Paired-source t interval of the mean of values − control, with S − 1 degrees of freedom.

    Args:
        values, control: (S,) each, one number a source; `source_means` makes them of a grid of readers.

    Raises:
        ValueError: for one source, unlike lengths, values that are not finite, or a level outside (0, 1).
    """
    check_level(level)
    first, second = floats("values", values), floats("control", control)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(
            f"paired sources must be two equally long lists of at least 2, got shapes {first.shape} and {second.shape}"
        )
    change = _check_finite("source differences", first - second)
    n = len(change)
    mean = float(change.mean())
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * change.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half, level, n, "source")


def paired_power(effect: float, sd: float, n: int, *, level: float = 0.95) -> float:
    """Chance that the interval of `paired_source_interval` leaves 0 out, on the side of the effect.

    Args:
        effect: true mean of the differences.
        sd: of the differences over sources.
        n: sources.

    Raises:
        ValueError: for one source, an SD that is not above 0, or a level outside (0, 1).
    """
    check_level(level)
    effect, sd, n = number("effect", effect), number("sd", sd, above=0), integer("n", n, least=2)
    away = abs(effect) / sd * math.sqrt(n)
    return float(stats.nct.sf(stats.t.ppf((1 + level) / 2, n - 1), n - 1, away))


def interval_difference(first: Interval, second: Interval) -> Interval:
    """Interval of first − second from one interval of each (MOVER, Zou and Donner 2008).

    Right for independent estimates; where both are of the same systems, whose difficulty they share, it is too wide.
    """
    estimate = first.estimate - second.estimate
    low = estimate - math.hypot(first.estimate - first.low, second.high - second.estimate)
    high = estimate + math.hypot(first.high - first.estimate, second.estimate - second.low)
    return first._replace(estimate=estimate, low=low, high=high)


def interval_ratio(first: Interval, second: Interval) -> Interval:
    """Interval of first ÷ second, the difference of the logarithms (`interval_difference`).

    Without bounds where one of the intervals is not above 0: such a number may have no ratio.
    """
    if not all(min(each.low, each.estimate) > 0 for each in (first, second)):
        return first._replace(estimate=first.estimate / second.estimate, low=-math.inf, high=math.inf)
    return mapped(interval_difference(mapped(first, math.log), mapped(second, math.log)), math.exp)


def extreme_interval(intervals: Sequence[Interval], choose: Callable[[Sequence[float]], float]) -> Interval:
    """Interval of the least (`min`) or largest (`max`) of several numbers, from one interval of each.

    It errs to the wide side of the chosen end.
    """
    parts = zip(*((each.estimate, each.low, each.high) for each in intervals), strict=True)
    estimate, low, high = (choose(part) for part in parts)
    return intervals[0]._replace(estimate=estimate, low=low, high=high)


def mapped(found: Interval, function: Callable[[float], float]) -> Interval:
    """The interval of an increasing or decreasing function of the estimate."""
    estimate, *ends = (function(value) for value in (found.estimate, found.low, found.high))
    return found._replace(estimate=estimate, low=min(ends), high=max(ends))


def bonferroni(contrasts: int, level: float = 0.95) -> float:
    """Level of each of so many intervals that together hold at `level`: 1 − (1 − level)/contrasts."""
    check_level(level)
    return 1.0 - (1.0 - level) / integer("contrasts", contrasts, least=1)


def check_level(level: float) -> None:
    """ValueError unless the level lies in (0, 1)."""
    number("level", level, above=0, below=1)


def _check_finite(name: str, array: Array) -> Array:
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {int((~np.isfinite(array)).sum())} of {array.size} are not")
    return array
