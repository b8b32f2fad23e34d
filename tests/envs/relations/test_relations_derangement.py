"""The Random control. χ² tests use fixed seeds and pass when p > 1e-3."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import factorial, systems
from scipy import stats

from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler, Relation
from sprii_envs.relations.kernels.derangement import _chain, _log_tries, derangement


def exhaustive(labels):
    from itertools import permutations

    return [p for p in permutations(range(len(labels))) if all(labels[j] != labels[i] for i, j in enumerate(p))]


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ([0, 1, 2, 3], 9),  # Sattolo's cycles reach 6 of these
        ([0, 1, 2, 3, 4], 44),
        ([5, 5, 9, 9], 4),
        ([0, 0, 1, 2], 4),
        ([0, 0, 1, 1, 2], 16),
    ],
)
def test_uniform_over_all_derangements(labels, count):
    # 400 expected a cell: a cell 30 % too rare (one missing: 100 %) is found with power > 0.999.
    legal = exhaustive(labels)
    assert len(legal) == count
    rng = np.random.default_rng(11)
    labels = np.array(labels)
    drawn = Counter(tuple(derangement(rng, labels).tolist()) for _ in range(400 * count))
    assert set(drawn) <= set(legal)
    assert stats.chisquare([drawn[p] for p in legal]).pvalue > 1e-3


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 3], [0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 1]])
def test_chain_is_uniform_where_it_can_be_enumerated(labels):
    legal = exhaustive(labels)
    rng = np.random.default_rng(5)
    drawn = Counter(tuple(_chain(rng, np.array(labels)).tolist()) for _ in range(20 * len(legal)))
    assert set(drawn) <= set(legal)
    assert stats.chisquare([drawn[p] for p in legal]).pvalue > 1e-3


def test_rejection_is_left_before_it_gets_slow():
    # A group of half the batch: 155 million tries, though Σ m²/n = 8 suggests 3,000.
    labels = np.concatenate([np.zeros(15, int), np.arange(1, 16)])
    p = derangement(np.random.default_rng(0), labels)
    assert (labels[p] != labels).all()
    assert _log_tries(np.bincount(labels)) == pytest.approx(np.log(155_117_520) + 15 * np.log(30 / 29))
    assert _log_tries(np.ones(1000, int)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("groups", "size"), [(6, 8), (6, 40), (48, 21), (2, 50), (3, 300)])
def test_large_groups_are_dealt_evenly(groups, size):
    # 6 × 8 goes by rejection, the others by the chain: which other group a donor comes from is uniform.
    labels = np.repeat(np.arange(groups), size)
    rng = np.random.default_rng(2)
    flow = np.zeros((groups, groups), int)
    draws = 40
    for _ in range(draws):
        p = derangement(rng, labels)
        assert sorted(p) == list(range(len(labels)))
        assert (labels[p] != labels).all()
        np.add.at(flow, (labels, labels[p]), 1)
    off = ~np.eye(groups, dtype=bool)
    expected = draws * size / (groups - 1)
    # Flows of one batch are negatively dependent, so their variance is below the binomial one: 5 σ is safe.
    assert np.abs(flow[off] - expected).max() <= 5 * np.sqrt(expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 4), min_size=1, max_size=40), st.integers(0, 1000))
def test_any_batch_is_deranged_or_refused(labels, seed):
    labels = np.array(labels)
    rng = np.random.default_rng(seed)
    if 2 * max(Counter(labels.tolist()).values()) > len(labels):
        with pytest.raises(ValueError, match="more than half"):
            derangement(rng, labels)
    else:
        p = derangement(rng, labels)
        assert (labels[p] != labels).all()
        assert sorted(p) == list(range(len(labels)))


@pytest.mark.parametrize("distinct", [None, "system"])
def test_marginals_are_equal_in_every_batch(distinct):
    table = factorial(4, 4, 3, 4)
    sampler = PairSampler(table, SAME_SYSTEM, Derangement(), seed=6, distinct=distinct)
    for step in range(20):
        recipient, donor, correct = sampler.batch(step, 48)
        system = table["system"]
        assert sorted(system[recipient]) == sorted(system[donor])
        assert (system[recipient] != system[donor]).all()
        assert not correct.any()


def test_donor_system_is_uniform_over_the_others():
    # 30 cells of 2,000: a cell off by 10 % is found with power > 0.99.
    table = systems([3] * 6)
    sampler = PairSampler(table, SAME_SYSTEM, Derangement(), seed=8, distinct="system")
    flow = np.zeros((6, 6), int)
    for step in range(10_000):
        recipient, donor, _ = sampler.batch(step, 6)
        np.add.at(flow, (table["system"][recipient], table["system"][donor]), 1)
    assert stats.chisquare(flow[~np.eye(6, dtype=bool)]).pvalue > 1e-3


def test_infeasible_batches_are_named():
    table = systems([2, 2], length=80)
    sampler = PairSampler(table, SAME_SYSTEM, Derangement(), distinct="system")
    sampler.batch(0, 2)
    with pytest.raises(ValueError, match=r"a batch of 1 cannot be deranged by 'system': .* take n ≥ 2$"):
        sampler.batch(0, 1)
    with pytest.raises(ValueError, match="needs at least two groups; the table has one"):
        PairSampler(systems([4]), SAME_SYSTEM, Derangement())


def test_groups_that_legal_pairs_cross_cannot_be_exchanged():
    table = factorial()
    with pytest.raises(ValueError, match="use a relation that shares 'system'"):
        PairSampler(table, Relation(("mass",), ("drag",)), Derangement())
    # The full tuple names a system: another spelling of the same relation is fine, and so is a coarser group.
    PairSampler(table, Relation(("mass", "drag", "stiffness")), Derangement()).batch(0, 12)
    recipient, donor, _ = PairSampler(table, SAME_SYSTEM, Derangement(by="mass")).batch(0, 24)
    assert (table["mass"][recipient] != table["mass"][donor]).all()
