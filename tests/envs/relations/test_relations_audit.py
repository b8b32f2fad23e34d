import json

import numpy as np
import pytest
from hypothesis import given, settings
from relation_tables import factorial, legal, relations, systems, tables

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, EpisodeTable, PairSampler, Relation
from sprii_envs.relations.audit import systems_per_recipient

G1 = Relation(("mass",), ("drag", "stiffness"))
G2 = Relation(("mass", "drag"), ("stiffness",))


@settings(max_examples=40, deadline=None)
@given(tables(), relations())
def test_counts_agree_with_enumeration_on_any_table(table, relation):
    allowed = legal(table, relation)
    counts, exact = systems_per_recipient(table, relation)
    truth = np.array([len(np.unique(table["system"][row])) for row in allowed])
    if exact:
        np.testing.assert_array_equal(counts, truth)
    else:  # a seeded sample that here covers the table
        assert sorted(counts) == sorted(truth)
    if not allowed.any():
        return
    report = PairSampler(table, relation, on_missing="drop").audit(200)
    rows = allowed.any(1)
    assert report.coverage == rows.mean()
    assert report.eligible_systems == (truth[rows].min(), truth[rows].max())
    assert report.eligible_histories == (allowed[rows].sum(1).min(), allowed[rows].sum(1).max())
    assert report.selected_systems == report.eligible_systems
    assert report.correct_rate == 1.0


@pytest.fixture(scope="module")
def bank() -> EpisodeTable:
    """A bank like PokeWorld's factorial one: 10 × 10 × 28 tuples, 20 stiffness levels a block, 4 rollouts.

    Levels rotate through the drag blocks, so that they occur equally often within a mass as far as possible.
    """
    mass, drag, k = (a.ravel() for a in np.indices((10, 10, 20)))
    stiffness = (drag * 20 + k + 3 * mass) % 28
    n, r = len(mass), 4
    repeat = lambda a: np.repeat(a, r)  # noqa: E731
    return EpisodeTable(
        {
            "episode": np.arange(n * r),
            "system": repeat(np.arange(n)),
            "rollout": np.tile(np.arange(r), n),
            "length": np.full(n * r, 64),
            "mass": repeat(mass),
            "drag": repeat(drag),
            "stiffness": repeat(stiffness),
        }
    )


def test_factorial_bank_prints_the_paper_s_eligible_systems(bank):
    g1, g2 = PairSampler(bank, G1).audit(5000), PairSampler(bank, G2).audit(5000)
    assert g1.eligible_systems == (173, 174)  # `tab:donor-pool-audit`, training split
    assert g2.eligible_systems == (19, 19)
    assert g1.coverage == g2.coverage == 1.0
    assert g2.eligible_histories == (76, 76)
    assert g1.match_rates == {"system": 0.0, "mass": 1.0, "drag": 0.0, "stiffness": 0.0}
    assert "173–174" in str(g1)
    assert "same mass; other drag, stiffness" in str(g1)


def test_same_system_and_its_controls(bank):
    report = PairSampler(bank, SAME_SYSTEM, distinct="system").audit(5000)
    assert (report.eligible_systems, report.supported_histories) == ((1, 1), (3, 3))
    assert report.donor_entropy == pytest.approx(1.0)
    assert report.marginal_gap == pytest.approx(0.0, abs=1e-12)
    random = PairSampler(bank, SAME_SYSTEM, Derangement(), distinct="system").audit(40_000)
    assert random.correct_rate == 0.0
    assert random.selected_systems == (1999, 1999)
    assert random.supported_histories == (7996, 7996)
    assert random.match_rates["mass"] == pytest.approx(199 / 1999, abs=0.01)
    assert random.match_rates["system"] == 0.0
    rollout = PairSampler(bank, SAME_ROLLOUT).audit(5000)
    assert rollout.supported_histories == (1, 1)
    assert rollout.match_rates["system"] == 1.0


def test_the_law_shows_in_the_marginals():
    table = systems([10], drag=np.repeat([0, 1, 2], [6, 3, 1]))
    relation = Relation(("system",), ("drag",))
    one, two = (PairSampler(table, relation, law=law).audit(2000) for law in ("recipient", "pair"))
    assert one.recipient_weight == pytest.approx((1.0, 1.0))
    assert one.donor_weight == pytest.approx((0.5397, 1.9286), abs=1e-4)
    assert one.marginal_gap > 0.2
    assert one.donor_entropy < 0.95
    assert two.recipient_weight == pytest.approx(two.donor_weight)
    assert two.marginal_gap == pytest.approx(0.0, abs=1e-12)
    assert two.law == "pair"


def test_report_is_json_and_leaves_the_sampler_alone():
    sampler = PairSampler(factorial(), G1, seed=4)
    before = sampler.sample(10)
    report = sampler.audit(1000)
    assert report.to_dict() == sampler.audit(1000).to_dict()
    assert json.loads(json.dumps(report.to_dict()))["eligible_systems"] == [4, 4]
    assert sampler.step == 1
    assert all((a == b).all() for a, b in zip(before, sampler.batch(0, 10), strict=True))
    assert report.draws == 1000


def test_dropped_recipients_lower_the_coverage():
    report = PairSampler(systems([2, 2, 1]), SAME_SYSTEM, on_missing="drop").audit(100)
    assert (report.coverage, report.recipients, report.episodes) == (0.8, 4, 5)
    assert "80.00 % (4 recipients)" in str(report)


def test_dropped_recipients_are_not_counted_as_donors():
    sampler = PairSampler(systems([2, 2, 1]), SAME_SYSTEM, Derangement(), distinct="system", on_missing="drop")
    report = sampler.audit(100)
    assert (report.selected_systems, report.supported_histories) == ((1, 1), (2, 2))
    assert report.rollouts_per_system == (2, 2)
