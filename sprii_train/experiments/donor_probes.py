"""What codes of cases' donors, and recipients' presents, tell of factors and of the moment (`app:poke-value`)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import (
    FIXED_PENALTY,
    Detected,
    Factor,
    Scored,
    detect,
    fit_logistic,
    fit_ridge,
    probe_factors,
    ratio_score,
    score,
)
from sprii_train.analysis.populations import Sample
from sprii_train.analysis.value.cases import Cases, codes
from sprii_train.cases.base import SourceCases
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import MEASURED_SEED, Setting

NETWORK_SYSTEMS = 400  # training systems of MLP probes: of all of them a search would take minutes
NETWORK_SEED = 20_266
TRANSIENTS = ("contact",)
"""Columns of a yes or no that passes, which a persistent code need not tell."""


def named_factors(setting: Setting, name: str) -> list[Factor]:
    """The factor of that name, where probes of donors read it."""
    return [factor for factor in setting.donor_factors if factor.name == name]


def donor_probes(cases: SourceCases, factors: Sequence[Factor]) -> dict[str, Scored]:
    """Ridge probes, coefficient 1, of factors in the distinct donor windows of the cases, systems equal."""
    train, held_out = _donor_samples(cases)
    found = {f.name: score(fit_ridge(train, f, penalties=FIXED_PENALTY), held_out) for f in factors if f.over is None}
    return found | {f.name: ratio_score(found[f.column], found[f.over]) for f in factors if f.over is not None}


def network_samples(cases: SourceCases, systems: int = NETWORK_SYSTEMS) -> tuple[Sample[Any], Sample[Any]]:
    """The same windows, those of training of fixed systems only."""
    train, held_out = _donor_samples(cases)
    ids = np.random.default_rng(MEASURED_SEED).permutation(np.unique(train.systems))
    few = np.isin(train.systems, ids[:systems])
    factor_values = {name: column[few] for name, column in train.factors.items()}
    return Sample(train.population, train.codes[few], train.systems[few], factor_values), held_out


def donor_networks(cases: SourceCases, factors: Sequence[Factor], systems: int = NETWORK_SYSTEMS) -> dict[str, Scored]:
    """MLP probes of the same windows, with a searched penalty, fitted on those of so many fixed training systems."""
    train, held_out = network_samples(cases, systems)
    found = probe_factors(train, held_out, factors, seed=NETWORK_SEED, kinds=("mlp",))
    return {name: scored for (_, name), scored in found.items()}


def donor_transients(source: Source, cases: SourceCases) -> dict[str, Detected]:
    """Transients that the bank records, in the last step of a donor window, read from its code (`app:measurements`).

    Of the same distinct windows, systems equal.

    Raises:
        ValueError: where no window, or every window, ends in one.
    """
    return {name: _detected(source, cases, name) for name in TRANSIENTS if name in source.store.columns}


def _detected(source: Source, cases: SourceCases, name: str) -> Detected:
    samples = []
    for each, drawn in cases.populations:
        rows = drawn.distinct_donors()
        steps = drawn.starts[rows] + source.setting.history - 2
        seen = source.store.windows(name, drawn.donors[rows], steps, 1)[:, 0]
        samples.append(Sample(each.population, codes(each)[rows], each.systems[rows], {name: seen}))
    train, held_out = samples
    return detect(fit_logistic(train), held_out)


def query_probes(cases: SourceCases, factors: Sequence[Factor]) -> dict[str, Scored]:
    """The same ridge probes in the recipients' present features: what needs no history."""
    train, held_out = (
        _sample(each.population, each.query, each, np.arange(len(each))) for each, _ in cases.populations
    )
    return {f.name: score(fit_ridge(train, f, penalties=FIXED_PENALTY), held_out) for f in factors}


def _donor_samples(cases: SourceCases) -> Iterator[Sample[Any]]:
    """Codes of the distinct donor windows, of training and then of validation systems."""
    for each, drawn in cases.populations:
        yield _sample(each.population, codes(each), each, drawn.distinct_donors())


def _sample(population: Any, features: NDArray[Any], cases: Cases[Any], rows: NDArray[np.int64]) -> Sample[Any]:
    factors = {name: column[rows] for name, column in cases.factors.items()}
    return Sample(population, features[rows], cases.systems[rows], factors)
