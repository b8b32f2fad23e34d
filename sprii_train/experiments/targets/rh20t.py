"""Recorded manipulation: `tab:rh20t-complete-self`, `tab:v3-rh-risk`, `tab:v3-rh-validation`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Array, Contrast, Interval, difference, mean_of
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    arrays_of,
    data_facts,
    data_of,
    spread_of,
    value_of,
)
from sprii_train.recipes import SCENE_RECIPES
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.manipulation_figures import task_differences
from sprii_train.reports.page import Picture, Table, interval, spread

MEASURE = "scenes"
SEED = 20_260_923
"""Of task draws (`tab:appendix-rng-settings`)."""
ENDPOINTS = {
    "force_h1": "Force h1", "force_h4": "Force h4", "force_h16": "Force h16",
    "tcp_h4": "TCP h4, cm", "tcp_h16": "TCP h16, cm",
}  # fmt: skip
NATIVE, STRUCTURE, CROSS, JOINT, MONO = (
    f"rh20t-{arm}" for arm in ("native", "structure", "cross-indep", "ac-indep", "mono-qd")
)
RANDOM, LOW, OWN = "rh20t-ac-random", "rh20t-ld-cross-indep", "rh20t-cross-sameep"
CONDITIONS = tuple(name for name in SCENE_RECIPES if name != MONO)
TEST, VALIDATION = "test", "validation"
NOTE = (
    "Errors are means of tasks: forces and torques in squared training SD, the tool's position in cm. Unless "
    "recordings were imported, scenes are of a simulated stand-in: this then tests the method on other data than the "
    "paper's numbers are of."
)
NO_DONOR = "a learner that ignores its donor has 0"

PLAIN = {endpoint: label.removesuffix(", cm") for endpoint, label in ENDPOINTS.items()}

Term = tuple[str, str]
"""An arm and a condition."""


def _values(row: Row, population: str, condition: str, endpoint: str) -> Array:
    """Errors by task, of the tasks that have any."""
    found = arrays_of(row, MEASURE)[f"{population}|{condition}|{endpoint}"].astype(np.float64)
    return found[np.isfinite(found)]


def task_interval(
    rows: Mapping[str, Sequence[Row]], population: str, endpoint: str, terms: Mapping[str, Term], contrast: Contrast
) -> Interval | None:
    """Percentile interval over tasks of a contrast of mean errors, sources averaged first; None with fewer than two.

    Args:
        rows: of each arm, one a source.
        terms: name in the contrast → arm and condition.
    """
    found = {
        name: np.stack([_values(row, population, condition, endpoint) for row in rows[arm]])
        for name, (arm, condition) in terms.items()
    }
    if min(values.shape[1] for values in found.values()) < 2:
        return None
    return system_bootstrap(found, {"": contrast}, seed=SEED, unit="task")[""]


def _claim(
    text: str, population: str, endpoint: str, plus: Term, minus: Term, *, paper: float | str | None, sign: float = 1.0,
    less: tuple[Term, Term] | None = None, null: float | str = 0.0,
) -> Claim:  # fmt: skip
    """A difference of two mean errors, or of two such differences, whose sign is told."""
    terms = {"a": plus, "b": minus} | ({} if less is None else {"c": less[0], "d": less[1]})
    contrast = difference("a", "b") if less is None else _twice
    arms = tuple(dict.fromkeys(arm for arm, _ in terms.values()))

    def measure(a: Arms) -> float:
        means = {name: a[arm]["errors"][population][condition][endpoint] for name, (arm, condition) in terms.items()}
        return float(contrast(means))

    what = (
        f"difference of {ENDPOINTS[endpoint]}"
        if less is None
        else f"difference of differences of {ENDPOINTS[endpoint]}"
    )
    above, below = (0.0, math.inf) if sign > 0 else (-math.inf, 0.0)
    return Claim(
        text, arms, measure, what, above=above, below=below, paper=paper, null=null,
        interval=lambda a: task_interval({arm: [a[arm]] for arm in arms}, population, endpoint, terms, contrast),
    )  # fmt: skip


def _twice(means: Mapping[str, Any]) -> Any:
    return (means["a"] - means["b"]) - (means["c"] - means["d"])


FORECAST_PAPER = {  # Structure, Cross–Indep under a matched donor
    "force_h1": (0.7991, 0.6612), "force_h4": (1.226, 1.128), "force_h16": (1.551, 1.521),
    "tcp_h4": (2.429, 2.139), "tcp_h16": (4.952, 4.584),
}  # fmt: skip
FORECAST_CLAIMS = (
    *(
        _claim(
            f"Matched donor, {PLAIN[endpoint]}: Cross–Indep predicts better than Structure", TEST, endpoint,
            (CROSS, "matched"), (STRUCTURE, "matched"), paper=after - before, sign=-1.0,
        )
        for endpoint, (before, after) in FORECAST_PAPER.items()
    ),
    _claim(
        "Structure, force h4: a matched donor in place of the query's own context raises the error", TEST, "force_h4",
        (STRUCTURE, "matched"), (STRUCTURE, "self"), paper=1.226 - 1.099, null=NO_DONOR,
    ),
    _claim(
        "Matched donor, force h4: donors of other scenes train a better reader of them than the query's own scene does",
        TEST, "force_h4", (CROSS, "matched"), (OWN, "matched"), paper=1.128 - 1.140, sign=-1.0,
    ),
    _claim(
        "Matched donor, force h1: sensors alone predict better than pictures and sensors", TEST, "force_h1",
        (LOW, "matched"), (CROSS, "matched"), paper=0.6039 - 0.6612, sign=-1.0, null="it asks nothing of contexts",
    ),
)  # fmt: skip
RISK_CLAIMS = (
    _claim(
        "Force h4: hard donors raise the error of Align + Cross", TEST, "force_h4",
        (JOINT, "bank:hard"), (JOINT, "bank:matched"), paper=0.00260,
    ),
    _claim(
        "TCP h16: hard donors raise the error of Align + Cross", TEST, "tcp_h16",
        (JOINT, "bank:hard"), (JOINT, "bank:matched"), paper=0.0891,
    ),
    _claim(
        "Force h4: Align + Cross is more specific to its donor than the monolithic reader", TEST, "force_h4",
        (JOINT, "bank:hard"), (JOINT, "bank:matched"), paper=0.00230,
        less=((MONO, "bank:hard"), (MONO, "bank:matched")),
    ),
    *(
        _claim(
            f"{PLAIN[endpoint]}, {donor} donor: the monolithic reader's error is lower than that of Align + Cross",
            TEST, endpoint, (JOINT, f"bank:{donor}"), (MONO, f"bank:{donor}"), paper=paper,
            null="it asks nothing of contexts",
        )
        for endpoint, donor, paper in (
            ("force_h4", "hard", 0.0161), ("tcp_h16", "matched", 0.5503), ("tcp_h16", "hard", 0.6218),
        )
    ),
)  # fmt: skip
VALIDATION_CLAIMS = (
    *(
        _claim(
            f"Align + Cross, {PLAIN[endpoint]}: without commands the error rises", VALIDATION, endpoint,
            (JOINT, "still"), (JOINT, "matched"), paper=paper, null="it asks nothing of contexts",
        )
        for endpoint, paper in (("force_h4", 0.002074), ("tcp_h4", 0.06439), ("tcp_h16", 0.1399))
    ),
    *(
        _claim(
            f"{label}, {PLAIN[endpoint]}: a donor of a shuffled task raises the error", VALIDATION, endpoint,
            (arm, "shuffled"), (arm, "matched"), paper=paper,
        )
        for arm, label, endpoint, paper in (
            (JOINT, "Align + Cross", "force_h4", 0.009692), (JOINT, "Align + Cross", "tcp_h4", 0.4705),
            (JOINT, "Align + Cross", "tcp_h16", 0.3385), (CROSS, "Cross", "force_h4", 0.01711),
        )
    ),
    *(
        _claim(
            f"{label}, force h4: {count} donors of other tasks raise the error over as many of the task", VALIDATION,
            "force_h4", (arm, f"random_k{count}"), (arm, f"correct_k{count}"), paper=paper,
        )
        for arm, label, count, paper in ((JOINT, "Align + Cross", 4, 0.00794), (CROSS, "Cross", 4, 0.01602))
    ),
    *(
        _claim(
            f"Align + Cross, {PLAIN[endpoint]}: the effect of the donors' task is less with four than with one",
            VALIDATION, endpoint, (JOINT, "random_k4"), (JOINT, "correct_k4"), paper=paper, sign=-1.0,
            less=((JOINT, "random_k1"), (JOINT, "correct_k1")),
        )
        for endpoint, paper in (("tcp_h4", 0.2978 - 0.4686), ("tcp_h16", 0.2191 - 0.3368))
    ),
)  # fmt: skip


def _errors_table(rows: Sequence[Row], population: str, condition: str, title: str, note: str = "") -> Table:
    lines: list[list[str]] = []
    for own in arms_of(rows).values():
        cells = [spread_of(own, f"errors.{population}.{condition}.{endpoint}") for endpoint in ENDPOINTS]
        lines.append([_label(own[0]), *("–" if cell is None else spread(cell) for cell in cells)])
    grey = range(len(lines), len(lines) + len(BESIDE))
    first = next((own for own in arms_of(rows).values() if "untrained" in own[0]["baseline"][population]), rows)
    for name, label in BESIDE.items():
        cells = [spread_of(first, f"baseline.{population}.{name}.{endpoint}") for endpoint in ENDPOINTS]
        lines.append([label, *(spread(cell) for cell in cells)])
    return Table(title, ["Condition", *ENDPOINTS.values()], lines, note, frozenset(grey))


BESIDE = {"last": "the last value stays", "mean": "training mean", "untrained": "first weights"}


def _label(row: Row) -> str:
    return str(row["label"]).removeprefix("RH20T, ")


def _forecast_tables(rows: Sequence[Row]) -> list[Table]:
    tasks, asked = value_of(rows[0], f"tasks.{TEST}"), value_of(rows[0], f"queries.{TEST}.all")
    note = f"{asked} queries of {tasks} held-out tasks; SD over sources. A dash: the input has no place for a donor."
    titles = {"self": "Self-context", "matched": "Matched donor", "shuffled": "Donor of a shuffled task"}
    return [_errors_table(rows, TEST, condition, title, note) for condition, title in titles.items()]


def _contrast_cell(
    arms: Mapping[str, Sequence[Row]], population: str, endpoint: str, contrast: Contrast, **terms: Term
) -> str:
    needed = {arm for arm, _ in terms.values()}
    if not needed <= arms.keys():
        return "n.a."
    return interval(task_interval(arms, population, endpoint, terms, contrast))


def _risk_tables(rows: Sequence[Row]) -> list[Table]:
    arms, ends = arms_of(rows), ("force_h4", "tcp_h16")
    if not _has(rows, "bank:hard"):
        return []

    def cell(endpoint: str, contrast: Contrast, **terms: Term) -> str:
        return _contrast_cell(arms, TEST, endpoint, contrast, **terms)

    hard, matched = "bank:hard", "bank:matched"
    specific = [
        [
            ENDPOINTS[e],
            *(cell(e, difference("a", "b"), a=(arm, hard), b=(arm, matched)) for arm in (JOINT, MONO)),
            cell(e, _twice, a=(JOINT, hard), b=(JOINT, matched), c=(MONO, hard), d=(MONO, matched)),
        ]
        for e in ends
    ]
    donors = ("matched", "commanded", "calibrated", "hard", "random")
    labels = {JOINT: "Align + Cross", MONO: "Monolithic"}
    absolute = [
        [ENDPOINTS[e], labels[arm], *(cell(e, mean_of("a"), a=(arm, f"bank:{donor}")) for donor in donors)]
        for e in ends
        for arm in labels
    ]
    apart = [
        [ENDPOINTS[e], donor, cell(e, difference("a", "b"), a=(JOINT, f"bank:{donor}"), b=(MONO, f"bank:{donor}"))]
        for e in ends
        for donor in donors
    ]
    asked, tasks = value_of(rows[0], f"queries.{TEST}.bank"), value_of(rows[0], f"tasks.{TEST}")
    note = (
        f"{asked} queries that have every kind of donor, of {tasks} tasks or fewer; 95 % intervals over tasks, sources "
        "averaged first. Hard: the mean of donors of another task with the nearest commands and of those under the "
        "same calibration."
    )
    return [
        Table("Donor specificity", ["Endpoint", "S of Align + Cross", "S of Monolithic", "D"], specific, note),
        Table("Absolute risk", ["Endpoint", "Model", *donors], absolute),
        Table("Align + Cross minus Monolithic", ["Endpoint", "Donor", "Difference"], apart),
    ]


def _has(rows: Sequence[Row], condition: str) -> bool:
    return all(condition in row["errors"][TEST] for row in rows)


def _validation_tables(rows: Sequence[Row]) -> list[Table]:
    arms, ends = arms_of(rows), ("force_h4", "tcp_h4", "tcp_h16")
    labels = {arm: _label(own[0]) for arm, own in arms.items()}

    def cells(arm: str, more: str, less: str) -> list[str]:
        return [_contrast_cell(arms, VALIDATION, e, difference("a", "b"), a=(arm, more), b=(arm, less)) for e in ends]

    acts = [[f"{labels[arm]}: commands zeroed", *cells(arm, "still", "matched")] for arm in arms]
    acts += [[f"{labels[arm]}: shuffled task", *cells(arm, "shuffled", "matched")] for arm in arms]
    counted = [[labels[arm], str(k), *cells(arm, f"random_k{k}", f"correct_k{k}")] for arm in arms for k in (1, 2, 4)]
    columns = [ENDPOINTS[e] for e in ends]
    note = f"{value_of(rows[0], f'tasks.{VALIDATION}')} validation tasks; 95 % intervals over tasks, sources averaged."
    return [
        Table("Action and donor interventions", ["Intervention", *columns], acts, note),
        Table("Random minus correct donors, codes of K averaged", ["Model", "K", *columns], counted, note),
    ]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    arms = arms_of(rows)
    if not {CROSS, STRUCTURE} <= arms.keys():
        return []
    found = {}
    for endpoint, label in ENDPOINTS.items():
        means = [
            np.mean([_values(r, TEST, "matched", endpoint) for r in arms[arm]], axis=0) for arm in (CROSS, STRUCTURE)
        ]
        apart = task_interval(
            arms, TEST, endpoint, {"a": (CROSS, "matched"), "b": (STRUCTURE, "matched")}, difference("a", "b")
        )
        found[label] = (means[0] - means[1], apart)
    words = f"Cross–Indep minus Structure on held-out tasks, a dot each; mean and 95 % interval. Data: {data_of(rows)}."
    return [Picture("tasks", "Matched-donor forecasting", words, task_differences(found))]


def _target(label: str, title: str, arms: tuple[str, ...], tables: Callable, claims: tuple[Claim, ...], **more: Any):
    return Target(
        label, title, (Group("rh20t", arms, (MEASURE,)),), tables, claims, note=NOTE, facts=data_facts, **more
    )


RH20T_TARGETS = (
    _target(
        "tab:rh20t-complete-self", "RH20T: forecasting under the query's own context and a matched donor's", CONDITIONS,
        _forecast_tables, FORECAST_CLAIMS, pictures=_pictures,
    ),
    _target(
        "tab:v3-rh-risk", "RH20T: donor specificity and absolute risk", (JOINT, MONO), _risk_tables, RISK_CLAIMS,
    ),
    _target(
        "tab:v3-rh-validation", "RH20T: use of commands and number of donors", (JOINT, CROSS, RANDOM),
        _validation_tables, VALIDATION_CLAIMS,
    ),
)  # fmt: skip
