"""α-mixtures: exact shares, equal marginals, right and wrong. χ² tests use fixed seeds and pass when p > 1e-3."""

import contextlib
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import factorial, legal, systems
from scipy import stats

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Candidates,
    Derangement,
    Mismatch,
    Mixture,
    PairSampler,
    Relation,
    Uniform,
)
from sprii_envs.relations.kernels.mixture import correct_pairs
from sprii_envs.relations.streams import PAIRS, stream

G3 = Relation(("mass", "drag", "stiffness"), name="G3")
ALPHAS = {0: Fraction(0), 0.1: Fraction(1, 10), 0.25: Fraction(1, 4), 0.5: Fraction(1, 2), 1: Fraction(1)}
WRONG = (Derangement(), Mismatch("drag"), Mismatch("mass"))


def arm(table, alpha, wrong: Any = Derangement(), mode: Any = "exact", seed=0, relation=G3, distinct: Any = "system"):  # noqa: B008
    return PairSampler(table, relation, Mixture(alpha, wrong=wrong, mode=mode), seed, distinct=distinct)


# The share


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [1, 7, 24, 27])
def test_the_share_is_exact_in_every_batch_and_in_sum(alpha, n):
    table = factorial(3, 3, 3, 2)
    wrong = Mismatch("drag") if n == 1 else Derangement()  # a batch of one has nobody to exchange with
    sampler, exact, total = arm(table, alpha, wrong), ALPHAS[alpha], 0
    for step in range(60):
        correct = sampler.batch(step, n).correct
        assert correct.sum() == floor(exact * n * (step + 1)) - floor(exact * n * step)
        total += correct.sum()
        assert total == floor(exact * n * (step + 1))


@settings(max_examples=70, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 2**64 - 1), st.integers(1, 2**40))
def test_the_share_is_that_of_the_fraction_meant(numerator, denominator, step, n):
    exact = min(Fraction(numerator, denominator), Fraction(1))
    expected = floor(exact * n * (step + 1)) - floor(exact * n * step)
    assert correct_pairs(float(exact), step, n) == expected


def test_floating_point_does_not_lose_a_pair():
    assert floor(0.29 * 100) == 28  # what a float would give
    assert correct_pairs(0.29, 0, 100) == 29
    assert sum(correct_pairs(1 / 3, step, 1) for step in range(3000)) == 1000
    assert correct_pairs(0.12345678901, 0, 10**11) == 12345678901


def test_positions_of_the_correct_pairs_are_uniform():
    # 24 cells of 2,000: one off by 10 % is found with power > 0.99.
    sampler = arm(factorial(), 0.25)
    count = sum(sampler.batch(step, 24).correct.astype(int) for step in range(8000))
    assert stats.chisquare(count).pvalue > 1e-3


def test_iid_positions_are_binomial():
    table = factorial()
    sampler = arm(table, 0.3, mode="iid")
    count = [sampler.batch(step, 24).correct.sum() for step in range(2000)]
    observed = np.bincount(count, minlength=25)[2:14]
    expected = stats.binom.pmf(np.arange(2, 14), 24, 0.3) * 2000
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3
    for alpha, share in ((0, 0.0), (1, 1.0)):
        assert arm(table, alpha, mode="iid").batch(0, 24).correct.mean() == share


# Right and wrong


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("mode", ["exact", "iid"])
@pytest.mark.parametrize("alpha", [0, 0.1, 0.5, 0.96, 1])
def test_wrong_pairs_are_never_right_and_right_ones_never_wrong(alpha, mode, wrong):
    table = factorial(3, 3, 3, 3)
    allowed, sampler = legal(table, G3), arm(table, alpha, wrong, mode)
    for step in range(60):
        recipient, donor, correct = sampler.batch(step, 24)
        assert (allowed[recipient, donor] == correct).all()
        assert (recipient != donor).all()
        assert correct.dtype == bool


@pytest.mark.parametrize("mode", ["exact", "iid"])
@pytest.mark.parametrize("distinct", ["system", None])
def test_arms_differ_only_in_who_meets_whom(mode, distinct):
    table = factorial(4, 4, 3, 3)
    correct_arm = PairSampler(table, G3, seed=3, distinct=distinct)
    arms = [arm(table, alpha, mode=mode, seed=3, distinct=distinct) for alpha in (0, 0.1, 0.25, 0.5, 1)]
    for step in range(30):
        truth = correct_arm.batch(step, 40)
        for sampler in arms:
            recipient, donor, correct = sampler.batch(step, 40)
            assert (recipient == truth.recipient).all()
            assert (donor[correct] == truth.donor[correct]).all()
            assert sorted(donor) == sorted(truth.donor)
        whole = arms[-1].batch(step, 40)
        assert (whole.donor == truth.donor).all()
        assert whole.correct.all()


@pytest.mark.parametrize("mode", ["exact", "iid"])
def test_random_and_structured_errors_share_recipients_and_masks(mode):
    table = factorial(3, 3, 3, 4)
    arms = [arm(table, 0.5, wrong, mode, seed=9) for wrong in WRONG]
    for step in range(20):
        batches = [sampler.batch(step, 24) for sampler in arms]
        for batch in batches[1:]:
            assert (batch.recipient == batches[0].recipient).all()
            assert (batch.correct == batches[0].correct).all()
            assert (batch.donor[batch.correct] == batches[0].donor[batch.correct]).all()


# Marginals


@pytest.mark.parametrize("sizes", [[3] * 8, [2, 3, 4, 5, 6]])
def test_marginals_do_not_depend_on_alpha(sizes):
    # Some 20 cells of 2,000 or more in each arm: one off by 15 % is found with power > 0.99.
    table = systems(sizes)
    n, groups = len(table), len(sizes)
    law = np.repeat(1.0 / (groups * np.array(sizes)), sizes)
    for alpha in (0, 0.25, 0.5, 1):
        sampler = arm(table, alpha, seed=5, relation=SAME_SYSTEM)
        batches = [sampler.batch(step, groups) for step in range(2000 * n // groups)]
        for side in ("recipient", "donor"):
            count = np.bincount(np.concatenate([getattr(b, side) for b in batches]), minlength=n)
            assert stats.chisquare(count, law * count.sum()).pvalue > 1e-3, (alpha, side)
        marginal = sampler.recipients.marginal(n)
        np.testing.assert_allclose(marginal, law)
        np.testing.assert_allclose(sampler.bound.donor_marginal(marginal), law)


@pytest.mark.parametrize("alpha", [0, 0.3, 1])
def test_the_closed_donor_marginal_of_a_structured_error(alpha):
    table = factorial(3, 3, 3, 4)
    table = table.select(np.flatnonzero(np.random.default_rng(0).random(len(table)) < 0.8))  # uneven everywhere
    sampler = PairSampler(table, G3, Mixture(alpha, wrong=Mismatch("drag")), distinct="system", on_missing="drop")
    right, wrong = (legal(table, relation) for relation in (G3, Relation(("mass", "stiffness"), ("drag",))))
    marginal = sampler.recipients.marginal(len(table))
    np.testing.assert_array_equal(marginal > 0, right.any(1) & wrong.any(1))
    law = [marginal @ (allowed / np.maximum(allowed.sum(1, keepdims=True), 1)) for allowed in (right, wrong)]
    assert np.abs(law[0] - law[1]).max() > 1e-3
    np.testing.assert_allclose(sampler.bound.donor_marginal(marginal), alpha * law[0] + (1 - alpha) * law[1])


def test_a_single_wrong_pair_borrows_and_keeps_the_marginals():
    # α = 7/8 leaves one wrong pair in every batch of 8. 24 cells of 1,000: 20 % is found with power > 0.99.
    table = systems([3] * 8)
    truth = PairSampler(table, SAME_SYSTEM, seed=1, distinct="system")
    sampler = arm(table, 0.875, seed=1, relation=SAME_SYSTEM)
    wrong = np.zeros(24, int)
    for step in range(24_000):
        recipient, donor, correct = sampler.batch(step, 8)
        (i,) = np.flatnonzero(~correct)
        wrong[donor[i]] += 1
        if step < 50:
            drawn = truth.batch(step, 8).donor
            assert donor[i] in np.delete(drawn, i)
            assert (np.delete(donor, i) == np.delete(drawn, i)).all()
            assert table["system"][recipient[i]] != table["system"][donor[i]]
    assert stats.chisquare(wrong).pvalue > 1e-3


def test_a_wrong_part_of_one_group_borrows_from_the_others():
    # Batches of 4 recipients of three systems, with repeats: the two wrong ones are often of one system.
    table = systems([4, 4, 4])
    sampler = arm(table, 0.5, seed=2, relation=SAME_SYSTEM, distinct=None)
    borrowed = refused = 0
    for step in range(400):
        system = table["system"][sampler.recipients.draw(stream(2, step, PAIRS), 4)]
        if 2 * np.bincount(system).max() > 4:
            # Refused unless the two wrong ones happen to be of two systems.
            with contextlib.suppress(ValueError):
                sampler.batch(step, 4)
                continue
            refused += 1
            continue
        recipient, donor, correct = sampler.batch(step, 4)
        assert ((table["system"][recipient] == table["system"][donor]) == correct).all()
        borrowed += len(np.unique(table["system"][recipient][~correct])) == 1
    assert borrowed > 20
    assert refused > 20


def test_a_batch_without_another_group_is_refused():
    with pytest.raises(ValueError, match=r"a batch of 1 cannot be deranged by 'system': .* take n ≥ 2$"):
        arm(factorial(), 0).batch(0, 1)


# Kernels within


def test_frozen_candidates_can_be_the_correct_part():
    mass = np.repeat(np.arange(4), 3)
    table = systems([2] * 12, mass=np.repeat(mass, 2))
    lists = Candidates(np.arange(12), [[s for s in np.flatnonzero(mass == m) if s != i] for i, m in enumerate(mass)])
    relation = Relation(("mass",), ("system",))
    sampler = PairSampler(table, relation, Mixture(0.5, lists, Derangement(by="mass")), distinct="system")
    truth = PairSampler(table, relation, lists, distinct="system")
    for step in range(30):
        recipient, donor, correct = sampler.batch(step, 12)
        assert ((table["mass"][recipient] == table["mass"][donor]) == correct).all()
        assert sorted(donor) == sorted(truth.batch(step, 12).donor)
    audit = sampler.audit(600)
    assert audit.supported_histories == (4 + 18, 4 + 18)
    assert audit.selected_systems == (2 + 9, 2 + 9)


def test_the_audit_shows_both_parts():
    table = factorial(3, 3, 3, 4)
    report = {alpha: arm(table, alpha).audit(4000) for alpha in (0, 0.5, 1)}
    assert [r.supported_histories[0] for r in report.values()] == [104, 107, 3]
    assert [r.selected_systems[0] for r in report.values()] == [26, 27, 1]
    assert [r.correct_rate for r in report.values()] == pytest.approx([0, 0.5, 1], abs=1e-3)
    assert report[0.5].match_rates["mass"] == pytest.approx(0.5 + 0.5 * 8 / 26, abs=0.03)
    drag = arm(table, 0.5, Mismatch("drag")).audit(2700)
    assert drag.match_rates == pytest.approx({"system": 0.5, "mass": 1.0, "drag": 0.5, "stiffness": 1.0}, abs=1e-3)
    assert drag.supported_histories == (11, 11)
    assert all(r.donor_entropy == pytest.approx(1.0) for r in (*report.values(), drag))


def test_same_rollout_can_be_mixed():
    table = factorial(length=80)
    recipient, donor, correct = arm(table, 0.5, relation=SAME_ROLLOUT).batch(0, 20)
    assert ((recipient == donor) == correct).all()
    assert (table["system"][recipient] == table["system"][donor])[correct].all()
    assert not (table["system"][recipient] == table["system"][donor])[~correct].any()


def test_batches_are_pure_and_resume_exactly():
    table = factorial(3, 3, 3, 3)
    kernels = [Mixture(0.3, wrong=wrong, mode=mode) for wrong in WRONG for mode in ("exact", "iid")]
    for kernel in kernels:
        one, two = (PairSampler(table, G3, kernel, seed, distinct="system") for seed in (4, 8))
        drawn = [one.sample(20) for _ in range(5)]
        two.load_state_dict(one.state_dict())
        for a, b in zip(
            [*drawn, one.sample(20)], [*map(lambda s: two.batch(s, 20), range(5)), two.sample(20)], strict=True
        ):
            assert all((x == y).all() for x, y in zip(a, b, strict=True))
        shuffled = table.select(np.random.default_rng(0).permutation(len(table)))
        other = PairSampler(shuffled, G3, kernel, 4, distinct="system").batch(2, 20)
        assert (shuffled["episode"][other.donor] == table["episode"][drawn[2].donor]).all()


def test_fingerprints_tell_the_laws_apart():
    table = factorial()
    kernels = [
        Uniform(),
        Derangement(),
        Mismatch("drag"),
        Mismatch("mass"),
        Mismatch("drag", ("mass",)),
        *(Mixture(alpha, wrong=wrong, mode=mode) for alpha in (0, 0.5) for wrong in WRONG for mode in ("exact", "iid")),
    ]
    assert len({PairSampler(table, G3, kernel).fingerprint() for kernel in kernels}) == len(kernels)
    same = (Mixture(1), Mixture(1.0), Mixture(np.float64(1)), Mixture(Fraction(1)))  # pyright: ignore[reportArgumentType]
    assert len({PairSampler(table, G3, kernel).fingerprint() for kernel in same}) == 1
    state = PairSampler(table, G3, Mixture(0.5)).state_dict()
    with pytest.raises(ValueError, match=r"another sampler: kernel \"Mixture\(alpha=0\.5.*here \"Mixture\(alpha=0\.25"):
        PairSampler(table, G3, Mixture(0.25)).load_state_dict(state)


# Bad input

NOT_A_NUMBER: Any = "0.5"
NOT_A_KERNEL: Any = Uniform
NOT_WRONG: Any = Uniform()
NO_MODE: Any = "roughly"


class Sloppy(Uniform):
    """A user's kernel whose pairs may be wrong."""

    def bind(self, table, relation, index):
        return Mismatch("drag").bind(table, relation, index)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mixture(-0.1), ValueError, r"alpha is -0\.1; legal: a number in \[0, 1\]"),
        (lambda: Mixture(1.1), ValueError, r"alpha is 1\.1; legal"),
        (lambda: Mixture(float("nan")), ValueError, r"alpha is nan; legal: a number in \[0, 1\]"),
        (lambda: Mixture(NOT_A_NUMBER), ValueError, r"alpha is '0\.5'; legal: a number in \[0, 1\]"),
        (lambda: Mixture(True), ValueError, r"alpha is True; legal"),
        (lambda: Mixture(0.5, mode=NO_MODE), ValueError, "mode is 'roughly'; legal: exact, iid"),
        (lambda: Mixture(0.5, wrong=NOT_WRONG), TypeError, r"wrong must be Derangement.*got Uniform\(\)"),
        (lambda: Mixture(0.5, NOT_A_KERNEL), TypeError, "correct must be Uniform"),
        (lambda: Mixture(0.5, Derangement()), TypeError, "correct must be Uniform.*got Derangement"),
        (lambda: PairSampler(factorial(), G3, Mixture(0.5, Sloppy())).batch(0, 20), ValueError, "drew a wrong pair"),
        (lambda: arm(factorial(), 0.5, relation=Relation(("mass",), ("drag",))), ValueError, "shares 'system'"),
        (lambda: arm(factorial(), 0.5, Derangement(by="colour")), ValueError, "no column 'colour'"),
    ],
)
def test_bad_mixtures(make, error, message):
    with pytest.raises(error, match=message):
        make()
