"""The pendulum report: `tab:pendulum-r7` with its floor, probes and donors, beside the paper's numbers."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.files import read_json, write_whole
from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference, interval_difference, mean_of, over_sources
from sprii_train.control.pendulum import WORLD
from sprii_train.experiments.grid import folder_of
from sprii_train.experiments.pendulum import ControlCell, ControlPreset, ReferenceCell
from sprii_train.reports.claims import Arms, Claim, Verdict, extreme, judge
from sprii_train.reports.page import Page, Picture, Table, number, paper_table_of, spread, versions
from sprii_train.reports.paper import paper_panels

Row = Mapping[str, Any]

COLOURS = {
    "random-policy": "#c7c7c7",
    "nominal": "#7f7f7f",
    "cadm": "#4c72b0",
    "random": "#c44e52",
    "r7": "#2a8c55",
    "oracle": "black",
}
TRAINED = ("cadm", "random", "r7")
PAPER_ASSAY = {
    "r2_mass": (0.027, 0.012, 0.050),
    "r2_length": (0.670, 0.683, 0.669),
    "own_donor_h10": (0.0181, 0.0226, 0.0190),
    "wrong_minus_matched": (0.1132, 0.0956, 0.1018),
}
"""Of CaDM, Random and R7, in the text of `app:pendulum-control`."""

ASSAY = {
    "r2_mass": "Mass R²",
    "r2_length": "Length R²",
    "own_donor_h10": "Own-donor H10 MSE",
    "wrong_minus_matched": "Wrong − matched",
}


LEAST = 2.0
"""The least difference of returns that counts as one: 1 % of what the oracle loses in the easiest group."""

PAPER_RETURNS = {"ID": 2.6, "OOD_c0": 54.4, "OOD_c1": 6.0, "OOD_c3": 40.0}  # R7 − CaDM


def _episodes(contrast: Contrast, groups: Mapping[str, tuple[str, str]], of: str = "returns") -> Any:
    """Interval over the episodes of one seed; paired, where several rows meet the same systems and starts.

    Args:
        contrast: of the means of the conditions.
        groups: condition → arm and group.
        of: `returns` or `successes`.
    """

    def interval(arms: Arms) -> Interval | None:
        found = {name: arms[arm]["groups"][group] for name, (arm, group) in groups.items()}
        if not all(of in each for each in found.values()) or len({each.get("starts") for each in found.values()}) > 1:
            return None
        errors = {name: np.asarray(each[of], np.float64) for name, each in found.items()}
        return system_bootstrap(errors, {"": contrast}, seed=0, unit="episode")[""]

    return interval


def _lead(text: str, group: str, paper: float, **bounds: Any) -> Claim:
    return Claim(
        text,
        ("cadm", "r7"),
        lambda a: a["r7"]["groups"][group]["return"] - a["cadm"]["groups"][group]["return"],
        "difference of mean returns",
        paper=paper,
        null=0.0,
        interval=_episodes(difference("r7", "cadm"), {arm: (arm, group) for arm in ("r7", "cadm")}),
        **bounds,
    )


def _below(group: str) -> dict[str, Any]:
    """How far CaDM's return in OOD_c3 lies above that in another group, whose systems are others: not paired."""

    def interval(arms: Arms) -> Interval | None:
        both = [_episodes(mean_of(""), {"": ("cadm", name)})(arms) for name in ("OOD_c3", group)]
        return None if None in both else interval_difference(*both)

    return {
        "measure": lambda a: a["cadm"]["groups"]["OOD_c3"]["return"] - a["cadm"]["groups"][group]["return"],
        "interval": interval,
    }


CLAIMS = (
    Claim(
        "CaDM swings up and holds most pendulums in ID",
        ("cadm",),
        lambda a: 100.0 * a["cadm"]["groups"]["ID"]["success"],
        "success in percent",
        above=50,
        paper=96.7,
        null=0.0,
        interval=_episodes(lambda m: 100.0 * m[""], {"": ("cadm", "ID")}, "successes"),
    ),
    *(
        _lead(f"R7 has a higher return than CaDM in {group}", group, paper, above=LEAST)
        for group, paper in PAPER_RETURNS.items()
    ),
    _lead("R7 has a lower return than CaDM in OOD_c2", "OOD_c2", -14.7, below=-LEAST),
    Claim(
        "The heavy, short systems of OOD_c3 are the hardest group for CaDM",
        ("cadm",),
        **extreme(max, [_below(group) for group in GROUPS if group != "OOD_c3"]),
        what="its return minus the lowest of the others",
        below=-LEAST,
        paper=-713,
        null="a random policy holds too",
    ),
    Claim(
        "Contexts hold length, and mass hardly",
        TRAINED,
        lambda a: min(a[arm]["assay"]["r2_length"] - a[arm]["assay"]["r2_mass"] for arm in TRAINED),
        "smallest difference in R² of the three rows",
        above=0.3,
        paper=0.62,
        null=0.0,
    ),
    Claim(
        "Every model predicts worse with a wrong donor's context",
        TRAINED,
        lambda a: min(a[arm]["assay"]["wrong_minus_matched"] / a[arm]["assay"]["own_donor_h10"] for arm in TRAINED),
        "smallest (wrong − matched) ÷ own-donor error",
        above=0.1,
        paper=4.2,
        null=0.0,
    ),
)  # fmt: skip


def page(rows: Sequence[Row], preset_name: str, preset: ControlPreset, command: str) -> Page:
    """The whole report of the rows of all cells."""
    verdicts = judge(CLAIMS, rows) if preset.judged else [
        Verdict("The paper's statements", "not tested", "this preset checks that everything runs")
    ]  # fmt: skip
    trained = [row for row in rows if "assay" in row]
    tables = [_returns(rows), paper_table_of("The paper's", paper_panels("tab:pendulum-r7")[0])]
    if trained:
        tables += [_assay(trained), _iterations(trained)]
    tables.append(_systems(rows))
    starts = {
        seed: {row["groups"][g]["starts"] for row in rows if row["seed"] == seed for g in GROUPS}
        for seed in sorted({row["seed"] for row in rows})
    }
    same = all(len(found) == len(GROUPS) for found in starts.values())
    random_data = {row["seed"]: set() for row in trained}
    for row in trained:
        random_data[row["seed"]].add(row["iterations"][0]["experience"])
    facts = {
        "Budget": f"{preset.run.iterations} iterations of {preset.run.episodes} episodes, seeds "
        f"{', '.join(map(str, preset.seeds))}, {preset.episodes} episodes a group and seed; {preset.note}",
        "Planner": repr(preset.run.controller),
        "Systems and starts": f"{'the same' if same else 'NOT the same'} in all rows of a seed (SHA-256 by group): "
        + "; ".join(f"seed {seed}: {', '.join(sorted(h[:8] for h in found))}" for seed, found in starts.items()),
        "First, random data": "; ".join(
            f"seed {seed}: {', '.join(sorted(h[:16] for h in found))}" for seed, found in random_data.items()
        ) + ": one hash a seed is the same data in all its rows",
        "Data of a whole run": "; ".join(
            f"{row['label']}, seed {row['seed']}: {row['iterations'][-1]['experience'][:16]}" for row in trained
        ),
        "Seconds": "; ".join(_seconds(row) for row in rows),
        "Learner": ", ".join(f"{k} {v}" for k, v in asdict(preset.run.learner).items()),
        "Training": ", ".join(f"{k} {v}" for k, v in asdict(preset.run.training).items() if k != "seed"),
        "Versions": versions(),
    }  # fmt: skip
    pictures = [Picture("returns", "Return by group", "Dots are seeds, bars their means; diamonds are the paper's.",
                        returns_figure(rows))]  # fmt: skip
    if trained:
        pictures.append(
            Picture("training", "Collected return by iteration", "The first iteration acts at random.", curves(trained))
        )
    return Page(
        title=f"Pendulum control: CaDM, Random relation and SPRII (R7), preset {preset_name}",
        lead=f"tab:pendulum-r7. {preset.note[:1].upper()}{preset.note[1:]}. The oracle plans with the true equations "
        "under the same planner: its return is the floor of the cost, and what it loses in OOD_c3 is the planner's own "
        "loss. Episodes have an SD of about 100; rows of a seed meet the same systems and starts, so that differences "
        "are judged over paired episodes.",
        tables=tables,
        verdicts=verdicts,
        pictures=pictures,
        command=command,
        facts=facts,
        data={"table": "tab:pendulum-r7", "preset": preset_name, "rows": [dict(row) for row in rows]},
    )


def videos(
    rows: Sequence[Row], planned: Sequence[ControlCell | ReferenceCell], root: Path, out: Path, *, every: int = 2
) -> list[Path]:
    """A GIF a row of the first seed: the first episode of every group, side by side, every second frame."""
    written, first = [], rows[0]["seed"]
    for row, cell in zip(rows, planned, strict=True):
        if row["seed"] != first:
            continue
        kept = read_json(folder_of(cell, root) / cell.arrays)
        values = np.array([kept[group]["values"] for group in GROUPS])
        courses = np.array([kept[group]["states"] for group in GROUPS])[:, ::every]
        frames = []
        for states in courses.swapaxes(0, 1):
            pictures = WORLD.picture(states, values, (96, 96))
            frames.append(Image.fromarray(np.concatenate(list(pictures), axis=1)))
        data = io.BytesIO()
        frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=50 * every, loop=0)
        write_whole(out / f"{row['arm']}.gif", data.getvalue())
        written.append(out / f"{row['arm']}.gif")
    return written


def returns_figure(rows: Sequence[Row]) -> Figure:
    """Mean return of every row in every group, seeds as dots, the paper's as diamonds."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    axis = figure.subplots()
    arms = _by_arm(rows)
    width, paper = 0.8 / len(arms), _paper_returns()
    for i, (arm, group_rows) in enumerate(arms.items()):
        for x, group in enumerate(GROUPS):
            values = [row["groups"][group]["return"] for row in group_rows]
            at = x + (i - (len(arms) - 1) / 2) * width
            label = str(group_rows[0]["label"]) if x == 0 else None
            axis.bar(at, np.mean(values), 0.9 * width, color=COLOURS[arm], label=label)
            axis.plot([at] * len(values), values, ".", color="white", markeredgecolor="black", markersize=6)
            if arm in paper:
                axis.plot(at, paper[arm][group], "D", color="gold", markeredgecolor="black", markersize=5)
    axis.set_xticks(range(len(GROUPS)), list(GROUPS))
    axis.set_ylabel("return of 200 steps")
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(ncols=len(arms), frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    return figure


def curves(rows: Sequence[Row]) -> Figure:
    """Collected return and eligible systems by iteration."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for row in rows:
        label = row["label"] if row["seed"] == rows[0]["seed"] else None
        steps = range(1, len(row["iterations"]) + 1)
        for axis, name in ((left, "collected_return"), (right, "eligible_systems")):
            axis.plot(
                steps, [i[name] for i in row["iterations"]], "o-", color=COLOURS[row["arm"]], markersize=3, label=label
            )
    left.set_ylabel("mean return of collected episodes")
    right.set_ylabel("systems with two or more episodes")
    left.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.set_xlabel("iteration")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def _by_arm(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["arm"], []).append(row)
    order = [arm for arm in COLOURS if arm in found]
    return {arm: found[arm] for arm in order}


def _cell(rows: Sequence[Row], group: str) -> str:
    found = over_sources([row["groups"][group]["return"] for row in rows])
    success = 100.0 * float(np.mean([row["groups"][group]["success"] for row in rows]))
    sd = f" ± {found.sd:.1f}" if found.sd == found.sd else ""
    return f"{found.mean:.1f}{sd} ({success:.1f}%)"


def _returns(rows: Sequence[Row]) -> Table:
    arms = _by_arm(rows)
    lines = [[group, *(_cell(own, group) for own in arms.values())] for group in GROUPS]
    note = (
        "Mean return ± SD over seeds, success in parentheses, of the same trajectories. Success: all of the last 100 "
        "states after actions lie within 60° of upright."
    )
    return Table("Return and success", ["Group", *(str(own[0]["label"]) for own in arms.values())], lines, note)


def _assay(rows: Sequence[Row]) -> Table:
    lines, grey = [], []
    for arm, own in _by_arm(rows).items():
        lines.append([str(own[0]["label"]), *(spread(over_sources([row["assay"][k] for row in own])) for k in ASSAY)])
        if arm in TRAINED:
            grey.append(len(lines))
            lines.append(["paper's", *(number(PAPER_ASSAY[k][TRAINED.index(arm)]) for k in ASSAY)])
    note = (
        "Ridge probes of single full histories, fitted on 81 ID systems and scored on the 40 others; recursive "
        "prediction along logged actions of those 40, with the context of another episode of the system, or another "
        "system. The paper's bank is another one, so errors compare within a column of ours."
    )
    return Table("Probes and logged-action donors of the same checkpoints", ["Row", *ASSAY.values()], lines, note,
                 frozenset(grey))  # fmt: skip


def _iterations(rows: Sequence[Row]) -> Table:
    lines = [
        [
            str(row["label"]), str(row["seed"]), str(i + 1), f"{it['collected_return']:.0f}",
            str(it["eligible_systems"]), str(it["updates"]),
            f"{it['collection_seconds']:.0f}", f"{it['training_seconds']:.0f}",
        ]
        for row in rows
        for i, it in enumerate(row["iterations"])
    ]  # fmt: skip
    columns = [
        "Row",
        "Seed",
        "Iteration",
        "Collected return",
        "Eligible systems",
        "Updates",
        "Collect (s)",
        "Train (s)",
    ]
    return Table("Training", columns, lines, "Eligible systems have two or more episodes; R7 draws one pair of each.")


def _systems(rows: Sequence[Row]) -> Table:
    """OOD_c3 by system, because part of the loss there is the planner's own."""
    arms = _by_arm(rows)
    names = ("mass", "length", "returns", "successes")

    def episodes(of: Sequence[Row]) -> list[tuple[float, float, float, bool]]:
        return [e for row in of for e in zip(*(row["groups"]["OOD_c3"][name] for name in names), strict=True)]

    lines = []
    for mass, length in sorted({e[:2] for e in episodes(rows)}):
        cells = []
        for own in arms.values():
            found = [e[2:] for e in episodes(own) if e[:2] == (mass, length)]
            returns, succeeded = zip(*found, strict=True)
            cells.append(f"{np.mean(returns):.0f} ({sum(succeeded)} of {len(found)})")
        lines.append([f"{mass:g} kg, {length:g} m", *cells])
    return Table(
        "OOD_c3 by system: return, and successes", ["System", *(str(o[0]["label"]) for o in arms.values())], lines
    )


def _seconds(row: Row) -> str:
    told = f"{row['label']}, seed {row['seed']}: evaluation {row['evaluation_seconds']:.0f}"
    if "iterations" not in row:
        return told
    spent = [sum(i[k] for i in row["iterations"]) for k in ("collection_seconds", "training_seconds")]
    return f"{told}, collection {spent[0]:.0f}, training {spent[1]:.0f}"


def _paper_returns() -> dict[str, dict[str, float]]:
    panel = paper_panels("tab:pendulum-r7")[0]
    return {
        arm: {row[0]: float(row[1 + i].split(" ")[0].replace("−", "-")) for row in panel[1:]}
        for i, arm in enumerate(TRAINED)
    }
