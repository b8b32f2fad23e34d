"""`ext:pendulum-context`, beyond the paper: pendulums controlled with contexts that are told, encoded or fitted."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sprii_envs.envs.pendulum import GROUPS
from sprii_train.analysis.bootstrap import hierarchical_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference, over_sources
from sprii_train.control import pendulum
from sprii_train.experiments.measures.context_control import SHOWN, physical
from sprii_train.experiments.planner_references import PlannersReferences
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of
from sprii_train.experiments.targets.within import success as success_rate
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.control_figures import Course, courses_figure
from sprii_train.reports.films import film
from sprii_train.reports.page import Picture, Table, interval, spread

LABEL = "ext:pendulum-context"
WORLD = "pendulum-context"
TRAINED = (
    "cadm-offline", "cadm-align-cross", "context-encoded", "context-encoded-align-cross", "context-fitted",
    "context-labelled",
)  # fmt: skip
_GAIN = difference("after", "before")
WITHIN = 20.0
"""Percent of the oracle's return that a row may lose to it."""
LEAST = 2.0
"""The least difference of returns that counts as one, as in `tab:pendulum-r7`."""


class Line(NamedTuple):
    """A line of the tables: an arm with one way of knowing its context."""

    arm: str
    context: str
    label: str


LINES = (
    Line("random-policy", "equations", "Random policy"),
    Line("nominal", "equations", "Nominal equations"),
    Line("cadm-offline", "encoder", "CaDM, encoder"),
    Line("cadm-offline", "fit", "CaDM, encoder + fit"),
    Line("cadm-align-cross", "encoder", "CaDM Align + Cross, encoder"),
    Line("cadm-align-cross", "fit", "CaDM Align + Cross, encoder + fit"),
    Line("context-encoded", "encoder", "Linear, encoder"),
    Line("context-encoded", "fit", "Linear, encoder + fit"),
    Line("context-encoded-align-cross", "encoder", "Linear Align + Cross, encoder"),
    Line("context-encoded-align-cross", "fit", "Linear Align + Cross, encoder + fit"),
    Line("context-fitted", "fit", "Linear, trained through its fit"),
    Line("context-labelled", "fit", "Labels in training, fit"),
    Line("context-labelled", "true", "Labels in training, true context"),
    Line("oracle", "equations", "Oracle equations"),
)
BY_LABEL = {line.label: line for line in LINES}
ORACLE = BY_LABEL["Oracle equations"]
FITTED = BY_LABEL["Linear, trained through its fit"]
CONTRASTS = (
    ("CaDM, encoder + fit", "CaDM, encoder"),
    ("Linear, encoder", "CaDM, encoder"),
    ("Linear, encoder + fit", "Linear, encoder"),
    ("CaDM Align + Cross, encoder", "CaDM, encoder"),
    ("CaDM Align + Cross, encoder + fit", "CaDM, encoder + fit"),
    ("Linear Align + Cross, encoder", "Linear, encoder"),
    ("Linear Align + Cross, encoder + fit", "Linear, encoder + fit"),
    ("Linear, trained through its fit", "Linear, encoder + fit"),
    ("Linear, trained through its fit", "Labels in training, true context"),
    ("Linear, trained through its fit", "Oracle equations"),
)

LEVERS = (
    ("The fit at test time", "CaDM, encoder", "CaDM, encoder + fit"),
    ("Align + Cross", "CaDM, encoder", "CaDM Align + Cross, encoder"),
    ("Dynamics linear in the context", "CaDM, encoder", "Linear, encoder"),
    ("The fit at test time", "Linear, encoder", "Linear, encoder + fit"),
    ("Align + Cross", "Linear, encoder", "Linear Align + Cross, encoder"),
    ("Training through the fit", "Linear, encoder + fit", "Linear, trained through its fit"),
    ("Linear dynamics trained through the fit", "CaDM, encoder", "Linear, trained through its fit"),
)
"""What is changed, and the lines before and after."""


def _found(arms: Mapping[str, Row], line: Line, planner: str, group: str) -> Mapping[str, Any]:
    return arms[line.arm]["acted"][planner][line.context]["groups"][group]


def _paired(arms: Sequence[Mapping[str, Row]], lines: Mapping[str, Line], planner: str, group: str,
            contrast: Contrast, of: str = "returns") -> Interval | None:  # fmt: skip
    """Interval over paired episodes, and seeds where there are several; None where systems or starts differ."""
    found = [{name: _found(own, line, planner, group) for name, line in lines.items()} for own in arms]
    if any(len({each["starts"] for each in own.values()}) > 1 for own in found):
        return None
    scores = {name: np.array([own[name][of] for own in found], np.float64) for name in lines}
    if len(arms) == 1:
        return system_bootstrap(scores, {"": contrast}, seed=0, unit="episode")[""]
    return hierarchical_bootstrap(scores, {"": contrast}, seed=0, unit="episode")[""]


def _loss(means: Mapping[str, Any]) -> Any:
    """Percent of the oracle's return that a row loses to it."""
    return 100.0 * (means["oracle"] - means["row"]) / np.abs(means["oracle"])


def _near(group: str, success: float) -> tuple[Claim, Claim]:
    """The goal: contexts fitted without labels or equations come near the oracle of the same planner, and succeed."""
    lines = {"row": FITTED, "oracle": ORACLE}

    def loss(arms: Arms) -> float:
        return float(_loss({name: _found(arms, line, "mppi", group)["return"] for name, line in lines.items()}))

    return (
        Claim(
            f"Contexts fitted without labels lose less than {WITHIN:g} % to the oracle in {group}, both under MPPI",
            (FITTED.arm, ORACLE.arm),
            loss,
            "percent of the oracle's return",
            below=WITHIN,
            null="a random policy loses more than 500",
            interval=lambda a: _paired([a], lines, "mppi", group, _loss),
        ),
        Claim(
            f"They swing up and hold at least {success:g} % of the pendulums of {group}, under MPPI",
            (FITTED.arm,),
            lambda a: 100.0 * _found(a, FITTED, "mppi", group)["success"],
            "success in percent",
            above=success - 0.01,  # at least, of episodes that are no hundredth of a percent
            null=0.0,
            interval=lambda a: success_rate(_found(a, FITTED, "mppi", group)["successes"]),
        ),
    )


def _higher(text: str, one: str, other: str, **bounds: Any) -> Claim:
    """A difference of two lines' returns in OOD_c3 under MPPI."""
    lines = {"one": BY_LABEL[one], "other": BY_LABEL[other]}
    return Claim(
        text,
        tuple(dict.fromkeys(line.arm for line in lines.values())),
        lambda a: _found(a, lines["one"], "mppi", SHOWN)["return"] - _found(a, lines["other"], "mppi", SHOWN)["return"],
        "difference of mean returns in OOD_c3",
        null=0.0,
        interval=lambda a: _paired([a], lines, "mppi", SHOWN, difference("one", "other")),
        **bounds,
    )


CLAIMS = (
    *_near("OOD_c2", 100.0),
    *_near("OOD_c3", 90.0),
    _higher("The fit raises the return of CaDM's encoder", *CONTRASTS[0], above=LEAST),
    _higher("The fit raises the return of the encoder of linear dynamics", *CONTRASTS[2], above=LEAST),
    _higher("Align + Cross raise the return of CaDM's encoder", *CONTRASTS[3], above=LEAST),
    _higher("Align + Cross raise the return of the encoder of linear dynamics", *CONTRASTS[5], above=LEAST),
    _higher("Align + Cross raise the return of the fit of linear dynamics", *CONTRASTS[6], above=LEAST),
)


def _planners(rows: Sequence[Row]) -> list[str]:
    return list(rows[0]["acted"])


def _by_seed(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """The arms of every seed."""
    found: dict[int, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["seed"], {})[row["arm"]] = row
    return list(found.values())


def _present(rows: Sequence[Row]) -> list[Line]:
    ways = {arm: next(iter(own[0]["acted"].values())) for arm, own in arms_of(rows).items()}
    return [line for line in LINES if line.context in ways.get(line.arm, ())]


def _tables(rows: Sequence[Row]) -> list[Table]:
    planners = _planners(rows)
    return [
        *(_returns(rows, planner) for planner in planners),
        *(_gap(rows, planner) for planner in planners),
        *(_losses(rows, planner) for planner in planners),
        *(_contrasts(rows, planner) for planner in planners),
        *(_systems(rows, planner) for planner in planners),
        _probes(rows),
    ]


def _returns(rows: Sequence[Row], planner: str) -> Table:
    arms, lines = arms_of(rows), []
    for line in _present(rows):
        cells = []
        for group in GROUPS:
            own = [_found({line.arm: row}, line, planner, group) for row in arms[line.arm]]
            success = 100.0 * float(np.mean([each["success"] for each in own]))
            cells.append(f"{spread(over_sources([each['return'] for each in own]))} ({success:.0f}%)")
        lines.append([line.label, *cells])
    note = "Mean return ± SD over seeds, success in parentheses. Rows of a seed meet the same systems and starts."
    return Table(f"Return and success under {planner}", ["Context", *GROUPS], lines, note)


def _gap(rows: Sequence[Row], planner: str) -> Table:
    """What each change brings where contexts are furthest from training."""
    lines, present = [], {line.label for line in _present(rows)}
    for lever, *names in LEVERS:
        own = dict(zip(("before", "after"), (BY_LABEL[name] for name in names), strict=True)) | {"oracle": ORACLE}
        arms = [seed for seed in _by_seed(rows) if all(line.arm in seed for line in own.values())]
        if not set(names) <= present or not arms:
            continue
        gain = _paired(arms, {name: own[name] for name in ("before", "after")}, planner, SHOWN, _GAIN)
        lost = (
            _paired(arms, {"row": own[name], "oracle": ORACLE}, planner, SHOWN, _loss) for name in ("before", "after")
        )
        lines.append([lever, *names, *map(_percent, lost), _resolved(gain)])
    note = (
        "Loss: percent of the oracle's return, the same planner's. Gain: difference of returns [95 % interval over "
        "paired episodes and seeds]; one that spans zero is not resolved."
    )
    title = f"The gap of {SHOWN} before and after, under {planner}"
    return Table(title, ["What changes", "Before", "After", "Loss before", "Loss after", "Gain"], lines, note)


def _percent(found: Interval | None) -> str:
    return "n.a." if found is None else f"{found.estimate:.0f} %"


def _losses(rows: Sequence[Row], planner: str) -> Table:
    seeds, lines = [own for own in _by_seed(rows) if ORACLE.arm in own], []
    for line in _present(rows):
        arms = [own for own in seeds if line.arm in own]
        if line == ORACLE or not arms:
            continue
        found = [_paired(arms, {"row": line, "oracle": ORACLE}, planner, group, _loss) for group in GROUPS]
        lines.append([line.label, *map(interval, found)])
    note = "Percent of the oracle's return lost to it [95 % interval over paired episodes and seeds]; negative: more."
    return Table(f"Loss to the oracle under {planner}", ["Context", *GROUPS], lines, note)


def _contrasts(rows: Sequence[Row], planner: str) -> Table:
    lines, present = [], {line.label for line in _present(rows)}
    for one, other in CONTRASTS:
        if not {one, other} <= present:
            continue
        own = {"one": BY_LABEL[one], "other": BY_LABEL[other]}
        arms = [seed for seed in _by_seed(rows) if all(line.arm in seed for line in own.values())]
        if not arms:
            continue
        found = [_paired(arms, own, planner, group, difference("one", "other")) for group in GROUPS]
        lines.append([f"{one} − {other}", *map(_resolved, found)])
    note = (
        "Differences of returns [95 % interval over paired episodes and seeds]; those that span zero are not resolved."
    )
    return Table(f"Contrasts under {planner}", ["Difference", *GROUPS], lines, note)


def _resolved(found: Interval | None) -> str:
    told = interval(found)
    return told if found is None or found.low > 0 or found.high < 0 else f"{told}, not resolved"


def _systems(rows: Sequence[Row], planner: str) -> Table:
    """OOD_c3 by system, because part of the loss there may be the planner's own."""
    arms, present = arms_of(rows), _present(rows)
    found: dict[tuple[float, float], dict[str, list[tuple[float, bool]]]] = {}
    for line in present:
        for row in arms[line.arm]:
            own = _found({line.arm: row}, line, planner, SHOWN)
            for mass, length, *rest in zip(*(own[k] for k in ("mass", "length", "returns", "successes")), strict=True):
                found.setdefault((mass, length), {}).setdefault(line.label, []).append(tuple(rest))  # type: ignore[arg-type]
    lines = []
    for (mass, length), own in sorted(found.items()):
        lines.append([f"{mass:g} kg, {length:g} m", *(_mean(own[line.label]) for line in present)])
    title = f"{SHOWN} by system under {planner}: return, and successes"
    return Table(title, ["System", *(line.label for line in present)], lines)


def _mean(episodes: Sequence[tuple[float, bool]]) -> str:
    returns, succeeded = zip(*episodes, strict=True)
    return f"{np.mean(returns):.0f} ({sum(succeeded)} of {len(succeeded)})"


def _probes(rows: Sequence[Row]) -> Table:
    lines = []
    for arm, own in arms_of(rows).items():
        if arm in TRAINED:
            cells = [spread(over_sources([row["probe"][name] for row in own])) for name in ("torque", "gravity")]
            lines.append([str(own[0]["label"]), *cells])
    note = "R² of linear probes of the contexts of training histories of ten transitions, given or inferred."
    return Table("What contexts hold", ["Model", "1/(m·l²)", "1/l"], lines, note)


_PIXELS = 176  # of a metre in films
PICTURED = ("CaDM, encoder", "Linear, encoder", "Linear, encoder + fit", FITTED.label, ORACLE.label)


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    planner, kept = _kept(rows)
    courses = []
    for line, own in kept.items():
        if line == ORACLE:
            inferred = physical(own["contexts"].astype(np.float64))
        else:
            inferred = np.concatenate([own["contexts"], np.ones((len(own["contexts"]), 1))], 1) @ own["probe"]
        courses.append(Course(line.label, own["states"][:, 0], own["actions"][:, 0], inferred, physical(own["values"])))
    if not courses:
        return []
    mass, length = next(iter(kept.values()))["values"]
    caption = (
        f"The first episode of {SHOWN}, {mass:g} kg and {length:g} m, under {planner}. What a torque and gravity do, "
        "1/(m·l²) and 1/l, are read of contexts by a linear probe of training contexts; dashed is the truth."
    )
    return [Picture("episode", f"One episode of {SHOWN}", caption, courses_figure(courses, ("1/(m·l²)", "1/l")))]


def _kept(rows: Sequence[Row]) -> tuple[str, dict[Line, dict[str, Any]]]:
    """The planner and what is kept of one episode by line, and the probe's weights where contexts are a model's."""
    arms, planners = _by_seed(rows)[0], _planners(rows)
    planner, found = "mppi" if "mppi" in planners else planners[-1], {}
    for line in (BY_LABEL[label] for label in PICTURED):
        if line.arm in arms:
            arrays = arrays_of(arms[line.arm], "context-control")
            start = f"{planner}|{line.context}|"
            found[line] = {
                name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)
            }
            found[line] |= {"probe": arrays["probe"]} if "probe" in arrays else {}
    return planner, found


def _films(rows: Sequence[Row]) -> dict[str, bytes]:
    """The pictured episode, its lines side by side, the middle metre of the view."""
    panels = {}
    for line, own in _kept(rows)[1].items():
        states = own["states"][::2]
        drawn = pendulum.WORLD.picture(
            states, np.broadcast_to(own["values"], (len(states), 2)), (4 * _PIXELS, 4 * _PIXELS)
        )
        middle = slice(3 * _PIXELS // 2, 5 * _PIXELS // 2)
        panels[line.label] = drawn[:, middle, middle]
    return {f"{SHOWN}.gif": film(panels, milliseconds=100)} if panels else {}


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    starts: dict[tuple[int, str], set[str]] = {}
    told = []
    for row in rows:
        for planner, ways in row["acted"].items():
            for context, each in ways.items():
                for group, own in each["groups"].items():
                    starts.setdefault((row["seed"], group), set()).add(own["starts"])
                if "seconds" in each:
                    told.append(f"{row['label']}, {context}, {planner}, seed {row['seed']}: {each['seconds']:.0f}")
    same = "the same" if all(len(each) == 1 for each in starts.values()) else "NOT the same"
    return {"Systems and starts": f"{same} in all rows of a seed", "Seconds of evaluation": "; ".join(told)}


PENDULUM_CONTEXT_TARGETS = (
    Target(
        LABEL,
        "Pendulum control by contexts that are told, encoded or fitted",
        (PlannersReferences(WORLD), Group(WORLD, TRAINED, ("context-control",))),
        _tables,
        CLAIMS,
        _pictures,
        note="All models are trained on the same log of ID systems and with as many updates. A fit is of the last ten "
        "transitions of the running episode, by prediction error alone; it reads no label and no equation. Only the "
        "rows of labels read properties, in training.",
        facts=_facts,
        files=_films,
    ),
)
