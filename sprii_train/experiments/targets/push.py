"""`ext:poke-push`, beyond the paper: what a context is worth to a planner that pushes an unknown object."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Interval, difference, mean_of
from sprii_train.control.push import GROUPS, LAST, WITHIN, WORLD
from sprii_train.evaluation.result import wilson
from sprii_train.experiments.push_references import PUSHERS, PushReferences
from sprii_train.experiments.targets.base import Group, Row, Target, arrays_of
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.films import film
from sprii_train.reports.page import Picture, Table
from sprii_train.reports.push_figures import paths_figure, pushed_figure

LABEL = "ext:poke-push"
ARMS = ("structure", "align-cross", "supervised")
SHOWN = "OOD_heavy"
"""The group whose first episode is drawn."""
FILMED = {"encoder": "encoder", "fit": "encoder, then fit", "oracle": "oracle"}
"""Lines whose episode is drawn, and their names in the film."""


class Line(NamedTuple):
    """One row of the tables: the arm of its results, `{}` standing for the planner, and its name in `acts`."""

    label: str
    arm: str
    act: str
    colour: str


LINES = {
    "random": Line(PUSHERS["random"], "random", "random", "#c7c7c7"),
    "nominal": Line(PUSHERS["nominal"], "nominal-{}", "nominal", "#7f7f7f"),
    "encoder": Line("Learned: encoder", "structure", "encoder", "#9db7dd"),
    "fit": Line("Learned: encoder, then fit", "structure", "fit", "#4c72b0"),
    "encoder-ac": Line("Align + Cross: encoder", "align-cross", "encoder", "#a6d7ba"),
    "fit-ac": Line("Align + Cross: encoder, then fit", "align-cross", "fit", "#2a8c55"),
    "told": Line("Learned: told the truth", "supervised", "told", "#dd8452"),
    "oracle": Line(PUSHERS["oracle"], "oracle-{}", "oracle", "black"),
}
CONTRASTS = (
    ("oracle", "nominal", "what the truth is worth with true equations"),
    ("told", "encoder", "what the encoder misses"),
    ("fit", "encoder", "what the fit adds"),
    ("encoder-ac", "encoder", "what Align + Cross add to the encoder"),
    ("fit-ac", "fit", "what Align + Cross add under the fit"),
    ("fit", "nominal", "learned and fitted against nominal equations"),
    ("told", "nominal", "learned and told against nominal equations"),
    ("oracle", "told", "what the learned dynamics miss"),
)

Episodes = Mapping[str, Mapping[str, Any]]
"""Group → its episodes, as `measures.acting` has them."""


def _planners(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key.split("|")[1] for row in rows for key in row["acts"]))


def _found(arms: Mapping[str, Row], name: str, planner: str) -> Episodes | None:
    """The episodes of a line; None where its arm was not run."""
    line = LINES[name]
    acts = arms.get(line.arm.format(planner), {}).get("acts", {})
    found = {key.split("|")[1]: own["groups"] for key, own in acts.items() if key.split("|")[0] == line.act}
    return next(iter(found.values()), None) if name == "random" else found.get(planner)


def _interval(arms: Mapping[str, Row], names: Sequence[str], planner: str, group: str) -> Interval | None:
    """Of the mean return of one line, or of the difference of two over the episodes that both met."""
    found = [_found(arms, name, planner) for name in names]
    if any(each is None for each in found) or len({each[group]["starts"] for each in found if each}) > 1:
        return None
    returns = {name: each[group]["returns"] for name, each in zip(names, found, strict=True) if each}
    contrast = mean_of(names[0]) if len(names) == 1 else difference(names[0], names[1])
    return system_bootstrap(returns, {"": contrast}, seed=0, unit="episode")[""]


def _by_seed(rows: Sequence[Row]) -> dict[int, dict[str, Row]]:
    seeds: dict[int, dict[str, Row]] = {}
    for row in rows:
        seeds.setdefault(row["seed"], {})[row["arm"]] = row
    return seeds


def _tables(rows: Sequence[Row]) -> list[Table]:
    tables = []
    for seed, arms in _by_seed(rows).items():
        for planner in _planners(rows):
            told = f"{planner}, seed {seed}"
            tables += [_returns(arms, planner, told), _contrasts(arms, planner, told)]
    return tables


def _returns(arms: Mapping[str, Row], planner: str, told: str) -> Table:
    lines = []
    for name, line in LINES.items():
        if (found := _found(arms, name, planner)) is None:
            continue
        cells = []
        for group in GROUPS:
            mean, rate = _interval(arms, (name,), planner, group), found[group]["success"]
            assert mean is not None
            low, high = wilson(rate, len(found[group]["returns"]), 0.95)
            reached = f"{100 * rate:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
            cells.append(f"{mean.estimate:.1f} [{mean.low:.1f}, {mean.high:.1f}]; {reached}")
        lines.append([line.label, *cells])
    note = (
        "Mean return and success with 95 % intervals over episodes, the same systems and starts in every row. Success: "
        f"the object within {WITHIN:g} m of the goal in all of the last {LAST} states."
    )
    return Table(f"Return and success under {told}", ["Row", *GROUPS], lines, note)


def _contrasts(arms: Mapping[str, Row], planner: str, told: str) -> Table:
    lines = []
    for one, two, what in CONTRASTS:
        found = [_interval(arms, (one, two), planner, group) for group in GROUPS]
        lines.append([f"{LINES[one].label} − {LINES[two].label}: {what}", *map(_resolved, found)])
    note = "Difference of mean returns over the same episodes, 95 % intervals; one that spans 0 is not resolved."
    return Table(f"Differences under {told}", ["Rows", *GROUPS], lines, note)


def _resolved(found: Interval | None) -> str:
    if found is None:
        return "n.a."
    told = f"{found.estimate:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return told if found.low > 0 or found.high < 0 else f"{told}, not resolved"


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    planner, arms = _planners(rows)[0], next(iter(_by_seed(rows).values()))
    lines = []
    for name, line in LINES.items():
        found = [_interval(arms, (name,), planner, group) for group in GROUPS]
        if None not in found:
            lines.append((line.label, line.colour, found))
    pictures = [Picture("returns", f"Return by group, {planner}", "95 % intervals over episodes.",
                        pushed_figure(list(GROUPS), lines))]  # fmt: skip
    if courses := {LINES[name].label: states for name, (states, _) in _courses(arms, planner).items()}:
        caption = f"The first episode of {SHOWN}: the object from dark to bright, the goal's region in green."
        pictures.append(Picture("paths", "One episode out of range", caption, paths_figure(courses)))
    return pictures


def _courses(arms: Mapping[str, Row], planner: str) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """States (T + 1, 8) and properties (3,) of the shown episode under encoder, fit and oracle, where they were run."""
    courses = {}
    for name in FILMED:
        line = LINES[name]
        if (row := arms.get(line.arm.format(planner))) is not None:
            kept, key = arrays_of(row, "push"), f"{line.act}|{planner}|{SHOWN}"
            courses[name] = kept[f"{key}|states"], kept[f"{key}|values"]
    return courses


def _films(rows: Sequence[Row]) -> dict[str, bytes]:
    """The shown episode under encoder, fit and oracle side by side."""
    courses = _courses(next(iter(_by_seed(rows).values())), _planners(rows)[0])
    if not courses:
        return {}
    panels = {}
    for name, (states, values) in courses.items():
        alike = np.broadcast_to(values, (len(states), len(values)))
        panels[FILMED[name]] = WORLD.picture(states, alike, (160, 160))
    return {f"{SHOWN}.gif": film(panels, milliseconds=80)}


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    found = {
        group: {own["groups"][group]["starts"] for row in rows for own in row["acts"].values()} for group in GROUPS
    }
    seconds = {f"{row['arm']}, seed {row['seed']}, {key.replace('|', ' under ')}": own["evaluation_seconds"]
               for row in rows for key, own in row["acts"].items()}  # fmt: skip
    return {
        "Systems and starts": "; ".join(f"{g}: {', '.join(sorted(s[:8] for s in all_))}" for g, all_ in found.items())
        + ": one hash a seed and group is the same in all rows",
        "Seconds of evaluation": "; ".join(f"{name}: {value:.0f}" for name, value in seconds.items()),
    }


def _claim(text: str, one: str, two: str, group: str, planner: str = "icem") -> Claim:
    def interval(arms: Arms) -> Interval | None:
        return _interval(arms, (one, two), planner, group)

    def measure(arms: Arms) -> float:
        found = interval(arms)
        return float("nan") if found is None else found.estimate

    needed = tuple(dict.fromkeys(LINES[name].arm.format(planner) for name in (one, two)))
    return Claim(text, needed, measure, "difference of mean returns", above=0.0, null=0.0, interval=interval)


OUT = [group for group in GROUPS if group != "ID"]
CLAIMS = (
    *(
        _claim(f"Knowing the system is worth something to exact equations in {g}", "oracle", "nominal", g)
        for g in GROUPS
    ),
    *(_claim(f"Fitting the context returns more than the encoder's in {g}", "fit", "encoder", g) for g in OUT),
    *(_claim(f"Align + Cross return more than prediction alone in {g}", "encoder-ac", "encoder", g) for g in GROUPS),
)

PUSH_TARGETS = (
    Target(
        LABEL,
        "Pushing an object of unknown mass, drag and stiffness",
        (PushReferences("push"), Group("push", ARMS, ("push",))),
        _tables,
        CLAIMS,
        _pictures,
        note="Not in the paper. Equations are the environment's own physics. Learned dynamics are trained offline on "
        "episodes of the declared ranges and never see a system beyond them. The row that is told gets the true "
        "properties, on logarithms but for drag, at training and test.",
        facts=_facts,
        files=_films,
    ),
)
