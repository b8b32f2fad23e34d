"""Verdicts on rows whose truth is planted."""

import dataclasses

import pytest

from sprii_train.reports.claims import D_CLEAN_CLAIMS, Claim, judge
from sprii_train.reports.paper import paper_table

HIGHER = Claim("b beats a", ("a", "b"), lambda r: r["b"]["x"] - r["a"]["x"], lambda v: v > 0, "difference")


def rows(*differences):
    return [
        {"arm": arm, "seed": seed, "x": x}
        for seed, d in enumerate(differences)
        for arm, x in (("a", 1.0), ("b", 1.0 + d))
    ]


@pytest.mark.parametrize(
    ("differences", "status"),
    [
        ((1, 2, 3), "held"),
        ((1,), "held (one source)"),
        ((1, -1, 2), "held in 2 of 3 sources"),
        ((-1, -2), "did not hold"),
        ((float("nan"),), "did not hold"),
    ],
)
def test_status_counts_sources(differences, status):
    (verdict,) = judge([HIGHER], rows(*differences))
    assert verdict.status == status


def test_an_arm_of_one_of_several_worlds():
    falls = Claim("b falls", ("one/b", "two/b"), lambda r: r["one/b"]["x"] - r["two/b"]["x"], lambda v: v > 0, "by")
    of_worlds = [{"world": w, "arm": "b", "seed": 0, "x": x} for w, x in (("one", 3.0), ("two", 1.0))]
    (verdict,) = judge([falls], of_worlds)
    assert (verdict.status, verdict.evidence) == ("held (one source)", "by: 2")
    assert judge([falls], of_worlds[:1])[0].status == "not tested"


def test_missing_arm_is_not_tested():
    (verdict,) = judge([HIGHER], [r for r in rows(1, 2) if r["arm"] == "a"])
    assert verdict.status == "not tested"
    assert "a, b" in verdict.evidence


def test_only_sources_with_all_arms_count():
    (verdict,) = judge([HIGHER], rows(1, 2)[:3])
    assert verdict.status == "held (one source)"


def paper_rows():
    """The paper's means as if one source had them; between/within is not in its table, h1 errors are not either."""
    extra = {"structure": 1.0, "same-rollout": 0.2, "align-cross": 50.0, "align-random": 0.2}
    table = paper_table("tab:dclean-full")
    return [
        {"arm": arm, "seed": 0, "between_within": extra[arm], "self_h1": 0.01, "correct_h1": 0.5}
        | {column: spread.mean for column, spread in table[arm].items()}
        for arm in extra
    ]


def test_the_papers_own_means_satisfy_every_claim_it_makes():
    statuses = {v.text: v.status for v in judge(D_CLEAN_CLAIMS, paper_rows())}
    failed = [text for text, status in statuses.items() if status != "held (one source)"]
    # 0.5512 / 0.0736 = 7.5: the one threshold that is stricter than the paper's table.
    assert failed == ["Structure's correct-donor error is more than ten times its own self error at h16"]


def test_no_claim_holds_when_all_arms_are_alike():
    same = {"drag_r2": 0.5, "between_within": 1.0, "gap": 0.01, "self_h16": 0.1, "correct_h16": 0.2}
    same |= {"self_h1": 0.1, "correct_h1": 0.2}
    alike = [{"arm": row["arm"], "seed": 0} | same for row in paper_rows()]
    assert {v.status for v in judge(D_CLEAN_CLAIMS, alike)} == {"did not hold"}


def test_claims_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HIGHER.text = "other"  # type: ignore[misc]
