"""D-Clean's comparison of learners by one common reader (`app:dclean-official`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import source_system_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Interval, bonferroni, difference, mean_of, over_sources
from sprii_train.analysis.value.common import CommonConfig
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, stacked
from sprii_train.experiments.targets.within import by_system
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.value_figures import source_horizons

LABEL, MEASURE = "tab:dclean-all-budgets", "common-reader"
HORIZONS = CommonConfig().horizons
LAST = HORIZONS[-1]
SEED = 0
UNIT = 1e-4  # of errors, as the paper prints them
SPRII = "align-cross"

LEARNERS = {
    SPRII: "SPRII",
    "structure": "Structure",
    "cadm-offline": "CaDM",
    "fcrl": "FCRL",
    "nod-states": "NOD",
    "dali-eighth": "DALI, an eighth of its updates",
    "dali-half": "DALI, half",
    "dali": "DALI",
    "tds-4": "State-space TDS, d = 4",
}
"""Arm → name; the paper's DALI has 160,000 updates, an eighth are 20,000 and half 80,000."""

ARMS = tuple(LEARNERS)

HALF, WHOLE = "dali-half", "dali"
MEAN, WORST = 0.95, 1.10
"""Of DALI's error after all of its updates ÷ after half, on selection systems, source 0: the mean over horizons and the
largest. The whole is chosen where both are at most that; the paper's 160,000 of 80,000 were."""

CONTROLS = {
    "matched": "Matched",
    "null": "Fresh Null",
    "constant": "Constant code",
    "shuffled": "Shuffled donors",
    "untrained": "First weights",
    "oracle": "True log γ",
}
"""Readers of their own."""


def _matched_sources(rows: Sequence[Row], arms: Sequence[str]) -> dict[str, list[Row]]:
    """Rows of these arms, of the seeds that all of them have."""
    found = arms_of(rows)
    seeds = set.intersection(*({row["seed"] for row in found[arm]} for arm in arms))
    return {arm: sorted((r for r in found[arm] if r["seed"] in seeds), key=lambda r: r["seed"]) for arm in arms}


def _intervals(errors: dict[str, NDArray[np.float64]], contrast: Any, level: float = 0.95) -> Interval:
    """Over report systems, and over sources where there are several; errors (S, R, N) in the table's unit."""
    several = len(next(iter(errors.values()))) > 1
    bootstrap = source_system_bootstrap if several else system_bootstrap
    return bootstrap(errors, {"": contrast}, seed=SEED, level=level)[""]


def _errors(rows: Sequence[Row], name: str = "matched") -> NDArray[np.float64]:
    """(S, R, N, K) in the table's unit."""
    return stacked(rows, MEASURE, name) / UNIT


def _scaled(rows: Sequence[Row], path: str) -> str:
    return spread(over_sources([float(row[path]) / UNIT for row in rows]))


def endpoint(rows: Sequence[Row]) -> tuple[str, list[float]] | None:
    """The arm of DALI that is chosen by the rows of its first source, and the ratios by horizon; None without both."""
    both = [{row["seed"]: row for row in rows if row["arm"] == arm} for arm in (HALF, WHOLE)]
    seeds = sorted(set.intersection(*map(set, both)))
    keys = [f"selection_matched_h{h}" for h in HORIZONS]
    if not seeds or any(key not in of[seeds[0]] for of in both for key in keys):
        return None
    half, whole = (of[seeds[0]] for of in both)
    ratios = [float(whole[key]) / float(half[key]) for key in keys]
    return (WHOLE if np.mean(ratios) <= MEAN and max(ratios) <= WORST else HALF), ratios


def _endpoint(rows: Sequence[Row]) -> list[Table]:
    if (found := endpoint(rows)) is None:
        return []
    chosen, ratios = found
    mean, worst = float(np.mean(ratios)), max(ratios)
    updates = next(f"{row['steps']:,}" for row in rows if row["arm"] == chosen)
    return [
        Table(
            "E. DALI's endpoint: error after all of its updates ÷ after half, on selection systems",
            [*(f"h{h}" for h in HORIZONS), f"Mean (≤ {MEAN})", f"Largest (≤ {WORST:.2f})", "Chosen"],
            [[*map(number, ratios), number(mean), number(worst), f"{LEARNERS[chosen]}: {updates} updates"]],
            "Of the first source alone. All of the updates where both bounds are kept, half of them otherwise; other "
            "endpoints keep their rows.",
        )
    ]


def _tables(rows: Sequence[Row]) -> list[Table]:
    arms = {arm: found for arm, found in arms_of(rows).items() if arm in LEARNERS}
    one = next(iter(arms.values()))[:1]  # no learner has a part in these readers
    tables = [
        Table(
            "A. Raw-state MSE in 10⁻⁴",
            ["Source", "Updates", *(f"h{h}" for h in HORIZONS)],
            [
                [LEARNERS[arm], f"{own[0]['steps']:,}", *(_scaled(own, f"matched_h{h}") for h in HORIZONS)]
                for arm, own in arms.items()
            ]
            + [
                [label, "–", *(_scaled(one, f"{name}_h{h}") for h in HORIZONS)]
                for name, label in (("null", "No code"), ("oracle", "True log γ in place of a code"))
            ],
            f"Mean ± SD over sources after averaging readers, on {len(one[0]['systems'])} report systems.",
        ),
        Table(
            f"B. Context controls at h{LAST}: raw-state MSE",
            ["Source", "Matched", "Fresh Null", "Fixed Wrong", "Fixed Zero", "Wrong − Matched", "Drag R²", "Code"],
            [
                [
                    LEARNERS[arm],
                    *(spread(spread_of(own, f"{name}_h{LAST}")) for name in ("matched", "null", "wrong", "zero")),
                    spread(spread_of(own, f"wrong_minus_matched_h{LAST}")),
                    spread(spread_of(own, "probe_r2")),
                    str(own[0]["code"]),
                ]
                for arm, own in arms.items()
            ],
            "Fixed Wrong and Fixed Zero go through the Matched readers: a donor of the next report system at the same "
            "rollout and anchor, and the mean training code. One Null reader of a seed serves all sources.",
        ),
        Table(
            f"C. Readers of other codes at h{LAST}, in 10⁻⁴",
            ["Source", *CONTROLS.values(), "Drag R² of first weights"],
            [
                [
                    LEARNERS[arm],
                    *(_scaled(own, f"{name}_h{LAST}") for name in CONTROLS),
                    spread(spread_of(own, "untrained_probe_r2")),
                ]
                for arm, own in arms.items()
            ],
            "Each column has readers of its own, fitted alike. Shuffled donors are of another system in the fit too.",
        ),
    ]
    return tables + _contrasts(rows, list(arms)) + _endpoint(rows)


def _contrasts(rows: Sequence[Row], arms: Sequence[str]) -> list[Table]:
    others = [arm for arm in arms if arm != SPRII]
    if SPRII not in arms or not others:
        return []
    lines, sources = [], 0
    for arm in others:
        pair = _matched_sources(rows, (SPRII, arm))
        errors = {name: _errors(own) for name, own in pair.items()}
        sources = len(pair[arm])
        gaps = [
            _intervals({name: grid[..., k] for name, grid in errors.items()}, difference(arm, SPRII))
            for k in range(len(HORIZONS))
        ]
        last = {name: grid[..., -1] for name, grid in errors.items()}
        adjusted = _intervals(last, difference(arm, SPRII), bonferroni(len(others)))
        lines.append([LEARNERS[arm], *map(interval, gaps), interval(adjusted), _sign(adjusted)])
    over = "report systems and sources" if sources > 1 else "report systems, of one source"
    return [
        Table(
            "D. Error minus SPRII's, in 10⁻⁴",
            ["Source", *(f"h{h} [95 % interval]" for h in HORIZONS), f"h{LAST} [adjusted]", f"h{LAST}"],
            lines,
            f"Paired bootstrap over {over}, readers averaged; the adjusted interval is of {len(others)} comparisons. "
            "What it spans 0 with is not resolved.",
        )
    ]


def _sign(gap: Interval) -> str:
    return "SPRII lower" if gap.low > 0 else "SPRII higher" if gap.high < 0 else "not resolved"


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    arms = {arm: found for arm, found in arms_of(rows).items() if arm in LEARNERS}
    curves = {
        LEARNERS[arm]: [_intervals({arm: grid[..., k]}, mean_of(arm)) for k in range(len(HORIZONS))]
        for arm, grid in ((arm, UNIT * _errors(own)) for arm, own in arms.items())
    }
    one = next(iter(arms.values()))[0]
    known = {
        label: [float(one[f"{name}_h{h}"]) for h in HORIZONS]
        for name, label in (("null", "no code"), ("oracle", "true log γ"))
    }
    return [
        Picture(
            "horizons",
            "Errors by horizon",
            "Raw-state MSE of the common reader, with 95 % intervals over report systems, and sources where there are "
            "several. Dashed: readers of no code, and of the true log γ in place of a code.",
            source_horizons(HORIZONS, curves, known),
        )
    ]


# Statements


def _part(above: tuple[str, str], below: tuple[str, str], k: int = -1) -> dict[str, Any]:
    """Measure and interval of one reader's error ÷ another's, each an arm and a name, at horizon k."""

    def measure(arms: Arms) -> float:
        first, second = (float(arms[arm][f"{name}_h{HORIZONS[k]}"]) for arm, name in (above, below))
        return first / second

    keys = {"above": above, "below": below}
    found = by_system(MEASURE, lambda m: m["above"] / m["below"], keys, at=lambda errors: errors[..., k])
    return {"measure": measure, "interval": found, "ratio": True}


LEAD = {
    "structure": (0.95, None, None),
    "cadm-offline": (0.9, 0.663, 0.945),
    "fcrl": (0.5, 0.113, 0.256),
    "nod-states": (0.5, 0.0244, 0.081),
    "dali-eighth": (0.5, 0.0169, 0.056),
    "dali-half": (0.5, 0.028, 0.095),
    "dali": (0.5, 0.0328, 0.098),
    "tds-4": (0.5, 0.112, 0.304),
}
"""Arm → bound of SPRII's error ÷ its own at the last horizon, and the paper's; and the paper's largest of all."""

USE = {SPRII: 0.342, "cadm-offline": 0.34, "fcrl": 0.362, "nod-states": 0.436, "dali": 0.41, "tds-4": 0.346}
"""Arm → the paper's larger of Matched ÷ Null and Null ÷ Wrong at the last horizon."""

PROBE = {"cadm-offline": (0.9, 0.974), "dali": (0.5, 0.785), "tds-4": (0.9, 0.974)}
"""Arm → least R² of the drag, and the paper's."""


def _probe(arm: str) -> dict[str, Any]:
    return {
        "measure": lambda a: float(a[arm]["probe_r2"]),
        "null": lambda a: float(a[arm]["untrained_probe_r2"]),
    }


def claims(arms: Sequence[str]) -> tuple[Claim, ...]:
    """The statements on these arms, SPRII's among them."""
    return (
        *(
            Claim(
                f"SPRII's error at h{LAST} is {'far ' if bound == 0.5 else ''}below that of {LEARNERS[arm]}",
                (SPRII, arm),
                **_part((SPRII, "matched"), (arm, "matched")),
                what="ratio of raw-state MSE",
                below=bound,
                paper=paper,
                null=1.0,
            )
            for arm, (bound, paper, _) in LEAD.items()
            if arm in arms
        ),
        *(
            Claim(
                f"SPRII's error is below that of {LEARNERS[arm]} at every horizon",
                (SPRII, arm),
                **extreme(max, [_part((SPRII, "matched"), (arm, "matched"), k) for k in range(len(HORIZONS))]),
                what="largest ratio of raw-state MSE",
                below=1.0,
                paper=paper,
                null=1.0,
            )
            for arm, (_, _, paper) in LEAD.items()
            if arm in arms and paper is not None
        ),
        *(
            Claim(
                f"{LEARNERS[arm]}: readers use the history, whose error is Matched < Null < Fixed Wrong at h{LAST}",
                (arm,),
                **extreme(max, [_part((arm, "matched"), (arm, "null")), _part((arm, "null"), (arm, "wrong"))]),
                what="larger of the ratios Matched ÷ Null and Null ÷ Wrong",
                below=0.8,
                paper=USE.get(arm),
                null=1.0,
            )
            for arm in arms
        ),
        Claim(
            f"Training is what SPRII's code is worth: its error at h{LAST} is far below that of its first weights",
            (SPRII,),
            **_part((SPRII, "matched"), (SPRII, "untrained")),
            what="ratio of raw-state MSE",
            below=0.5,
            null=1.0,
        ),
        *(
            Claim(
                f"{LEARNERS[arm]}: a larger error is no lack of drag in its codes",
                (arm,),
                **_probe(arm),
                what="R² of log γ",
                above=least,
                paper=paper,
            )
            for arm, (least, paper) in PROBE.items()
            if arm in arms
        ),
    )


D_CLEAN_COMMON_TARGETS = (
    Target(
        LABEL,
        "D-Clean: learners under a common reader",
        (Group("d-clean", ARMS, (MEASURE,)),),
        _tables,
        claims(ARMS),
        _pictures,
        "The reader is the paper's: 96 cases an update, presents at the nine observations 23 to 31, AdamW at 3e-4 with "
        "decay 0.05, and twice as many updates as other readers of the budget, 20,000 at the paper's. Validation "
        "systems are halved by a hash of their ids; the report's half selects nothing, the other chooses DALI's "
        "endpoint (table E). Not said in the paper: its "
        "eight pairs a system are successive rollouts here, at anchors drawn once; a zero code is the mean training "
        "code; the drag probe is of the 72 windows of a system, not of their mean; codes of fewer than 64 numbers are "
        "padded with zeros, and wider ones refused. Structure is no row of the paper's.",
    ),
)
