"""Single-factor mismatches. The χ² test has a fixed seed and passes when p > 1e-3."""

import numpy as np
import pytest
from relation_tables import factorial, legal, poke, systems
from scipy import stats

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Candidates,
    EpisodeTable,
    Graph,
    Mismatch,
    Mixture,
    NoLegalDonorError,
    PairSampler,
    Relation,
    named_relation,
    with_legal_donors,
)

FACTORS = ("mass", "drag", "stiffness")
G3 = Relation(FACTORS, name="G3")


@pytest.fixture(scope="module")
def train() -> EpisodeTable:
    return poke("train")


@pytest.mark.parametrize("factor", FACTORS)
def test_exactly_the_factor_differs_in_every_draw(train, factor):
    relation = named_relation("G3", train)
    recipient, donor, correct = PairSampler(train, relation, Mismatch(factor)).batch(0, 20_000)
    for name in FACTORS:
        level = train[f"{name}_level"]
        assert ((level[recipient] == level[donor]) == (name != factor)).all()
    assert not correct.any()
    assert (train["system"][recipient] != train["system"][donor]).all()


def test_every_legal_donor_is_equally_likely():
    # 288 cells of 1,000: one off by 25 % is found with power > 0.99.
    table = factorial(2, 3, 2, 4)
    allowed = legal(table, Relation(("mass", "stiffness"), ("drag",)))
    recipient, donor, _ = PairSampler(table, G3, Mismatch("drag"), seed=2).batch(0, 1000 * int(allowed.sum()))
    count = np.zeros(allowed.shape, int)
    np.add.at(count, (recipient, donor), 1)
    assert not count[~allowed].any()
    assert stats.chisquare(count[allowed]).pvalue > 1e-3


def test_the_relation_s_other_conditions_stay():
    table = factorial(3, 3, 3, 2)
    g2 = Relation(("mass", "drag"), ("stiffness",))
    recipient, donor, _ = PairSampler(table, g2, Mismatch("mass")).batch(0, 2000)
    assert legal(table, Relation(("drag",), ("mass", "stiffness")))[recipient, donor].all()


def test_under_same_system_the_equal_factors_are_named():
    table = factorial(3, 3, 3, 2)
    named = Mismatch("drag", equal=("mass", "stiffness"))
    a = PairSampler(table, SAME_SYSTEM, Mixture(0.5, wrong=named), distinct="system")
    b = PairSampler(table, G3, Mixture(0.5, wrong=Mismatch("drag")), distinct="system")
    assert all((x == y).all() for x, y in zip(a.batch(3, 20), b.batch(3, 20), strict=True))


def missing() -> EpisodeTable:
    """A factorial table with a system alone at its mass and stiffness: it has no drag mismatch."""
    table = factorial(2, 2, 2, 2)
    keep = (table["mass"] != 1.0) | (table["stiffness"] != "soft") | (table["drag"] == 0)
    return table.select(keep)


def test_recipients_without_a_mismatch_are_named_or_dropped_in_both_arms():
    table = missing()
    alone = np.flatnonzero((table["mass"] == 1.0) & (table["stiffness"] == "soft"))
    assert len(alone) == 2
    ids = ", ".join(map(str, np.sort(table["episode"][alone])))
    for alpha in (0, 0.5, 1):
        kernel = Mixture(alpha, wrong=Mismatch("drag"))
        message = rf"relation 'G3' with Mixture.*Mismatch.* 2 of 14 recipients have no legal donor: episodes {ids}"
        with pytest.raises(NoLegalDonorError, match=message):
            PairSampler(table, G3, kernel)
        sampler = PairSampler(table, G3, kernel, on_missing="drop")
        assert set(sampler.batch(0, 1000).recipient) == set(range(14)) - set(alone)
        assert sampler.audit(100).coverage == 12 / 14
    right, wrong = (PairSampler(table, G3, Mixture(a, wrong=Mismatch("drag")), on_missing="drop") for a in (1, 0))
    assert (right.batch(0, 50).recipient == wrong.batch(0, 50).recipient).all()


def test_conditions_with_different_gaps_share_a_bank():
    table = factorial(3, 3, 3, 2)
    # (1, 0, soft) has no drag mismatch; without it (m, 0, soft) and (1, 0, k) still have a donor of each kind.
    table = table.select((table["mass"] != 1.0) | (table["stiffness"] != "soft") | (table["drag"] == 0))
    table = table.select((table["mass"] == 1.0) | (table["mass"] == 1.5) | (table["drag"] > 0))
    kernels = [Mixture(0.5, wrong=Mismatch(name)) for name in FACTORS]
    common = with_legal_donors(table, G3, kernels)
    gone = _removed(table)
    assert 2 < gone.sum() < len(table)  # more than the first pass removes
    assert sorted(common["episode"]) == sorted(table["episode"][~gone])
    batches = [PairSampler(common, G3, kernel).batch(0, 12) for kernel in kernels]
    assert all((b.recipient == batches[0].recipient).all() for b in batches)
    assert with_legal_donors(common, G3, kernels) is common
    one = kernels[0]
    assert with_legal_donors(table, G3, one).fingerprint() == with_legal_donors(table, G3, [one]).fingerprint()
    with pytest.raises(NoLegalDonorError, match="no episode has a legal donor under every one of Mismatch"):
        with_legal_donors(factorial(2, 1, 2, 2), G3, [Mismatch("drag")])


def test_frozen_donors_that_are_left_out_are_named():
    table = systems([1] * 6, m=[0] * 6)
    relation = Relation(("m",), ("system",))
    for kernel in (Candidates([0, 1], [[1, 2], [0, 3]]), Graph([0, 2, 4, 4, 4, 4, 4], [1, 2, 0, 3])):
        with pytest.raises(
            ValueError, match=rf"4 of 6 episodes have no legal donor .* without them {type(kernel).__name__}"
        ):
            with_legal_donors(table, relation, kernel)
        with pytest.raises(ValueError, match=r"^\d donor|^\d candidate"):  # lost before: the kernel's own error
            with_legal_donors(table.select([0, 1]), relation, kernel)


def _removed(table: EpisodeTable) -> np.ndarray:
    """Episodes that fall out, by repeated enumeration of the definition."""
    gone = np.zeros(len(table), bool)
    while True:
        ok = np.ones(len(table), bool)
        for factor in FACTORS:
            allowed = legal(table, Relation(tuple(f for f in FACTORS if f != factor), (factor,)))
            ok &= (allowed & ~gone).any(1)
        ok &= (legal(table, G3) & ~gone).any(1)
        if (gone == ~ok).all():
            return gone
        gone = ~ok


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mismatch("drag", equal="mass"), TypeError, r"write \('mass',\)"),  # pyright: ignore[reportArgumentType]
        (lambda: Mismatch("drag", equal=("drag",)), ValueError, "both differ in 'drag' and equal it"),
        (
            lambda: PairSampler(factorial(), SAME_SYSTEM, Mismatch("drag")),
            ValueError,
            "shares 'system'; use a relation",
        ),
        (
            lambda: PairSampler(factorial(), G3, Mismatch("colour")),
            ValueError,
            "'G3' shares 'mass', 'drag', 'stiffness'",
        ),
        (lambda: PairSampler(factorial(), SAME_ROLLOUT, Mismatch("drag", ("mass",))), ValueError, "is no error under"),
        (
            lambda: PairSampler(factorial(), SAME_SYSTEM, Mismatch("drag", ("colour",))),
            ValueError,
            "no column 'colour'",
        ),
        (
            lambda: PairSampler(factorial(), Relation(("mass",)), Mismatch("drag", ("mass",))),
            ValueError,
            "may differ in 'drag' already",
        ),
        (
            lambda: PairSampler(systems([2, 2], drag=[1, 1, 1, 1]), Relation(("drag",)), Mismatch("drag")),
            NoLegalDonorError,
            "4 of 4 recipients have no legal donor",
        ),
    ],
)
def test_bad_mismatches(make, error, message):
    with pytest.raises(error, match=message):
        make()
