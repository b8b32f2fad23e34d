"""Intervals of ratio and partial ρ against resamples taken by hand, and their coverage on planted codes."""

import numpy as np
import pytest
from planted_codes import HELD_OUT, directions, planted
from scipy.spatial.distance import pdist

from sprii_train.analysis.bootstrap import system_resamples
from sprii_train.analysis.formation import (
    Factor,
    between_within,
    partial_geometry,
    partial_intervals,
    partial_spearman,
    ratio_interval,
    system_centroids,
)
from sprii_train.analysis.populations import Sample

ABC = (Factor("a"), Factor("b"), Factor("c"))
CONTENT = np.diag([1.0, 0.4, 0.0]) @ directions(3, 6)


def test_ratio_of_every_resample_by_hand():
    sample = planted(HELD_OUT, CONTENT, systems=15)
    found = ratio_interval(sample.codes, sample.systems, seed=4, draws=400)
    assert found is not None
    assert found.estimate == pytest.approx(between_within(sample.codes, sample.systems).ratio)
    assert (found.n, found.unit) == (15, "system")
    by_hand = []
    for counts in system_resamples(15, seed=4, draws=400):
        drawn = np.repeat(np.arange(15), counts)  # every copy is a system of its own
        codes = np.concatenate([sample.codes[sample.systems == s] for s in drawn])
        by_hand.append(between_within(codes, np.repeat(np.arange(15), 4)).ratio)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(by_hand, (0.025, 0.975))))


def test_codes_of_collapsed_systems_have_no_interval():
    assert ratio_interval(np.repeat(np.eye(5), 2, axis=0), np.repeat(np.arange(5), 2), seed=0) is None


@pytest.mark.parametrize("levels", [0, 4])
def test_rho_of_resamples_that_are_ranked_anew(levels: int):
    """Linearised ranks, with and without ties: ends within a tenth of the width of those by hand."""
    sample = system_centroids(planted(HELD_OUT, CONTENT, systems=60, seed=2))
    if levels:
        factors = {name: np.floor(levels * np.argsort(np.argsort(v)) / 60) for name, v in sample.factors.items()}
        sample = Sample(HELD_OUT, sample.codes, sample.systems, factors)
    draws = 250
    found = partial_intervals(sample, ABC, seed=1, draws=draws)
    assert {name: each.estimate for name, each in found.items()} == partial_geometry(sample, ABC)
    first, second = np.triu_indices(60, 1)
    distances = [pdist(sample.codes), *(pdist(sample.factors[name][:, None]) for name in "abc")]
    by_hand = []
    for counts in system_resamples(60, seed=1, draws=draws):
        drawn = np.repeat(np.arange(len(first)), counts[first] * counts[second])
        code, *others = (each[drawn] for each in distances)
        by_hand.append([partial_spearman(code, others[i], others[:i] + others[i + 1 :]) for i in range(3)])
    for each, (low, high) in zip(found.values(), np.quantile(by_hand, (0.025, 0.975), axis=0).T, strict=True):
        assert (each.low, each.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_coverage_of_planted_codes():
    """The value of very many systems lies in about 95 % of the intervals of 60."""
    whole = planted(HELD_OUT, CONTENT, systems=3000, seed=9)
    ratio, rho = between_within(whole.codes, whole.systems).ratio, 0.0
    inside = np.zeros(3)
    for seed in range(60):
        sample = planted(HELD_OUT, CONTENT, systems=60, seed=100 + seed)
        of_ratio = ratio_interval(sample.codes, sample.systems, seed=seed, draws=400)
        of_rho = partial_intervals(system_centroids(sample), ABC, seed=seed, draws=400)
        assert of_ratio is not None
        inside += [
            of_ratio.low < ratio < of_ratio.high,
            of_rho["c"].low < rho < of_rho["c"].high,  # what the codes do not hold
            of_rho["a"].low > 0,
        ]
    assert inside[0] >= 51
    assert inside[1] >= 51
    assert inside[2] == 60


@pytest.mark.filterwarnings("error")
def test_a_draw_of_systems_whose_codes_do_not_vary_has_no_ratio():
    sample = planted(HELD_OUT, CONTENT, systems=20)
    for systems, found in ((3, False), (20, True)):
        rows = sample.systems < systems
        codes = np.where(sample.systems[rows, None] == 0, 1.0, sample.codes[rows])
        assert (ratio_interval(codes, sample.systems[rows], seed=0, draws=400) is not None) == found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("systems", [3, 4])
def test_draws_of_one_system_have_no_pairs_and_are_left_out(systems: int):
    """They count neither as ρ = 0 nor as anything else: codes that are their factor have ρ = 1 in all the others."""
    values = np.arange(systems, dtype=float) ** 2
    sample = Sample(HELD_OUT, values[:, None], np.arange(systems), {"a": values})
    drawn = (system_resamples(systems, seed=0, draws=400) > 0).sum(1)
    assert (drawn == 1).any()
    found = partial_intervals(sample, (Factor("a"),), seed=0, draws=400, level=0.999)["a"]
    assert (found.low, found.estimate, found.high) == pytest.approx((1.0, 1.0, 1.0))
    several = system_centroids(planted(HELD_OUT, CONTENT, systems=systems))
    for each in partial_intervals(several, ABC[:2], seed=0, draws=400).values():
        assert -1 <= each.low <= each.high <= 1
    alone = next(seed for seed in range(400) if system_resamples(systems, seed=seed, draws=1).max() == systems)
    with pytest.raises(ValueError, match=f"draws is 1, and none of them has two of the {systems} systems"):
        partial_intervals(sample, (Factor("a"),), seed=alone, draws=1)


def test_refusals():
    sample = system_centroids(planted(HELD_OUT, CONTENT, systems=6))
    with pytest.raises(ValueError, match="level is 1"):
        partial_intervals(sample, ABC, seed=0, level=1)
    same = Sample(HELD_OUT, sample.codes, sample.systems, {**sample.factors, "b": np.ones(6)})
    with pytest.raises(ValueError, match="factor 'b' is the same in all 6 systems"):
        partial_intervals(same, ABC, seed=0)
