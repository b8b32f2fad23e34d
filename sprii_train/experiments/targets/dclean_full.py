"""Table `tab:dclean-full`: what the objectives and the pairing relation make of an unobserved drag."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sprii_train.analysis.statistics import Spread, over_sources
from sprii_train.experiments.measures.held_out import columns, numbers_of
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of
from sprii_train.experiments.targets.within import by_row
from sprii_train.recipes import RECIPES
from sprii_train.records import read_rows
from sprii_train.reports import figures
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table, spread
from sprii_train.reports.paper import paper_table

LABEL, MEASURE = "tab:dclean-full", "held-out"
STORY = ("structure", "same-rollout", "align-cross", "align-random")
COLUMNS = {
    "drag_r2": "Drag R² ↑",
    "between_within": "Between/within ↑",
    "self_h16": "Self h16 ↓",
    "correct_h16": "Correct ↓",
    "gap": "Gap ↑",
    "target_variance": "Target variance",
}


def summarise(rows: Sequence[Row]) -> dict[str, dict[str, Spread]]:
    """Arm → column → mean ± SD over sources, of the columns that all of an arm's sources have."""
    return {
        arm: {
            column: over_sources([row[column] for row in own])
            for column in COLUMNS
            if all(row.get(column) is not None for row in own)
        }
        for arm, own in arms_of(rows).items()
    }


def _tables(rows: Sequence[Row]) -> list[Table]:
    paper = paper_table(LABEL)
    lines, grey = [], set()
    for arm, ours in summarise(rows).items():
        lines.append([RECIPES[arm].label, *(spread(ours.get(c)) for c in COLUMNS)])
        grey.add(len(lines))
        lines.append(["paper's", *(spread(paper.get(arm, {}).get(c)) for c in COLUMNS)])
    return [
        Table(
            "The table, beside the paper's (20,000 steps)",
            ["Arm", *COLUMNS.values()],
            lines,
            "Mean ± sample SD over sources (none for one source). Errors are mean squared errors in each arm's own "
            "embedding, so compare them beside the target's variance. Correct uses another episode of the same "
            "system as donor, Gap is shuffled-donor minus correct-donor error. The paper does not print "
            "between/within or the target's variance for this table.",
            frozenset(grey),
        )
    ]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    arms = arms_of(rows)
    labels = {arm: RECIPES[arm].label for arm in arms}
    first, sources = rows[0], len({row["seed"] for row in rows})
    budget = f"{first['steps']:,} steps, {sources} source{'s' if sources > 1 else ''}, {first['systems']} systems"
    panels = []
    for arm, own in arms.items():
        kept = arrays_of(own[0], MEASURE)
        panels.append((labels[arm], kept["xy"], kept["drag"], kept["shares"]))
    courses = [(row["arm"], labels[row["arm"]], read_rows(Path(row["folder"]) / "metrics.jsonl")) for row in rows]
    return [
        Picture(
            "summary",
            "Measures",
            "Bars are measured here, diamonds are the paper's.",
            figures.summary(labels, summarise(rows), paper_table(LABEL), budget, round(first["episodes_per_system"])),
        ),
        Picture(
            "atlas",
            "What the contexts look like",
            f"Colour is drag, which no observation shows. Source {first['seed']}; axes are the first two principal "
            "components of each arm.",
            figures.atlas(panels),
        ),
        Picture("curves", "Training", "Every source is a line.", figures.curves(courses)),
    ]


# Statements: each number is of rows, measured or made anew of the systems that a resample drew


def _judged(
    number: Callable[[Arms], Any], arms: tuple[str, ...], names: tuple[str, ...], *, ratio: bool = False
) -> dict[str, Any]:
    """What a claim takes of a number that is made, elementwise, of these numbers of the arms' rows."""

    def measure(rows: Arms) -> float:
        with np.errstate(all="ignore"):  # 0 / 0 is judged as no number
            return float(number({arm: {name: np.float64(rows[arm][name]) for name in names} for arm in arms}))

    interval = by_row(MEASURE, arms, number, lambda kept: columns(kept, names), lambda means: numbers_of(means, names))
    return {"arms": arms, "measure": measure, "interval": interval, "ratio": ratio}


def _least(rows: Arms, arms: Sequence[str], name: str) -> Any:
    return functools.reduce(np.minimum, (rows[arm][name] for arm in arms))


def _most(rows: Arms, arms: Sequence[str], name: str, of: Callable[[Any], Any] = lambda value: value) -> Any:
    return functools.reduce(np.maximum, (of(rows[arm][name]) for arm in arms))


def _right_donor(row: Row) -> Any:
    """What a same-system donor's context costs, as a share of what another system's does."""
    return (row["correct_h16"] - row["self_h16"]) / (row["correct_h16"] + row["gap"] - row["self_h16"])


def _own_errors(first: str, second: str) -> dict[str, Any]:
    """Ratio of two arms' self errors, each a share of the variance of its target: embeddings differ in scale."""

    def share(row: Row) -> Any:
        return row["self_h16"] / row["target_variance"]

    names = ("self_h16", "target_variance")
    return _judged(lambda a: share(a[first]) / share(a[second]), (first, second), names, ratio=True)


_WITHOUT = ("same-rollout", "align-random")
CLAIMS = (
    Claim(
        "Drag can be read from Structure and from Align + Cross far better than from same-rollout and Align–Random",
        **_judged(
            lambda a: _least(a, ("structure", "align-cross"), "drag_r2") - _most(a, _WITHOUT, "drag_r2"),
            ("structure", "align-cross", *_WITHOUT),
            ("drag_r2",),
        ),
        what="lowest of the former − highest of the latter R²",
        above=0.1,
        null=0.0,
    ),
    Claim(
        "Align + Cross makes drag more accessible than Structure",
        **_judged(
            lambda a: a["align-cross"]["drag_r2"] - a["structure"]["drag_r2"],
            ("structure", "align-cross"),
            ("drag_r2",),
        ),
        what="difference in R²",
        above=0.002,
        paper=0.0051,
        null=0.0,
    ),
    Claim(
        "With Align + Cross a same-system donor's context predicts as well as the recipient's own",
        **_judged(lambda a: _right_donor(a["align-cross"]), ("align-cross",), ("self_h16", "correct_h16", "gap")),
        what="cost of such a donor as a share of another system's at h16",
        above=-0.1,
        below=0.1,
        paper=0.0,
        null=1.0,
    ),
    Claim(
        "Structure's correct-donor error is more than ten times that of Align + Cross",
        **_judged(
            lambda a: a["structure"]["correct_h16"] / a["align-cross"]["correct_h16"],
            ("structure", "align-cross"),
            ("correct_h16",),
            ratio=True,
        ),
        what="ratio of correct-donor errors at h16",
        above=10,
        paper=36,
        null=1.0,
    ),
    Claim(
        "Structure's correct-donor error is more than ten times its own self error at the shortest horizon",
        **_judged(
            lambda a: a["structure"]["correct_h1"] / a["structure"]["self_h1"],
            ("structure",),
            ("correct_h1", "self_h1"),
            ratio=True,
        ),
        what="correct-donor ÷ self error at h1",
        above=10,
        null=1.0,
    ),
    Claim(
        "Structure's correct-donor error is more than ten times its own self error at h16",
        **_judged(
            lambda a: a["structure"]["correct_h16"] / a["structure"]["self_h16"],
            ("structure",),
            ("correct_h16", "self_h16"),
            ratio=True,
        ),
        what="correct-donor ÷ self error at h16",
        above=10,
        paper=7.5,
        null=1.0,
    ),
    Claim(
        "Contexts of Align + Cross are far more alike within a system than those of Structure, same-rollout and Random",
        **_judged(
            lambda a: a["align-cross"]["between_within"] / _most(a, ("structure", *_WITHOUT), "between_within"),
            ("structure", "align-cross", *_WITHOUT),
            ("between_within",),
            ratio=True,
        ),
        what="between/within of Align + Cross ÷ highest of the others",
        above=3,
        null=1.0,
    ),
    Claim(
        "Align–Random and same-rollout contexts hardly depend on the system: their gap is near zero",
        **_judged(
            lambda a: a["align-cross"]["gap"] - 10 * _most(a, _WITHOUT, "gap", abs),
            ("align-cross", *_WITHOUT),
            ("gap",),
        ),
        what="gap of Align + Cross − ten times the larger of the two",
        above=0,
        paper=0.03,
        null=0.0,
    ),
    Claim(
        "Align + Cross predicts its own future better than Structure does",
        **_own_errors("align-cross", "structure"),
        what="ratio of self errors at h16, each by the variance of its target",
        below=0.9,
        paper="0.21 of the errors themselves",
        null=1.0,
    ),
    Claim(
        "The relation, not the interface, is what helps: Align + Cross beats Align–Random in self error",
        **_own_errors("align-cross", "align-random"),
        what="ratio of self errors at h16, each by the variance of its target",
        below=0.9,
        paper="0.28 of the errors themselves",
        null=1.0,
    ),
)

D_CLEAN_FULL_TARGETS = (
    Target(
        LABEL,
        "D-Clean: objectives and relations",
        (Group("d-clean", tuple(RECIPES), (MEASURE,), STORY),),
        _tables,
        CLAIMS,
        _pictures,
        "Native loss on all windows; Cross in one direction; Align–Random pairs the same recipients with another "
        "system's episode.",
        fills=True,
    ),
)
