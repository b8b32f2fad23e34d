"""law="balanced" against a dense Sinkhorn scaling, a linear programme and enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import factorial, legal, relations, systems, tables
from scipy import stats
from scipy.optimize import linprog

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, PairSampler, Relation, Weighted
from sprii_envs.relations.weights import WeightedIndex

DRAG = Relation(("system",), ("drag",))


def joint_law(sampler: PairSampler) -> np.ndarray:
    """(N, N) P(recipient, donor) of the sampler, from its weights and the definition of legality."""
    allowed = legal(sampler.table, sampler.relation).astype(float)
    index = sampler.bound.index
    share = allowed * index.weight if isinstance(index, WeightedIndex) else allowed
    total = share.sum(1, keepdims=True)
    share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
    return share * sampler.recipients.marginal(len(sampler.table))[:, None]


def sinkhorn(allowed: np.ndarray) -> np.ndarray:
    """The even scaling of a symmetric 0–1 matrix whose rows are not empty."""
    w = np.ones(len(allowed))
    for _ in range(20_000):
        reached = w * (allowed @ w)
        w /= np.sqrt(reached)
    assert np.abs(w * (allowed @ w) - 1).max() < 1e-12
    return allowed * w[:, None] * w / len(w)


@pytest.mark.parametrize(
    "blocks", [(5, 3, 2, 1), (4, 4, 1), (3, 3, 3), (7, 6, 2), (9, 1, 2, 2, 2, 3), (2, 2), (1, 1, 1, 2)]
)
def test_blocks_have_the_joint_law_of_a_dense_sinkhorn_scaling(blocks):
    table = systems([sum(blocks)], drag=np.repeat(np.arange(len(blocks)), blocks))
    sampler = PairSampler(table, DRAG, law="balanced")
    expected = sinkhorn(legal(table, DRAG).astype(float))
    np.testing.assert_allclose(joint_law(sampler), expected, atol=1e-13)
    marginal = sampler.recipients.marginal(len(table))
    np.testing.assert_allclose(sampler.bound.donor_marginal(marginal) * len(table), 1.0, atol=1e-13)


@pytest.mark.parametrize("differ", [("drag", "level"), ("level", "drag"), ("drag", "level", "task")])
def test_several_differ_columns_have_it_too(differ):
    rng = np.random.default_rng(3)
    table = systems([40, 30], drag=rng.integers(0, 5, 70), level=rng.integers(0, 4, 70), task=rng.integers(0, 6, 70))
    relation = Relation(("system",), differ)
    sampler = PairSampler(table, relation, law="balanced")
    np.testing.assert_allclose(joint_law(sampler), sinkhorn(legal(table, relation).astype(float)), atol=1e-12)


def slack(allowed: np.ndarray) -> float | None:
    """The largest least probability (of 1/N) of a legal pair under a law of even marginals; None: no such law."""
    allowed = allowed[allowed.any(1)][:, allowed.any(0)]
    i, j = allowed.nonzero()
    n, pairs = len(allowed), len(i)
    sums = np.zeros((2 * n, pairs + 1))
    sums[i, np.arange(pairs)] = sums[n + j, np.arange(pairs)] = 1
    least = np.concatenate([-np.eye(pairs), np.ones((pairs, 1))], 1)
    solved = linprog(-np.eye(pairs + 1)[-1], least, np.zeros(pairs), sums, np.ones(2 * n))
    return -solved.fun if solved.status == 0 else None


@settings(max_examples=30, deadline=None)
@given(tables(), relations(), st.integers(0, 100))
def test_any_table_is_balanced_or_refused(table, relation, step):
    allowed = legal(table, relation)
    if not allowed.any():
        return
    room = slack(allowed)
    if room is None:
        with pytest.raises(ValueError, match=r"law='balanced' (is impossible|was not found)"):
            PairSampler(table, relation, law="balanced", on_missing="drop")
        return
    try:
        sampler = PairSampler(table, relation, law="balanced", on_missing="drop")
    except ValueError:
        assert room < 1e-3  # even only if some legal pairs are never drawn
        assert len(relation.differ) > 1
        return
    eligible = allowed.any(1)
    joint = joint_law(sampler)
    np.testing.assert_allclose(joint.sum(0), eligible / eligible.sum(), atol=1e-6)
    np.testing.assert_allclose(joint.sum(1), eligible / eligible.sum(), atol=1e-12)
    recipient, donor, correct = sampler.batch(step, 200)
    assert allowed[recipient, donor].all()
    assert correct.all()


def test_draws_follow_the_joint_law():
    # 90 cells of 1,000 expected on average; both marginals 10,000 a cell: one off by 5 % is found with power 0.99.
    table = systems([10], drag=np.repeat([0, 1, 2], [4, 3, 3]))
    sampler = PairSampler(table, DRAG, law="balanced", seed=7)
    recipient, donor, _ = sampler.batch(0, 100_000)
    joint = joint_law(sampler)
    counts = np.zeros(joint.shape)
    np.add.at(counts, (recipient, donor), 1)
    assert not counts[joint == 0].any()
    assert stats.chisquare(counts[joint > 0], joint[joint > 0] * 100_000).pvalue > 1e-3
    assert stats.chisquare(counts.sum(0)).pvalue > 1e-3
    assert stats.chisquare(counts.sum(1)).pvalue > 1e-3
    uneven = PairSampler(table, DRAG, seed=7).batch(0, 100_000).donor
    assert stats.chisquare(np.bincount(uneven, minlength=10)).pvalue < 1e-10  # the default law is not even here


@pytest.mark.parametrize("differ", [("drag",), ("drag", "level")])
def test_permuting_rows_leaves_every_draw_the_same_episode(differ):
    rng = np.random.default_rng(5)
    table = systems([30, 25], drag=rng.integers(0, 4, 55), level=rng.integers(0, 4, 55))
    shuffled = table.select(rng.permutation(55))
    relation = Relation(("system",), differ)
    a, b = (PairSampler(t, relation, law="balanced").batch(2, 500) for t in (table, shuffled))
    assert table["episode"][a.donor].tolist() == shuffled["episode"][b.donor].tolist()


def test_a_block_of_exactly_half_meets_only_the_others():
    table = systems([10], drag=np.repeat([0, 1, 2, 3], [5, 3, 1, 1]))
    sampler = PairSampler(table, DRAG, law="balanced")
    recipient, donor, _ = sampler.batch(0, 50_000)
    assert ((table["drag"][recipient] == 0) != (table["drag"][donor] == 0)).all()
    assert stats.chisquare(np.bincount(donor, minlength=10)).pvalue > 1e-3
    assert sampler.audit(100).donor_weight == pytest.approx((1.0, 1.0))


def test_a_large_block_just_below_half():
    sizes = [499, *range(1, 32), 5]  # 499 of 1,000
    assert sum(sizes) == 1000
    table = systems([1000], drag=np.repeat(np.arange(len(sizes)), sizes))
    report = PairSampler(table, DRAG, law="balanced").audit(100)
    assert report.donor_weight == pytest.approx((1.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("relation", [SAME_SYSTEM, SAME_ROLLOUT, Relation(("mass",), ("drag",)), Relation()])
def test_equal_blocks_draw_what_the_default_law_draws(relation):
    table = factorial()
    for distinct in (None, "system"):
        one, two = (PairSampler(table, relation, law=law, distinct=distinct) for law in ("recipient", "balanced"))
        for a, b in zip(one.batch(3, 20), two.batch(3, 20), strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_cannot_be_balanced_is_named():
    table = systems([4, 10], drag=[0, 0, 1, 1, *np.repeat([0, 1, 2], [6, 3, 1])])
    message = "of the 10 episodes of system 1, 6 have drag 0 .60.0%, at most half can be"
    with pytest.raises(ValueError, match=message):
        PairSampler(table, DRAG, law="balanced")
    # No label holds more than half, but three cells of two share a label pairwise, so all need the five of (2, 2, 2).
    cells = np.repeat([(0, 0, 1), (0, 1, 0), (1, 0, 0), (2, 2, 2)], [2, 2, 2, 5], axis=0)
    table = systems([11], drag=cells[:, 0], level=cells[:, 1], task=cells[:, 2])
    relation = Relation((), ("drag", "level", "task"))
    assert slack(legal(table, relation)) is None
    with pytest.raises(ValueError, match=r"was not found .* the table: .* in the closest found, episode"):
        PairSampler(table, relation, law="balanced")
    for kernel in (Derangement(), Weighted("drag")):
        with pytest.raises(ValueError, match="it takes Uniform"):
            PairSampler(systems([2, 2], drag=[1] * 4), SAME_SYSTEM, kernel, law="balanced")
    with pytest.raises(ValueError, match="groups have 2 to 3 recipients: leave distinct out"):
        PairSampler(systems([2, 3]), SAME_SYSTEM, law="balanced", distinct="system")


def test_the_audit_tells_the_law_and_its_marginals():
    report = PairSampler(systems([9], drag=np.repeat([0, 1, 2], [4, 3, 2])), DRAG, law="balanced").audit(500)
    assert (report.law, report.correct_rate) == ("balanced", 1.0)
    assert report.donor_weight == pytest.approx((1.0, 1.0))
    assert report.recipient_weight == pytest.approx((1.0, 1.0))
    assert report.marginal_gap == pytest.approx(0.0, abs=1e-12)
