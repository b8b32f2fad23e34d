"""Does a recipient's own motion replace its donor's history? (`app:spring-recipient-evidence`)"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Interval, difference, mean_of
from sprii_train.analysis.value.curves import PREFIXES
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, stacked
from sprii_train.experiments.targets.within import has_arrays
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.page import Picture, Table, interval
from sprii_train.reports.value_figures import prefix_curves

READERS = {"null": "Null", "persistent": "Persistent", "oracle": "Oracle"}
SEED, DRAWS = 0, 4_000  # draws of the paper
LAST = PREFIXES[-1]


def _errors(rows: Sequence[Row], arm: str) -> dict[str, np.ndarray]:
    """`r0` → errors at h16 (S, R, N)."""
    grid = stacked(rows, "prefix", arm)[..., -1]
    return {f"r{r}": grid[:, i] for i, r in enumerate(PREFIXES)}


def _curve(rows: Sequence[Row], arm: str) -> dict[str, Interval]:
    """`r0`, …, and `change`, the last minus the first."""
    wanted = {f"r{r}": mean_of(f"r{r}") for r in PREFIXES} | {"change": difference(f"r{LAST}", "r0")}
    return system_bootstrap(_errors(rows, arm), wanted, seed=SEED, strata=rows[0]["prefix_strata"], draws=DRAWS)


def _tables(rows: Sequence[Row]) -> list[Table]:
    lines = []
    for group in arms_of(rows).values():
        for arm, label in READERS.items():
            found = _curve(group, arm)
            lines.append([group[0]["label"], label, *map(interval, found.values())])
    return [
        Table(
            "Error at h16 by observed transitions r of the recipient [95 % interval]",
            ["Source", "Reader", *(f"r = {r}" for r in PREFIXES), f"r = {LAST} minus r = 0"],
            lines,
            f"Moving queries of 100 development systems; stratified system bootstrap, {DRAWS:,} draws, conditional on "
            "the fitted models.",
        )
    ]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    group = next(iter(arms_of(rows).values()))
    curves = {label: [_curve(group, arm)[f"r{r}"] for r in PREFIXES] for arm, label in READERS.items()}
    return [
        Picture(
            "prefix",
            "Readers by observed transitions of the recipient",
            f"{group[0]['label']}: error at h16, with pointwise system intervals. Every reader is fitted for its r.",
            prefix_curves(PREFIXES, curves),
        )
    ]


def _ratio(first: tuple[str, int], second: tuple[str, int]) -> dict[str, Any]:
    """Measure and interval of the error of one reader at its r ÷ that of another."""

    def interval(arms: Arms) -> Interval | None:
        if not has_arrays(arms, ["align-cross"], "prefix"):
            return None
        row = arms["align-cross"]
        errors = {
            name: stacked([row], "prefix", arm)[:, PREFIXES.index(r), ..., -1]
            for name, (arm, r) in (("first", first), ("second", second))
        }
        return system_bootstrap(
            errors, {"": lambda m: m["first"] / m["second"]}, seed=SEED, strata=row["prefix_strata"], draws=DRAWS
        )[""]

    def measure(arms: Arms) -> float:
        above, below = (float(arms["align-cross"][f"{arm}_r{r}"]) for arm, r in (first, second))
        return above / below

    return {"measure": measure, "interval": interval, "ratio": True}


def _small_change(arm: str, paper: float) -> Claim:
    return Claim(
        f"Eight transitions of the recipient do not materially change the error of {READERS[arm]}",
        ("align-cross",),
        **_ratio((arm, LAST), (arm, 0)),
        what=f"ratio of errors, r = {LAST} to r = 0",
        above=0.94,
        below=1.06,
        paper=paper,
        null="holds too",
    )


CLAIMS = (
    _small_change("null", 0.996),
    _small_change("persistent", 0.997),
    _small_change("oracle", 0.949),
    Claim(
        "A donor's history is worth more than eight transitions of the recipient: Persistent at r = 0 is below Null at "
        "r = 8",
        ("align-cross",),
        **_ratio(("persistent", 0), ("null", LAST)),
        what="ratio of errors",
        below=0.95,
        paper=0.716,
        null=1.0,
    ),
    Claim(
        "True parameters leave room at every prefix below what the context gives: Oracle < Persistent < Null",
        ("align-cross",),
        **extreme(
            max,
            [_ratio((a, r), (b, r)) for r in PREFIXES for a, b in (("oracle", "persistent"), ("persistent", "null"))],
        ),
        what="largest of the ratios of errors Oracle ÷ Persistent and Persistent ÷ Null",
        below=0.95,
        paper="0.71 at r = 0 and r = 8",
        null=1.0,
    ),
)

SPRING_PREFIX_TARGETS = (
    Target(
        "app:spring-recipient-evidence",
        "SpringWorld: observed transitions of the recipient",
        (Group("spring", ("align-cross",), ("prefix",)),),
        _tables,
        CLAIMS,
        _pictures,
        "The paper prints r = 0 and r = 8 in the text and does not say which queries these are: ours are the moving "
        "ones, whose present is the 96th frame, and readers are fitted on moving training queries, which have eight "
        "transitions before their present. Frames come without their differences, so that r = 0 shows no motion; a "
        "recurrent reader (GRU) sees the features of the last r + 1 frames.",
    ),
)
