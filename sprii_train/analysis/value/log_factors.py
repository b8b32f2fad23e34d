"""True and decoded persistent properties in one unit: logs, or as they are, standardised by the training cases."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.formation import Factor, Probe, fit_ridge
from sprii_train.analysis.populations import Sample, Training, check_fit
from sprii_train.analysis.value.cases import Cases, codes

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogFactors:
    """The F factors' coordinates (logs, or the factors themselves), and their standardiser over training cases."""

    factors: tuple[Factor, ...]
    standardise: Standardiser

    def __len__(self) -> int:
        return len(self.factors)

    def true(self, cases: Cases[Any]) -> Array:
        """Standardised factors (n, F); ValueError for one that the cases lack or whose log does not exist."""
        return self.standardise(_values(cases, self.factors))

    def decoded(self, probes: tuple[Probe, ...], cases: Cases[Any]) -> Array:
        """Standardised estimates (n, F) from the donors' codes, one probe a factor."""
        return self.standardise(np.stack([probe.predict(codes(cases)) for probe in probes], axis=1))


def fit_log_factors(cases: Cases[Training], *, log: bool = True) -> LogFactors:
    """The standardisation of all factors of the training cases; a constant one has scale 1.

    Args:
        log: take logs.

    Raises:
        PopulationError: for cases of another population.
        ValueError: without factors, or for one whose log does not exist.
    """
    check_fit(cases.population, "a standardisation of factors")
    factors = tuple(Factor(name, log=log) for name in cases.factors)
    if not factors:
        raise ValueError(f"the cases of {cases.population.name!r} carry no factors; Decode and Oracle read them")
    return LogFactors(factors, Standardiser.fit(_values(cases, factors)))


def fit_decoder(cases: Cases[Training], factors: LogFactors, penalties: tuple[float, ...]) -> tuple[Probe, ...]:
    """Ridge probes (F,) of the factors in the training cases' donor codes, or in those of their pool, each donor once
    (`app:spring-bottleneck`).

    Raises:
        PopulationError: for cases of another population.
        ValueError: for cases without codes.
    """
    cases = cases if cases.pool is None else cases.of_donors()[0]
    sample = Sample(cases.population, codes(cases), cases.systems, cases.factors)
    return tuple(fit_ridge(sample, factor, penalties=penalties) for factor in factors.factors)


def _values(cases: Cases[Any], factors: tuple[Factor, ...]) -> Array:
    return np.stack([factor.of(cases.factors) for factor in factors], axis=1)
