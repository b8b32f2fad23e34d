"""Percentile bootstraps of `app:measurements`: over systems, over sources, and over both.

Conditions are paired: a draw resamples units, and every condition is averaged with the same weights. Contrasts
(`analysis.statistics`, or any elementwise function of means by condition) are taken of the resampled means. The draws
of systems depend on the seed, the number of systems and the strata alone, so that calls which share them are paired.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import multinomial

from sprii_envs.arguments import integer
from sprii_envs.standardiser import constant
from sprii_train.analysis.statistics import Array, Contrast, Interval, check_level, floats, source_means, system_means

CHUNK = 1 << 20  # weights held at a time: bounds memory, changes nothing
ENUMERATED = 100_000  # up to so many resamples of sources, all of them are taken


class Recovery(NamedTuple):
    """The attained part of a gap in percent; None, and the reason, where the gap is no scale."""

    interval: Interval | None
    reason: str


def system_bootstrap(
    conditions: Mapping[str, ArrayLike],
    contrasts: Mapping[str, Contrast],
    *,
    seed: int,
    strata: ArrayLike | None = None,
    draws: int = 10_000,
    level: float = 0.95,
    unit: str = "system",
) -> dict[str, Interval]:
    """Paired system bootstrap, conditional on the fitted sources and readers.

    Cells are averaged (readers within a source, sources equally) before systems are resampled.

    Args:
        conditions: name → errors (N,), (S, N) or (S, R, N) on the same N systems in the same order; see
            `system_means`. Numbers of sources and readers may differ between conditions.
        contrasts: name → contrast of the conditions' means; all see the same draws.
        strata: (N,) labels. Systems are resampled within each stratum, whose size is kept; means weight systems
            equally.
        unit: what the N are: system, task or recipient.

    Returns:
        Name → percentile interval.

    Raises:
        ValueError: for conditions of unlike numbers of systems, one system or a stratum of one, values that are not
            finite, a level outside (0, 1), too few draws for it, or a contrast that is not finite in some draw.
    """
    _check(draws, level, seed)
    table = _table({name: system_means(errors) for name, errors in conditions.items()}, "systems")
    n = len(table)
    chunks = _system_counts(_streams(seed)[0], n, strata, draws)
    means = np.concatenate([counts @ table / n for counts in chunks])
    return _intervals(contrasts, list(conditions), table.mean(0), means, level, n, unit)


def slope_bootstrap(
    x: ArrayLike,
    y: ArrayLike,
    *,
    seed: int,
    strata: ArrayLike | None = None,
    draws: int = 10_000,
    level: float = 0.95,
    unit: str = "system",
) -> Interval:
    """Least-squares slope of y on x over systems, with an intercept (`tab:poke-targeted-utility`).

    Args:
        x: (N,), common to all sources, so that the slope of the mean y is the mean of the sources' slopes.
        y: (N,), (S, N) or (S, R, N); averaged to one value a system.
        strata, draws, level, unit: as in `system_bootstrap`.

    Raises:
        ValueError: as `system_bootstrap`, and where x does not vary, over all systems or within some draw.
    """
    if np.ndim(x) != 1:
        raise ValueError(f"x must have shape (N,), got {np.shape(x)}")
    table = _table({"x": system_means(x), "y": system_means(y)}, "systems")
    if constant(table)[0]:
        raise ValueError(f"x is {table[0, 0]} for every system; legal: values that differ")
    scale = float(table[:, 0].std())
    a, b = ((table - table.mean(0)) / (scale, 1.0)).T

    def slope(m: Mapping[str, Any]) -> Any:
        variance = m["xx"] - m["x"] ** 2
        # A draw that repeats one value of x has variance 0 up to rounding, and no slope.
        return (m["xy"] - m["x"] * m["y"]) / np.where(variance > 1e-12, variance, np.nan) / scale

    return system_bootstrap(
        {"x": a, "y": b, "xx": a * a, "xy": a * b},
        {"slope": slope},
        seed=seed,
        strata=strata,
        draws=draws,
        level=level,
        unit=unit,
    )["slope"]


def hierarchical_bootstrap(
    conditions: Mapping[str, ArrayLike],
    contrasts: Mapping[str, Contrast],
    *,
    seed: int,
    strata: ArrayLike | None = None,
    draws: int = 10_000,
    level: float = 0.95,
    unit: str = "system",
) -> dict[str, Interval]:
    """Bootstrap of sources, of readers within a source, and of systems jointly (`app:reader-capacity-control`).

    One resample of the systems serves all cells of a draw. A source that is drawn twice has its readers drawn twice;
    every drawn source counts equally, whatever its number of readers.

    Args:
        conditions: name → errors (S, N) or (S, R, N), paired on sources, readers and systems; a cell of NaN is a
            reader not fitted, in every condition.
        contrasts, strata, draws, level, unit: as in `system_bootstrap`.

    Returns:
        Name → percentile interval, whose n counts the sources.

    Raises:
        ValueError: as `system_bootstrap`, and for one source or conditions with unlike grids.
    """
    _check(draws, level, seed)
    cells, readers = _paired_cells(conditions)
    n, count, k = cells.shape
    fixed = np.repeat(1.0 / (len(readers) * readers), readers)
    systems, sources, within = _streams(seed)
    means = []
    for counts in _system_counts(systems, n, strata, draws):
        of_cells = (counts @ cells.reshape(n, count * k) / n).reshape(-1, count, k)
        means.append(np.einsum("bc,bck->bk", _cell_weights(sources, within, readers, len(counts)), of_cells))
    unit = f"source and {unit}" if (readers == 1).all() else f"source, reader and {unit}"
    return _intervals(
        contrasts, list(conditions), fixed @ cells.mean(0), np.concatenate(means), level, len(readers), unit
    )


def source_system_bootstrap(
    conditions: Mapping[str, ArrayLike],
    contrasts: Mapping[str, Contrast],
    *,
    seed: int,
    strata: ArrayLike | None = None,
    draws: int = 5_000,
    level: float = 0.95,
    unit: str = "system",
) -> dict[str, Interval]:
    """Paired source/system bootstrap (`tab:external-alpha`): readers are averaged, sources and systems resampled.

    Arguments, returns and errors as in `hierarchical_bootstrap`, but that numbers of readers may differ between
    conditions.
    """
    averaged = {name: source_means(e)[0] if np.ndim(e) == 3 else e for name, e in conditions.items()}
    return hierarchical_bootstrap(averaged, contrasts, seed=seed, strata=strata, draws=draws, level=level, unit=unit)


def source_bootstrap(
    scores: Mapping[str, ArrayLike],
    contrasts: Mapping[str, Contrast],
    *,
    seed: int,
    draws: int = 10_000,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Paired-source bootstrap: all S^S resamples where they are at most 100,000 (S ≤ 6), else random draws.

    The enumerated interval is the one that infinitely many draws would give.

    Args:
        scores: name → (S,), one number a source.
        contrasts: name → contrast of the means over sources.

    Raises:
        ValueError: for one source, unlike lengths, values that are not finite, a level outside (0, 1), too few draws
            for it, or a contrast that is not finite in some resample.
    """
    _check(draws, level, seed)
    table = _scores(scores)
    n = len(table)
    if n**n <= ENUMERATED:
        members = np.array(list(combinations_with_replacement(range(n), n)))
        counts = (members[:, :, None] == np.arange(n)).sum(1)
        chances = multinomial.pmf(counts, n, np.full(n, 1.0 / n))
    else:
        counts, chances = np.concatenate(list(_system_counts(_streams(seed)[1], n, None, draws))), None
    return _intervals(contrasts, list(scores), table.mean(0), counts @ table / n, level, n, "source", chances)


def recovery(
    inferred: ArrayLike,
    random: ArrayLike,
    true: ArrayLike,
    *,
    seed: int,
    draws: int = 10_000,
    level: float = 0.95,
) -> Recovery:
    """Percent of the True–Random gap that Inferred attains, a ratio of source means, not clipped.

    Implements `tab:inferred-relation-recovery`.

    Args:
        inferred, random, true: (S,) each, one score a source, larger is better.

    Returns:
        The interval; None, and the reason, where True does not exceed Random in every paired-source resample.

    Raises:
        ValueError: as `source_bootstrap`.
    """
    scores = {"inferred": inferred, "random": random, "true": true}
    table = _scores(scores)
    # One source alone is a resample, and every other resample averages sources.
    least = float((table[:, 2] - table[:, 1]).min())
    if least <= 0:
        return Recovery(
            None, f"True − Random is {least:.4g} in one source, so not above 0 in every resample of sources"
        )

    def attained(m: Mapping[str, Any]) -> Any:
        return 100.0 * (m["inferred"] - m["random"]) / (m["true"] - m["random"])

    return Recovery(
        source_bootstrap(scores, {"recovery": attained}, seed=seed, draws=draws, level=level)["recovery"], ""
    )


def system_resamples(n: int, *, seed: int, draws: int = 10_000) -> NDArray[np.int64]:
    """How often each of n systems is in a resample, (draws, n): the draws of `system_bootstrap` under the same seed.

    For statistics that are no functions of means of systems.

    Raises:
        ValueError: for no system, no draw or another seed.
    """
    n, draws, seed = integer("n", n, least=1), integer("draws", draws, least=1), integer("seed", seed, most=2**64 - 1)
    return np.concatenate(list(_system_counts(_streams(seed)[0], n, None, draws)))


# Weights


def _streams(seed: int) -> list[Generator]:
    """Generators of systems, sources and readers: separate, so that chunks of any size give the same draws."""
    return np.random.default_rng(seed).spawn(3)


def _system_counts(rng: Generator, n: int, strata: ArrayLike | None, draws: int) -> Iterator[NDArray[np.int64]]:
    """How often each of n units is in a resample, (rows, n) chunks of `draws` rows in all."""
    order, low, high = np.arange(n), np.zeros(1, np.int64), np.full(1, n)
    if strata is not None:
        labels = np.asarray(strata)
        if labels.shape != (n,):
            raise ValueError(f"strata must hold one label a system, ({n},), got shape {labels.shape}")
        names, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if sizes.min() < 2:
            raise ValueError(f"stratum {str(names[sizes.argmin()])!r} has one system; legal: at least 2")
        order = np.argsort(inverse, kind="stable")
        high = np.repeat(np.cumsum(sizes), sizes)
        low = high - np.repeat(sizes, sizes)
    step = max(1, CHUNK // n)
    for first in range(0, draws, step):
        rows = min(step, draws - first)
        drawn = order[rng.integers(low, high, size=(rows, n))] + n * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)


def _cell_weights(sources: Generator, within: Generator, readers: NDArray[np.int64], rows: int) -> Array:
    """Weights (rows, C) of the cells, source by source: each of S drawn sources gives 1/S to its drawn readers."""
    s, first = len(readers), np.cumsum(readers) - readers
    source = sources.integers(0, s, size=(rows, s))
    fitted = readers[source][:, :, None]
    place = np.arange(readers.max())
    cell = first[source][:, :, None] + within.integers(0, fitted, size=(rows, s, len(place)))
    weight = np.where(place < fitted, 1.0 / (s * fitted), 0.0)
    flat = cell + readers.sum() * np.arange(rows)[:, None, None]
    total = np.bincount(flat.ravel(), weight.ravel(), rows * readers.sum())
    return np.asarray(total, np.float64).reshape(rows, -1)


# Arrays in, intervals out


def _table(columns: Mapping[str, Array], units: str) -> Array:
    """Conditions as columns (N, k)."""
    if not columns:
        raise ValueError("a bootstrap needs at least one condition, got none")
    (name, first), *others = columns.items()
    for other, column in others:
        if len(column) != len(first):
            raise ValueError(f"{name!r} has {len(first)} {units}, {other!r} has {len(column)}; legal: the same {units}")
    return np.stack(list(columns.values()), axis=1)


def _scores(scores: Mapping[str, ArrayLike]) -> Array:
    """Scores as columns (S, k)."""
    arrays = {name: floats(f"{name!r}", values) for name, values in scores.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
            raise ValueError(f"{name!r} must be one finite number for each of at least 2 sources, got {array.tolist()}")
    return _table(arrays, "sources")


def _paired_cells(conditions: Mapping[str, ArrayLike]) -> tuple[Array, NDArray[np.int64]]:
    """Fitted cells (N, C, k), source by source, and the numbers of readers (S,)."""
    grids, fitted = [], np.empty(0)
    for name, errors in conditions.items():
        system_means(errors)  # its checks
        grid = np.asarray(errors, np.float64)
        if grid.ndim == 1 or len(grid) < 2:
            raise ValueError(f"{name!r} has one source, shape {grid.shape}; legal: (S, N) or (S, R, N) with S >= 2")
        grid = grid[:, None] if grid.ndim == 2 else grid
        if grids and grid.shape != grids[0].shape:
            raise ValueError(
                f"{name!r} has shape {grid.shape}, {next(iter(conditions))!r} {grids[0].shape}; legal: one"
            )
        mask = ~np.isnan(grid[:, :, 0])
        if grids and (mask != fitted).any():
            raise ValueError(f"{name!r} lacks other readers than {next(iter(conditions))!r}; legal: paired grids")
        grids.append(grid)
        fitted = mask
    if not grids:
        raise ValueError("a bootstrap needs at least one condition, got none")
    return np.stack([grid[fitted] for grid in grids], axis=-1).swapaxes(0, 1), fitted.sum(1)


def _intervals(
    contrasts: Mapping[str, Contrast],
    names: list[str],
    means: Array,
    resampled: Array,
    level: float,
    n: int,
    unit: str,
    chances: Array | None = None,
) -> dict[str, Interval]:
    """Percentile intervals from the means (k,) and the resampled means (draws, k), equally likely without `chances`."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    whole = dict(zip(names, means, strict=True))
    drawn = dict(zip(names, resampled.T, strict=True))
    found = {}
    for name, contrast in contrasts.items():
        estimate, values = float(contrast(whole)), np.asarray(contrast(drawn))
        if values.shape != (len(resampled),):
            raise ValueError(
                f"contrast {name!r} gives shape {values.shape} for {len(resampled)} draws; legal: one each"
            )
        bad = int((~np.isfinite(values)).sum())
        if bad or not np.isfinite(estimate):
            raise ValueError(f"contrast {name!r} is {estimate}, and not finite in {bad} of {len(resampled)} resamples")
        if chances is None:
            low, high = np.quantile(values, tails)
        else:
            low, high = np.quantile(values, tails, weights=chances, method="inverted_cdf")
        found[name] = Interval(estimate, float(low), float(high), level, n, unit)
    return found


def _check(draws: int, level: float, seed: int) -> None:
    check_level(level)
    integer("seed", seed, most=2**64 - 1)
    integer("draws", draws, least=1)
    least = int(np.ceil(2 / (1 - level) - 1e-9))  # one draw in each tail
    if not least <= draws <= 10**7:
        raise ValueError(f"draws is {draws}; legal at level {level:g}: at least {least}, at most 10,000,000")
