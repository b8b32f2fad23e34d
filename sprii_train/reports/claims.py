"""Statements of the paper as checks on measured rows: held, held in some sources, did not hold, not tested."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Arms = Mapping[str, Row]


@dataclass(frozen=True)
class Claim:
    """A statement about arms of one source.

    Attributes:
        text: the statement.
        arms: the arms it needs; `world/arm` where several worlds have the arm.
        measure: rows by arm → the number that decides.
        holds: whether that number satisfies the statement.
        shows: what the number is, for people.
    """

    text: str
    arms: tuple[str, ...]
    measure: Callable[[Arms], float]
    holds: Callable[[float], bool]
    shows: str


@dataclass(frozen=True)
class Verdict:
    """What was found for a claim, source by source."""

    text: str
    status: str
    evidence: str

    def as_dict(self) -> dict[str, str]:
        """For `results.json`."""
        return {"claim": self.text, "verdict": self.status, "evidence": self.evidence}


def judge(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Verdict]:
    """Judge every claim within each source that has all of its arms."""
    by_seed: dict[int, dict[str, Row]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {}).update(named(row))
    return [_judge(claim, by_seed) for claim in claims]


def named(row: Row) -> dict[str, Row]:
    """A row under the names that a claim may give it, its arm and `world/arm`."""
    arm = row["arm"]
    return {arm: row} | ({f"{row['world']}/{arm}": row} if "world" in row else {})


def _judge(claim: Claim, by_seed: Mapping[int, Arms]) -> Verdict:
    measured = {s: claim.measure(arms) for s, arms in sorted(by_seed.items()) if set(claim.arms) <= set(arms)}
    if not measured:
        return Verdict(
            claim.text,
            "not tested",
            f"needs the arms {', '.join(claim.arms)}",
        )
    held = sum(claim.holds(value) for value in measured.values())
    of = len(measured)
    if held == of:
        status = "held" if of > 1 else "held (one source)"
    elif held:
        status = f"held in {held} of {of} sources"
    else:
        status = "did not hold"
    values = ", ".join(f"{value:.3g}" for value in measured.values())
    return Verdict(claim.text, status, f"{claim.shows}: {values}")


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("inf")


D_CLEAN_CLAIMS = (
    Claim(
        "Drag can be read from Structure and from Align + Cross far better than from same-rollout and Align–Random",
        ("structure", "align-cross", "same-rollout", "align-random"),
        lambda a: (
            min(a["structure"]["drag_r2"], a["align-cross"]["drag_r2"])
            - max(a["same-rollout"]["drag_r2"], a["align-random"]["drag_r2"])
        ),
        lambda v: v > 0.1,
        "lowest of the former − highest of the latter R² (> 0.1)",
    ),
    Claim(
        "Align + Cross makes drag more accessible than Structure",
        ("structure", "align-cross"),
        lambda a: a["align-cross"]["drag_r2"] - a["structure"]["drag_r2"],
        lambda v: v > 0,
        "difference in R² (> 0)",
    ),
    Claim(
        "With Align + Cross a same-system donor's context predicts as well as the recipient's own",
        ("align-cross",),
        lambda a: _ratio(a["align-cross"]["correct_h16"], a["align-cross"]["self_h16"]),
        lambda v: abs(v - 1) <= 0.1,
        "correct-donor ÷ self error at h16 (within 10 % of 1)",
    ),
    Claim(
        "Structure's correct-donor error is more than ten times that of Align + Cross",
        ("structure", "align-cross"),
        lambda a: _ratio(a["structure"]["correct_h16"], a["align-cross"]["correct_h16"]),
        lambda v: v > 10,
        "ratio of correct-donor errors at h16 (> 10; paper 36)",
    ),
    Claim(
        "Structure's correct-donor error is more than ten times its own self error at the shortest horizon",
        ("structure",),
        lambda a: _ratio(a["structure"]["correct_h1"], a["structure"]["self_h1"]),
        lambda v: v > 10,
        "correct-donor ÷ self error at h1 (> 10)",
    ),
    Claim(
        "Structure's correct-donor error is more than ten times its own self error at h16",
        ("structure",),
        lambda a: _ratio(a["structure"]["correct_h16"], a["structure"]["self_h16"]),
        lambda v: v > 10,
        "correct-donor ÷ self error at h16 (> 10; paper 7.5)",
    ),
    Claim(
        "Contexts of Align + Cross are far more alike within a system than those of Structure, same-rollout and Random",
        ("structure", "align-cross", "same-rollout", "align-random"),
        lambda a: _ratio(
            a["align-cross"]["between_within"],
            max(a[arm]["between_within"] for arm in ("structure", "same-rollout", "align-random")),
        ),
        lambda v: v > 3,
        "between/within of Align + Cross ÷ highest of the others (> 3)",
    ),
    Claim(
        "Align–Random and same-rollout contexts hardly depend on the system: their gap is near zero",
        ("align-cross", "same-rollout", "align-random"),
        lambda a: _ratio(max(a["same-rollout"]["gap"], a["align-random"]["gap"]), a["align-cross"]["gap"]),
        lambda v: v < 0.1,
        "larger of the two gaps ÷ gap of Align + Cross (< 0.1)",
    ),
    Claim(
        "Align + Cross predicts its own future better than Structure does",
        ("structure", "align-cross"),
        lambda a: _ratio(a["align-cross"]["self_h16"], a["structure"]["self_h16"]),
        lambda v: v < 1,
        "ratio of self errors at h16, each in its own embedding (< 1; paper 0.21)",
    ),
    Claim(
        "The relation, not the interface, is what helps: Align + Cross beats Align–Random in self error",
        ("align-cross", "align-random"),
        lambda a: _ratio(a["align-cross"]["self_h16"], a["align-random"]["self_h16"]),
        lambda v: v < 1,
        "ratio of self errors at h16 (< 1; paper 0.28)",
    ),
)
