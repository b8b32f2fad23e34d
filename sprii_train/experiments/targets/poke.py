"""PokeWorld's tables: shared factors, objectives, structured mismatches (`app:poke-formation`)."""

import math
from collections.abc import Sequence
from typing import Any

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import difference, over_sources
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    spread_of,
    spread_table,
    stacked,
    value_of,
)
from sprii_train.experiments.targets.geometry import LEAST, both_splits, interval_table
from sprii_train.experiments.targets.within import lead, own, r2_difference, times
from sprii_train.reports.claims import Claim, extreme
from sprii_train.reports.formation_figures import changes
from sprii_train.reports.page import Picture, Table, interval, spread
from sprii_train.reports.paper import paper_panels

FACTORS = ("mass", "drag", "stiffness")
HORIZONS = (1, 4, 16)
SEED = 0


# --- shared factors ---

REFINED = ("structure", "g1", "g2", "g3", "align-random")


def refinement_tables(rows: Sequence[Row]) -> list[Table]:
    columns = both_splits({f"ρ {f}": f"rho_{f}" for f in FACTORS}, "confirmation")
    return [spread_table(rows, "Partial geometry of contexts", columns), interval_table(rows, columns)]


REFINEMENT_CLAIMS = (
    *(
        Claim(
            f"{name} organises contexts by {factor} more than {other} does",
            (better, worse),
            **lead(better, worse, f"confirmation.rho_{factor}"),
            what="difference of ρ on confirmation systems",
            above=LEAST,
            paper=paper,
            null=0.0,
        )
        for name, other, better, worse, factor, paper in (
            ("G₁", "G₂", "g1", "g2", "mass", 0.493),
            ("G₂", "G₁", "g2", "g1", "drag", 0.715),
            ("G₂", "G₃", "g2", "g3", "drag", 0.319),
        )
    ),
    Claim(
        "Random pairs leave contexts without the geometry of any factor",
        ("align-random",),
        **extreme(max, [own("align-random", f"confirmation.rho_{factor}") for factor in FACTORS]),
        what="largest ρ on confirmation systems",
        below=0.1,
        paper=0.044,
        null="that is the statement",
    ),
)


def _accessibility(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    lines = []
    for kind in ("ridge", "mlp"):
        for factor in ("mass", "drag"):
            path = f"centroid_{kind}_{factor}"
            cells = [
                spread(spread_of(groups[arm], f"validation.{path}")) if arm in groups else "n.a."
                for arm in ("g1", "g2")
            ]
            contrast = "n.a."
            if {"g1", "g2"} <= set(groups):
                errors = {arm: stacked(groups[arm], "formation", f"validation|{path}") for arm in ("g1", "g2")}
                contrast = interval(system_bootstrap(errors, {"": difference("g2", "g1")}, seed=SEED)[""])
            lines.append([kind, "log mass" if factor == "mass" else factor, *cells, contrast])
    return [
        Table(
            "Frozen centroid probes on 400 validation systems",
            ["Probe", "Target", "G₁ R²", "G₂ R²", "Squared error, G₂ − G₁ [95 % interval]"],
            lines,
            "Probes are fitted on training systems; intervals resample systems, 10,000 draws; positive favours G₁.",
        )
    ]


def r2_lead(better: str, worse: str, probe: str, measure: str = "formation") -> dict[str, Any]:
    """Measure and interval of one arm's R² minus another's on validation systems."""
    return {
        "measure": lambda a: a[better]["validation"][probe] - a[worse]["validation"][probe],
        "interval": r2_difference(better, worse, "validation", probe, measure),
    }


def accessibility_claims(where: str = "", measure: str = "formation") -> tuple[Claim, ...]:
    """G₁ and G₂ swap what is accessible (`tab:v3-poke-accessibility`); `where` begins each statement."""
    return tuple(
        Claim(
            f"{where}{better.upper()} makes {factor} more accessible than {worse.upper()} does ({kind})",
            ("g1", "g2"),
            **r2_lead(better, worse, f"centroid_{kind}_{factor}", measure),
            what="difference in R²",
            above=LEAST,
            paper=paper,
            null=0.0,
        )
        for kind, factor, better, worse, paper in (
            ("ridge", "mass", "g1", "g2", 0.456),
            ("ridge", "drag", "g2", "g1", 0.617),
            ("mlp", "mass", "g1", "g2", 0.500),
            ("mlp", "drag", "g2", "g1", 0.835),
        )
    )


ACCESSIBILITY_CLAIMS = accessibility_claims()


# --- objectives, mismatches, inferred relations ---


COMPONENTS = ("structure", "align", "cross", "align-cross")
CONFIRMED = {f"ρ {f}": f"confirmation.rho_{f}" for f in FACTORS} | {"Ratio": "confirmation.ratio"}


def factorial_tables(rows: Sequence[Row]) -> list[Table]:
    return [
        spread_table(
            rows,
            "Objective components on 400 confirmation systems",
            CONFIRMED | {"Self h16": "confirmation.self_h16", "Target variance": "confirmation.variance_h16"},
            note="Errors are in each source's own embedding: compare them beside the target's variance.",
        ),
        interval_table(rows, CONFIRMED),
    ]


FACTORIAL_CLAIMS = (
    Claim(
        "Align separates systems far more than Structure and Cross do",
        ("structure", "align", "cross"),
        **extreme(min, [times("align", arm, "confirmation.ratio") for arm in ("structure", "cross")]),
        what="smaller of the two ratios of ratios",
        above=2,
        paper=11.6,
        null=1.0,
    ),
    Claim(
        "Align organises contexts by drag far more than Structure does",
        ("structure", "align"),
        **lead("align", "structure", "confirmation.rho_drag"),
        what="difference of ρ on confirmation systems",
        above=0.2,
        paper=0.590,
        null=0.0,
    ),
    Claim(
        "Cross alone changes drag geometry little",
        ("structure", "cross"),
        **lead("cross", "structure", "confirmation.rho_drag"),
        what="difference of ρ on confirmation systems",
        above=-0.1,
        below=0.1,
        paper=0.038,
        null="holds too",
    ),
    Claim(
        "Cross leaves what Align organises: drag geometry with both is that of Align",
        ("align", "align-cross"),
        **lead("align-cross", "align", "confirmation.rho_drag"),
        what="difference of ρ on confirmation systems",
        above=-LEAST,
        below=LEAST,
        paper=0.007,
        null="holds too",
    ),
)


def factor_tables(rows: Sequence[Row], first: str) -> list[Table]:
    """Probes and geometry of each factor, and separation, on validation systems; the latter two with intervals."""
    geometry = {f"ρ {f}": f"validation.rho_{f}" for f in FACTORS} | {"Ratio": "validation.ratio"}
    columns = {f"R² {f}": f"validation.centroid_ridge_{f}" for f in FACTORS} | geometry
    return [
        spread_table(rows, "Factors in the contexts of validation systems", columns, first=first),
        interval_table(rows, geometry, first=first),
    ]


def native_table(rows: Sequence[Row], first: str) -> Table:
    """Native errors at every horizon with the variance of their targets."""
    native = {f"h{h}": f"validation.self_h{h}" for h in HORIZONS} | {
        f"variance h{h}": f"validation.variance_h{h}" for h in HORIZONS
    }
    title, note = "Native error, and the variance of its target", "Each source has its own target space."
    return spread_table(rows, title, native, first=first, note=note)


def _per_factor(rows: Sequence[Row]) -> list[Table]:
    return [*factor_tables(rows, "Pairing"), native_table(rows, "Pairing")]


MISMATCH_CLAIMS = tuple(
    Claim(
        text,
        ("g3", arm),
        **lead(arm, "g3", f"validation.rho_{factor}"),
        what="change of ρ",
        above=-math.inf if falls else LEAST,
        below=-LEAST if falls else math.inf,
        paper=paper,
        null=0.0,
    )
    for text, arm, factor, falls, paper in (
        ("Drag-only mismatch lowers drag geometry", "mismatch-drag", "drag", True, -0.350),
        ("Drag-only mismatch raises mass geometry", "mismatch-drag", "mass", False, 0.218),
        ("Mass-only mismatch lowers mass geometry", "mismatch-mass", "mass", True, -0.062),
        ("Mass-only mismatch raises drag geometry", "mismatch-mass", "drag", False, 0.235),
    )
)


MISMATCHED = ("mismatch-random", "mismatch-drag", "mismatch-mass")
CHANGED = {"Probe R²": "validation.centroid_ridge_", "Partial ρ": "validation.rho_"}
NAMES = {"Random mismatch": "Random", "Drag-only mismatch": "Drag-only", "Mass-only mismatch": "Mass-only"}


def changes_of(rows: Sequence[Row], path: str) -> dict[str, dict[str, list[float]]]:
    """Mismatch → factor → change from correct pairing in every source that has both."""
    groups = arms_of(rows)
    correct = {row["seed"]: row for row in groups.get("g3", ())}
    found = {}
    for arm in MISMATCHED:
        paired = [(row, correct[row["seed"]]) for row in groups.get(arm, ()) if row["seed"] in correct]
        if paired:
            found[NAMES[paired[0][0]["label"]]] = {
                f: [float(value_of(a, f"{path}{f}")) - float(value_of(b, f"{path}{f}")) for a, b in paired]
                for f in FACTORS
            }
    return found


def _changes(rows: Sequence[Row]) -> list[Table]:
    found = {heading: changes_of(rows, path) for heading, path in CHANGED.items()}
    lines = [
        [arm, factor, *(spread(over_sources(found[heading][arm][factor])) for heading in CHANGED)]
        for arm in found["Partial ρ"]
        for factor in FACTORS
    ]
    title = "Change from correct pairing, paired by source"
    changed = [Table(title, ["Mismatch", "Factor", *CHANGED], lines)] if lines else []
    return [*changed, *factor_tables(rows, "Pairing")]


def _change_picture(rows: Sequence[Row]) -> list[Picture]:
    panels = {heading: changes_of(rows, path) for heading, path in CHANGED.items()}
    if not panels["Partial ρ"]:
        return []
    return [
        Picture(
            "changes",
            "Structured mismatches redistribute factor organization",
            "Paired-source change from correct pairing; bars: means, dots: sources, diamonds: the paper's means.",
            changes(panels, _printed_changes()),
        )
    ]


def _printed_changes() -> dict[str, dict[str, dict[str, float]]]:
    cells = {
        (pairing, factor.lower()): [float(cell.split(" ")[0]) for cell in measured]
        for pairing, factor, *measured in paper_panels("tab:structured-mismatch-factors")[0][1:]
    }
    return {
        heading: {
            name: {f: cells[label, f][i] - cells["Correct", f][i] for f in FACTORS} for label, name in NAMES.items()
        }
        for i, heading in enumerate(CHANGED)
    }


ACCESS_CLAIM = Claim(
    "Mass-only mismatch does not lower what a probe reads of mass",
    ("g3", "mismatch-mass"),
    **r2_lead("mismatch-mass", "g3", "centroid_ridge_mass", "development"),
    what="change of R²",
    above=-LEAST,
    paper=0.014,
    null=lambda a: -a["g3"]["validation"]["centroid_ridge_mass"],
)

POKE_TARGETS = (
    Target(
        "tab:refinement-full",
        "PokeWorld: relation refinement G₁, G₂, G₃",
        (Group("poke", REFINED),),
        refinement_tables,
        REFINEMENT_CLAIMS,
    ),
    Target(
        "tab:v3-poke-accessibility",
        "PokeWorld: the G₁/G₂ accessibility shift",
        (Group("poke", ("g1", "g2")),),
        _accessibility,
        ACCESSIBILITY_CLAIMS,
    ),
    Target(
        "tab:factorial-confirmation",
        "PokeWorld: objective components",
        (Group("poke", COMPONENTS),),
        factorial_tables,
        FACTORIAL_CLAIMS,
    ),
    Target(
        "tab:structured-mismatch-factors",
        "PokeWorld: structured relation errors",
        (Group("poke", ("g3", *MISMATCHED), ("development",)),),
        _per_factor,
        MISMATCH_CLAIMS,
    ),
    Target(
        "fig:structured-mismatch-differences",
        "PokeWorld: what structured relation errors change",
        (Group("poke", ("g3", *MISMATCHED), ("development",)),),
        _changes,
        (*MISMATCH_CLAIMS, ACCESS_CLAIM),
        _change_picture,
    ),
)
