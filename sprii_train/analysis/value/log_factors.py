"""True and decoded persistent properties in one unit: logs, standardised by the training cases."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import Factor, Probe, fit_ridge
from sprii_train.analysis.populations import Sample, Training, check_fit
from sprii_train.analysis.value.cases import Cases, codes

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogFactors:
    """The F factors, with the mean and SD (F,) of their logs over training cases."""

    factors: tuple[Factor, ...]
    mean: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.factors)

    def true(self, cases: Cases[Any]) -> Array:
        """Standardised log factors (n, F); ValueError for one that the cases lack or that is not positive."""
        return (_logs(cases, self.factors) - self.mean) / self.scale

    def decoded(self, probes: tuple[Probe, ...], cases: Cases[Any]) -> Array:
        """Standardised estimates (n, F) from the donors' codes, one probe a factor."""
        estimates = np.stack([probe.predict(codes(cases)) for probe in probes], axis=1)
        return (estimates - self.mean) / self.scale


def fit_log_factors(cases: Cases[Training]) -> LogFactors:
    """The standardisation of all factors of the training cases; a constant one has scale 1.

    Raises:
        PopulationError: for cases of another population.
        ValueError: without factors, or for one that is not positive.
    """
    check_fit(cases.population, "a standardisation of factors")
    factors = tuple(Factor(name, log=True) for name in cases.factors)
    if not factors:
        raise ValueError(f"the cases of {cases.population.name!r} carry no factors; Decode and Oracle read them")
    logs = _logs(cases, factors)
    scale = logs.std(0)
    return LogFactors(factors, logs.mean(0), np.where(scale > 0, scale, 1.0))


def fit_decoder(cases: Cases[Training], factors: LogFactors, penalties: tuple[float, ...]) -> tuple[Probe, ...]:
    """Ridge probes (F,) of the log factors in the training cases' donor codes (`app:spring-bottleneck`).

    Raises:
        PopulationError: for cases of another population.
        ValueError: for cases without codes.
    """
    sample = Sample(cases.population, codes(cases), cases.systems, cases.factors)
    return tuple(fit_ridge(sample, factor, penalties=penalties) for factor in factors.factors)


def _logs(cases: Cases[Any], factors: tuple[Factor, ...]) -> Array:
    return np.stack([factor.of(cases.factors) for factor in factors], axis=1)
