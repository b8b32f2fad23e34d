"""The Overcooked report: `tab:overcooked-complete` and `tab:v3-overcooked`, beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sprii_train.analysis.statistics import over_sources
from sprii_train.experiments.overcooked import PARTNER_RECIPES, PartnerPreset
from sprii_train.overcooked.ippo import RETURNS
from sprii_train.reports.claims import Claim, Verdict, judge
from sprii_train.reports.page import Page, Picture, Table, number, paper_table_of, spread, versions
from sprii_train.reports.paper import paper_panels

Row = Mapping[str, Any]

COLOURS = {"h": "#7f7f7f", "h-vc": "#4c72b0", "h-sprii": "#2a8c55", "h-random": "#c44e52"}
RATIOS = ("distance_ratio", "alias_ratio")
VC, SPRII, RANDOM = "h-vc", "h-sprii", "h-random"


def _lead(column: Any, low: str = VC) -> Any:
    return lambda a: column(a[SPRII]) - column(a[low])


def _error(cohort: str) -> Any:
    return lambda row: row[f"probe_{cohort}"]["error"]


CLAIMS = (
    Claim(
        "Alignment lowers the probe's error with familiar partners against H+VC",
        (VC, SPRII),
        _lead(_error("familiar")),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0212,
        null=0.0,
    ),
    Claim(
        "Alignment lowers it against histories of other partners (Random)",
        (RANDOM, SPRII),
        _lead(_error("familiar"), RANDOM),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0258,
        null=0.0,
    ),
    Claim(
        "Alignment lowers the probe's error with held-out partners against H+VC",
        (VC, SPRII),
        _lead(_error("held_out")),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0177,
        null=0.0,
    ),
    Claim(
        "The probe's error with alignment stays above that of the constant mean, familiar and held out",
        (SPRII,),
        lambda a: min(
            a[SPRII][f"probe_{cohort}"]["error"] - a[SPRII][f"probe_{cohort}"]["constant"]
            for cohort in ("familiar", "held_out")
        ),
        "smaller of the two differences",
        above=0.0,
        paper=0.0106,
        null="holds too",
    ),
    Claim(
        "Alignment raises the return with familiar partners",
        (VC, SPRII),
        _lead(lambda row: row["return_familiar"]),
        "difference of mean returns",
        above=0.0,
        paper=1.89,
        null=0.0,
    ),
)


def page(rows: Sequence[Row], preset_name: str, preset: PartnerPreset, command: str) -> Page:
    """The whole report of the rows of all cells."""
    verdicts = judge(CLAIMS, rows) if preset.judged else [
        Verdict("The paper's statements", "not tested", "this preset checks that everything runs")
    ]  # fmt: skip
    arms = {name: [row for row in rows if row["arm"] == name] for name in PARTNER_RECIPES}
    arms = {name: own for name, own in arms.items() if own}
    panels = paper_panels("tab:overcooked-complete")
    tables = [
        _table("Behavioral readout and representation", arms, {
            "Familiar MSE": _error("familiar"),
            "constant mean": lambda row: row["probe_familiar"]["constant"],
            "Held-out MSE": _error("held_out"),
            "constant mean ": lambda row: row["probe_held_out"]["constant"],
        }, "Ridge from slots to how often the partner takes each action in later episodes; lower errors are better."),
        _ratios(arms),
        paper_table_of("The paper's", panels[0]),
        _table("Cooperation returns, episodes 6 to 20", arms, {
            "Familiar partners": lambda row: row["return_familiar"],
            "Held-out partners": lambda row: row["return_held_out"],
        }, "Averaged within partner, then over partners. No optimiser runs."),
        paper_table_of("The paper's", panels[1]),
        _table("Other histories at fixed weights: cross-entropy of the ego's actions", arms, {
            f"{name}, {cohort}": _swapped(cohort, name)
            for cohort in ("familiar", "held_out")
            for name in ("matched", "null", "wrong")
        }, "The slot is of the history itself, zero, or of another partner's history, which is of another run of the "
            "ego as well: what a wrong one costs need not be of the partner, and has no verdict."),
        _by_partner(arms),
    ]  # fmt: skip
    return Page(
        title=f"Overcooked: a partner as the persistent entity, preset {preset_name}",
        lead=f"tab:overcooked-complete, tab:v3-overcooked. {preset.note[:1].upper()}{preset.note[1:]}. The paper's "
        "partners and signatures are not ours: compare signs and ratios, not values.",
        tables=tables,
        verdicts=verdicts,
        pictures=[
            Picture("returns", "Return by episode", "Mean over familiar partners; the history grows.", curves(arms))
        ],
        command=command,
        facts={
            "Budget": f"{preset.train.steps} updates of {2 * preset.train.pairs} windows, seeds "
            f"{', '.join(map(str, preset.seeds))}; {preset.episodes} episodes × {preset.repeats} with each partner",
            "Learner": ", ".join(f"{k} {v}" for k, v in asdict(preset.learner).items()),
            "Histories": ", ".join(f"{k} {v}" for k, v in asdict(preset.histories).items() if k != "game"),
            "Kitchen": ", ".join(f"{k} {v}" for k, v in asdict(preset.histories.game).items()),
            "Returns in learning": RETURNS,
            "Seconds": "; ".join(
                f"{row['label']}, seed {row['seed']}: training {row['training_seconds']:.0f}, evaluation "
                f"{row['evaluation_seconds']:.0f}"
                for row in rows
            ),
            "Versions": versions(),
        },
        data={"table": "tab:overcooked-complete", "preset": preset_name, "rows": [dict(row) for row in rows]},
    )


def curves(arms: Mapping[str, Sequence[Row]]) -> Figure:
    """Mean return with familiar partners by episode."""
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axis = figure.subplots()
    for name, own in arms.items():
        mean = np.mean([row["curve"] for row in own], axis=0)
        axis.plot(range(1, len(mean) + 1), mean, "o-", color=COLOURS[name], markersize=3, label=own[0]["label"])
    axis.axvspan(0.5, 5.5, color="black", alpha=0.05, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("episode with the partner (the shaded ones are not in the return)")
    axis.set_ylabel("return of 100 steps")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure


def crossplay_figure(matrix: np.ndarray, egos: Sequence[str], partners: Sequence[str]) -> Figure:
    """Mean returns of egos (rows) with partners (columns)."""
    figure = Figure(figsize=(2.6 + 0.62 * len(partners), 2.2 + 0.42 * len(egos)), layout="constrained")
    axis = figure.subplots()
    limit = float(np.abs(matrix).max()) or 1.0
    shown = axis.imshow(matrix, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for y, x in np.ndindex(matrix.shape):
        dark = abs(matrix[y, x]) > 0.6 * limit
        axis.text(x, y, f"{matrix[y, x]:.1f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axis.set_xticks(range(len(partners)), _plain(partners), rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(len(egos)), _plain(egos), fontsize=8)
    axis.set_xlabel("partner")
    axis.set_ylabel("ego")
    figure.colorbar(shown, ax=axis, label="mean return of 100 steps")
    return figure


def _plain(names: Sequence[str]) -> list[str]:
    """Names of partners come from files: matplotlib would set what is between dollars as mathematics."""
    return [name.replace("$", r"\$") for name in names]


def _swapped(cohort: str, name: str) -> Any:
    return lambda row: row[f"swapped_{cohort}"][name]


def _table(title: str, arms: Mapping[str, Sequence[Row]], columns: Mapping[str, Any], note: str) -> Table:
    rows = [
        [str(own[0]["label"]), *(spread(over_sources([column(row) for row in own])) for column in columns.values())]
        for own in arms.values()
    ]
    return Table(title, ["Recipe", *columns], rows, note)


def _ratios(arms: Mapping[str, Sequence[Row]]) -> Table:
    rows = [
        [str(own[0]["label"]), *(_mean(part, name) for name in RATIOS for part in (own, _untrained(own)))]
        for own in arms.values()
    ]
    return Table(
        "Distance ratio of slots: different partners over one partner",
        ["Recipe", "Distance ratio", "untrained", "One partner under several names", "untrained "],
        rows,
        "All pairs of one partner are of one run of the ego, all pairs of different partners of two, so that the ratio "
        "tells runs apart too: slots that hold the partner alone have 1 where one partner has a name for each run. It "
        "is no evidence that slots tell partners apart, and has no verdict.",
    )


def _untrained(rows: Sequence[Row]) -> list[Row]:
    return [row.get("untrained", {}) for row in rows]


def _mean(rows: Sequence[Row], name: str) -> str:
    """As in the other tables; rows that were measured before there was such a number have none."""
    values = [row[name] for row in rows if name in row]
    return spread(over_sources(values)) if len(values) == len(rows) else number(None)


def _by_partner(arms: Mapping[str, Sequence[Row]]) -> Table:
    names = list(next(iter(arms.values()))[0]["returns"])
    rows = [[name, *(number(float(np.mean([row["returns"][name] for row in own]))) for own in arms.values())]
            for name in names]  # fmt: skip
    return Table("Return by partner", ["Partner", *(str(own[0]["label"]) for own in arms.values())], rows)
