"""The report of any setting, `setting:NAME`: what was formed, what it is used for, what it is worth.

It names no setting. A setting of one's own gets it by being registered.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import difference, mean_of
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, spread_table, stacked
from sprii_train.experiments.targets.geometry import interval_table
from sprii_train.reports.page import Table, interval, spread
from sprii_train.settings.base import Setting

PREFIX = "setting:"
ARMS = ("structure", "align", "cross", "align-cross", "align-random")
CORE = ("structure", "align-cross", "align-random")
MEASURES = ("formation", "untrained", "task")
READERS = {
    "null": "Null",
    "persistent": "Persistent",
    "decode": "Decode",
    "oracle": "Oracle",
    "r0": "R0",
    "m1": "M1",
    "m2": "M2",
}
SEED = 0


def setting_target(setting: Setting) -> Target:
    """The target of a setting; what its learner or its store cannot serve is left out, with the reason."""

    def tables(rows: Sequence[Row]) -> list[Table]:
        splits = [name for name, part in rows[0].items() if isinstance(part, Mapping) and "ratio" in part]
        return [table for split in splits for table in _formation(setting, rows, split)] + _task(rows)

    return Target(
        PREFIX + setting.name,
        f"Formation, Use and Value on {setting.name}",
        (Group(setting.name, setting.arms or ARMS, MEASURES, () if setting.arms else CORE),),
        tables,
        setting.claims,
        partial=True,
        note="Align–Random pairs histories of different systems: what an arm has over it, the relation gave. Untrained "
        "is the same network with its first weights."
        if not setting.arms
        else "Untrained is the same network with its first weights.",
    )


def _formation(setting: Setting, rows: Sequence[Row], split: str) -> list[Table]:
    names = [factor.name for factor in setting.factors]
    geometry = {f"{split}.ratio": "Between/within"} | {f"{split}.rho_{name}": f"ρ {name}" for name in names}
    probes = {
        f"{split}.{level}_{kind}_{name}": f"R² {name}, {kind}, {of}"
        for level, kind, of in (
            ("centroid", "ridge", "system"),
            ("centroid", "mlp", "system"),
            ("window", "ridge", "history"),
        )
        for name in names
    }
    first = rows[0][split]
    errors = {
        f"{split}.{kind}{key.removeprefix('self')}": f"{heading}{key.removeprefix('self').replace('_', ' ')}"
        for key in first
        if key.startswith("self")
        for kind, heading in (("self", "Own"), ("correct", "Same system's"), ("shuffled", "Another system's"))
    }
    return [
        interval_table(rows, {heading: path for path, heading in geometry.items()}, of=split),
        _table(
            rows, f"Probes of codes, {split} systems", probes, "Ridge and MLP probes are fitted on training systems."
        ),
        _table(
            rows,
            f"Task loss by the source of the context, {split} systems",
            errors,
            "Weights stay; only the context changes.",
        ),
    ]


def _table(rows: Sequence[Row], title: str, columns: Mapping[str, str], note: str) -> Table:
    """One row an arm and the untrained network's under it."""
    lines, grey = [], set()
    for group in arms_of(rows).values():
        lines.append([str(group[0]["label"]), *(spread(spread_of(group, path)) for path in columns)])
        first_weights = [spread_of(group, f"untrained.{path}") for path in columns]
        if any(value is not None for value in first_weights):
            grey.add(len(lines))
            lines.append(["untrained", *map(spread, first_weights)])
    return Table(title, ["Arm", *columns.values()], lines, note, frozenset(grey))


def _task(rows: Sequence[Row]) -> list[Table]:
    served = [row for row in rows if "value_null" in row]
    if not served:
        return []
    columns = {label: f"value_{name}" for name, label in READERS.items()}
    value = spread_table(
        served, "Errors of readers, validation systems", columns, first="Arm",
        note="Standardised squared errors. Null sees the present alone, Persistent the context too, Decode the "
        "properties that are read from it, Oracle the true ones; M1 and M2 add a residual to R0, from the present and "
        "with the context.",
    )  # fmt: skip
    return [value, _contrasts(served)]


def _contrasts(rows: Sequence[Row]) -> Table:
    contrasts: dict[str, tuple[Any, tuple[str, ...]]] = {
        "Null − Persistent": (difference("null", "persistent"), ("null", "persistent")),
        "M1 − M2": (difference("m1", "m2"), ("m1", "m2")),
        "Wrong − own, Persistent": (difference("wrong", "persistent"), ("wrong", "persistent")),
        "Error of Persistent": (mean_of("persistent"), ("persistent",)),
    }
    lines = []
    for group in arms_of(rows).values():
        grids = {name: stacked(group, "task", f"value|{name}").mean(-1) for name in READERS}
        grids["wrong"] = stacked(group, "task", "wrong|persistent").mean(-1)
        cells = [
            interval(system_bootstrap({name: grids[name] for name in names}, {"": contrast}, seed=SEED)[""])
            for contrast, names in contrasts.values()
        ]
        lines.append([str(group[0]["label"]), *cells])
    return Table(
        "Contrasts [95 % interval over systems]",
        ["Arm", *contrasts],
        lines,
        "Positive differences: the context is worth something, and its being of the right system too. Conditional on "
        "the sources.",
    )
