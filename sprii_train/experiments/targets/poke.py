"""PokeWorld's tables: pair reliability, history budgets, shared factors, objectives, mismatches, inferred relations."""

from collections.abc import Sequence
from itertools import pairwise

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import difference
from sprii_train.analysis.use.direction import Projection, contrasts
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    arrays_of,
    spread_of,
    spread_table,
    stacked,
)
from sprii_train.reports.claims import Claim
from sprii_train.reports.page import Table, interval, spread

FACTORS = ("mass", "drag", "stiffness")
HORIZONS = (1, 4, 16)
SEED = 0


def _both(columns: dict[str, str], held_back: str) -> dict[str, str]:
    """The columns on validation and on held-back systems."""
    return {
        f"{heading}, {split}": f"{split}.{path}"
        for split in ("validation", held_back)
        for heading, path in columns.items()
    }


def _geometry(held_back: str, first: str):
    def tables(rows: Sequence[Row]) -> list[Table]:
        shown = {"Within": "within", "Between": "between", "Ratio": "ratio", "ρ drag": "rho_drag"}
        probes = {f"R² {f}": f"centroid_ridge_{f}" for f in FACTORS}
        return [
            spread_table(rows, "Geometry of contexts", _both(shown, held_back), first=first),
            spread_table(rows, "Ridge probes of centroids", _both(probes, held_back), first=first),
        ]

    return tables


LEAST = 0.05
"""The least change of ρ or R² that counts as one: differences of arms without information are smaller."""


def _ratio_rises(low: str, high: str) -> Claim:
    return Claim(
        f"The between/within ratio rises from {low} to {high}",
        (low, high),
        lambda a: a[high]["validation"]["ratio"] / a[low]["validation"]["ratio"],
        lambda v: v > 1.1,
        "ratio of ratios on validation systems (> 1.1; paper 3.6, then 3.8)",
    )


def _drag_rises(low: str, high: str) -> Claim:
    return Claim(
        f"Drag geometry rises from {low} to {high}",
        (low, high),
        lambda a: a[high]["validation"]["rho_drag"] - a[low]["validation"]["rho_drag"],
        lambda v: v > LEAST,
        f"difference of ρ on validation systems (> {LEAST}; paper 0.18, then 0.54)",
    )


ALPHAS = ("alpha-0", "alpha-0.5", "alpha-1")
ALPHA_CLAIMS = (
    *(claim(low, high) for claim in (_ratio_rises, _drag_rises) for low, high in pairwise(ALPHAS)),
    Claim(
        "Random pairs leave contexts without information: the ratio at α = 0 is near 1/8",
        ("alpha-0",),
        lambda a: a["alpha-0"]["validation"]["ratio"],
        lambda v: v < 0.3,
        "ratio (< 0.3; the paper's, of four histories a system, is 0.27)",
    ),
    Claim(
        "Drag can be read from centroids at α = 1 far better than at α = 0",
        ("alpha-0", "alpha-1"),
        lambda a: a["alpha-1"]["validation"]["centroid_ridge_drag"] - a["alpha-0"]["validation"]["centroid_ridge_drag"],
        lambda v: v > 0.2,
        "difference in R² (> 0.2; paper 0.70 in log drag)",
    ),
)

# --- shared factors ---


def _refinement(rows: Sequence[Row]) -> list[Table]:
    columns = {f"ρ {f}": f"rho_{f}" for f in FACTORS}
    return [spread_table(rows, "Partial geometry of contexts", _both(columns, "confirmation"))]


REFINEMENT_CLAIMS = (
    Claim(
        "G₁ organises contexts by mass more than G₂ does",
        ("g1", "g2"),
        lambda a: a["g1"]["confirmation"]["rho_mass"] - a["g2"]["confirmation"]["rho_mass"],
        lambda v: v > LEAST,
        "difference of ρ on confirmation systems (> 0.05; paper 0.493)",
    ),
    Claim(
        "G₂ organises contexts by drag more than G₁ does",
        ("g1", "g2"),
        lambda a: a["g2"]["confirmation"]["rho_drag"] - a["g1"]["confirmation"]["rho_drag"],
        lambda v: v > LEAST,
        "difference of ρ on confirmation systems (> 0.05; paper 0.715)",
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


ACCESSIBILITY_CLAIMS = tuple(
    Claim(
        f"{better.upper()} makes {factor} more accessible than {worse.upper()} does ({kind})",
        ("g1", "g2"),
        lambda a, better=better, worse=worse, path=f"centroid_{kind}_{factor}": (
            a[better]["validation"][path] - a[worse]["validation"][path]
        ),
        lambda v: v > LEAST,
        f"difference in R² (> 0.05; paper {paper})",
    )
    for kind, factor, better, worse, paper in (
        ("ridge", "mass", "g1", "g2", 0.456),
        ("ridge", "drag", "g2", "g1", 0.617),
        ("mlp", "mass", "g1", "g2", 0.500),
        ("mlp", "drag", "g2", "g1", 0.835),
    )
)


def _direction(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    columns = {
        "P(mass)": "P_mass",
        "P(drag)": "P_drag",
        "Wrong − matched, mass": "wrong_minus_matched_mass",
        "Wrong − matched, drag": "wrong_minus_matched_drag",
    }
    tables = [spread_table(rows, "Response of fixed predictors to wrong-factor donors, h16", columns, first="Relation")]
    if {"g1", "g2"} <= set(groups):
        g1, g2 = groups["g1"], groups["g2"]
        mass, drag = ((_projections(g1, f), _projections(g2, f)) for f in ("mass", "drag"))
        found = contrasts(mass, drag, seed=SEED)
        tables.append(
            Table(
                "Redirection",
                ["Contrast", "Difference [95 % interval]"],
                [[name, interval(each)] for name, each in found.items()],
                "Pooled within systems, sources equal; paired system bootstrap, 10,000 draws.",
            )
        )
    return tables


def _projections(group: Sequence[Row], factor: str) -> list[Projection]:
    kept = [arrays_of(row, "direction") for row in group]
    return [Projection(*(k[f"{factor}|{part}"] for part in ("systems", "numerators", "denominators"))) for k in kept]


DIRECTION_CLAIMS = (
    Claim(
        "A wrong-mass donor moves G₁'s predictions along the mass counterfactual more than G₂'s",
        ("g1", "g2"),
        lambda a: a["g1"]["P_mass"] - a["g2"]["P_mass"],
        lambda v: v > 0.01,
        "P(mass, G₁) − P(mass, G₂) (> 0.01; paper 0.042)",
    ),
    Claim(
        "A wrong-drag donor moves G₂'s predictions along the drag counterfactual more than G₁'s",
        ("g1", "g2"),
        lambda a: a["g2"]["P_drag"] - a["g1"]["P_drag"],
        lambda v: v > 0.01,
        "P(drag, G₂) − P(drag, G₁) (> 0.01; paper 0.172)",
    ),
)

# --- objectives, mismatches, inferred relations ---


def _factorial(rows: Sequence[Row]) -> list[Table]:
    columns = {f"ρ {f}": f"confirmation.rho_{f}" for f in FACTORS}
    columns |= {
        "Ratio": "confirmation.ratio",
        "Self h16": "confirmation.self_h16",
        "Target variance": "confirmation.variance_h16",
    }
    return [
        spread_table(
            rows,
            "Objective components on 400 confirmation systems",
            columns,
            note="Errors are in each source's own embedding: compare them beside the target's variance.",
        )
    ]


FACTORIAL_CLAIMS = (
    Claim(
        "Align separates systems far more than Structure and Cross do",
        ("structure", "align", "cross"),
        lambda a: (
            a["align"]["confirmation"]["ratio"]
            / max(a["structure"]["confirmation"]["ratio"], a["cross"]["confirmation"]["ratio"])
        ),
        lambda v: v > 2,
        "ratio of ratios (> 2; paper 11.6)",
    ),
)


def factor_table(rows: Sequence[Row], first: str) -> Table:
    """Probes and geometry of each factor, and separation, on validation systems."""
    columns = {f"R² {f}": f"validation.centroid_ridge_{f}" for f in FACTORS}
    columns |= {f"ρ {f}": f"validation.rho_{f}" for f in FACTORS} | {"Ratio": "validation.ratio"}
    return spread_table(rows, "Factors in the contexts of validation systems", columns, first=first)


def native_table(rows: Sequence[Row], first: str) -> Table:
    """Native errors at every horizon with the variance of their targets."""
    native = {f"h{h}": f"validation.self_h{h}" for h in HORIZONS} | {
        f"variance h{h}": f"validation.variance_h{h}" for h in HORIZONS
    }
    title, note = "Native error, and the variance of its target", "Each source has its own target space."
    return spread_table(rows, title, native, first=first, note=note)


def _per_factor(rows: Sequence[Row]) -> list[Table]:
    return [factor_table(rows, "Pairing"), native_table(rows, "Pairing")]


MISMATCH_CLAIMS = tuple(
    Claim(
        text,
        ("g3", arm),
        lambda a, arm=arm, factor=factor: (
            a[arm]["validation"][f"rho_{factor}"] - a["g3"]["validation"][f"rho_{factor}"]
        ),
        (lambda v: v < -LEAST) if falls else (lambda v: v > LEAST),
        f"change of ρ ({'< −' if falls else '> '}{LEAST}; paper {paper})",
    )
    for text, arm, factor, falls, paper in (
        ("Drag-only mismatch lowers drag geometry", "mismatch-drag", "drag", True, -0.350),
        ("Drag-only mismatch raises mass geometry", "mismatch-drag", "mass", False, 0.218),
        ("Mass-only mismatch lowers mass geometry", "mismatch-mass", "mass", True, -0.062),
        ("Mass-only mismatch raises drag geometry", "mismatch-mass", "drag", False, 0.235),
    )
)


POKE_TARGETS = (
    Target(
        "tab:fidelity-full",
        "PokeWorld: pair reliability α at eight histories a system",
        (Group("poke-r8", ALPHAS),),
        _geometry("test", "α"),
        ALPHA_CLAIMS,
        note="The paper's bank has four evaluation histories a system; this one has eight, so codes without "
        "information have a ratio of 1/8.",
    ),
    Target(
        "tab:pokeworld-geometry",
        "PokeWorld: independent histories a system, R2, R4 and R8",
        tuple(Group(f"poke-r{r}", ("align", "align-random")) for r in (2, 4, 8)),
        _geometry("test", "Relation and budget"),
        (),
    ),
    Target(
        "tab:refinement-full",
        "PokeWorld: relation refinement G₁, G₂, G₃",
        (Group("poke", ("structure", "g1", "g2", "g3", "align-random"), ("formation",), ("structure", "g1", "g2")),),
        _refinement,
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
        "fig:v3-poke-semantics",
        "PokeWorld: do wrong-factor donors redirect predictions?",
        (Group("poke", ("g1", "g2"), ("direction",)),),
        _direction,
        DIRECTION_CLAIMS,
    ),
    Target(
        "tab:factorial-confirmation",
        "PokeWorld: objective components",
        (Group("poke", ("structure", "align", "cross", "align-cross")),),
        _factorial,
        FACTORIAL_CLAIMS,
    ),
    Target(
        "tab:structured-mismatch-factors",
        "PokeWorld: structured relation errors",
        (Group("poke", ("g3", "mismatch-random", "mismatch-drag", "mismatch-mass")),),
        _per_factor,
        MISMATCH_CLAIMS,
    ),
)
