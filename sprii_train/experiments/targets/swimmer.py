"""Table `tab:v3-swimmer`: a system's own persistent update against another's, through three frozen predictors."""

from collections.abc import Sequence

import numpy as np

from sprii_train.analysis.statistics import Interval
from sprii_train.experiments.measures.fixed_weight import DRAWS
from sprii_train.experiments.targets.base import Group, Row, Target, arrays_of
from sprii_train.recipes import SWIMMER_RECIPES
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table
from sprii_train.reports.swimmer_figures import gain_histograms, gain_maps

UNIT = 1e5
"""Gains are told in 1e-5 of the error's unit, as in the paper."""

PAPER = {"swimmer-jepa": 5.329, "swimmer-gru-64101": 6.930, "swimmer-gru-64103": 6.661}

REFERENCES = {
    "shuffled": "fitted to other systems' Δ",
    "oracle": "five true scales for Δ",
    "untrained": "base with first weights",
}


def _interval(arm: str):
    def found(arms: Arms) -> Interval:
        row = arms[arm]
        low, high = row["gain_interval"]
        return Interval(UNIT * row["gain"], UNIT * low, UNIT * high, 0.95, row["systems"], "system")

    return found


def _claim(arm: str) -> Claim:
    return Claim(
        f"The own system's update lowers the error of {SWIMMER_RECIPES[arm].label} below another system's",
        (arm,),
        lambda a: UNIT * a[arm]["gain"],
        "gain in 1e-5",
        above=0.0,
        paper=PAPER[arm],
        null=0.0,
        interval=_interval(arm),
    )


CLAIMS = tuple(map(_claim, PAPER))


def _named(row: Row, rows: Sequence[Row]) -> str:
    several = len({one["seed"] for one in rows}) > 1
    return f"{row['label']}, source {row['seed']}" if several else str(row["label"])


def _cells(found: Row) -> list[str]:
    low, high = found["gain_interval"]
    return [
        f"{UNIT * found['gain']:.3f}",
        f"[{UNIT * low:.3f}, {UNIT * high:.3f}]",
        f"{100 * found['positive']:.2f}%",
        f"{UNIT * found['standard_error']:.3f}",
        f"{UNIT * found['gain_clean']:.3f}",
    ]


def _tables(rows: Sequence[Row]) -> list[Table]:
    columns = ["Gain", "95% interval", "Positive systems", "Standard error", "Gain, targets without noise"]
    lines = [[_named(row, rows), *_cells(row)] for row in rows]
    beside = [
        [f"{_named(row, rows)}: {words}", *_cells(row[name])] for row in rows for name, words in REFERENCES.items()
    ]
    systems = rows[0]["systems"]
    return [
        Table(
            "Gain: error with another system's update minus error with the own, in 1e-5",
            ["Frozen base", *columns],
            lines,
            f"{systems} prospective systems, 36 rows each, averaged over {len(rows[0]['by_adapter'])} adapters; "
            f"interval over systems, {DRAWS:,} draws. Errors are means of 32 numbers in SDs of the training targets.",
        ),
        Table(
            "References, in 1e-5, of one adapter each",
            ["Base and update", *columns],
            beside,
            "Zero updates have a gain of 0, exactly.",
        ),
        Table(
            "Errors",
            ["Frozen base", "Own update", "Another's", "No update", "No segment", "Anchor", "Anchor and candidate"],
            [
                [
                    _named(row, rows),
                    *(f"{row['errors'][name]:.6f}" for name in ("own", "wrong", "none")),
                    *(f"{row['base'][f'k{k}']:.6f}" for k in range(3)),
                ]
                for row in rows
            ],
            "The last three are of the base alone. Without an update it has seen both segments all the same.",
        ),
        Table(
            "Gain by adapter, in 1e-5",
            ["Frozen base", *(f"Adapter {i}" for i in range(1, 1 + len(rows[0]["by_adapter"])))],
            [[_named(row, rows), *(f"{UNIT * gain:.3f}" for gain in row["by_adapter"])] for row in rows],
        ),
    ]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    by_base = {_named(row, rows): arrays_of(row, "fixed-weight") for row in rows}
    systems = {name: UNIT * arrays["own"].astype(np.float64) for name, arrays in by_base.items()}
    maps = {name: UNIT * arrays["by_row"].astype(np.float64) for name, arrays in by_base.items()}
    return [
        Picture(
            "systems", "Gain by system", "Mean over 36 rows and adapters; the line is their mean.",
            gain_histograms(systems),
        ),
        Picture(
            "rows", "Gain by query and candidate", "Mean over systems and adapters, in 1e-5.", gain_maps(maps)
        ),
    ]  # fmt: skip


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    return {
        "True cost": f"{rows[0]['true_cost']:.3g}: how far a query ends from where it does, squared and in the errors' "
        "unit, if another system's scales move it from the same start; what a simulator that is told the system gains",
        "Resolution": "; ".join(
            f"{_named(row, rows)}: standard error {UNIT * row['standard_error']:.3f}e-5" for row in rows
        ),
        "Epochs kept": "; ".join(f"{_named(row, rows)}: {row['epoch']}" for row in rows),
        "Evaluation": f"{sum(row['evaluation_seconds'] for row in rows) / 60:.0f} process-minutes, adapters included",
    }


SWIMMER_TARGETS = (
    Target(
        "tab:v3-swimmer",
        "Swimmer: persistent updates through frozen weights",
        (Group("swimmer", tuple(SWIMMER_RECIPES), ("fixed-weight",)),),
        _tables,
        CLAIMS,
        _pictures,
        "Ours, where the paper says nothing: segments of 0.4 s; candidates have the histories' waveforms; links, "
        "limits of joints and the motors' limit of 1 N·m are this environment's; torques of a landmark are those "
        "of the step that leads to it; the seeds of training and selection systems; the draw of each row is drawn "
        "anew in every epoch; selection rows take turns of draws; an adapter of a Masked-GRU is selected on the "
        "systems that its base was not. Gains depend on them all: compare signs and sizes.",
        facts=_facts,
    ),
)
