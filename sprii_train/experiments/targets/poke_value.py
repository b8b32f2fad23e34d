"""PokeWorld's tables of Value: readers by component, factor-targeted utility, routes by pair reliability."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import source_system_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Interval, bonferroni, difference, reduction
from sprii_train.analysis.value.targeted import TargetedUtility, targeted_utility
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
from sprii_train.experiments.targets.geometry import LEAST, interval_table
from sprii_train.experiments.targets.within import by_system, has_arrays, lead
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.value_figures import contrast_intervals
from sprii_train.settings.poke import POKE

SEED = 0
COMPONENTS = tuple(POKE.components)

DONOR_PROBES = (
    "Of distinct donor windows of validation systems, systems equal. Ridge has coefficient 1 and all training systems; "
    "MLP probes select their penalty within 400 training systems, and are fitted on those."
)


def contact_table(rows: Sequence[Row], first: str) -> Table:
    """AUROC of a transient in the codes of donor windows."""
    return spread_table(
        rows,
        "Contact, a transient",
        {"AUROC, donors' codes": "donor_contact"},
        first=first,
        note="Whether the discs touched in the last step of a donor window: a logistic probe of its code, fitted on "
        "training systems; 0.5 is chance. The paper names the measure and prints no number of it.",
    )


# --- component readers ---

R8 = "alpha-1"
READERS = {"null": "Null", "persistent": "Persistent", "shuffled": "Shuffled", "oracle": "Oracle"}
CONTRASTS = {
    "Null − Persistent": difference("null", "persistent"),
    "Null − Oracle": difference("null", "oracle"),
    "Shuffled − Persistent": difference("shuffled", "persistent"),
}
ADJUSTED = bonferroni(len(CONTRASTS))
_TOLD = {name: name.replace("_", " ") for name in COMPONENTS}


def _grids(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Reader → errors (S, R, N, 4)."""
    return {arm: stacked(rows, "components", arm) for arm in READERS}


def _component_gains(rows: Sequence[Row], arm: str) -> dict[str, Interval]:
    grids = _grids(rows)
    return {
        _TOLD[name]: system_bootstrap(
            {key: grids[key][..., i] for key in ("null", arm)}, {"": difference("null", arm)}, seed=SEED
        )[""]
        for i, name in enumerate(COMPONENTS)
    }


def _frozen_head(rows: Sequence[Row]) -> list[Table]:
    whole = {arm: grid.mean(-1) for arm, grid in _grids(rows).items()}
    found = system_bootstrap(whole, CONTRASTS, seed=SEED, level=ADJUSTED)
    gains = {arm: _component_gains(rows, arm) for arm in ("persistent", "oracle")}
    return [
        Table(
            "A. Aggregate h16 MSE on 400 validation systems, 16 cases each",
            ["Arm", "MSE"],
            [[label, spread(spread_of(rows, f"{arm}_h16"))] for arm, label in READERS.items()],
        ),
        Table(
            "B. Aggregate contrasts",
            ["Contrast", "Difference [adjusted 95 % interval]"],
            [[name, interval(each)] for name, each in found.items()],
            "Paired system bootstrap, 10,000 draws; Bonferroni over the three.",
        ),
        Table(
            "C. Components: error of Null minus error of",
            ["Component", "Persistent [95 % interval]", "Oracle [95 % interval]"],
            [[name, *(interval(gains[arm][name]) for arm in gains)] for name in _TOLD.values()],
            "Pointwise; positive favours the reader with a context.",
        ),
        spread_table(
            rows,
            "D. What log drag can be read from: R²",
            {
                "Donors' codes, ridge": "donor_drag",
                "Donors' codes, MLP": "donor_mlp_drag",
                "Recipients' present features, ridge": "query_drag",
            },
            first="Source",
            note=DONOR_PROBES,
        ),
        contact_table(rows, "Source"),
    ]


def _component_picture(rows: Sequence[Row]) -> list[Picture]:
    return [
        Picture(
            "components",
            "Where persistent context helps",
            "Error of Null minus error of Persistent at h16 by component, with pointwise system intervals.",
            contrast_intervals(_component_gains(rows, "persistent"), "Null − Persistent"),
        )
    ]


def _of(name: str, *arms: str) -> dict[str, tuple[str, str]]:
    """Conditions of a bootstrap by reader; a component's errors are picked by `_component`."""
    return {arm: (name, arm) for arm in arms}


def _component(name: str | None) -> Callable[[np.ndarray], np.ndarray]:
    return lambda errors: errors.mean(-1) if name is None else errors[..., COMPONENTS.index(name)]


def _gain_share(means: Mapping[str, Any]) -> Any:
    return 100 * (means["null"] - means["persistent"]) / means["null"]


def _gain_claim(text: str, name: str | None, **bounds: Any) -> Claim:
    middle = f"_{name}" if name else ""
    return Claim(
        text,
        (R8,),
        lambda a: _gain_share({arm: a[R8][f"{arm}{middle}_h16"] for arm in ("null", "persistent")}),
        "reduction of Null's error in percent",
        interval=by_system("components", _gain_share, _of(R8, "null", "persistent"), at=_component(name)),
        **bounds,
    )


FROZEN_CLAIMS = (
    _gain_claim(
        "In the aggregate persistent context changes little: less than 1 % of Null's error",
        None, above=-1, below=1, paper=0.057, null="holds too",
    ),
    _gain_claim("Object-position error falls", "object_position", above=0.1, null=0.0),
    _gain_claim("Object-velocity error falls", "object_velocity", above=0.1, null=0.0),
    _gain_claim("Finger-position error rises", "finger_position", below=-0.1, null=0.0),
    Claim(
        "Matched context beats a reader fitted with wrong contexts",
        (R8,),
        lambda a: 100 * (a[R8]["shuffled_h16"] - a[R8]["persistent_h16"]) / a[R8]["shuffled_h16"],
        "reduction of Shuffled's error in percent",
        above=0.05,
        paper=0.14,
        null=0.0,
        interval=by_system(
            "components",
            reduction("persistent", denominator="shuffled"),
            _of(R8, "shuffled", "persistent"),
            at=_component(None),
        ),
    ),
    Claim(
        "Drag can be read from donors' windows far better than from the recipients' presents",
        (R8,),
        lambda a: a[R8]["donor_drag"] - a[R8]["query_drag"],
        "difference in R²",
        above=0.3,
        paper="about 0.62",
        null=0.0,
    ),
)  # fmt: skip

# --- factor-targeted utility ---

PROBED = {
    f"{factor.label}, {kind}": f"donor_{key}{factor.name}"
    for kind, key in (("ridge", ""), ("MLP", "mlp_"))
    for factor in POKE.donor_factors
}


def slopes_of(g1: Sequence[Row], g2: Sequence[Row], measure: str = "targeted") -> TargetedUtility:
    """Slopes of the sources of two relations, of the systems that a measure keeps errors and dominance of."""
    first, second = ((stacked(g, measure, "null"), stacked(g, measure, "persistent")) for g in (g1, g2))
    return targeted_utility(first, second, arrays_of(g1[0], measure)["dominance"], seed=SEED)


def _targeted(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    tables = [
        spread_table(
            rows,
            "B. Probes of the donor windows' codes, validation R²",
            PROBED,
            first="Relation",
            note=DONOR_PROBES,
        ),
        contact_table(rows, "Relation"),
        spread_table(
            rows,
            "Reader errors at h16",
            {"Null": "null_h16", "Persistent": "persistent_h16"},
            first="Relation",
        ),
    ]
    if {"g1", "g2"} <= set(groups):
        found = slopes_of(groups["g1"], groups["g2"])
        seeds = [str(row["seed"]) for row in groups["g1"]]
        slopes = Table(
            "A. Slope of ΔU on sensitivity dominance",
            [*(f"Source {seed}" for seed in seeds), "Mean [95 % interval]"],
            [[*(number(float(slope)) for slope in found.sources), interval(found.mean)]],
            "ΔU is G₁'s gain of Persistent over Null minus G₂'s; dominance is how much more a system's cases depend on "
            "mass than on drag. System bootstrap, 10,000 draws.",
        )
        tables.insert(0, slopes)
    return tables


def _slope(arms: Arms) -> Interval | None:
    if not has_arrays(arms, ("g1", "g2"), "targeted"):
        return None
    return slopes_of([arms["g1"]], [arms["g2"]]).mean


TARGETED_CLAIMS = (
    Claim(
        "G₁'s context gains where mass matters more: the slope is positive in each source",
        ("g1", "g2"),
        lambda a: float(slopes_of([a["g1"]], [a["g2"]]).sources[0]),
        "slope",
        above=0,
        paper="0.0028, its interval spans 0",
        null=0.0,
        interval=_slope,
    ),
    *(
        Claim(
            f"{name} retains higher {factor} readout in the actual donor windows",
            ("g1", "g2"),
            lambda a, better=better, worse=worse, key=f"donor_{factor}": a[better][key] - a[worse][key],
            "difference in R²",
            above=LEAST,
            paper=paper,
            null=0.0,
        )
        for name, factor, better, worse, paper in (
            ("G₁", "mass", "g1", "g2", 0.136),
            ("G₂", "drag", "g2", "g1", 0.664),
        )
    ),
)

# --- routes by reliability ---

ALPHAS = ("alpha-0", "alpha-0.5", "alpha-1")
MILLI = 1e-3
BUDGETS = ("short", "long")
GAIN = {"": difference("m1", "m2")}


def _gain_interval(group: Sequence[Row], name: str) -> Interval:
    """Over sources and systems; over systems alone where there is one source."""
    errors = {route: stacked(group, "routes", f"{route}|{name}") / MILLI for route in ("m1", "m2")}
    if len(group) == 1:
        return system_bootstrap(errors, GAIN, seed=SEED, draws=5_000)[""]
    return source_system_bootstrap(errors, GAIN, seed=SEED)[""]


def _alpha(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    updates = {name: f"{rows[0][f'updates_{name}']:,}" for name in BUDGETS}
    unit = next(iter(_gain_interval(group, "long") for group in groups.values())).unit
    summary = []
    for group in groups.values():
        gains = {name: _gain_interval(group, name) for name in BUDGETS}
        summary.append(
            [
                group[0]["label"],
                spread(spread_of(group, "validation.ratio")),
                spread(spread_of(group, "donor_drag")),
                f"{gains['short'].estimate:+.3f}",
                f"{gains['long'].estimate:+.3f}",
                f"[{gains['long'].low:+.3f}, {gains['long'].high:+.3f}]",
            ]
        )
    sources = [
        [group[0]["label"], updates[name], *(f"{row[f'gain_{name}'] / MILLI:+.3f}" for row in group)]
        for name in BUDGETS
        for group in groups.values()
    ]
    most = max(len(group) for group in groups.values())
    errors = {
        f"{label}, {updates[name]}": f"{route}_{name}"
        for name in BUDGETS
        for route, label in (("r0", "R0"), ("m1", "M1"), ("m2", "M2"), ("m2-wrong", "M2, wrong donor"))
    }
    return [
        Table(
            "A. Organisation, accessibility and reader value at h16",
            [
                "Pairs", "B/W", "R² log γ", f"Gain, {updates['short']} updates", f"Gain, {updates['long']} updates",
                "95 % interval",
            ],
            summary,
            f"Gain is E(M1) − E(M2) in 10⁻³; intervals resample {unit}s, 5,000 draws.",
        ),
        Table(
            "B. Gain by source, in 10⁻³",
            ["Pairs", "Reader updates", *(f"Source {i}" for i in range(most))],
            [[*line, *["n.a."] * (most + 2 - len(line))] for line in sources],
        ),
        interval_table(rows, {"B/W": "validation.ratio"}, first="Pairs"),
        spread_table(rows, "Errors at h16", errors, first="Pairs"),
    ]  # fmt: skip


def _gained(row: Row, name: str) -> float:
    return float(row[f"gain_{name}"]) / MILLI


def _longer(arm: str, route: str) -> dict[str, Any]:
    """Measure and interval of a route's error after the larger budget ÷ after the smaller."""
    keys = {name: (arm, f"{route}|{name}") for name in BUDGETS}
    return {
        "measure": lambda a: a[arm][f"{route}_long"] / a[arm][f"{route}_short"],
        "interval": by_system("routes", lambda m: m["long"] / m["short"], keys),
        "ratio": True,
    }


_LONG = {route: ("alpha-1", f"{route}|long") for route in ("m1", "m2")}
ALPHA_CLAIMS = (
    Claim(
        "The between/within ratio rises from α = 0 to α = 1",
        ("alpha-0", "alpha-1"),
        **lead("alpha-1", "alpha-0", "validation.ratio"),
        what="difference",
        above=LEAST,
        paper=3.5,
        null=0.0,
    ),
    Claim(
        "Accessibility of log drag in donors' windows rises from α = 0 to α = 1",
        ("alpha-0", "alpha-1"),
        lambda a: a["alpha-1"]["donor_drag"] - a["alpha-0"]["donor_drag"],
        "difference in R²",
        above=LEAST,
        paper=0.70,
        null=0.0,
    ),
    Claim(
        "Stronger formation does not ensure reader value: at α = 1 and the larger budget M2 gains nothing over M1",
        ("alpha-1",),
        lambda a: _gained(a["alpha-1"], "long"),
        "gain in 10⁻³",
        below=0,
        paper=-6.3,
        null="holds too",
        interval=by_system("routes", lambda m: (m["m1"] - m["m2"]) / MILLI, _LONG),
    ),
    Claim(
        "A larger reader budget lowers the error of both routes at every α",
        ALPHAS,
        **extreme(max, [_longer(arm, route) for arm in ALPHAS for route in ("m1", "m2")]),
        what="largest ratio of errors",
        below=1,
        null="no contexts",
    ),
)

# --- object-only routes ---


def _update(group: Sequence[Row]) -> Interval:
    """M2 − M1, systems resampled."""
    errors = {route: stacked(group, "object-routes", route) for route in ("m1", "m2")}
    return system_bootstrap(errors, {"": difference("m2", "m1")}, seed=SEED)[""]


def _object(rows: Sequence[Row]) -> list[Table]:
    routes = {"M2": "m2_h16", "M1": "m1_h16", "Recipient-only": "r0_h16"}
    contrasts = [[group[0]["label"], interval(_update(group))] for group in arms_of(rows).values()]
    return [
        spread_table(rows, "Object-state MSE at h16 on 400 validation systems", routes, first="Source"),
        Table(
            "M2 − M1",
            ["Source", "Difference [95 % interval]"],
            contrasts,
            "Paired system bootstrap, 10,000 draws, conditional on the fits.",
        ),
    ]


def _more(arm: str) -> dict[str, Any]:
    """Measure and interval of M2's error minus M1's in percent of M1's."""

    def percent(means: Mapping[str, Any]) -> Any:
        return 100 * (means["m2"] - means["m1"]) / means["m1"]

    return {
        "measure": lambda a: percent({route: a[arm][f"{route}_h16"] for route in ("m1", "m2")}),
        "interval": by_system("object-routes", percent, {route: (arm, route) for route in ("m1", "m2")}),
    }


OBJECT_CLAIMS = (
    Claim(
        "On R8 persistent context recovers nothing that matters: M2 and M1 differ by less than 2 percent",
        (R8,),
        **_more(R8),
        what="M2 − M1 in percent of M1",
        above=-2,
        below=2,
        paper=-0.17,
        null="holds too",
    ),
    Claim(
        "On G₂ M2 has the higher mean error",
        ("g2",),
        **_more("g2"),
        what="M2 − M1 in percent of M1",
        above=0.1,
        paper=0.52,
        null="holds too",
    ),
)

POKE_VALUE_TARGETS = (
    Target(
        "tab:frozen-head",
        "PokeWorld: aggregate and component-level benefit",
        (Group("poke-r8", (R8,), ("components",)),),
        _frozen_head,
        FROZEN_CLAIMS,
        _component_picture,
        "The readers' queries are the present frame and its difference; the paper's evaluation bank has four histories "
        "a system, this one eight.",
    ),
    Target(
        "tab:poke-targeted-utility",
        "PokeWorld: factor-targeted utility",
        (Group("poke", ("g1", "g2"), ("targeted",)),),
        _targeted,
        TARGETED_CLAIMS,
    ),
    Target(
        "tab:external-alpha",
        "PokeWorld: does stronger formation give reader value?",
        (Group("poke-r8", ALPHAS, ("formation", "routes")),),
        _alpha,
        ALPHA_CLAIMS,
        note="B/W is of eight histories a system, so that codes without information have 1/8 (the paper's 1/4). One "
        "source has no source bootstrap: its intervals resample systems alone.",
    ),
    Target(
        "tab:poke-object-only-config",
        "PokeWorld: routes of the object alone",
        (Group("poke-r8", (R8,), ("object-routes",)), Group("poke", ("g2",), ("object-routes",))),
        _object,
        OBJECT_CLAIMS,
        note="The R8 and G₂ sources are of different banks.",
    ),
)
