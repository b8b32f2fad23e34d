"""Verdicts on rows whose truth is planted, and the rule at its edges."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from sprii_train.analysis.statistics import Interval
from sprii_train.experiments.targets.dclean_full import CLAIMS
from sprii_train.reports.claims import (
    FAILED,
    HELD,
    OPEN,
    UNTESTED,
    Claim,
    extreme,
    judge,
    outcome,
    over_source_values,
)
from sprii_train.reports.paper import paper_table

INF, NAN = math.inf, math.nan


def difference(arms) -> float:
    return arms["b"]["x"] - arms["a"]["x"]


HIGHER = Claim("b beats a", ("a", "b"), difference, "difference", above=0.0, null=0.0)


def spanning(low: float, estimate: float, high: float) -> Interval:
    return Interval(estimate, low, high, 0.95, 10, "system")


def rows(*differences, spread: float | None = None):
    """Two arms a source; with a spread, b has an interval of that half width."""
    found = [
        {"arm": arm, "seed": seed, "x": x}
        for seed, d in enumerate(differences)
        for arm, x in (("a", 1.0), ("b", 1.0 + d))
    ]
    return [row | ({} if spread is None else {"half": spread}) for row in found]


def within(arms) -> Interval | None:
    if "half" not in arms["b"]:
        return None
    half, found = arms["b"]["half"], difference(arms)
    return spanning(found - half, found, found + half)


BY_SYSTEM = dataclasses.replace(HIGHER, interval=within)


# The rule


@pytest.mark.parametrize(
    ("ends", "bounds", "expected"),
    [
        ((1.0, 2.0, 3.0), {"above": 0.0}, HELD),
        ((1.0, 2.0, 3.0), {"above": 1.0}, OPEN),  # the bound itself is not above the bound
        ((1.0, 2.0, 3.0), {"above": 0.999}, HELD),
        ((1.0, 2.0, 3.0), {"above": 2.5}, OPEN),
        ((1.0, 2.0, 3.0), {"above": 3.0}, FAILED),
        ((1.0, 2.0, 3.0), {"below": 3.0}, OPEN),
        ((1.0, 2.0, 3.0), {"below": 3.001}, HELD),
        ((1.0, 2.0, 3.0), {"below": 1.0}, FAILED),
        ((-0.05, 0.0, 0.05), {"above": -0.1, "below": 0.1}, HELD),
        ((-0.05, 0.0, 0.15), {"above": -0.1, "below": 0.1}, OPEN),
        ((0.1, 0.2, 0.3), {"above": -0.1, "below": 0.1}, FAILED),
        ((-0.3, -0.2, -0.1), {"above": -0.1, "below": 0.1}, FAILED),
        ((-0.5, 0.0, 0.5), {"above": -0.1, "below": 0.1}, OPEN),  # too wide to say that there is no difference
        ((0.0, 0.0, 0.0), {"above": 0.0}, FAILED),  # exactly no difference is none
        ((0.2, -0.1, 0.3), {"above": 0.0}, OPEN),  # an estimate beyond its interval
        ((NAN, NAN, NAN), {"above": 0.0}, OPEN),
        ((NAN, 1.0, 2.0), {"above": 0.0}, OPEN),
        ((-INF, 5.0, INF), {"above": 0.0}, OPEN),
        ((-INF, INF, INF), {"below": 0.1}, OPEN),
    ],
)
def test_three_outcomes_of_an_estimate_its_interval_and_its_bounds(ends, bounds, expected):
    assert outcome(spanning(*ends), **bounds) == expected


def test_the_rule_is_symmetric():
    rng = np.random.default_rng(0)
    for low, estimate, high in np.sort(rng.normal(size=(200, 3)), axis=1):
        bound = float(rng.normal())
        mirrored = outcome(spanning(-high, -estimate, -low), below=-bound)
        assert outcome(spanning(low, estimate, high), above=bound) == mirrored


# Intervals over sources


@pytest.mark.parametrize(
    ("differences", "status"),
    [
        ((1.0, 1.1, 0.9), HELD),
        ((1.0,), OPEN),
        ((-0.05, 1.5), OPEN),  # was "held in 1 of 2"
        ((1.0, -1.0, 2.0), OPEN),
        ((-1.0, -1.1), FAILED),
        ((0.0, 0.0), FAILED),
        ((NAN,), OPEN),
        ((NAN, 1.0), OPEN),
        ((1e-9, -1e-9), OPEN),
    ],
)
def test_a_difference_of_sources_needs_its_interval(differences, status):
    (verdict,) = judge([HIGHER], rows(*differences))
    assert verdict.status == status


def test_the_interval_over_sources_is_the_t_interval_of_numbers_or_of_logarithms():
    values = [3.0, 4.0, 6.0]
    plain = stats.ttest_1samp(values, 0.0).confidence_interval()
    logs = stats.ttest_1samp(np.log(values), 0.0).confidence_interval()
    assert over_source_values(values)[1:3] == pytest.approx(plain)
    assert over_source_values(values, ratio=True)[1:3] == pytest.approx(np.exp(logs))
    for unbounded in ([2.0], [1.0, -1.0], [0.0, 1.0], [INF, 1.0], [NAN, 1.0]):
        assert over_source_values(unbounded, ratio=True)[1:3] == (-INF, INF)


def test_exact_numbers_need_no_interval():
    exact = dataclasses.replace(HIGHER, exact=True)
    assert [judge([exact], rows(d))[0].status for d in (1.0, 0.0, -1.0)] == [HELD, FAILED, FAILED]
    assert judge([exact], rows(1.0, -1.0))[0].status == OPEN


# Intervals within sources


@pytest.mark.parametrize(
    ("differences", "half", "status"),
    [
        ((1.0, 2.0), 0.5, HELD),
        ((1.0,), 0.5, HELD),
        ((1.0, 0.4), 0.5, OPEN),  # one source does not resolve it
        ((1.0, -1.0), 0.5, OPEN),  # two sources disagree
        ((-1.0, -2.0), 0.5, FAILED),
        ((0.1, -0.1), 0.5, OPEN),
    ],
)
def test_sources_with_intervals_of_their_own_must_agree(differences, half, status):
    (verdict,) = judge([BY_SYSTEM], rows(*differences, spread=half))
    assert verdict.status == status
    assert "over systems" in verdict.evidence
    assert ("given one source" in verdict.evidence) == (len(differences) == 1)


def test_rows_without_numbers_by_system_are_judged_over_sources():
    (verdict,) = judge([BY_SYSTEM], rows(1.0, 1.1))
    assert verdict.status == HELD
    assert "over sources" in verdict.evidence
    mixed = rows(1.0, 1.1, spread=0.5)[:2] + rows(1.0, 1.1)[2:]
    assert "over sources" in judge([BY_SYSTEM], mixed)[0].evidence


def test_the_least_of_several_numbers_is_as_uncertain_as_its_ends():
    parts = [
        {"measure": lambda a, i=i: a["a"]["at"][i], "interval": lambda a, i=i: spanning(i - 1.0, float(i), i + 2.0)}
        for i in (0, 1)
    ]
    one = Claim("both", ("a",), **extreme(min, parts), what="smaller", above=-2.0, null="no contexts")
    assert one.interval is not None
    assert one.interval({"a": {"at": (0.0, 1.0)}}) == spanning(-1.0, 0.0, 2.0)
    assert one.measure({"a": {"at": (4.0, 3.0)}}) == 3.0
    most = extreme(max, [parts[0], parts[1] | {"interval": lambda a: None}])
    assert most["interval"]({"a": {}}) is None


# What is told


def test_a_claim_tells_its_bounds_what_no_information_scores_and_the_papers_number_once():
    one = Claim("t", ("a",), lambda a: 0.0, "ratio", below=0.95, paper=0.72, null=1.0)
    assert one.shows == "ratio (< 0.95; without information 1; paper 0.72)"
    assert dataclasses.replace(one, above=-0.5, below=0.5, paper="a figure", null="holds too").shows == (
        "ratio (−0.5 to 0.5; without information: holds too; paper a figure)"
    )
    assert HIGHER.shows == "difference (> 0; without information 0)"


def test_a_claim_that_no_information_satisfies_cannot_be_held():
    open_ = dataclasses.replace(BY_SYSTEM, null=lambda arms: arms["a"]["x"])
    (verdict,) = judge([open_], rows(1.0, spread=0.5))
    assert verdict.status == OPEN
    assert verdict.evidence.endswith("without information 1, which holds as well")
    (verdict,) = judge([dataclasses.replace(BY_SYSTEM, null=1.0)], rows(1.0, spread=0.5))
    assert verdict.status == OPEN  # by a number as by a function
    assert verdict.evidence.endswith("; what no information scores holds as well")
    failed = dataclasses.replace(open_, above=3.0)
    assert judge([failed], rows(1.0, spread=0.5))[0].status == FAILED


def test_an_arm_of_one_of_several_worlds():
    falls = Claim(
        "b falls", ("one/b", "two/b"), lambda r: r["one/b"]["x"] - r["two/b"]["x"], "by", above=0, null=0.0, exact=True
    )
    of_worlds = [{"world": w, "arm": "b", "seed": 0, "x": x} for w, x in (("one", 3.0), ("two", 1.0))]
    (verdict,) = judge([falls], of_worlds)
    assert (verdict.status, verdict.evidence) == (HELD, "by (> 0; without information 0): 2")
    assert judge([falls], of_worlds[:1])[0].status == "not tested"


def test_missing_arm_is_not_tested():
    (verdict,) = judge([HIGHER], [r for r in rows(1, 2) if r["arm"] == "a"])
    assert verdict.status == "not tested"
    assert "a, b" in verdict.evidence


def test_rows_of_an_older_report_leave_newer_claims_untested():
    newer = dataclasses.replace(HIGHER, measure=lambda arms: arms["a"]["later"])
    (verdict,) = judge([newer], rows(1, 2))
    assert (verdict.status, verdict.evidence) == ("not tested", f"{newer.shows}: the rows lack 'later'")


def test_a_number_that_cannot_be_computed_is_not_tested():
    claim = Claim("A ratio", ("a",), lambda arms: 1.0 / arms["a"]["zero"], "a ratio", above=1, null=0.0)
    (verdict,) = judge([claim], [{"arm": "a", "seed": 0, "zero": 0.0}])
    assert (verdict.status, verdict.evidence) == (
        "not tested", "a ratio (> 1; without information 0): its number cannot be computed: float division by zero",
    )  # fmt: skip


def test_only_sources_with_all_arms_count():
    (verdict,) = judge([HIGHER], rows(1, 2)[:3])
    assert (verdict.status, verdict.evidence.endswith("1 (one source, no interval)")) == (OPEN, True)


def test_claims_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HIGHER.text = "other"  # type: ignore[misc]


# D-Clean's


def paper_rows():
    """The paper's means as if two sources had them; what its table has not is made up."""
    extra = {"structure": 1.0, "same-rollout": 0.2, "align-cross": 50.0, "align-random": 0.2}
    table = paper_table("tab:dclean-full")
    return [
        {"arm": arm, "seed": seed, "between_within": extra[arm], "self_h1": 0.01, "correct_h1": 0.5}
        | {"target_variance": 1.0}
        | {column: spread.mean for column, spread in table[arm].items()}
        for arm in extra
        for seed in (0, 1)
    ]


def test_the_papers_own_means_satisfy_every_claim_it_makes():
    failed = [v.text for v in judge(CLAIMS, paper_rows()) if v.status != HELD]
    # 0.5512 / 0.0736 = 7.5: the one threshold that is stricter than the paper's table.
    assert failed == ["Structure's correct-donor error is more than ten times its own self error at h16"]


def test_no_claim_holds_when_all_arms_are_alike():
    same = {"drag_r2": 0.5, "between_within": 1.0, "gap": 0.01, "self_h16": 0.1, "correct_h16": 0.2}
    same |= {"self_h1": 0.1, "correct_h1": 0.2, "target_variance": 1.0}
    alike = [{"arm": row["arm"], "seed": row["seed"]} | same for row in paper_rows()]
    assert {v.status for v in judge(CLAIMS, alike)} == {FAILED}


def test_a_constant_context_does_not_predict_as_well_as_the_recipients_own():
    """Donors that say nothing cost nothing, right or wrong: no success of the right ones."""
    constant = [row | {"correct_h16": row["self_h16"], "gap": 0.0} for row in paper_rows()]
    verdicts = {v.text: v.status for v in judge(CLAIMS, constant)}
    assert verdicts["With Align + Cross a same-system donor's context predicts as well as the recipient's own"] != HELD
    assert verdicts[CLAIMS[7].text] != HELD


def test_a_smaller_embedding_is_no_better_prediction():
    """Errors and variances of Align + Cross fall together when its embedding shrinks."""
    shrunk = [
        row | {"self_h16": 0.1 * v, "target_variance": v}
        for row in paper_rows()
        for v in [0.01 if row["arm"] == "align-cross" else 1.0]
    ]
    verdicts = {v.text: v.status for v in judge(CLAIMS, shrunk)}
    assert verdicts["Align + Cross predicts its own future better than Structure does"] == FAILED


def test_a_claim_that_its_sources_cannot_test():
    """The reason is asked for over all sources at once, and stands with the bounds in place of a verdict."""

    def why(sources) -> str | None:
        return None if sum(arms["a"]["x"] for arms in sources) > 2.5 else f"{len(sources)} sources say too little"

    claim = dataclasses.replace(HIGHER, unless=why)
    (told,) = judge([claim], rows(0.1, 0.2))
    assert told.status == UNTESTED
    assert told.evidence == f"{HIGHER.shows}: 2 sources say too little"
    assert judge([claim], rows(0.1, 0.2, 0.15)) == judge([HIGHER], rows(0.1, 0.2, 0.15))
    (lacking,) = judge([dataclasses.replace(HIGHER, unless=lambda sources: sources[0]["c"])], rows(0.1, 0.2))
    assert lacking.status == UNTESTED
    assert "the rows lack 'c'" in lacking.evidence
