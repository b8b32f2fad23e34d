"""The D-Clean report: terminal table, `results.json`, figures and one self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sklearn.decomposition import PCA

from sprii_envs.banks import Bank
from sprii_train.analysis.donors import encode_split
from sprii_train.analysis.formation import standardise
from sprii_train.analysis.statistics import Spread, over_sources
from sprii_train.checkpoints import load
from sprii_train.data import WindowReader
from sprii_train.experiments.dclean import EVALUATION_SEED, DCleanCell, Preset
from sprii_train.experiments.grid import folder_of
from sprii_train.fit import resolve_precision
from sprii_train.learners.jepa import JEPA
from sprii_train.recipes import RECIPES
from sprii_train.records import read_rows
from sprii_train.reports import figures
from sprii_train.reports.claims import D_CLEAN_CLAIMS, Verdict, judge
from sprii_train.reports.page import Page, Picture, Table, print_verdicts, spread, versions, write_page
from sprii_train.reports.paper import paper_table
from sprii_train.terminal import console

COLUMNS = {
    "drag_r2": "Drag R² ↑",
    "between_within": "Between/within ↑",
    "self_h16": "Self h16 ↓",
    "correct_h16": "Correct ↓",
    "gap": "Gap ↑",
    "target_variance": "Target variance",
}


@dataclass(frozen=True)
class Summary:
    """Everything the report says, before it is laid out."""

    labels: dict[str, str]
    measured: dict[str, dict[str, Spread]]
    paper: dict[str, dict[str, Spread]]
    verdicts: list[Verdict]


def summarise(rows: Sequence[dict[str, Any]], *, judged: bool = True) -> Summary:
    """Aggregate rows over sources and judge the paper's statements, unless the budget is no test of them."""
    arms = [arm for arm in RECIPES if any(row["arm"] == arm for row in rows)]
    measured = {
        arm: {
            column: over_sources([row[column] for row in rows if row["arm"] == arm])
            for column in COLUMNS
            if all(row.get(column) is not None for row in rows if row["arm"] == arm)
        }
        for arm in arms
    }
    labels = {arm: RECIPES[arm].label for arm in arms}
    no_test = Verdict("The paper's statements", "not tested", "this preset checks that everything runs")
    verdicts = judge(D_CLEAN_CLAIMS, rows) if judged else [no_test]
    return Summary(labels, measured, paper_table("tab:dclean-full"), verdicts)


def write_report(
    rows: Sequence[dict[str, Any]],
    cells: Sequence[DCleanCell],
    preset: Preset,
    bank: Bank,
    root: Path,
    command: str,
    facts: dict[str, str],
) -> Summary:
    """Write `results.json`, `report.html` and PNGs under `root`, each whole (`report-validation.html` and so on).

    Args:
        rows: one for each cell, in the same order.
        cells: what was run; their folders under `root/cells` hold models and metrics.
        command: the command that repeats the run.
        facts: further lines for the end of the report (time, machine).
    """
    summary = summarise(rows, judged=preset.judged)
    population = cells[0].population
    suffix = "" if population == "test" else f"-{population}"
    sources = len({row["seed"] for row in rows})
    systems, rollouts = bank.protocol.counts[population], bank.protocol.episodes_per_system(population)
    budget = (
        f"{preset.train.steps:,} steps, {sources} source{'s' if sources > 1 else ''}, {systems} {population} systems"
    )
    everything = facts | {
        "Population": f"{systems} {population} systems × {rollouts} episodes",
        "Bank": f"{bank.protocol.name} v{bank.protocol.version}, fingerprint {bank.fingerprint[:16]}",
        "Learner": ", ".join(f"{k} {v}" for k, v in asdict(preset.learner).items()),
        "Training": ", ".join(f"{k} {v}" for k, v in asdict(preset.train).items() if k != "seed")
        + f" ({resolve_precision(preset.train)})",
        "Choices": "native loss on all windows; Cross in both directions; Align–Random pairs the same recipients with "
        f"another system's episode; SIGReg samples {preset.learner.sigreg_samples}",
        "Versions": versions(),
    }
    rows_shown, grey = [], set()
    for arm, ours in summary.measured.items():
        rows_shown.append([summary.labels[arm], "ours", *(spread(ours.get(c)) for c in COLUMNS)])
        grey.add(len(rows_shown))
        rows_shown.append(["", "paper", *(spread(summary.paper.get(arm, {}).get(c)) for c in COLUMNS)])
    page = Page(
        title=f"D-Clean, preset {preset.name}",
        lead=f"{budget}. {preset.note[:1].upper() + preset.note[1:]}.",
        tables=[
            Table(
                "The table, beside the paper's",
                ["Arm", "", *COLUMNS.values()],
                rows_shown,
                "Mean ± sample SD over sources (none for one source). Errors are mean squared errors in each arm's own "
                "embedding, so compare them beside the target's variance. Correct uses another episode of the same "
                "system as donor, Gap is shuffled-donor minus correct-donor error. The paper does not print "
                "between/within or the target's variance for this table.",
                frozenset(grey),
            )
        ],
        verdicts=summary.verdicts,
        pictures=[
            Picture(
                "summary",
                "Measures",
                "Bars are measured here, diamonds are the paper's.",
                figures.summary(summary.labels, summary.measured, summary.paper, budget, rollouts),
            ),
            Picture(
                "atlas",
                "What the contexts look like",
                f"Colour is drag, which no observation shows. Source {cells[0].train.seed}; axes are the first two "
                "principal components of each arm.",
                figures.atlas(_atlas_panels(cells, bank, root)),
            ),
            Picture("curves", "Training", "Every source is a line.", figures.curves(_curves(cells, root))),
        ],
        command=command,
        facts=everything,
        data={
            "experiment": "dclean",
            "table": "tab:dclean-full",
            "preset": preset.name,
            "population": population,
            "bank": bank.fingerprint,
            "learner": asdict(preset.learner),
            "train": asdict(preset.train) | {"precision": resolve_precision(preset.train), "seed": None},
            "rows": list(rows),
            "summary": {
                arm: {c: {"mean": s.mean, "sd": s.sd if s.sd == s.sd else None, "n": s.n} for c, s in columns.items()}
                for arm, columns in summary.measured.items()
            },
        },
    )
    write_page(page, root, suffix)
    return summary


def print_summary(summary: Summary) -> None:
    """The table beside the paper's and the verdicts, on the terminal."""
    from rich import box
    from rich.table import Table

    screen = console()
    shown = [column for column in COLUMNS if column != "target_variance"]
    table = Table(title="ours, and below it the paper (20,000 steps)", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("arm", no_wrap=True)
    for column in shown:
        table.add_column(COLUMNS[column], justify="right")
    for arm, columns in summary.measured.items():
        table.add_row(summary.labels[arm], *(spread(columns.get(c)) for c in shown))
        table.add_row("", *(spread(summary.paper.get(arm, {}).get(c)) for c in shown), style="dim", end_section=True)
    screen.print(table)
    print_verdicts(summary.verdicts, screen)


def _atlas_panels(cells: Sequence[DCleanCell], bank: Bank, root: Path) -> list:
    panels = []
    for cell in cells:
        if cell.train.seed != cells[0].train.seed:
            continue
        learner = load(folder_of(cell, root / "cells") / "model")
        assert isinstance(learner, JEPA)
        reader = WindowReader(bank, learner.config.history, learner.config.horizons, properties=("drag",))
        train, held_out = (encode_split(learner, reader, s, seed=EVALUATION_SEED) for s in ("train", cell.population))
        codes, others = standardise(train.codes.z_p.double().numpy(), held_out.codes.z_p.double().numpy())
        pca = PCA(min(2, codes.shape[1]), svd_solver="full").fit(codes)
        xy = pca.transform(others)
        if xy.shape[1] == 1:
            xy = xy.repeat(2, axis=1)
        panels.append((RECIPES[cell.arm].label, xy, held_out.table["drag"], pca.explained_variance_ratio_))
    return panels


def _curves(cells: Sequence[DCleanCell], root: Path) -> list:
    runs = []
    for cell in cells:
        rows = read_rows(folder_of(cell, root / "cells") / "metrics.jsonl")
        runs.append((cell.arm, RECIPES[cell.arm].label, rows))
    return runs
