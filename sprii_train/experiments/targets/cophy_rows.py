"""What CoPhy's targets share: which arm is which, statements on its errors, and the tables that all of them print."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import hierarchical_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference
from sprii_train.experiments.targets.base import Row, spread_of, stacked
from sprii_train.experiments.targets.within import SEED, Within, has_arrays, number_of
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, interval, spread

MEASURE = "cophy"
SCENES = {"balls": "Balls", "collision": "Collision", "blocktower": "Blocktower"}
FAMILIES = {"jepa": "JEPA", "j2": "JEPA", "cpc": "CPC", "rssm": "RSSM", "net": "CoPhyNet", "net50": "CoPhyNet"}
ARMS = {"native": "Native", "structure": "Structure", "sprii": "SPRII", "random": "Random"}
CONTROLS = ("native", "structure", "random")
DEVELOPMENT, HELD_OUT = "validation", "test"
CONTEXTS = {"matched": "Matched", "null": "Null", "wrong": "Wrong"}
CHANNELS = {"U": "source U", "S": "support S", "M": "memory M"}
NOTHING = {"still": "the last estimated place stays", "moving": "the estimated velocity stays"}
"""Of the front end's estimates in the given frames, which is what readers get, too."""
BASELINES = {"untrained": "first weights of the RSSM", "oracle": "true properties for a code"}
"""Through heads of their own, see the measure `cophy-baselines`."""
NOTE = (
    "Scenes, pictures and the front end are ours: MuJoCo in place of Bullet, and a front end trained from random "
    "weights. Compare signs and ratios, not values."
)


def world(scene: str) -> str:
    """The setting of a scene."""
    return f"cophy-{scene}"


def recipe(family: str, arm: str) -> str:
    """An arm's name on the command line."""
    return f"cophy-{family}-{arm}"


def four(*families: str) -> tuple[str, ...]:
    """The four arms of each of these learners."""
    return tuple(recipe(family, arm) for family in families for arm in ARMS)


def name(scene: str, family: str, arm: str) -> str:
    """An arm as claims name it."""
    return f"{world(scene)}/{recipe(family, arm)}"


def error(row: Row, population: str, condition: str = "matched") -> float:
    """Mean squared error of a population."""
    return number_of(row, f"errors.{population}.{condition}")


def frontend_facts(rows: Sequence[Row]) -> dict[str, str]:
    """How well the front end of each scene sees, beside a constant answer and its first weights."""
    first = {str(row["world"]): row["frontend"] for row in reversed(rows) if row.get("frontend")}
    return {
        f"What the front end of {place} sees": "; ".join(
            f"{who}: " + ", ".join(f"{what.replace('_', ' ')} {value:.3f}" for what, value in told[who].items())
            for who in ("trained", "constant", "untrained")
        )
        + f"; on {told['frames']} frames of {told['split']}, metres"
        for place, told in sorted(first.items())
    }


# Statements


def over_recipients(contrast: Contrast, keys: Mapping[str, tuple[str, str]]) -> Within:
    """Bootstrap of the recipients of one source.

    Args:
        contrast: of mean errors by condition.
        keys: condition → arm, and the name of its array.
    """

    def found(arms: Arms) -> Interval | None:
        if not has_arrays(arms, [arm for arm, _ in keys.values()], MEASURE):
            return None
        errors = {name: stacked([arms[arm]], MEASURE, key) for name, (arm, key) in keys.items()}
        return system_bootstrap(errors, {"": contrast}, seed=SEED, unit="recipient")[""]

    return found


def times(first: str, second: str, population: str, above: str = "matched", below: str = "matched") -> dict[str, Any]:
    """Measure and interval of one mean error over another."""
    keys = {"a": (first, f"{population}|{above}"), "b": (second, f"{population}|{below}")}
    return {
        "measure": lambda a: error(a[first], population, above) / error(a[second], population, below),
        "interval": over_recipients(lambda m: m["a"] / m["b"], keys),
        "ratio": True,
    }


def minus(first: str, second: str, population: str, left: str = "matched", right: str = "matched") -> dict[str, Any]:
    """Measure and interval of one mean error minus another."""
    keys = {"a": (first, f"{population}|{left}"), "b": (second, f"{population}|{right}")}
    return {
        "measure": lambda a: error(a[first], population, left) - error(a[second], population, right),
        "interval": over_recipients(difference("a", "b"), keys),
    }


def lower(
    scene: str, family: str, than: str, population: str, paper: float, *, arm: str = "sprii", bound: float = 1.0
) -> Claim:
    """An arm's error lies below another's, or above it where the paper's ratio does.

    Args:
        paper: its ratio of errors.
        bound: that the ratio must pass where it is below 1.
    """
    first, second = name(scene, family, arm), name(scene, family, than)
    said = "a lower" if paper < 1 else "a higher"
    called = {**ARMS, "align": "Align", "cross": "Cross", "s1": "SPRII S1"}
    return Claim(
        f"{SCENES[scene]}, {FAMILIES[family]}: {called[arm]} has {said} error than {called[than]}",
        (first, second),
        **times(first, second, population),
        what="ratio of mean squared errors",
        above=-math.inf if paper < 1 else 1.0,
        below=bound if paper < 1 else math.inf,
        paper=round(paper, 3),
        null=1.0,
    )


def told(scene: str, family: str, arm: str, population: str, condition: str, words: str, **given: Any) -> Claim:
    """An arm predicts worse with other contexts than with those of its objects' own physics."""
    one = name(scene, family, arm)
    same = f"{condition}:matched" if condition.startswith("wrong") else "matched"
    return Claim(
        f"{SCENES[scene]}, {FAMILIES[family]} {ARMS[arm]}: {words}",
        (one,),
        **times(one, one, population, condition, same),
        what="ratio of mean squared errors",
        null=1.0,
        **given,
    )


# Tables


def by_arm(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by `world/arm`, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['world']}/{row['arm']}", []).append(row)
    return found


def grid(
    rows: Sequence[Row], cell: Callable[[Sequence[Row]], str], scenes: Iterable[str], families: Iterable[str]
) -> list[list[str]]:
    """A line a scene and learner, a cell an arm; `–` for what was not trained."""
    arms, several = by_arm(rows), len(tuple(scenes)) > 1
    lines = []
    for scene in scenes:
        for family in families:
            own = [arms.get(name(scene, family, arm), []) for arm in ARMS]
            if any(own):
                head = f"{SCENES[scene]}, {FAMILIES[family]}" if several else FAMILIES[family]
                lines.append([head, *(cell(each) if each else "–" for each in own)])
    return lines


def errors_table(rows: Sequence[Row], population: str, scenes: Sequence[str], families: Sequence[str]) -> Table:
    """Matched errors by learner and arm, and what predictions without a learner lose."""
    lines = grid(rows, lambda own: spread(spread_of(own, f"errors.{population}.matched")), scenes, families)
    lines = [[*line, *reductions(rows, population, line[0], scenes, families)] for line in lines]
    grey = set()
    for scene in scenes:
        own = [row for row in rows if row["world"] == world(scene)]
        for kind, words in NOTHING.items() if own else ():
            grey.add(len(lines))
            head = f"{SCENES[scene]}, {words}" if len(scenes) > 1 else words
            lines.append([head, spread(spread_of(own[:1], f"errors.{population}.{kind}")), *[""] * (len(ARMS) + 2)])
        for kind, words in BASELINES.items() if own else ():
            told = [row for row in own if "baseline" in row]
            if told:
                grey.add(len(lines))
                cells = [spread(spread_of(told, f"baseline.{population}.{kind}_matched")), *[""] * (len(ARMS) + 2)]
                lines.append([f"{SCENES[scene]}, {words}" if len(scenes) > 1 else words, *cells])
    counts = ", ".join(
        f"{SCENES[scene]} {row['recipients'][population]:,}"
        for scene in scenes
        for row in [next((row for row in rows if row["world"] == world(scene)), None)]
        if row is not None
    )
    note = (
        f"Squared error of a coordinate, m², over the predicted frames and the objects of a recipient, its mean over "
        f"recipients ({counts} of {population}: those whose objects all have three other histories of their own "
        f"physics); {_deviation(rows)}. Reductions are of SPRII, percent, of mean errors. What stays, stays from the "
        "front end's estimates of the given frames."
    )
    columns = ["Learner", *ARMS.values(), *(f"% below {ARMS[arm]}" for arm in CONTROLS)]
    return Table("Prediction from three histories", columns, lines, note, frozenset(grey))


def _deviation(rows: Sequence[Row]) -> str:
    return "± over sources" if len({row["seed"] for row in rows}) > 1 else "one source"


def reductions(
    rows: Sequence[Row], population: str, head: str, scenes: Sequence[str], families: Sequence[str]
) -> list[str]:
    """How far SPRII lies below each control, percent, of a line of `grid`."""
    arms = by_arm(rows)
    for scene in scenes:
        for family in families:
            if head == (f"{SCENES[scene]}, {FAMILIES[family]}" if len(scenes) > 1 else FAMILIES[family]):
                return [_reduced(arms, scene, family, control, population) for control in CONTROLS]
    return []


def _reduced(arms: Mapping[str, list[Row]], scene: str, family: str, control: str, population: str) -> str:
    found = reduction(arms, scene, family, control, population)
    return "–" if found is None else f"{found:.1f}".replace("-", "−")


def reduction(
    arms: Mapping[str, list[Row]], scene: str, family: str, control: str, population: str
) -> float | None:  # fmt: skip
    """100 · (control − SPRII) / control of mean errors over sources; None where one was not trained."""
    own, other = (
        spread_of(arms.get(name(scene, family, arm), []), f"errors.{population}.matched")
        if arms.get(name(scene, family, arm))
        else None
        for arm in ("sprii", control)
    )
    return None if own is None or other is None else 100.0 * (1.0 - own.mean / other.mean)


def contexts_table(rows: Sequence[Row], population: str, title: str = "Whose histories the reader is given") -> Table:
    """Errors by the contexts that the fitted reader is given."""
    lines = [
        [
            f"{own[0]['label']}{_scene_of(own[0], rows)}",
            *(spread(spread_of(own, f"errors.{population}.{condition}")) for condition in CONTEXTS),
        ]
        for own in by_arm(rows).values()
    ]
    note = (
        "Weights stay. Matched: three episodes of an object with the same colour, type and physics; Null: no history; "
        "Wrong: histories of the same colour and type and other physics."
    )
    return Table(title, ["Learner, arm", *CONTEXTS.values()], lines, note)


def _scene_of(row: Row, rows: Sequence[Row]) -> str:
    several = len({each["world"] for each in rows}) > 1
    return f", {SCENES[str(row['world']).removeprefix('cophy-')]}" if several else ""


def contrasts_table(
    rows: Sequence[Row], population: str, pairs: Sequence[tuple[str, str, str, str]], *, level: float = 0.95
) -> Table | None:
    """Comparator − SPRII: intervals over recipients, and over sources and recipients where there are several.

    Args:
        pairs: (scene, family, comparator, arm in place of `sprii`) of each line.
    """
    arms, lines = by_arm(rows), []
    for scene, family, control, arm in pairs:
        both = [arms.get(name(scene, family, each), []) for each in (control, arm)]
        seeds = sorted(set.intersection(*({row["seed"] for row in own} for own in both)))
        if not seeds:
            continue
        errors: dict[str, NDArray[np.float64]] = {
            key: stacked(
                [row for seed in seeds for row in own if row["seed"] == seed], MEASURE, f"{population}|matched"
            )
            for key, own in zip(("control", "own"), both, strict=True)
        }
        contrast = {"": difference("control", "own")}
        within = system_bootstrap(errors, contrast, seed=SEED, unit="recipient", level=level)[""]
        over = hierarchical_bootstrap(errors, contrast, seed=SEED, level=level)[""] if len(seeds) > 1 else None
        share = float((errors["own"].mean(0) < errors["control"].mean(0)).mean())
        called = {**ARMS, "align": "Align", "cross": "Cross", "s1": "SPRII S1"}
        lines.append(
            [f"{SCENES[scene]}, {FAMILIES[family]}: {called[control]} − {called[arm]}", interval(within),
             interval(over), f"{share:.0%}"]
        )  # fmt: skip
    if not lines:
        return None
    note = (
        f"{level:.0%} intervals, percentile bootstrap; the first is conditional on the sources. Above 0, the second "
        "arm of a contrast, SPRII where it is one, has the lower error. The share is of recipients for whom the second "
        "arm has the lower error, averaged over sources."
    )
    columns = ["Contrast", "Over recipients", "Over sources and recipients", "Second arm better for"]
    return Table("Paired contrasts of mean squared errors", columns, lines, note)
