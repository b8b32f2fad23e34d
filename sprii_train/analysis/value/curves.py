"""Value by prediction horizon and by recipient evidence (`app:horizon-conditions`).

Errors are (S, R, N, K): sources, readers of each, systems, horizons. Intervals resample systems, conditional on fitted
sources and readers (`analysis.bootstrap`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.populations import Training
from sprii_train.analysis.statistics import Contrast, Interval, difference
from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.readers import ReaderConfig, fit_readers
from sprii_train.analysis.value.risks import grid_errors
from sprii_train.analysis.value.slots import Arm

Array = NDArray[np.float64]

PREFIXES = (0, 1, 2, 4, 8)
"""Recipient transitions of `app:spring-recipient-evidence`."""

DECODE_MINUS_PERSISTENT = difference("decode", "persistent")
"""Above 0 where the code itself is worth more than the factors decoded from it (`tab:v3-bottleneck-endpoints`)."""


def horizon_curve(
    conditions: Mapping[str, Array],
    contrast: Contrast,
    horizons: Sequence[int],
    *,
    seed: int,
    strata: ArrayLike | None = None,
    draws: int = 10_000,
    level: float = 0.95,
) -> dict[int, Interval]:
    """One paired, pointwise interval a horizon, all from the same draws of systems.

    `HISTORY_GAIN` of null and persistent is `tab:v3-horizon`, one call a kind of query; `DECODE_MINUS_PERSISTENT` and
    `mean_of("wrong")` are `tab:v3-bottleneck-endpoints`.

    Args:
        conditions: name → errors (S, R, N, K), or (S, N, K), or (N, K).
        contrast: of their means, see `analysis.statistics`.
        horizons: K.
        strata: (N,), see `strata_by_system`.

    Raises:
        ValueError: for conditions with another number of horizons, and as `system_bootstrap`.
    """
    for name, errors in conditions.items():
        if np.shape(errors)[-1] != len(horizons):
            raise ValueError(f"{name!r} has {np.shape(errors)[-1]} horizons; horizons are {tuple(horizons)}")
    return {
        horizon: system_bootstrap(
            {name: errors[..., k] for name, errors in conditions.items()},
            {"": contrast},
            seed=seed,
            strata=strata,
            draws=draws,
            level=level,
        )[""]
        for k, horizon in enumerate(horizons)
    }


def prefix_errors(
    train: Cases[Training],
    cases: Cases[Any],
    config: ReaderConfig,
    seeds: Sequence[int],
    *,
    arms: Sequence[Arm] = ("null", "persistent", "oracle"),
    prefixes: Sequence[int] = PREFIXES,
) -> dict[Arm, Array]:
    """Errors (P, R, N, K) of readers that see r transitions of the recipient (`app:spring-recipient-evidence`).

    One source; readers of every r are fitted afresh. What is to be predicted does not move with r: the reader of r sees
    the last r + 1 features of each case, so r = 0 is the present alone.

    Args:
        train, cases: with features of at least max(r) + 1 observations.

    Raises:
        PopulationError: if `train` is no training population.
        ValueError: for cases with fewer features, and as `fit_readers`.
    """
    return {
        arm: np.stack(
            [grid_errors([fit_readers(train, arm, replace(config, prefix=r), seeds)], [cases])[0] for r in prefixes]
        )
        for arm in arms
    }
