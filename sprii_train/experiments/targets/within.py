"""Intervals of a claim's number within one source, over systems: from errors by system, or from kept intervals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import (
    Contrast,
    Interval,
    difference,
    interval_difference,
    interval_ratio,
    mapped,
)
from sprii_train.evaluation.result import wilson
from sprii_train.experiments.targets.base import Row, arrays_of, stacked, value_of
from sprii_train.reports.claims import Arms

Within = Callable[[Arms], Interval | None]
Errors = NDArray[np.float64]

SEED = 0


# Errors by system, kept beside the models


def has_arrays(arms: Arms, names: Iterable[str], measure: str) -> bool:
    """Whether the rows of these arms have the numbers by system of a measure; rows of a kept report have none."""
    files = [arms[name].get("arrays", {}).get(measure) for name in names]
    return all(file is not None and Path(file).exists() for file in files)


def by_system(
    measure: str,
    contrast: Contrast,
    keys: Mapping[str, tuple[str, str]],
    *,
    at: Callable[[Errors], Errors] = lambda errors: errors,
    strata: Callable[[Row], list[str]] | None = None,
) -> Within:
    """Bootstrap of the systems of one source.

    Args:
        measure: whose arrays are read.
        contrast: of the means of the conditions.
        keys: condition → the arm and the name of its array, (…, N) by system after `at`.
        at: picks a horizon or a component.
        strata: row → strata of its systems.
    """

    def interval(arms: Arms) -> Interval | None:
        names = [arm for arm, _ in keys.values()]
        if not has_arrays(arms, names, measure):
            return None
        errors = {name: at(stacked([arms[arm]], measure, key)) for name, (arm, key) in keys.items()}
        labels = None if strata is None else strata(arms[names[0]])
        return system_bootstrap(errors, {"": contrast}, seed=SEED, strata=labels)[""]

    return interval


def by_row(
    measure: str,
    arms: Sequence[str],
    number: Callable[[Arms], Any],
    columns: Callable[[Mapping[str, Errors]], Mapping[str, Errors]],
    numbers: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> Within:
    """Bootstrap of the systems of one source, for a number that is no contrast of means, an R² or a ratio of variances.

    Args:
        measure: whose arrays are read.
        arms: whose rows the number is of.
        number: rows by arm → the number; elementwise.
        columns: arrays of one row → (N,) by system, by name.
        numbers: means over systems of these → the numbers of the row; elementwise.

    Returns:
        None where the rows have no arrays, and where there is no such number in some resample.
    """

    def contrast(means: Mapping[str, Any]) -> Any:
        of: dict[str, dict[str, Any]] = {arm: {} for arm in arms}
        for name, mean in means.items():
            arm, _, column = name.partition("|")
            of[arm][column] = mean
        with np.errstate(divide="raise", invalid="raise"):
            return number({arm: numbers(own) for arm, own in of.items()})

    def interval(given: Arms) -> Interval | None:
        if not has_arrays(given, arms, measure):
            return None
        of = {f"{arm}|{name}": c for arm in arms for name, c in columns(arrays_of(given[arm], measure)).items()}
        try:
            return system_bootstrap(of, {"": contrast}, seed=SEED)[""]
        except FloatingPointError:
            return None

    return interval


def r2_difference(first: str, second: str, split: str, probe: str, measure: str = "formation") -> Within:
    """Of R²(first) − R²(second) of one probe of `formation`, or another measure; the labels' variance is fixed."""
    key = f"{split}|{probe}"
    errors = by_system(measure, difference("second", "first"), {"first": (first, key), "second": (second, key)})

    def interval(arms: Arms) -> Interval | None:
        found = errors(arms)
        if found is None:
            return None
        unexplained = 1.0 - number_of(arms[second], f"{split}.{probe}")
        variance = float(stacked([arms[second]], measure, key).mean()) / unexplained
        return mapped(found, lambda value: value / variance)

    return interval


# Intervals that rows hold


def number_of(row: Row, path: str) -> float:
    """A number of a row by its path; KeyError where the row lacks it."""
    value = value_of(row, path)
    if value is None:
        raise KeyError(path)
    return float(value)


def kept(row: Row, path: str) -> Interval | None:
    """The interval beside a number of `formation`, `validation.ratio`; None in rows without."""
    split, _, name = path.rpartition(".")
    ends, estimate = value_of(row, f"{split}.intervals.{name}"), value_of(row, path)
    return (
        None
        if ends is None or estimate is None
        else Interval(float(estimate), float(ends[0]), float(ends[1]), 0.95, 0, "system")
    )


def own(arm: str, path: str) -> dict[str, Any]:
    """Measure and interval of a number of one arm."""
    return {"measure": lambda a: number_of(a[arm], path), "interval": lambda a: kept(a[arm], path)}


def lead(first: str, second: str, path: str) -> dict[str, Any]:
    """Measure and interval of one arm's number minus another's."""
    return _compared(first, second, path, lambda a, b: a - b, interval_difference)


def times(first: str, second: str, path: str) -> dict[str, Any]:
    """Measure and interval of one arm's number ÷ another's, both above 0."""
    return _compared(first, second, path, lambda a, b: a / b, interval_ratio) | {"ratio": True}


def _compared(first: str, second: str, path: str, of: Any, of_intervals: Any) -> dict[str, Any]:
    def interval(arms: Arms) -> Interval | None:
        both = kept(arms[first], path), kept(arms[second], path)
        return None if None in both else of_intervals(*both)

    return {"measure": lambda a: of(number_of(a[first], path), number_of(a[second], path)),
            "interval": interval}  # fmt: skip


def success(successes: Sequence[float] | None) -> Interval | None:
    """A success rate in percent with Wilson's interval over episodes, which is no point where all succeed or none.

    None for none, of rows of before they were kept.
    """
    if not successes:
        return None
    rate, n = float(np.mean(successes)), len(successes)
    low, high = wilson(rate, n, 0.95)
    return Interval(100.0 * rate, 100.0 * low, 100.0 * high, 0.95, n, "episode")
