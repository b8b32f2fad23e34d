"""`ext:poke-frozen-pixels`, beyond the paper: PokeWorld's relations on a frozen stem of pixels, trained once."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sprii_envs.files import FileError, read_json
from sprii_train.analysis.formation import Curve
from sprii_train.experiments.stems import FrozenGroup
from sprii_train.experiments.targets.base import Row, Target, arms_of, spread_table, value_of
from sprii_train.experiments.targets.geometry import LEAST, interval_table
from sprii_train.experiments.targets.poke import accessibility_claims
from sprii_train.experiments.targets.poke_reliability import ALPHAS, GEOMETRY, over_alphas, printed_alphas
from sprii_train.experiments.targets.within import lead, r2_difference, times
from sprii_train.reports.claims import Claim
from sprii_train.reports.formation_figures import design_curves
from sprii_train.reports.page import Picture, Table, interval, number

LABEL = "ext:poke-frozen-pixels"
MEASURE = "validation"
TWINS = ("alpha-1-frozen", "alpha-1-end-to-end")
FACTORS = ("mass", "drag", "stiffness")
KINDS = ("ridge", "mlp")
ON_VALIDATION = {heading: f"validation.{name}" for heading, name in GEOMETRY.items()}
RISES = 1.02
"""The least ratio of ratios that counts as a rise."""


def tables(rows: Sequence[Row]) -> list[Table]:
    """Geometry along α, accessibility under G₁ and G₂, and the end-to-end arm beside its twin."""
    arms = arms_of([dict(row, world="") for row in rows])  # names of arms are of one bank each
    curve, refined, twins = ([row for name in names for row in arms.get(name, ())] for names in (
        ALPHAS, ("g1", "g2"), TWINS))  # fmt: skip
    probes = {f"R² {f}": f"validation.centroid_ridge_{f}" for f in FACTORS}
    found = []
    if curve:
        found += [
            interval_table(curve, ON_VALIDATION, first="α", of="validation"),
            spread_table(curve, "On validation systems, frozen stem", ON_VALIDATION | probes, first="α"),
        ]
    if refined:
        found.append(accessibility(arms))
    if twins:
        told = interval_table(twins, ON_VALIDATION, first="Stem", of="validation")
        note = "Both begin with the stem of the source; one leaves it frozen, as all other arms here, one moves it."
        found.append(Table("A few updates at α = 1, frozen or end to end", told.columns, told.rows, note))
    return found


def accessibility(arms: Mapping[str, Sequence[Row]]) -> Table:
    """By source: R² of both probes of mass and drag from centroids, and what G₂ has over G₁ of it."""
    lines = []
    pairs = [{"g1": a, "g2": b} for a in arms.get("g1", ()) for b in arms.get("g2", ()) if a["seed"] == b["seed"]]
    for pair in pairs:
        for kind in KINDS:
            for factor in ("mass", "drag"):
                probe = f"centroid_{kind}_{factor}"
                values = [value_of(pair[arm], f"validation.{probe}") for arm in ("g1", "g2")]
                over = r2_difference("g2", "g1", "validation", probe, MEASURE)(pair)
                told = "n.a." if over is None else interval(over)
                lines.append(
                    [
                        kind,
                        "log mass" if factor == "mass" else factor,
                        str(pair["g1"]["seed"]),
                        *map(number, values),
                        told,
                    ]
                )
    return Table(
        "Frozen centroid probes on validation systems",
        ["Probe", "Target", "Source", "G₁ R²", "G₂ R²", "Difference, G₂ − G₁ [95 % interval]"],
        lines,
        "Probes are fitted on training systems; intervals resample validation systems, conditional on the source.",
    )


# --- the figure ---

STATES = "poke-reliability-states"
"""The kept report of the same arms on numerical states, in the documentation of a checkout."""


def pictures(rows: Sequence[Row]) -> list[Picture]:
    """Ours from pixels, ours from states, and the paper's points, along α."""
    curve = [row for row in rows if row["arm"] in ALPHAS]
    if not curve:
        return []
    states, where = states_of(curve[0])
    ours = {
        heading: {"pixels, frozen stem": over_alphas(curve, path)}
        | ({"numerical states": over_alphas(states, path)} if states else {})
        for heading, path in ON_VALIDATION.items()
    }
    paper: dict[str, dict[str, Curve]] = {
        heading: {"the paper's, pixels end to end": printed_alphas(column + 1)}
        for column, heading in enumerate(GEOMETRY)
    }
    return [
        Picture(
            "alpha",
            "Geometry against pair reliability, from pixels and from states",
            "Validation systems, mean ± SD over sources at each share α of correct pairs. The stem is frozen here and "
            "trained end to end in the paper. Codes without information have a ratio of 1/8 here, with eight histories "
            f"a system, and 1/4 in the paper, with four. States: {where}.",
            design_curves(ours, paper, "share α of correct pairs", logarithmic=("Ratio",)),
        )
    ]


def states_of(row: Row) -> tuple[list[dict[str, Any]], str]:
    """Rows of `tab:fidelity-full` at the preset `states`, and whose: of the same folder, or kept in a checkout."""
    root = Path(row["folder"]).parents[1] if "folder" in row else None
    kept = Path(__file__).parents[3] / "docs" / "results" / STATES / "results.json"
    for path, where in (
        (root and root / "tab-fidelity-full" / "results.json", "this folder's report of tab:fidelity-full"),
        (kept, f"the kept report {STATES}"),
    ):
        if path is not None and path.exists():
            try:
                told = read_json(path, FileError)
            except FileError:
                continue
            if told.get("preset") == "states":
                found = [each for each in told.get("rows", ()) if each.get("arm") in ALPHAS and "validation" in each]
                if found:
                    return found, where
    return [], "no report of `sprii reproduce tab:fidelity-full --preset states` lies in this folder"


# --- statements ---

CLAIMS = (
    *(
        Claim(
            f"On a frozen stem the between/within ratio rises from {low} to {high}",
            (low, high),
            **times(high, low, "validation.ratio"),
            what="ratio of ratios on validation systems",
            above=RISES,
            paper="3.6, then 3.8",
            null=1.0,
        )
        for low, high in pairwise(ALPHAS)
    ),
    *(
        Claim(
            f"On a frozen stem drag geometry rises from {low} to {high}",
            (low, high),
            **lead(high, low, "validation.rho_drag"),
            what="difference of ρ on validation systems",
            above=LEAST,
            paper="0.18, then 0.54",
            null=0.0,
        )
        for low, high in pairwise(ALPHAS)
    ),
    *accessibility_claims("On a frozen stem ", MEASURE),
)

POKE_FROZEN_TARGETS = (
    Target(
        LABEL,
        "PokeWorld from pixels, on a frozen stem",
        (
            FrozenGroup("poke-frozen", (*ALPHAS, *TWINS), (MEASURE,), once=TWINS),
            FrozenGroup("poke-frozen-factorial", ("g1", "g2"), (MEASURE,)),
        ),
        tables,
        CLAIMS,
        pictures,
        "The paper trains end to end; here all arms of a source share a stem that saw no relation, but the one that "
        "says it is trained end to end.",
    ),
)
