"""`Weighted` against enumeration. χ² at fixed seeds, p > 1e-3: with 1,000 expected a cell, a cell that is off by 20 %
is found with power above 0.99."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import LABELS, legal, relations, systems, tables
from scipy import stats

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    EpisodeTable,
    NoLegalDonorError,
    PairSampler,
    Relation,
    Weighted,
)


def with_weights(table: EpisodeTable, weight) -> EpisodeTable:
    return EpisodeTable({name: table[name] for name in table.columns} | {"weight": weight})


def joint_law(table: EpisodeTable, relation: Relation, weight) -> np.ndarray:
    """(N, N) P(recipient, donor), recipients even over those with a donor, from the definition."""
    share = legal(table, relation) * np.asarray(weight, float)
    takes_part = share.any(1)
    if not takes_part.any():
        return share
    share[takes_part] /= share[takes_part].sum(1, keepdims=True)
    return share / takes_part.sum()


@settings(max_examples=100, deadline=None)
@given(tables(), relations(), st.integers(0, 2**32))
def test_any_table_agrees_with_enumeration(table, relation, seed):
    if relation.same_episode:
        return
    weight = np.random.default_rng(seed).choice([0.0, 0.25, 1.0, 3.0], len(table))
    table = with_weights(table, weight)
    joint = joint_law(table, relation, weight)
    if not joint.any():
        with pytest.raises(NoLegalDonorError, match="have no legal donor"):
            PairSampler(table, relation, Weighted("weight"), on_missing="drop")
        return
    sampler = PairSampler(table, relation, Weighted("weight"), seed=seed, on_missing="drop")
    np.testing.assert_array_equal(sampler.bound.legal, (joint > 0).sum(1))
    marginal = sampler.recipients.marginal(len(table))
    np.testing.assert_allclose(sampler.bound.donor_marginal(marginal), joint.sum(0), atol=1e-12)
    recipient, donor, correct = sampler.batch(seed % 1000, 200)
    assert (joint[recipient, donor] > 0).all()
    assert correct.all()
    report = sampler.audit(100)
    reached = [len(np.unique(table["system"][row > 0])) for row in joint if row.any()]
    assert report.supported_histories == (np.min((joint > 0).sum(1)[joint.any(1)]), np.max((joint > 0).sum(1)))
    if weight.all():
        assert report.selected_systems[1] <= max(reached)  # of some recipients, where not all are counted
    else:
        assert report.selected_systems == (min(reached), max(reached))


@pytest.mark.parametrize(
    "relation",
    [
        SAME_SYSTEM,
        Relation(("system",), ("drag",)),
        Relation(("system",), ("drag", "level")),
        Relation((), ("drag", "level")),
    ],
)
def test_donors_are_drawn_in_proportion(relation):
    rng = np.random.default_rng(4)
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], 16)
    table = systems([9, 7], drag=rng.integers(0, 3, 16), level=rng.integers(0, 4, 16), weight=weight)
    joint = joint_law(table, relation, weight)
    sampler = PairSampler(table, relation, Weighted("weight"), seed=1)
    cells = int((joint > 0).sum())
    recipient, donor, _ = sampler.batch(0, 1000 * cells)
    counts = np.zeros(joint.shape)
    np.add.at(counts, (recipient, donor), 1)
    assert not counts[joint == 0].any()
    assert stats.chisquare(counts[joint > 0], joint[joint > 0] * len(recipient)).pvalue > 1e-3


def test_rare_legal_donors_are_listed_by_weight():
    # Of 400 donors of another drag three have another mass: two thirds of the time all 33 redraws fail.
    n = 400
    mass = np.where(np.arange(n) < 3, [5, 6, 7, 8] * (n // 4), 9)
    table = systems([1] * n, drag=np.arange(n), mass=mass, weight=np.where(np.arange(n) == 1, 3.0, 1.0))
    sampler = PairSampler(table, Relation((), ("drag", "mass")), Weighted("weight"), on_missing="drop")
    recipient, donor, _ = sampler.batch(0, 30_000)
    to_first = np.bincount(donor[recipient > 2], minlength=n)
    assert set(np.flatnonzero(to_first)) == {0, 1, 2}
    assert stats.chisquare(to_first[:3], np.array([1, 3, 1]) / 5 * to_first.sum()).pvalue > 1e-3


def test_groups_of_any_scale_keep_their_proportions():
    weight = np.array([1e-300, 3e-300, 1e-300, 1e300, 1e300, 2e300, 1.0, 1e-30, 1.0])
    table = systems([3, 3, 3], weight=weight)
    sampler = PairSampler(table, SAME_SYSTEM, Weighted("weight"))
    assert sampler.bound.legal.tolist() == [2] * 9
    np.testing.assert_allclose(sampler.bound.donor_marginal(np.eye(9)[0])[:3], [0, 0.75, 0.25], rtol=1e-12)
    np.testing.assert_allclose(sampler.bound.donor_marginal(np.eye(9)[3])[3:6], [0, 1 / 3, 2 / 3], rtol=1e-12)
    assert sampler.bound.donor_marginal(np.eye(9)[6])[7] > 0


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(0, 2**32))
def test_permuting_rows_leaves_every_draw_the_same_episode(table, seed):
    rng = np.random.default_rng(seed)
    table = with_weights(table, rng.random(len(table)))
    rows = rng.permutation(len(table))
    shuffled = EpisodeTable({name: table[name][rows] for name in table.columns})
    relation = Relation((str(rng.choice(LABELS)),))
    if not legal(table, relation).any():
        return
    a, b = (PairSampler(t, relation, Weighted("weight"), on_missing="drop").batch(3, 60) for t in (table, shuffled))
    assert table["episode"][a.donor].tolist() == shuffled["episode"][b.donor].tolist()


def test_bad_weights_are_named():
    table = systems([2, 2], weight=[1.0, np.nan, 1.0, 1.0], debt=[1.0, 1, -2, 1], word=["a"] * 4, none=[0, 0, 1, 1])
    for column, message in (
        ("weight", "weights must be finite; in column 'weight' not so for 1 episodes: 1"),
        ("debt", "weights must be at least 0; in column 'debt' not so for 1 episodes: 2"),
        ("word", "needs a column of numbers, got <U1"),
        ("wieght", "did you mean 'weight'"),
    ):
        with pytest.raises(ValueError, match=message):
            PairSampler(table, SAME_SYSTEM, Weighted(column))
    with pytest.raises(
        NoLegalDonorError, match=r"Weighted\(column='none'\) 2 of 4 recipients have no .*: episodes 0, 1"
    ):
        PairSampler(table, SAME_SYSTEM, Weighted("none"))
    assert PairSampler(table, SAME_SYSTEM, Weighted("none"), on_missing="drop").audit(50).coverage == 0.5
    with pytest.raises(ValueError, match="one donor and nothing to weigh"):
        PairSampler(table, SAME_ROLLOUT, Weighted("none"))


def test_the_weights_are_part_of_a_saved_state():
    one = systems([3, 3], weight=np.arange(1.0, 7.0))
    two = systems([3, 3], weight=np.arange(2.0, 8.0))
    state = PairSampler(one, SAME_SYSTEM, Weighted("weight")).state_dict()
    with pytest.raises(ValueError, match="other labels in the columns it reads"):
        PairSampler(two, SAME_SYSTEM, Weighted("weight")).load_state_dict(state)
