"""PokeWorld's reader cases, and the groups of coordinates that its errors are told of (`app:poke-value`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import FIXED_PENALTY, SPRING_FACTORS, Scored, fit_ridge, ratio_score, score
from sprii_train.analysis.populations import Sample
from sprii_train.analysis.value.cases import Cases, codes
from sprii_train.experiments.sources import Source
from sprii_train.experiments.window_cases import WindowCases, window_cases

HORIZONS = (1, 4, 16)
WINDOWS = 16  # of a system
COMPONENTS = ("finger_position", "finger_velocity", "object_position", "object_velocity")
"""Pairs of state coordinates, in their order."""
OBJECT = slice(4, 8)

FACTORS = SPRING_FACTORS
"""log m, log γ, log k and log k/m: the columns of `tab:poke-targeted-utility`."""


def poke_cases(source: Source) -> WindowCases:
    """The cases of one source: 16 windows of every training and validation system."""
    return window_cases(source, HORIZONS, WINDOWS)


def donor_probes(cases: WindowCases) -> dict[str, Scored]:
    """Ridge probes, coefficient 1, of the log factors in the distinct donor windows of the cases, systems equal."""
    (train, held_out) = (
        _sample(each.population, codes(each), each, drawn.distinct_donors()) for each, drawn in cases.populations
    )
    found = {f.name: score(fit_ridge(train, f, penalties=FIXED_PENALTY), held_out) for f in FACTORS if f.over is None}
    return found | {f.name: ratio_score(found[f.column], found[f.over]) for f in FACTORS if f.over is not None}


def query_probe(cases: WindowCases, factor: str) -> Scored:
    """The same probe of one factor in the recipients' present features: what needs no history."""
    train, held_out = (
        _sample(each.population, each.query, each, np.arange(len(each))) for each, _ in cases.populations
    )
    chosen = next(f for f in FACTORS if f.name == factor)
    return score(fit_ridge(train, chosen, penalties=FIXED_PENALTY), held_out)


def _sample(population: Any, features: NDArray[Any], cases: Cases[Any], rows: NDArray[np.int64]) -> Sample[Any]:
    factors = {name: column[rows] for name, column in cases.factors.items()}
    return Sample(population, features[rows], cases.systems[rows], factors)
