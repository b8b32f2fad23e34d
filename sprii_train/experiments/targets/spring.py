"""SpringWorld's tables of recipes and fresh readers: components, weights, horizons, bottlenecks."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import (
    HISTORY_GAIN,
    Contrast,
    Interval,
    difference,
    mean_of,
    over_sources,
    reduction,
)
from sprii_train.analysis.value.curves import DECODE_MINUS_PERSISTENT, horizon_curve
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
from sprii_train.experiments.targets.geometry import interval_table
from sprii_train.experiments.targets.within import Within, by_system, has_arrays, number_of, own, times
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.page import Picture, Table, interval, spread
from sprii_train.reports.value_figures import reader_horizons
from sprii_train.settings.references import REFERENCES
from sprii_train.settings.spring import SPRING_CASES

FACTORS = ("mass", "drag", "stiffness")
COMPONENTS = ("structure", "align", "cross", "align-cross")
CORE = ("structure", "align", "align-cross")
WEIGHTS = ("weights-0.25-0.1", "align-cross", "weights-4-0.1", "weights-1-0.025", "weights-1-0.4")
SEED = 0
ALL, FIRST = slice(None), slice(1)
"""Readers of a source."""


def strata_of(rows: Sequence[Row], panel: str) -> list[str]:
    """The strata of a panel's systems."""
    strata = list(rows[0]["strata"])
    return strata if panel != "cold" else [s for s in strata if s in ("continuous", "combination")]


# --- components: task error and geometry ---


QUERIES = {"Cold start, 100 systems": "cold", "Moving, 178 systems": "moving_kind"}
PAIRS = (
    ("structure", "align"), ("structure", "cross"), ("structure", "align-cross"), ("align", "align-cross"),
    ("cross", "align-cross"), ("native", "align-cross"),
)  # fmt: skip
"""Recipes compared: the second one is expected to have the lower error."""


def _intervals(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> list[Table]:
    groups = arms_of(rows)
    labels = {arm: EVERY_RECIPE[arm].label for arm in dict.fromkeys(arm for pair in pairs for arm in pair)}
    errors = {
        (arm, panel): stacked(group, "value", f"persistent|{panel}")[..., -1]
        for arm, group in groups.items()
        for panel in QUERIES.values()
    }

    def told(panel: str, arms: Sequence[str], contrast: Contrast) -> str:
        if not set(arms) <= set(groups):
            return "not tested"
        given = {arm: errors[arm, panel] for arm in arms}
        return interval(system_bootstrap(given, {"": contrast}, seed=SEED, strata=strata_of(rows, panel))[""])

    absolute = [
        [group[0]["label"], *(told(panel, (arm,), mean_of(arm)) for panel in QUERIES.values())]
        for arm, group in groups.items()
    ]
    paired = [
        [
            f"{labels[a]} − {labels[b]}",
            *(
                told(panel, (a, b), contrast)
                for panel in QUERIES.values()
                for contrast in (difference(a, b), reduction(b, denominator=a))
            ),
        ]
        for a, b in pairs
    ]
    heads = [f"{query}: {what}" for query in QUERIES for what in ("difference", "reduction in percent")]
    return [
        Table(
            "C. Persistent error at h16 [95 % interval]",
            ["Recipe", *QUERIES],
            absolute,
            "Stratified system bootstrap, 10,000 draws, conditional on the sources and readers.",
        ),
        Table(
            "D. Differences between recipes [95 % interval]",
            ["Contrast", *heads],
            paired,
            "The same draws, paired by system; positive favours the second recipe.",
        ),
    ]


def _components(rows: Sequence[Row], pairs: Sequence[tuple[str, str]] = PAIRS) -> list[Table]:
    task = spread_table(
        rows,
        "A. Cold-start error at h16 (100 development systems, 600 cases)",
        {
            "Persistent, reader 0 ↓": "reader0_cold_persistent",
            "Persistent, all readers ↓": "cold_persistent",
            "Null": "cold_null",
            "Oracle": "cold_oracle",
        },
        first="Recipe",
        note="Standardised MSE of readers fitted on training queries; Null sees the recipient alone, and no transition "
        "of it. The paper's are of reader 0; intervals and verdicts here are of all readers.",
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
    bounded = {"Ratio": "validation.ratio"} | {f"ρ {name}": f"validation.rho_{name}" for name in FACTORS}
    return [task, geometry, interval_table(rows, bounded, first="Recipe"), *_intervals(rows, pairs)]


def _errors(panel: str, keys: Mapping[str, tuple[str, str]], contrast: Contrast, readers: slice = ALL) -> Within:
    """Over the systems of a panel, whose errors are at h16 or, of the mixture, over all horizons."""

    def at(errors: Any) -> Any:
        chosen = errors[:, readers]
        return chosen[..., -1] if panel == "cold" else chosen.mean(-1)

    return by_system(
        "value",
        contrast,
        {name: (arm, f"{reader}|{panel}") for name, (arm, reader) in keys.items()},
        at=at,
        strata=lambda row: strata_of([row], panel),
    )


def lower(
    text: str, arm: str, than: str, below: float, paper: float, panel: str = "cold", readers: slice = ALL
) -> Claim:
    """A recipe's error is below another's, and below that of its own readers without a context.

    Codes without information cost a reader more than no codes: beating them alone takes no information.

    Args:
        readers: `ALL`, or `FIRST` alone.
    """
    keys = {"own": (arm, "persistent"), "other": (than, "persistent"), "null": (arm, "null")}
    of = f"reader0_{panel}" if readers == FIRST else panel
    return Claim(
        text,
        (than, arm),
        lambda a: a[arm][f"{of}_persistent"] / min(a[than][f"{of}_persistent"], a[arm][f"{of}_null"]),
        "error ÷ the lower one of the other's and of its Null reader's",
        below=below,
        paper=paper,
        null=1.0,
        ratio=True,
        interval=_errors(panel, keys, lambda m: m["own"] / np.minimum(m["other"], m["null"]), readers),
    )


COMPONENT_CLAIMS = (
    Claim(
        "Align organises contexts by system: its between/within ratio is far above Structure's",
        ("structure", "align"),
        **times("align", "structure", "validation.ratio"),
        what="ratio of ratios",
        above=2,
        paper=8.5,
        null=1.0,
    ),
    Claim(
        "Align + Cross organises contexts far above Structure's too",
        ("structure", "align-cross"),
        **times("align-cross", "structure", "validation.ratio"),
        what="ratio of ratios",
        above=2,
        paper=9.8,
        null=1.0,
    ),
    Claim(
        "Structure's ratio is that of codes without information, 1/4",
        ("structure",),
        **own("structure", "validation.ratio"),
        what="ratio",
        above=0.2,
        below=0.3,
        paper=0.24,
        null="that is the statement",
    ),
    lower("Align lowers the cold-start h16 error below Structure's", "align", "structure", 0.95, 0.72),
    lower("Align + Cross lowers the cold-start h16 error below Structure's", "align-cross", "structure", 0.95, 0.64),
    lower("Adding Cross to Align lowers the cold-start h16 error further", "align-cross", "align", 0.98, 0.90),
)

# --- horizons, bottlenecks ---


KINDS = {"cold_kind": "Cold", "moving_kind": "Moving"}
READERS = {"null": "Null", "persistent": "Persistent", "decode": "Decode", "oracle": "Oracle"}


def _gains(rows: Sequence[Row], panel: str) -> dict[int, Interval]:
    errors = {arm: stacked(rows, "value", f"{arm}|{panel}") for arm in ("null", "persistent")}
    return horizon_curve(errors, HISTORY_GAIN, SPRING_CASES.horizons, seed=SEED, strata=strata_of(rows, panel))


def _horizons(rows: Sequence[Row]) -> list[Table]:
    curves = [_gains(rows, panel) for panel in KINDS]
    return [
        Table(
            "Error reduction of Persistent against Null, percent",
            ["Horizon", *(f"{kind}: gain [95 % interval]" for kind in KINDS.values())],
            [[str(h), *(interval(curve[h]) for curve in curves)] for h in SPRING_CASES.horizons],
            "178 development systems, q = 0; stratified system bootstrap, 10,000 draws.",
        )
    ]


def _horizon_pictures(rows: Sequence[Row]) -> list[Picture]:
    return [
        Picture(
            kind.lower(),
            f"{kind} queries: readers by horizon",
            "Left: standardised MSE. Right: error reduction of Persistent against Null in percent, with pointwise "
            "intervals over systems.",
            reader_horizons(
                SPRING_CASES.horizons,
                {label: stacked(rows, "value", f"{arm}|{panel}").mean((0, 1, 2)) for arm, label in READERS.items()},
                list(_gains(rows, panel).values()),
                "gain of Persistent (%)",
            ),
        )
        for panel, kind in KINDS.items()
    ]


def _history(text: str, panel: str, paper: float) -> Claim:
    return Claim(
        text,
        ("align-cross",),
        lambda a: _gain(a["align-cross"], panel, -1),
        "error reduction in percent",
        above=5,
        paper=paper,
        null=0.0,
        interval=_gain_interval(panel, -1),
    )


def _gain_interval(panel: str, k: int, begin: int | None = None) -> Within:
    """Of the gain at one horizon, or of how much larger it is than at another."""
    kinds = {"last": k} if begin is None else {"last": k, "first": begin}
    of = HISTORY_GAIN if begin is None else _growth

    def interval(arms: Arms) -> Interval | None:
        row = arms["align-cross"]
        if not has_arrays(arms, ["align-cross"], "value"):
            return None
        grids = {arm: stacked([row], "value", f"{arm}|{panel}") for arm in ("null", "persistent")}
        errors = {
            arm if begin is None else f"{arm} {name}": grid[..., at] for arm, grid in grids.items()
            for name, at in kinds.items()
        }  # fmt: skip
        return system_bootstrap(errors, {"": of}, seed=SEED, strata=strata_of([row], panel))[""]

    return interval


def _growth(means: Mapping[str, Any]) -> Any:
    last, first = (
        HISTORY_GAIN({arm: means[f"{arm} {name}"] for arm in ("null", "persistent")}) for name in ("last", "first")
    )
    return last - first


def _grows(panel: str) -> dict[str, Any]:
    return {
        "measure": lambda a: _gain(a["align-cross"], panel, -1) - _gain(a["align-cross"], panel, 0),
        "interval": _gain_interval(panel, -1, 0),
    }


HORIZON_CLAIMS = (
    _history("History helps cold queries at h16", "cold_kind", 35.7),
    _history("History helps moving queries at h16", "moving_kind", 29.7),
    Claim(
        "The benefit grows with the horizon: it is larger at h16 than at h1, cold and moving",
        ("align-cross",),
        **extreme(min, [_grows(panel) for panel in KINDS]),
        what="smaller of the two differences in percentage points",
        above=5,
        paper=29,
        null=0.0,
    ),
)


def _gain(row: Row, panel: str, k: int) -> float:
    null, own = (float(arrays_of(row, "value")[f"{arm}|{panel}"][..., k].mean()) for arm in ("null", "persistent"))
    return 100.0 * (null - own) / null


def _bottleneck(rows: Sequence[Row]) -> list[Table]:
    """Risks of Align + Cross alone; probes of every source."""
    tables, ours = [], [row for row in rows if "cold_persistent" in row]
    if ours:
        tables.append(_risks(ours))
    probes = spread_table(
        rows,
        "B. What single donor histories tell: ridge R² of log factors",
        {name: f"validation.window_ridge_{name}" for name in (*FACTORS, "stiffness_over_mass")},
        first="Recipe",
    )
    return [*tables, probes]


def _risks(rows: Sequence[Row]) -> Table:
    lines = []
    for title, panel in (("Cold start: 100 systems / 600 cases, h16", "cold"), ("Full mixture: 178 systems", "full")):
        lines.append([title, *(spread(spread_of(rows, f"{panel}_{arm}")) for arm in READERS)])
    gap = system_bootstrap(
        {arm: stacked(rows, "value", f"{arm}|cold")[..., -1] for arm in ("decode", "persistent")},
        {"": DECODE_MINUS_PERSISTENT},
        seed=SEED,
        strata=strata_of(rows, "cold"),
    )[""]
    return Table(
        "A. Reader risk", ["Population", *READERS.values()], lines, f"Decode − Persistent, cold start: {interval(gap)}."
    )


def _window_r2(row: Row, factor: str) -> float:
    return number_of(row, f"validation.window_ridge_{factor}")


def between(text: str, paper: float) -> Claim:
    """True parameters leave room below a context that helps; a context that does not help leaves all of it."""
    keys = {arm: ("align-cross", arm) for arm in ("null", "persistent", "oracle")}
    return Claim(
        text,
        ("align-cross",),
        lambda a: max(
            a["align-cross"]["cold_oracle"] / a["align-cross"]["cold_persistent"],
            a["align-cross"]["cold_persistent"] / a["align-cross"]["cold_null"],
        ),
        "larger of the ratios of errors Oracle ÷ Persistent and Persistent ÷ Null",
        below=0.9,
        paper=paper,
        null=1.0,
        ratio=True,
        interval=_errors(
            "cold", keys, lambda m: np.maximum(m["oracle"] / m["persistent"], m["persistent"] / m["null"])
        ),
    )


BOTTLENECK_CLAIMS = (
    Claim(
        "Persistent context lowers the cold-start error of the Null reader",
        ("align-cross",),
        lambda a: 1 - a["align-cross"]["cold_persistent"] / a["align-cross"]["cold_null"],
        "relative reduction",
        above=0.05,
        paper=0.361,
        null=0.0,
        interval=_errors(
            "cold",
            {arm: ("align-cross", arm) for arm in ("null", "persistent")},
            lambda m: 1 - m["persistent"] / m["null"],
        ),
    ),
    Claim(
        "Decoded parameters serve the reader slightly better than the code itself",
        ("align-cross",),
        lambda a: a["align-cross"]["cold_decode"] / a["align-cross"]["cold_persistent"],
        "ratio of errors, Decode ÷ Persistent",
        below=0.99,
        paper=0.98,
        null=1.0,
        ratio=True,
        interval=_errors(
            "cold",
            {arm: ("align-cross", arm) for arm in ("decode", "persistent")},
            lambda m: m["decode"] / m["persistent"],
        ),
    ),
    between("True parameters leave room below what the context gives: Oracle < Persistent < Null", 0.64),
    Claim(
        "Codes of temporal FCRL say little of any factor",
        ("fcrl",),
        lambda a: max(_window_r2(a["fcrl"], name) for name in FACTORS),
        "largest R² of single histories",
        below=0.1,
        paper=0.011,
        null="this is what it says",
    ),
    Claim(
        "Codes of Align + Cross say more of the mass than those of temporal FCRL",
        ("align-cross", "fcrl"),
        lambda a: _window_r2(a["align-cross"], "mass") - _window_r2(a["fcrl"], "mass"),
        "difference of R² of single histories",
        above=0.1,
        paper=0.349,
        null=0.0,
    ),
)

# --- one source a recipe ---


OTHERS = tuple(arm for arm in ("spring-cpc", "spring-rssm") if arm in EVERY_RECIPE)
JEPAS = ("native", *COMPONENTS)
PANELS = {"Cold start": "cold", "Query mixture": "full"}


def error_of(row: Row, panel: str) -> float:
    """Of the Persistent reader of seed 0, or of a reference's own head.

    Raises:
        KeyError: for a row with neither.
    """
    return number_of(row, f"head_{panel}" if f"head_{panel}" in row else f"reader0_{panel}_persistent")


def errors_of(row: Row, panel: str) -> NDArray[np.float64]:
    """The same by system, (1, 1, N), of the last horizon of cold queries, or over all horizons."""
    measure, name = ("own-head", "head") if f"head_{panel}" in row else ("value", "persistent")
    grid = stacked([row], measure, f"{name}|{panel}")[:, FIRST]
    return grid[..., -1] if panel == "cold" else grid.mean(-1)


def _complete(rows: Sequence[Row]) -> list[Table]:
    groups = {}
    for arm, group in arms_of(rows).items():
        with suppress(KeyError):
            groups[arm] = [spread(over_sources([error_of(row, panel) for row in group])) for panel in PANELS.values()]
    labels = {row["arm"]: row["label"] for row in rows}
    factors = (*FACTORS, "stiffness_over_mass")
    return [
        Table(
            "A. Error of the Persistent reader of seed 0; of the supervised references, of their own heads",
            ["Source", *PANELS],
            [[labels[arm], *errors] for arm, errors in groups.items()],
            "Standardised MSE of the same queries, donors and horizons. Heads are trained with the encoders on this "
            "task; readers are fitted on frozen codes.",
        ),
        spread_table(
            rows,
            "B. Ridge R² of log factors, single histories of the 100 systems of the cold-start panel",
            {name: f"validation.panel_window_ridge_{name}" for name in factors},
            first="Source",
        ),
    ]


def _quotient(first: Sequence[str], second: Sequence[str], panel: str, **told: Any) -> dict[str, Any]:
    """Largest error of the first arms ÷ least error of the second ones."""

    def interval(arms: Arms) -> Interval | None:
        rows = {arm: arms[arm] for arm in (*first, *second)}
        of = {arm: "own-head" if f"head_{panel}" in row else "value" for arm, row in rows.items()}
        if not all(has_arrays(arms, [arm], measure) for arm, measure in of.items()):
            return None
        errors = {arm: errors_of(row, panel) for arm, row in rows.items()}
        return system_bootstrap(
            errors,
            {"": lambda m: reduce(np.maximum, [m[a] for a in first]) / reduce(np.minimum, [m[a] for a in second])},
            seed=SEED,
            strata=strata_of(list(rows.values()), panel),
        )[""]

    return {
        "arms": (*first, *second),
        "measure": lambda a: max(error_of(a[x], panel) for x in first) / min(error_of(a[x], panel) for x in second),
        "interval": interval,
        "null": 1.0,
        "ratio": True,
        **told,
    }


COMPLETE_CLAIMS = (
    *(lower(f"Align + Cross has a lower {title} error than {name}", "align-cross", arm, below, paper, panel, FIRST)
    for arm, name, panel, title, below, paper in (
        ("native", "Native", "cold", "cold-start", 0.95, 0.54),
        ("structure", "Structure", "cold", "cold-start", 0.95, 0.54),
        ("native", "Native", "full", "query-mixture", 0.98, 0.93),
        ("structure", "Structure", "full", "query-mixture", 0.98, 0.93),
    )),
    Claim(
        "Every supervised reference has a lower query-mixture error than the controlled learners",
        **_quotient(REFERENCES, ("structure", "align-cross"), "full", below=0.95, paper=0.84),
        what="largest of the references' errors ÷ the lower one of Structure's and Align + Cross's",
    ),
    Claim(
        "The supervised TCN has a lower cold-start error than Align + Cross",
        **_quotient(("reference-tcn",), ("align-cross",), "cold", below=0.9, paper=0.64),
        what="ratio of errors",
    ),
    Claim(
        "The supervised TCN has the lowest cold-start error of the references",
        **_quotient(
            ("reference-tcn",), tuple(x for x in REFERENCES if x != "reference-tcn"), "cold", below=0.9, paper=0.67
        ),
        what="its error ÷ the lowest one of the others",
    ),
    *(
        Claim(
            "CPC has a higher cold-start error than Structure",
            **_quotient(("spring-cpc",), ("structure",), "cold", above=1.1, paper=1.30),
            what="ratio of errors",
        )
        for arm in OTHERS if arm == "spring-cpc"
    ),
)  # fmt: skip


def _weights(rows: Sequence[Row]) -> list[Table]:
    return _components(rows, [(arm, "align-cross") for arm in WEIGHTS if arm != "align-cross"])


WEIGHT_CLAIMS = tuple(
    Claim(
        f"{what} from the default raises the cold-start h16 error",
        ("align-cross", arm),
        lambda a, arm=arm: a[arm]["cold_persistent"] / a["align-cross"]["cold_persistent"],
        "ratio of errors",
        above=1.02,
        paper=paper,
        null=1.0,
        ratio=True,
        interval=_errors(
            "cold",
            {"other": (arm, "persistent"), "own": ("align-cross", "persistent")},
            lambda m: m["other"] / m["own"],
        ),
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
        _horizon_pictures,
    ),
    Target(
        "tab:spring-same-donor",
        "SpringWorld: direct context and decoded parameters",
        (Group("spring", ("align-cross",), ("formation", "value")), Group("spring", ("fcrl",), ("formation",))),
        _bottleneck,
        BOTTLENECK_CLAIMS,
    ),
    Target(
        "tab:spring-complete",
        "SpringWorld: one source a recipe, task error and probes",
        (
            Group("spring", (*JEPAS, *OTHERS, "supervised-split"), ("formation", "value"), ("native", *CORE, *OTHERS)),
            Group("spring", REFERENCES, ("formation", "own-head")),
        ),
        _complete,
        COMPLETE_CLAIMS,
        note="The supervised split is trained on true increments of the state by its own codes, and read by the common "
        "reader as the JEPAs are. References answer the horizons 2 and 8 of the query mixture between those that they "
        "are trained on, and have the weights of the least loss on 78 of its 178 systems, which favours them there; "
        "the cold start has none of these.",
    ),
    Target(
        "tab:spring-lambda",
        "SpringWorld: sensitivity to the relation weights",
        (Group("spring", WEIGHTS, ("formation", "value")),),
        _weights,
        WEIGHT_CLAIMS,
    ),
)
