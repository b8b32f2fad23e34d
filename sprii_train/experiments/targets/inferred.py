"""Relations inferred from learned histories, against true and random ones (`app:inferred-relations`)."""

from collections.abc import Sequence

from sprii_train.analysis.bootstrap import recovery
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_table, value_of
from sprii_train.experiments.targets.geometry import interval_table
from sprii_train.experiments.targets.poke import FACTORS, SEED, factor_tables, native_table, r2_lead
from sprii_train.experiments.targets.within import times
from sprii_train.reports.claims import Claim, extreme
from sprii_train.reports.page import Table, interval

RELATIONS = ("g3", "inferred", "random-history")
GROUP = Group("poke", ("structure", *RELATIONS), ("development",))
"""With the teachers, which are trained anyway."""
MEASURED = (
    *((f"Probe R², {f}", f"centroid_ridge_{f}") for f in FACTORS),
    *((f"ρ {f}", f"rho_{f}") for f in FACTORS),
    ("Between/within ratio", "ratio"),
)


RATIO = {"Between/within": "validation.ratio"}


def _factors(rows: Sequence[Row]) -> list[Table]:
    return factor_tables(rows, "Relation")


def _task(rows: Sequence[Row]) -> list[Table]:
    return [
        spread_table(rows, "System separation", RATIO, first="Relation"),
        interval_table(rows, RATIO, first="Relation"),
        native_table(rows, "Relation"),
    ]


def _recovery(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    lines = []
    for heading, path in MEASURED:
        true, inferred, random = (
            [float(value_of(row, f"validation.{path}")) for row in groups.get(arm, ())] for arm in RELATIONS
        )
        told = "n.a.: needs the arms g3, inferred and random-history"
        if true and inferred and random:
            told = "n.a.: one source"
            if len(true) > 1:
                found = recovery(true=true, random=random, inferred=inferred, seed=SEED)
                told = interval(found.interval) if found.interval else found.reason
        paired = inferred and random
        change = sum(inferred) / len(inferred) - sum(random) / len(random) if paired else None
        lines.append([heading, "n.a." if change is None else f"{change:+.4f}", told])
    return [
        Table(
            "Inferred against RandomHistory, and recovery of the gap to True in percent",
            ["Measurement", "Inferred − RandomHistory", "Recovery [95 % interval]"],
            lines,
            "Validation systems; paired-source bootstrap of source means, not clipped.",
        )
    ]


FACTOR_CLAIM = Claim(
    "True relations make every factor more accessible than inferred ones",
    ("g3", "inferred"),
    **extreme(min, [r2_lead("g3", "inferred", f"centroid_ridge_{f}", "development") for f in FACTORS]),
    what="smallest difference in R²",
    above=0.02,
    paper=0.036,
    null=0.0,
)
RATIO_CLAIM = Claim(
    "True relations separate systems more than inferred ones",
    ("g3", "inferred"),
    **times("g3", "inferred", "validation.ratio"),
    what="ratio of ratios",
    above=1.5,
    paper=4.1,
    null=1.0,
)
STIFFNESS_CLAIM = Claim(
    "Inferred relations raise stiffness in the contexts above random histories",
    ("inferred", "random-history"),
    **r2_lead("inferred", "random-history", "centroid_ridge_stiffness", "development"),
    what="difference in R²",
    above=0.02,
    paper=0.055,
    null=0.0,
)

INFERRED_TARGETS = (
    Target(
        "tab:inferred-relation-factors",
        "PokeWorld: factors in contexts of history-inferred relations",
        (GROUP,),
        _factors,
        (FACTOR_CLAIM, STIFFNESS_CLAIM),
    ),
    Target(
        "tab:inferred-relation-task",
        "PokeWorld: separation and native prediction with inferred relations",
        (GROUP,),
        _task,
        (RATIO_CLAIM,),
    ),
    Target(
        "tab:inferred-relation-recovery",
        "PokeWorld: what inferred relations recover of the true ones' effect",
        (GROUP,),
        _recovery,
        (STIFFNESS_CLAIM, RATIO_CLAIM),
    ),
)
