"""Table `tab:pendulum-r7`: CaDM, Random relation and SPRII (R7) on the pendulum, with its floor, probes and donors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sprii_envs.envs.pendulum import GROUPS
from sprii_train.analysis.bootstrap import hierarchical_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference, interval_difference, mean_of, over_sources
from sprii_train.control.pendulum import WORLD
from sprii_train.control.pendulum_agents import LABEL, paper
from sprii_train.control.training import ControlTraining
from sprii_train.experiments.references import References
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of
from sprii_train.experiments.targets.within import success
from sprii_train.recipes import CONTROL_RECIPES
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.control_figures import curves_figure, returns_figure
from sprii_train.reports.films import film
from sprii_train.reports.page import Picture, Table, number, spread

COLOURS = {"random-policy": "#c7c7c7", "nominal": "#7f7f7f", "cadm": "#4c72b0"}
COLOURS |= {"random": "#c44e52", "r7": "#2a8c55", "oracle": "black"}
TRAINED = tuple(CONTROL_RECIPES)
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


FULL = 0.5
"""The least share of updates that draw as many pairs as the recipe asks for, if the relation is to be tested."""

CONTRASTS = (("r7", "cadm"), ("random", "cadm"), ("r7", "random"))


def drawn(row: Row) -> float:
    """The share of a run's updates that had as many eligible systems as an update draws pairs of, one each."""
    wanted = row.get("pairs", ControlTraining().systems)
    updates = [it["updates"] for it in row["iterations"]]
    return sum(n for n, it in zip(updates, row["iterations"], strict=True) if it["eligible_systems"] >= wanted) / sum(
        updates
    )


def hardly_drawn(sources: Sequence[Arms], arm: str = "r7") -> str | None:
    """Why the rows are no test of an arm's relation; None if they are."""
    shares = [drawn(arms[arm]) for arms in sources]
    if min(shares) >= FULL:
        return None
    wanted = sources[0][arm].get("pairs", ControlTraining().systems)
    told = ", ".join(f"{share:.0%}" for share in shares)
    return (
        f"no test of the relation: {told} of the updates (by source) had the {wanted} systems that it draws pairs of, "
        f"{FULL:.0%} are needed"
    )


def over_seeds(rows: Sequence[Mapping[str, Any]], minuend: str, subtrahend: str, of: str) -> Interval | None:
    """Interval of a difference over paired episodes, and over seeds where there are several.

    Args:
        rows: of each seed, arm → numbers of one group.
        of: `returns` or `successes`.

    Returns:
        None where the two arms of a seed met other episodes, or seeds have unlike numbers of them.
    """
    arms = (minuend, subtrahend)
    if any(len({each[arm].get("starts") for arm in arms}) > 1 or of not in each[arms[0]] for each in rows):
        return None
    if len({len(each[arm][of]) for each in rows for arm in arms}) > 1:
        return None
    errors = {arm: np.array([each[arm][of] for each in rows], np.float64) for arm in arms}
    contrast = {"": difference(minuend, subtrahend)}
    if len(rows) == 1:
        return system_bootstrap(errors, contrast, seed=0, unit="episode")[""]
    return hierarchical_bootstrap(errors, contrast, seed=0, unit="episode")[""]


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
        over=lambda sources: over_seeds([_of_group(arms, group) for arms in sources], "r7", "cadm", "returns"),
        unless=hardly_drawn,
        **bounds,
    )


def _of_group(arms: Arms, group: str) -> dict[str, Any]:
    return {arm: row["groups"][group] for arm, row in arms.items()}


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
        interval=lambda a: success(a["cadm"]["groups"]["ID"].get("successes")),
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


def _tables(rows: Sequence[Row]) -> list[Table]:
    trained = [row for row in rows if "assay" in row]
    each = {planner: _under(rows, planner) for planner in _planners(rows)}
    tables = [_returns(own, planner) for planner, own in each.items()]
    for planner, own in each.items():
        tables += _contrasts(own, planner)
    tables += [_assay(trained), _iterations(trained)] if trained else []
    return tables + [_systems(own, planner) for planner, own in each.items()]


def _planners(rows: Sequence[Row]) -> list[str]:
    """Of the evaluations, the one that statements are judged under first; "" in reports of one planner."""
    return list(dict.fromkeys(name for row in rows for name in (row.get("planner", ""), *row.get("others", {}))))


def _under(rows: Sequence[Row], planner: str) -> list[Row]:
    """The rows as evaluated under a planner."""
    return [row if row.get("planner", "") == planner else {**row, "groups": row["others"][planner]} for row in rows]


def _titled(title: str, planner: str) -> str:
    return f"{title}, {planner}" if planner else title


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    paper, pictures = _paper_returns(), []
    dots, first = "Dots are seeds, bars their means; diamonds are the paper's.", "The first iteration acts at random."
    for i, planner in enumerate(_planners(rows)):
        bars = []
        for arm, own in _by_arm(_under(rows, planner)).items():
            returns = [[row["groups"][group]["return"] for group in GROUPS] for row in own]
            bars.append((str(own[0]["label"]), COLOURS[arm], returns, paper.get(arm)))
        figure = returns_figure(list(GROUPS), bars)
        name = "returns" if not i else f"returns-{planner.lower()}"
        pictures.append(Picture(name, _titled("Return by group", planner), dots, figure))
    lines = [(str(row["label"]), COLOURS[row["arm"]], row["iterations"]) for row in rows if "iterations" in row]
    if lines:
        pictures.append(Picture("training", "Collected return by iteration", first, curves_figure(lines)))
    return pictures


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    trained, seeds = [row for row in rows if "iterations" in row], sorted({row["seed"] for row in rows})
    starts = {seed: [{r["groups"][g]["starts"] for r in rows if r["seed"] == seed} for g in GROUPS] for seed in seeds}
    same = all(len(found) == 1 for groups in starts.values() for found in groups)
    data = {seed: {r["iterations"][0]["experience"] for r in trained if r["seed"] == seed} for seed in seeds}
    return {
        "Systems and starts": f"{'the same' if same else 'NOT the same'} in all rows of a seed (SHA-256 by group): "
        + "; ".join(f"seed {seed}: {_hashes(set().union(*found), 8)}" for seed, found in starts.items()),
        "First, random data": "; ".join(f"seed {seed}: {_hashes(found, 16)}" for seed, found in data.items())
        + ": one hash a seed is the same data in all its rows",
        "Data of a whole run": "; ".join(
            f"{row['label']}, seed {row['seed']}: {row['iterations'][-1]['experience'][:16]}" for row in trained
        ),
        "Updates with all pairs of the relation": "; ".join(
            f"{row['label']}, seed {row['seed']}: {drawn(row):.0%}" for row in trained if row["arm"] != "cadm"
        ),
        "Seconds": "; ".join(map(_seconds, rows)),
    }


def _hashes(found: set[str], length: int) -> str:
    return ", ".join(sorted(each[:length] for each in found))


def _films(rows: Sequence[Row], *, every: int = 2) -> dict[str, bytes]:
    """A GIF an arm of the first seed: the first episode of every group, side by side, every second frame."""
    films = {}
    for row in (row for row in rows if row["seed"] == rows[0]["seed"]):
        kept = arrays_of(row, "control")
        panels = {}
        for group in GROUPS:
            states, values = kept[f"{group}|states"][::every], kept[f"{group}|values"]
            panels[group] = WORLD.picture(states, np.broadcast_to(values, (len(states), len(values))), (96, 96))
        films[f"{row['arm']}.gif"] = film(panels, milliseconds=50 * every)
    return films


def _by_arm(rows: Sequence[Row]) -> dict[str, list[Row]]:
    arms = arms_of(rows)
    return {arm: arms[arm] for arm in COLOURS if arm in arms}


def _cell(rows: Sequence[Row], group: str) -> str:
    found = over_sources([row["groups"][group]["return"] for row in rows])
    success = 100.0 * float(np.mean([row["groups"][group]["success"] for row in rows]))
    sd = f" ± {found.sd:.1f}" if found.sd == found.sd else ""
    return f"{found.mean:.1f}{sd} ({success:.1f}%)"


def _returns(rows: Sequence[Row], planner: str) -> Table:
    arms = _by_arm(rows)
    lines = [[group, *(_cell(own, group) for own in arms.values())] for group in GROUPS]
    note = (
        "Mean return ± SD over seeds, success in parentheses, of the same trajectories. Success: all of the last 100 "
        "states after actions lie within 60° of upright."
    )
    return Table(
        _titled("Return and success", planner), ["Group", *(str(own[0]["label"]) for own in arms.values())], lines, note
    )


def _assay(rows: Sequence[Row]) -> Table:
    lines = []
    for arm, own in _by_arm(rows).items():
        lines.append([str(own[0]["label"]), *(spread(over_sources([row["assay"][k] for row in own])) for k in ASSAY)])
        lines.append(["paper's", *(number(PAPER_ASSAY[k][TRAINED.index(arm)]) for k in ASSAY)])
    note = (
        "Ridge probes of single full histories, fitted on 81 ID systems and scored on the 40 others; recursive "
        "prediction along logged actions of those 40, with the context of another episode of the system, or another "
        "system. The paper's bank is another one, so errors compare within a column of ours."
    )
    return Table("Probes and logged-action donors of the same checkpoints", ["Row", *ASSAY.values()], lines, note,
                 frozenset(range(1, len(lines), 2)))  # fmt: skip


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
        "Row", "Seed", "Iteration", "Collected return", "Eligible systems", "Updates", "Collect (s)", "Train (s)",
    ]  # fmt: skip
    return Table("Training", columns, lines, "Eligible systems have two or more episodes; R7 draws one pair of each.")


def _contrasts(rows: Sequence[Row], planner: str) -> list[Table]:
    """Differences of the trained rows, one table if there are two such rows."""
    seeds: dict[int, dict[str, Row]] = {}
    for row in rows:
        if row["arm"] in TRAINED:
            seeds.setdefault(row["seed"], {})[row["arm"]] = row
    labels = {row["arm"]: str(row["label"]) for row in rows}
    lines = []
    for group in GROUPS:
        for pair in CONTRASTS:
            sources = [arms for _, arms in sorted(seeds.items()) if set(pair) <= set(arms)]
            if sources:
                tested = all(hardly_drawn(sources, arm) is None for arm in pair if arm != "cadm")
                found = [over_seeds([_of_group(a, group) for a in sources], *pair, of) for of in _SCALES]
                cells = [_cells(each, scale, tested) for each, scale in zip(found, _SCALES.values(), strict=True)]
                lines.append([group, " − ".join(labels[arm] for arm in pair), *cells[0], *cells[1]])
    note = (
        "Row minus row, over the same systems and starts; 95 % intervals of a bootstrap over seeds and paired episodes "
        "(over episodes where there is one seed). Not resolved: the interval spans zero. Not tested: less than "
        f"{FULL:.0%} of the updates of some seed drew all pairs of the relation. Three seeds are few: "
        "their interval is too narrow."
    )
    columns = ["Group", "Contrast", "Return", "", "Success, points", ""]
    return [Table(_titled("Contrasts of the trained rows", planner), columns, lines, note)] if lines else []


_SCALES = {"returns": 1.0, "successes": 100.0}


def _cells(found: Interval | None, scale: float, tested: bool) -> tuple[str, str]:
    """Estimate with interval, and what it says."""
    if found is None:
        return "–", "not paired"
    told = " ".join([f"{scale * found.estimate:+.1f}", f"[{scale * found.low:+.1f}, {scale * found.high:+.1f}]"])
    word = "higher" if found.low > 0 else "lower" if found.high < 0 else "not resolved"
    return told.replace("-", "−"), word if tested else "not tested"


def _systems(rows: Sequence[Row], planner: str) -> Table:
    """The OOD groups by system, because part of a loss there is the planner's own; ID has 121 systems."""
    arms = _by_arm(rows)
    names = ("mass", "length", "returns", "successes")

    def episodes(of: Sequence[Row], group: str) -> list[tuple[float, float, float, bool]]:
        return [e for row in of for e in zip(*(row["groups"][group][name] for name in names), strict=True)]

    lines = []
    for group in (group for group in GROUPS if group != "ID"):
        for mass, length in sorted({e[:2] for e in episodes(rows, group)}):
            cells = []
            for own in arms.values():
                found = [e[2:] for e in episodes(own, group) if e[:2] == (mass, length)]
                returns, succeeded = zip(*found, strict=True)
                cells.append(f"{np.mean(returns):.0f} ({sum(succeeded)} of {len(found)})")
            lines.append([group, f"{mass:g} kg, {length:g} m", *cells])
    columns = ["Group", "System", *(str(own[0]["label"]) for own in arms.values())]
    return Table(_titled("By system: return, and successes", planner), columns, lines)


def _seconds(row: Row) -> str:
    told = f"{row['label']}, seed {row['seed']}: evaluation {row['evaluation_seconds']:.0f}"
    if "iterations" not in row:
        return told
    spent = [sum(i[k] for i in row["iterations"]) for k in ("collection_seconds", "training_seconds")]
    return f"{told}, collection {spent[0]:.0f}, training {spent[1]:.0f}"


def _paper_returns() -> dict[str, list[float]]:
    columns = zip(TRAINED, paper().values(), strict=True)
    return {arm: [column.rows[group]["return"] for group in GROUPS] for arm, column in columns}


PENDULUM_TARGETS = (
    Target(
        LABEL,
        "Pendulum control: CaDM, Random relation and SPRII (R7)",
        (References("pendulum"), Group("pendulum", TRAINED, ("control",))),
        _tables,
        CLAIMS,
        _pictures,
        note="The oracle plans with the true equations under the same planner: its return is the floor of the cost, "
        "and what it loses in OOD_c3 is the planner's own loss. Episodes have an SD of about 100; rows of a seed meet "
        "the same systems and starts, so that differences are judged over paired episodes.",
        facts=_facts,
        files=_films,
    ),
)
