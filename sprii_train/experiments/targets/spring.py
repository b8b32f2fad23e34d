"""SpringWorld's tables: components, landscapes, horizons, bottlenecks and realization routes."""

from collections.abc import Sequence

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import HISTORY_GAIN, difference
from sprii_train.analysis.value.curves import DECODE_MINUS_PERSISTENT, horizon_curve
from sprii_train.analysis.value.routes import SCALES
from sprii_train.experiments.spring_cases import HORIZONS
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    arrays_of,
    spread_of,
    spread_table,
    stacked,
    value_of,
)
from sprii_train.reports.claims import Claim
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.use_figures import Amplitudes, amplitude_curves

FACTORS = ("mass", "drag", "stiffness")
COMPONENTS = ("structure", "align", "cross", "align-cross")
CORE = ("structure", "align", "align-cross")
WEIGHTS = ("weights-0.25-0.1", "align-cross", "weights-4-0.1", "weights-1-0.025", "weights-1-0.4")
BOOTSTRAP_SEED = 0


def _strata(rows: Sequence[Row], panel: str) -> list[str]:
    strata = list(rows[0]["strata"])
    return strata if panel != "cold" else [s for s in strata if s in ("continuous", "combination")]


# --- components: task error and geometry ---


def _components(rows: Sequence[Row]) -> list[Table]:
    task = spread_table(
        rows,
        "A. Cold-start error at h16 (100 development systems, 600 cases)",
        {"Persistent reader ↓": "cold_persistent", "Null reader": "cold_null", "Oracle reader": "cold_oracle"},
        first="Recipe",
        note="Standardised MSE of readers fitted on training queries; Null sees the recipient alone.",
    )
    geometry = spread_table(
        rows,
        "B. Geometry of frozen contexts (178 development systems × 4 histories)",
        {
            "Within": "validation.within",
            "Between": "validation.between",
            "Ratio ↑": "validation.ratio",
            **{f"ρ {name}": f"validation.rho_{name}" for name in (*FACTORS, "stiffness_over_mass")},
            **{f"R² {name}": f"validation.window_ridge_{name}" for name in (*FACTORS, "stiffness_over_mass")},
        },
        first="Recipe",
        note="ρ is partial Spearman of code and factor distances; R² a ridge probe of log factors on single histories.",
    )
    return [task, geometry]


COMPONENT_CLAIMS = (
    Claim(
        "Align organises contexts by system: its between/within ratio is far above Structure's",
        ("structure", "align"),
        lambda a: a["align"]["validation"]["ratio"] / a["structure"]["validation"]["ratio"],
        lambda v: v > 2,
        "ratio of ratios (> 2; paper 8.5)",
    ),
    Claim(
        "Align + Cross organises contexts at least as far above Structure's",
        ("structure", "align-cross"),
        lambda a: a["align-cross"]["validation"]["ratio"] / a["structure"]["validation"]["ratio"],
        lambda v: v > 2,
        "ratio of ratios (> 2; paper 9.8)",
    ),
    Claim(
        "Structure's ratio is that of codes without information, 1/4",
        ("structure",),
        lambda a: a["structure"]["validation"]["ratio"],
        lambda v: v < 0.35,
        "ratio (< 0.35; paper 0.240)",
    ),
    Claim(
        "Align lowers the cold-start h16 error below Structure's",
        ("structure", "align"),
        lambda a: a["align"]["cold_persistent"] / a["structure"]["cold_persistent"],
        lambda v: v < 1,
        "ratio of errors (< 1; paper 0.72)",
    ),
    Claim(
        "Align + Cross lowers the cold-start h16 error below Structure's",
        ("structure", "align-cross"),
        lambda a: a["align-cross"]["cold_persistent"] / a["structure"]["cold_persistent"],
        lambda v: v < 1,
        "ratio of errors (< 1; paper 0.64)",
    ),
    Claim(
        "Adding Cross to Align lowers the cold-start h16 error further",
        ("align", "align-cross"),
        lambda a: a["align-cross"]["cold_persistent"] / a["align"]["cold_persistent"],
        lambda v: v < 0.98,
        "ratio of errors (< 0.98; paper 0.90)",
    ),
)

# --- horizons, bottlenecks ---


def _horizons(rows: Sequence[Row]) -> list[Table]:
    curves = {
        panel: horizon_curve(
            {arm: stacked(rows, "value", f"{arm}|{panel}") for arm in ("null", "persistent")},
            HISTORY_GAIN,
            HORIZONS,
            seed=BOOTSTRAP_SEED,
            strata=_strata(rows, panel),
        )
        for panel in ("cold_kind", "moving_kind")
    }
    return [
        Table(
            "Error reduction of Persistent against Null, percent",
            ["Horizon", "Cold: gain [95 % interval]", "Moving: gain [95 % interval]"],
            [[str(h), interval(curves["cold_kind"][h]), interval(curves["moving_kind"][h])] for h in HORIZONS],
            "178 development systems; stratified system bootstrap, 10,000 draws.",
        )
    ]


HORIZON_CLAIMS = (
    Claim(
        "History helps cold queries at h16",
        ("align-cross",),
        lambda a: _gain(a["align-cross"], "cold_kind", -1),
        lambda v: v > 0,
        "error reduction in percent (> 0; paper 35.7)",
    ),
    Claim(
        "History helps moving queries at h16",
        ("align-cross",),
        lambda a: _gain(a["align-cross"], "moving_kind", -1),
        lambda v: v > 0,
        "error reduction in percent (> 0; paper 29.7)",
    ),
    Claim(
        "The benefit grows with the horizon: it is larger at h16 than at h1, cold and moving",
        ("align-cross",),
        lambda a: min(
            _gain(a["align-cross"], panel, -1) - _gain(a["align-cross"], panel, 0)
            for panel in ("cold_kind", "moving_kind")
        ),
        lambda v: v > 5,
        "smaller of the two differences in percentage points (> 5; paper 29)",
    ),
)


def _gain(row: Row, panel: str, k: int) -> float:
    null, own = (float(arrays_of(row, "value")[f"{arm}|{panel}"][..., k].mean()) for arm in ("null", "persistent"))
    return 100.0 * (null - own) / null


def _bottleneck(rows: Sequence[Row]) -> list[Table]:
    columns = {"Null": "null", "Persistent": "persistent", "Decode": "decode", "Oracle": "oracle"}
    lines = []
    for title, panel in (("Cold start: 100 systems / 600 cases, h16", "cold"), ("Full mixture: 178 systems", "full")):
        lines.append([title, *(spread(spread_of(rows, f"{panel}_{arm}")) for arm in columns.values())])
    gap = system_bootstrap(
        {arm: stacked(rows, "value", f"{arm}|cold")[..., -1] for arm in ("decode", "persistent")},
        {"": DECODE_MINUS_PERSISTENT},
        seed=BOOTSTRAP_SEED,
        strata=_strata(rows, "cold"),
    )[""]
    probes = spread_table(
        rows,
        "B. What single donor histories tell: ridge R² of log factors",
        {name: f"validation.window_ridge_{name}" for name in (*FACTORS, "stiffness_over_mass")},
        first="Recipe",
    )
    return [
        Table("A. Reader risk", ["Population", *columns], lines, f"Decode − Persistent, cold start: {interval(gap)}."),
        probes,
    ]


BOTTLENECK_CLAIMS = (
    Claim(
        "Persistent context lowers the cold-start error of the Null reader",
        ("align-cross",),
        lambda a: 1 - a["align-cross"]["cold_persistent"] / a["align-cross"]["cold_null"],
        lambda v: v > 0,
        "relative reduction (> 0; paper 0.361)",
    ),
    Claim(
        "Decoded parameters serve the reader slightly better than the code itself",
        ("align-cross",),
        lambda a: a["align-cross"]["cold_decode"] - a["align-cross"]["cold_persistent"],
        lambda v: v < 0,
        "Decode − Persistent (< 0; paper −0.0024)",
    ),
    Claim(
        "True parameters leave room: Oracle is below Persistent",
        ("align-cross",),
        lambda a: a["align-cross"]["cold_oracle"] / a["align-cross"]["cold_persistent"],
        lambda v: v < 1,
        "ratio of errors (< 1; paper 0.545)",
    ),
)

# --- realization ---


def _realization(rows: Sequence[Row]) -> list[Table]:
    routes = {"R0": "r0", "M1": "m1", "M2 matched": "m2", "M2 mismatched": "m2-mismatched"}
    tables = [
        spread_table(rows, title, {name: f"{panel}_{route}" for name, route in routes.items()}, first="Recipe")
        for title, panel in (("Full development mixture", "full"), ("Cold start, h16", "cold"))
    ]
    contrasts = []
    for group in arms_of(rows).values():
        for title, panel in (("full", "full"), ("cold start", "cold")):
            errors = {r: _mean_horizons(stacked(group, "value", f"{r}|{panel}"), panel) for r in routes.values()}
            found = system_bootstrap(
                errors,
                {"M1 − M2": difference("m1", "m2"), "mismatched − matched M2": difference("m2-mismatched", "m2")},
                seed=BOOTSTRAP_SEED,
                strata=_strata(rows, panel),
            )
            contrasts += [[group[0]["label"], title, name, interval(each)] for name, each in found.items()]
    tables.append(
        Table(
            "Paired differences of error; positive favours matched M2",
            ["Recipe", "Population", "Contrast", "Difference [95 % interval]"],
            contrasts,
            "M2(h, 0) = R0(h): largest absolute difference of predictions "
            + number(max(float(value_of(row, "zero_context_gap")) for row in rows))
            + ".",
        )
    )
    lines = [
        [group[0]["label"], donor, *(spread(spread_of(group, f"{key}_s{s:g}")) for s in SCALES)]
        for group in arms_of(rows).values()
        for donor, key in (("own", "own"), ("cross-system", "cross"))
    ]
    tables.append(
        Table("Error as contexts are scaled by s", ["Recipe", "Donor", *(f"s = {s:g}" for s in SCALES)], lines)
    )
    return tables


def _mean_horizons(errors: np.ndarray, panel: str) -> np.ndarray:
    return errors[..., -1] if panel == "cold" else errors.mean(-1)


def amplitude_pictures(rows: Sequence[Row], variant: str = "", title: str = "") -> list[Picture]:
    """Errors as contexts are scaled, of own and of cross-system donors.

    Args:
        variant: `-phys` for the weighted route.
        title: of the route, where there are several.
    """
    groups = arms_of(rows)
    curves = {
        name: Amplitudes(
            np.array(SCALES),
            *(
                np.mean([[row[f"{donor}{variant}_s{s:g}"] for s in SCALES] for row in group], axis=0)
                for donor in ("own", "cross")
            ),
        )
        for name, group in groups.items()
    }
    return [
        Picture(
            f"amplitudes{variant}",
            f"{title}: error as the persistent input is scaled" if title else "Error as the persistent input is scaled",
            "Own-system context lowers the error where the route uses what is in it; another system's raises it.",
            amplitude_curves(curves, {name: str(group[0]["label"]) for name, group in groups.items()}),
        )
    ]


REALIZATION_CLAIMS = (
    Claim(
        "M2 with no context is the recipient-only base",
        ("align-cross",),
        lambda a: a["align-cross"]["zero_context_gap"],
        lambda v: v < 1e-5,
        "largest difference of predictions (< 1e-5)",
    ),
    Claim(
        "With Align + Cross, M2 has lower error than M1 on the full mixture",
        ("align-cross",),
        lambda a: a["align-cross"]["full_m1"] - a["align-cross"]["full_m2"],
        lambda v: v > 0,
        "gain (> 0; paper 0.049)",
    ),
    Claim(
        "Matched context beats a mismatched reader of the same architecture, full mixture and cold start",
        ("align-cross",),
        lambda a: min(
            a["align-cross"][f"{panel}_m2-mismatched"] - a["align-cross"][f"{panel}_m2"] for panel in ("full", "cold")
        ),
        lambda v: v > 0,
        "smaller difference (> 0; paper 0.055)",
    ),
    Claim(
        "Scaling another system's context up raises the error",
        ("align-cross",),
        lambda a: a["align-cross"]["cross_s1"] - a["align-cross"]["cross_s0"],
        lambda v: v > 0,
        "error at s = 1 minus at s = 0 (> 0; paper 0.079)",
    ),
)


def _complete(rows: Sequence[Row]) -> list[Table]:
    task = {"Cold start": "cold_persistent", "Query mixture": "full_persistent"}
    factors = (*FACTORS, "stiffness_over_mass")
    return [
        spread_table(rows, "A. Error of the Persistent reader", task, first="Source"),
        spread_table(
            rows,
            "B. Ridge R² of log factors, single histories",
            {name: f"validation.window_ridge_{name}" for name in factors},
            first="Source",
        ),
    ]


COMPLETE_CLAIMS = tuple(
    Claim(
        f"Align + Cross has a lower {title} error than {name}",
        (arm, "align-cross"),
        lambda a, arm=arm, panel=panel: a["align-cross"][f"{panel}_persistent"] / a[arm][f"{panel}_persistent"],
        lambda v: v < 1,
        f"ratio of errors (< 1; paper {paper})",
    )
    for arm, name, panel, title, paper in (
        ("native", "Native", "cold", "cold-start", 0.54),
        ("structure", "Structure", "cold", "cold-start", 0.54),
        ("native", "Native", "full", "query-mixture", 0.93),
        ("structure", "Structure", "full", "query-mixture", 0.93),
    )
)

WEIGHT_CLAIMS = tuple(
    Claim(
        f"{what} from the default raises the cold-start h16 error",
        ("align-cross", arm),
        lambda a, arm=arm: a[arm]["cold_persistent"] / a["align-cross"]["cold_persistent"],
        lambda v: v > 1.0,
        f"ratio of errors (> 1; paper {paper})",
    )
    for arm, what, paper in (
        ("weights-0.25-0.1", "Dividing Align's weight by four", 1.09),
        ("weights-4-0.1", "Multiplying Align's weight by four", 1.46),
        ("weights-1-0.4", "Multiplying Cross's weight by four", 1.16),
    )
)

SPRING_TARGETS = (
    Target(
        "tab:v3-spring-components",
        "SpringWorld: what Align and Cross contribute",
        (Group("spring", ("native", *COMPONENTS), ("formation", "value"), CORE),),
        _components,
        COMPONENT_CLAIMS,
    ),
    Target(
        "tab:v3-horizon",
        "SpringWorld: the benefit of history by horizon",
        (Group("spring", ("align-cross",), ("value",)),),
        _horizons,
        HORIZON_CLAIMS,
    ),
    Target(
        "tab:spring-same-donor",
        "SpringWorld: direct context and decoded parameters",
        (Group("spring", ("align-cross",), ("formation", "value")),),
        _bottleneck,
        BOTTLENECK_CLAIMS,
    ),
    Target(
        "tab:reader-capacity-errors",
        "SpringWorld: realization routes and the matched-architecture control",
        (Group("spring", ("structure", "align-cross"), ("value",)),),
        _realization,
        REALIZATION_CLAIMS,
        amplitude_pictures,
        "The weighted routes are in tab:realization-complete-grid.",
    ),
    Target(
        "tab:spring-complete",
        "SpringWorld: one source a recipe, task error and probes",
        (Group("spring", ("native", *COMPONENTS, "supervised"), ("formation", "value"), ("native", *CORE)),),
        _complete,
        COMPLETE_CLAIMS,
        note="The paper's table also has CPC, RSSM and four supervised encoders (GRU, Transformer, TCN, DeepSets), "
        "which are not learners of this package.",
    ),
    Target(
        "tab:spring-lambda",
        "SpringWorld: sensitivity to the relation weights",
        (Group("spring", WEIGHTS, ("formation", "value")),),
        _components,
        WEIGHT_CLAIMS,
    ),
)
