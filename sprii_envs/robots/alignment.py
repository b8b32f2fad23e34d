"""Recorded streams on the times of another: the last sample at or before a time, never a later one.

A `Series` has times of its own. Nothing is shared between series, and nothing is interpolated: a mean of two samples
would look forward in time, and a mean of two quaternions is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import shown

NONE = -1
"""In place of an index where no sample is early enough."""


@dataclass(frozen=True)
class Series:
    """Samples in the order of their times.

    Attributes:
        times: (N,) ms, int64, none before another.
        values: (N, K) float64.
    """

    times: NDArray[np.int64]
    values: NDArray[np.float64]


def series(times: Iterable[float], values: ArrayLike) -> Series:
    """Samples (N,) and (N, K) sorted by time, those of one time as they came; ValueError for a time that is none."""
    given = list(times)
    kinds = (bool, str, bytes, np.bool_, np.str_, np.bytes_)
    odd = next((i for i, each in enumerate(given) if isinstance(each, kinds)), None)  # which NumPy would read
    at = np.array(given if odd is None else [], np.float64)
    if odd is None and (wrong := ~(np.abs(at) < 2.0**53)).any():
        odd = int(wrong.argmax())
    if odd is not None:
        raise ValueError(f"the time of sample {odd} is {shown(given[odd])}, no number of milliseconds")
    order = np.argsort(at, kind="stable")
    return Series(np.floor(at[order]).astype(np.int64), np.asarray(values, np.float64)[order])


def as_of(times: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.intp]:
    """For each time of `at` (T,) the index of the last of the sorted `times` (N,) that is not later, or `NONE`."""
    return np.searchsorted(times, at, side="right") - 1


def joined(samples: Series, at: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values (T, K) that were known at the times `at` (T,), and how old they were, (T,) ms; NaN and ∞ before any."""
    index = as_of(samples.times, at)
    known = index != NONE
    values = np.full((len(at), samples.values.shape[1]), np.nan)
    values[known] = samples.values[index[known]]
    age = np.full(len(at), np.inf)
    age[known] = at[known] - samples.times[index[known]]
    return values, age


def continuous(quaternions: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same rotations (T, 4) with signs such that none turns over from one time to the next; the first stays."""
    turned = np.where((quaternions[1:] * quaternions[:-1]).sum(axis=1) < 0.0, -1.0, 1.0)
    return quaternions * np.cumprod(np.concatenate([[1.0], turned]))[:, None]


def unbroken(good: NDArray[np.bool_]) -> tuple[slice, int | None]:
    """From the first to the last True of flags (T,), and the first False between them, if there is one."""
    there = np.flatnonzero(good)
    if not len(there):
        return slice(0, 0), None
    kept = slice(int(there[0]), int(there[-1]) + 1)
    holes = np.flatnonzero(~good[kept])
    return kept, kept.start + int(holes[0]) if len(holes) else None
