"""Table `tab:overcooked-complete`: the action learner with a partner's history, regularised and aligned by partner."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.statistics import paired_power
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, spread_table, value_of
from sprii_train.recipes import PARTNER_RECIPES
from sprii_train.reports.claims import Arms, Claim, over_source_values
from sprii_train.reports.overcooked_figures import return_curves
from sprii_train.reports.page import Picture, Table, number, spread

H, VC, SPRII, RUNS, RANDOM = "h", "h-vc", "h-sprii", "h-sprii-runs", "h-random"
COHORTS = ("familiar", "held_out")
SHARES = {"overcooked": "100%", "overcooked-half": "50%", "overcooked-quarter": "25%"}
"""Setting → share of the histories."""

PROBE, HELD_OUT, RETURN, RETURN_HELD_OUT = (
    "probe_familiar.error", "probe_held_out.error", "return_familiar", "return_held_out",
)  # fmt: skip
PUBLISHED: dict[tuple[str, str, str, str], float] = {
    ("overcooked", PROBE, VC, SPRII): -0.0212,
    ("overcooked-half", PROBE, VC, SPRII): -0.01344,
    ("overcooked-quarter", PROBE, VC, SPRII): -0.00567,
    ("overcooked", PROBE, RANDOM, SPRII): -0.02583,
    ("overcooked", HELD_OUT, VC, SPRII): -0.0177,
    ("overcooked", RETURN, VC, SPRII): 1.889,
    ("overcooked-half", RETURN, VC, SPRII): 0.389,
    ("overcooked-quarter", RETURN, VC, SPRII): 1.489,
    ("overcooked", RETURN_HELD_OUT, VC, SPRII): -1.111,
    ("overcooked-half", RETURN_HELD_OUT, VC, SPRII): 18.44,
    ("overcooked-quarter", RETURN_HELD_OUT, VC, SPRII): -2.222,
}
"""(Setting, number, lower arm, arm) → the paper's difference."""
CONTRASTS = (
    ("SPRII − VC", VC, SPRII),
    ("across runs − VC", VC, RUNS),
    ("across runs − one run", SPRII, RUNS),
    ("SPRII − Random", RANDOM, SPRII),
)
LEFT_OUT, KINDER = "probe_left_out.chosen", "probe_held_out.chosen"
NUMBERS = {
    "familiar MSE": PROBE,
    "left-out MSE": LEFT_OUT,
    "held-out MSE": HELD_OUT,
    "held-out MSE, chosen penalty": KINDER,
    "distance ratio": "distance_ratio",
    "familiar return": RETURN,
    "held-out return": RETURN_HELD_OUT,
}


def unread(world: str, path: str) -> Callable[[Sequence[Arms]], str | None]:
    """Why no arm is compared by a probe: none of a setting beats the constant mean, by its mean over the sources.

    Args:
        path: of the probe's error in a row.
    """

    def why(sources: Sequence[Arms]) -> str | None:
        constant = f"{path.split('.')[0]}.constant"
        told: dict[str, NDArray[np.float64]] = {}
        for arm in PARTNER_RECIPES:
            rows = [arms.get(f"{world}/{arm}", {}) for arms in sources]
            pairs = [[value_of(row, name) for name in (path, constant)] for row in rows]
            if not any(None in pair for pair in pairs):
                told[arm] = np.mean(pairs, axis=0)
        if not told or any(error < mean for error, mean in told.values()):
            return None
        arm = min(told, key=lambda name: told[name][0])
        error, mean = told[arm]
        return f"not compared: no arm's probe beats the constant mean, {mean:.4f}: the best, {arm}, has {error:.4f}"

    return why


def _lead(world: str, path: str, low: str, high: str) -> Callable[[Arms], float]:
    def measure(arms: Arms) -> float:
        pair = [value_of(arms[f"{world}/{arm}"], path) for arm in (high, low)]
        if None in pair:
            raise KeyError(path)  # of rows of before there were such numbers
        return pair[0] - pair[1]

    return measure


def _claim(text: str, path: str, low: str = VC, world: str = "overcooked", *, lower: bool, paper: float) -> Claim:
    probed = path.startswith("probe_")
    return Claim(
        text,
        (f"{world}/{low}", f"{world}/{SPRII}"),
        _lead(world, path, low, SPRII),
        "difference of mean squared errors" if probed else "difference",
        above=-math.inf if lower else 0.0,
        below=0.0 if lower else math.inf,
        paper=paper,
        null=0.0,
        unless=unread(world, path) if probed else None,
    )


CLAIMS = (
    *(
        _claim(
            f"Alignment lowers the probe's error with familiar partners against H+VC, {share} of the histories",
            PROBE, world=world, lower=True, paper=PUBLISHED[world, PROBE, VC, SPRII],
        )
        for world, share in SHARES.items()
    ),
    _claim(
        "Alignment lowers it against histories of other partners (Random)", PROBE, RANDOM, lower=True, paper=-0.0258
    ),
    _claim(
        "Alignment lowers the probe's error with held-out partners against H+VC", HELD_OUT, lower=True, paper=-0.0177
    ),
    Claim(
        "The probe's error with alignment stays above that of the constant mean, familiar and held out",
        (f"overcooked/{SPRII}",),
        lambda a: min(
            a[f"overcooked/{SPRII}"][f"probe_{cohort}"]["error"]
            - a[f"overcooked/{SPRII}"][f"probe_{cohort}"]["constant"]
            for cohort in COHORTS
        ),
        "smaller of the two differences",
        above=0.0,
        paper=0.0106,
        null="holds too",
    ),
    _claim("Alignment raises the distance ratio against H+VC", "distance_ratio", lower=False, paper=0.811),
    _claim("Alignment raises the return with familiar partners", RETURN, lower=False, paper=1.89),
)  # fmt: skip


def _tables(rows: Sequence[Row]) -> list[Table]:
    def table(title: str, columns: Mapping[str, str], note: str) -> Table:
        return spread_table(rows, title, columns, first="Recipe", note=note)

    readout = {
        f"{head}, {cohort.replace('_', ' ')}": path.format(f"probe_{cohort}")
        for cohort in COHORTS
        for head, path in (
            ("MSE", "{}.error"),
            ("untrained", "untrained.{}.error"),
            ("no learner", "without.{}.error"),
            ("constant mean", "{}.constant"),
        )
    }
    return [
        table("Behavioral readout", readout | {
            "one partner, two names ÷ constant": "two_names.probe",
            "untrained, two names": "untrained.two_names.probe",
        }, "Ridge (0.001) from standardised slots of fresh episodes with one fixed ego to the action probabilities of "
            "their partner in 2 snippets of each training partner. No learner: 8 principal components of the episodes' "
            "mean observations, actions and rewards. A probe that cannot tell a partner's two names apart has at least "
            "1 in the last columns. No arm is compared by a probe that never beats the constant."),
        table("Partners that a probe does not know, at a penalty of its own", {
            f"{head}, {name}": path.format(f"probe_{cohort}")
            for cohort, name in (("familiar", "familiar"), ("left_out", "left out"), ("held_out", "held out"))
            for head, path in (
                ("MSE", "{}.chosen"),
                ("untrained", "untrained.{}.chosen"),
                ("no learner", "without.{}.chosen"),
                ("true behaviour", "behaviour.{}.chosen"),
                ("constant mean", "{}.constant"),
            )
        }, "The same ridge at the penalty among 0.001 … 10,000 that reads partners best that it was not fitted with, "
            "chosen by fit samples of familiar partners. Left out: each familiar partner by a probe, and by the "
            "constant, of the others. True behaviour: from shares of the partner's actions, places and loads in the "
            "same episodes, which the ego does not see: what a slot that knew all of them could tell."),
        table("Distance ratio of slots: different partners over one partner", {
            "Distance ratio": "distance_ratio",
            "untrained": "untrained.distance_ratio",
            "no learner": "without.distance_ratio",
            "true behaviour": "behaviour.distance_ratio",
            "one partner, two names": "two_names.ratio",
            "untrained, two names": "untrained.two_names.ratio",
        }, "Cosine distances of standardised slots of familiar partners' test episodes, all with one ego. A constant "
            "slot, or one that holds anything but the partner, has 1. No learner and true behaviour: as in the tables "
            "above, in the slots' place."),
        *_contrasts(rows),
        _returns(rows),
        table("Other partners' slots at fixed weights: cross-entropy of the ego's actions", {
            f"{name}, {cohort.replace('_', ' ')}": f"swapped_{cohort}.{name}"
            for cohort in COHORTS
            for name in ("matched", "null", "wrong")
        }, "Slots of the panel's fit episodes: of the same partner, zero, and of another partner of the cohort; all of "
            "one ego, so that they differ in the partner alone. The queries are of histories that nothing was trained "
            "on."),
        _by_partner(arms_of(rows)),
    ]  # fmt: skip


def _contrasts(rows: Sequence[Row]) -> list[Table]:
    """Paired differences of arms, and what so many sources could have resolved (`tab:v3-overcooked`)."""
    arms: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        arms.setdefault((row["world"], row["arm"]), {})[row["seed"]] = row
    columns = ["History", "Contrast", "Number", "Difference", "95 % over sources", "resolves", "power", "paper"]
    lines = []
    for (world, share), (name, low, high), (what, path) in product(SHARES.items(), CONTRASTS, NUMBERS.items()):
        first, second = arms.get((world, low), {}), arms.get((world, high), {})
        pairs = [(value_of(second[seed], path), value_of(first[seed], path)) for seed in first if seed in second]
        if pairs and not any(None in pair for pair in pairs):
            paper = PUBLISHED.get((world, path, low, high))
            sources = [{f"{w}/{arm}": own[seed] for (w, arm), own in arms.items() if seed in own} for seed in first]
            if path.startswith("probe_") and unread(world, path)(sources):
                told = ["not compared", *["n.a."] * 3, "" if paper is None else number(paper)]
            else:
                told = _resolved([a - b for a, b in pairs], paper)
            lines.append([share, name, what, *told])
    note = (
        "Mean ± SD over sources; no arm is compared by a probe that never beats the constant. "
        "`resolves`: the smallest difference whose interval leaves 0 out, half the interval's "
        "width. `power`: the chance that so many sources resolve the paper's difference at the SD found here."
    )
    return [Table("Paired differences, and what they could resolve", columns, lines, note)] if lines else []


def _resolved(differences: Sequence[float], paper: float | None) -> list[str]:
    found, sd = over_source_values(differences), float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    told = "" if paper is None else number(paper)
    if not sd:
        return [number(found.estimate), "n.a.", "n.a.", "n.a.", told]
    power = "" if paper is None else f"{paired_power(paper, sd, len(differences)):.0%}"
    interval = f"[{number(found.low)}, {number(found.high)}]"
    mean = f"{number(found.estimate)} ± {number(sd)}"
    return [mean, interval, number(found.high - found.estimate), power, told]


def _returns(rows: Sequence[Row]) -> Table:
    columns = {"Familiar partners": RETURN, "Held-out partners": RETURN_HELD_OUT}
    found = spread_table(
        rows, f"Cooperation returns, episodes from 6 to {len(rows[0]['curve'])}", columns, first="Recipe",
        note="Averaged within partner, then over partners. No optimiser runs. The imitated egos learnt with each "
        "partner by reinforcement; their last episodes are what a perfect imitation of a finished learner would earn.",
    )  # fmt: skip
    own = [row for row in rows if "imitated" in row]
    ceilings = [
        [name, *(spread(spread_of(own[:1], f"imitated.{when}_{cohort}")) for cohort in COHORTS)]
        for when, name in (("last", "Imitated egos, last three kept episodes"), ("all", "Imitated egos, all episodes"))
        if own
    ]
    return Table(found.title, found.columns, [*found.rows, *ceilings], found.note)


def _by_partner(arms: Mapping[str, Sequence[Row]]) -> Table:
    names = {name: f"{own[0]['label']}, {SHARES[own[0]['world']]}" if "/" in name else str(own[0]["label"])
             for name, own in arms.items()}  # fmt: skip
    lines = [
        [name, *(number(float(np.mean([row["returns"][name] for row in own]))) for own in arms.values())]
        for name in next(iter(arms.values()))[0]["returns"]
    ]
    return Table("Return by partner", ["Partner", *names.values()], lines)


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    whole = [row for row in rows if row["world"] == "overcooked"] or rows
    figure = return_curves(arms_of(whole))
    return [Picture("returns", "Return by episode", "Mean over familiar partners; the history grows.", figure)]


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    seconds = [row["evaluation_seconds"] for row in rows if "evaluation_seconds" in row]
    return {"Evaluation": f"{sum(seconds) / 60:.0f} process-minutes for {len(seconds)} sources"}


OVERCOOKED_TARGETS = (
    Target(
        "tab:overcooked-complete",
        "Overcooked: a partner as the persistent entity",
        (
            Group("overcooked", tuple(PARTNER_RECIPES), ("partners",)),
            *(Group(world, (VC, SPRII), ("partners",)) for world in list(SHARES)[1:]),
        ),
        _tables,
        CLAIMS,
        _pictures,
        "The paper's partners are not ours: compare signs and ratios, not values.",
        facts=_facts,
    ),
)
