"""SpringWorld's sealed test, and what its sources cost."""

import itertools
from collections.abc import Sequence

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference, mean_of, over_sources, reduction
from sprii_train.experiments.measures.sealed import POPULATIONS
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, stacked
from sprii_train.experiments.targets.within import Within, has_arrays
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, interval, number, spread

SEED = 0
OURS, CONTROL, DECOUPLED = "align-cross", "native", "tds"
COMPARED = (CONTROL, DECOUPLED)


def _gaps(than: str) -> dict[str, Contrast]:
    return {"gap": difference(than, OURS), "reduction": reduction(OURS, denominator=than)}


def _population(rows: Sequence[Row], name: str) -> tuple[np.ndarray, list[str]]:
    """The systems (N,) of a population as a mask, and the strata of those."""
    strata = np.asarray(rows[0]["strata"])
    chosen = np.isin(strata, POPULATIONS[name])
    return chosen, strata[chosen].tolist()


def _sealed(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    errors = {arm: stacked(group, "sealed", "persistent") for arm, group in groups.items()}
    parts = {name: _population(rows, name) for name in POPULATIONS}
    headings = [f"{name.capitalize()}: {int(chosen.sum())} systems" for name, (chosen, _) in parts.items()]
    absolute = [
        [
            group[0]["label"],
            *(
                interval(
                    system_bootstrap({arm: errors[arm][..., chosen]}, {"": mean_of(arm)}, seed=SEED, strata=strata)[""]
                )
                for chosen, strata in parts.values()
            ),
        ]
        for arm, group in groups.items()
    ]
    tables = [
        Table(
            "A. Persistent error of cold queries at h16 [95 % interval]",
            ["Source", *headings],
            absolute,
            "Six queries a system, then readers, then sources, equally; stratified system bootstrap, 10,000 draws, "
            "conditional on the fitted models.",
        )
    ]
    others = [arm for arm in COMPARED if {OURS, arm} <= set(groups)]
    if others:
        lines = []
        for (name, (chosen, strata)), than in itertools.product(parts.items(), others):
            found = system_bootstrap(
                {arm: errors[arm][..., chosen] for arm in (than, OURS)}, _gaps(than), seed=SEED, strata=strata
            )
            label = groups[than][0]["label"]
            lines.append([name.capitalize(), label, interval(found["gap"]), interval(found["reduction"])])
        cells = {arm: grid[..., parts["primary"][0]].mean(-1) for arm, grid in errors.items()}
        lower = " and ".join(
            f"{int((cells[OURS] < cells[arm]).sum())} of {cells[OURS].size} paired source–reader cells of "
            f"{groups[arm][0]['label']}"
            for arm in others
        )
        tables.append(
            Table(
                "B. Paired contrasts within each population",
                ["Population", "Comparator", "MSE gap [95 % interval]", "Reduction in percent [95 % interval]"],
                lines,
                f"Positive favours Align + Cross, which has the lower primary error in {lower}.",
            )
        )
    return tables


def _reduction(name: str, than: str) -> Within:
    def interval(arms: Arms) -> Interval | None:
        if not has_arrays(arms, (than, OURS), "sealed"):
            return None
        chosen, strata = _population([arms[OURS]], name)
        errors = {arm: stacked([arms[arm]], "sealed", "persistent")[..., chosen] for arm in (than, OURS)}
        return system_bootstrap(errors, {"": _gaps(than)["reduction"]}, seed=SEED, strata=strata)[""]

    return interval


SEALED_CLAIMS = tuple(
    Claim(
        f"Align + Cross lowers the {name} sealed error below {whose}",
        (than, OURS),
        lambda a, name=name, than=than: 100 * (a[than][name] - a[OURS][name]) / a[than][name],
        "reduction in percent",
        above=5,
        paper=paper,
        null=0.0,
        interval=_reduction(name, than),
    )
    for than, whose, papers in ((CONTROL, "Native's", (22.3, 40.5, 25.6)), (DECOUPLED, "TDS's", (17.5, 35.3, 20.7)))
    for name, paper in zip(POPULATIONS, papers, strict=True)
)

# --- costs ---


def _cost(rows: Sequence[Row]) -> list[Table]:
    groups = list(arms_of(rows).values())

    def line(heading: str, of, tell=lambda found: f"{found.mean:,.0f}") -> list[str]:
        return [heading, *(tell(over_sources([float(of(row)) for row in group])) for group in groups)]

    lines = [
        line("Source optimizer updates", lambda row: row["steps"]),
        line("Additional continuation updates", lambda row: 0),
        line("Reader updates per fitted reader", lambda row: row["reader_updates"]),
        line("Pairs a batch", lambda row: row["pairs"]),
        line("Trainable source parameters", lambda row: row["parameters"]),
        line("Compute-only time per source update (s)", lambda row: row["update_seconds"], spread),
        line("Time of its batch (s)", lambda row: row["batch_seconds"], spread),
        line("Full-fit wall time (s)", lambda row: row["train_seconds"], spread),
    ]
    return [
        Table(
            "Training cost per source",
            ["Quantity", *(group[0]["label"] for group in groups)],
            lines,
            f"One thread; medians of a few updates in the process that measures. Native has {_fewer(groups)}.",
        )
    ]


def _fewer(groups: Sequence[Sequence[Row]]) -> str:
    counts = {group[0]["arm"]: int(group[0]["parameters"]) for group in groups}
    if not {CONTROL, OURS} <= set(counts):
        return "not been measured here"
    return f"{number(100 * (1 - counts[CONTROL] / counts[OURS]))} percent fewer parameters than Align + Cross"


COST_CLAIMS = (
    Claim(
        "Align and Cross add little to an update",
        (CONTROL, OURS),
        lambda a: a[OURS]["update_seconds"] / a[CONTROL]["update_seconds"],
        "ratio of seconds",
        below=1.25,
        paper=1.11,
        null="no contexts",
        ratio=True,
    ),
)

SPRING_SEALED_TARGETS = (
    Target(
        "tab:v3-spring-sealed",
        "SpringWorld: cold-start prediction on sealed systems",
        (Group("spring", (CONTROL, DECOUPLED, OURS), ("sealed",)),),
        _sealed,
        SEALED_CLAIMS,
        note="Every code reaches the readers' slot of 64 through a linear map, Native's context of 128 too.",
    ),
    Target(
        "tab:spring-cost",
        "SpringWorld: training cost",
        (Group("spring", (CONTROL, OURS), ("cost",)),),
        _cost,
        COST_CLAIMS,
        note="Times are of this machine with whatever else it does; the paper's are of another one.",
    ),
)
