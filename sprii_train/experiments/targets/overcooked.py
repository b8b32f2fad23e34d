"""Table `tab:overcooked-complete`: the action learner with a partner's history, regularised and aligned by partner."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_table, value_of
from sprii_train.recipes import PARTNER_RECIPES
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.overcooked_figures import return_curves
from sprii_train.reports.page import Picture, Table, number

VC, SPRII, RANDOM = "h-vc", "h-sprii", "h-random"
COHORTS = ("familiar", "held_out")


def _lead(path: str, low: str = VC) -> Callable[[Arms], float]:
    return lambda a: value_of(a[SPRII], path) - value_of(a[low], path)


CLAIMS = (
    Claim(
        "Alignment lowers the probe's error with familiar partners against H+VC",
        (VC, SPRII),
        _lead("probe_familiar.error"),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0212,
        null=0.0,
    ),
    Claim(
        "Alignment lowers it against histories of other partners (Random)",
        (RANDOM, SPRII),
        _lead("probe_familiar.error", RANDOM),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0258,
        null=0.0,
    ),
    Claim(
        "Alignment lowers the probe's error with held-out partners against H+VC",
        (VC, SPRII),
        _lead("probe_held_out.error"),
        "difference of mean squared errors",
        below=0.0,
        paper=-0.0177,
        null=0.0,
    ),
    Claim(
        "The probe's error with alignment stays above that of the constant mean, familiar and held out",
        (SPRII,),
        lambda a: min(
            a[SPRII][f"probe_{cohort}"]["error"] - a[SPRII][f"probe_{cohort}"]["constant"] for cohort in COHORTS
        ),
        "smaller of the two differences",
        above=0.0,
        paper=0.0106,
        null="holds too",
    ),
    Claim(
        "Alignment raises the return with familiar partners",
        (VC, SPRII),
        _lead("return_familiar"),
        "difference of mean returns",
        above=0.0,
        paper=1.89,
        null=0.0,
    ),
)


def _tables(rows: Sequence[Row]) -> list[Table]:
    def table(title: str, columns: Mapping[str, str], note: str) -> Table:
        return spread_table(rows, title, columns, first="Recipe", note=note)

    return [
        table("Behavioral readout and representation", {
            "Familiar MSE": "probe_familiar.error",
            "constant mean, familiar": "probe_familiar.constant",
            "Held-out MSE": "probe_held_out.error",
            "constant mean, held out": "probe_held_out.constant",
        }, "Ridge from slots to how often the partner takes each action in later episodes; lower errors are better."),
        table("Distance ratio of slots: different partners over one partner", {
            "Distance ratio": "distance_ratio",
            "untrained": "untrained.distance_ratio",
            "One partner under several names": "alias_ratio",
            "untrained, several names": "untrained.alias_ratio",
        }, "All pairs of one partner are of one run of the ego, all pairs of different partners of two, so that the "
            "ratio tells runs apart too: slots that hold the partner alone have 1 where one partner has a name for "
            "each run. It is no evidence that slots tell partners apart, and has no verdict."),
        table(f"Cooperation returns, episodes from 6 to {len(rows[0]['curve'])}", {
            "Familiar partners": "return_familiar",
            "Held-out partners": "return_held_out",
        }, "Averaged within partner, then over partners. No optimiser runs."),
        table("Other histories at fixed weights: cross-entropy of the ego's actions", {
            f"{name}, {cohort}": f"swapped_{cohort}.{name}"
            for cohort in COHORTS
            for name in ("matched", "null", "wrong")
        }, "The slot is of the history itself, zero, or of another partner's history, which is of another run of the "
            "ego as well: what a wrong one costs need not be of the partner, and has no verdict."),
        _by_partner(arms_of(rows)),
    ]  # fmt: skip


def _by_partner(arms: Mapping[str, Sequence[Row]]) -> Table:
    lines = [
        [name, *(number(float(np.mean([row["returns"][name] for row in own]))) for own in arms.values())]
        for name in next(iter(arms.values()))[0]["returns"]
    ]
    return Table("Return by partner", ["Partner", *(str(own[0]["label"]) for own in arms.values())], lines)


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    figure = return_curves(arms_of(rows))
    return [Picture("returns", "Return by episode", "Mean over familiar partners; the history grows.", figure)]


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    seconds = [row["evaluation_seconds"] for row in rows if "evaluation_seconds" in row]
    return {"Evaluation": f"{sum(seconds) / 60:.0f} process-minutes for {len(seconds)} sources"}


OVERCOOKED_TARGETS = (
    Target(
        "tab:overcooked-complete",
        "Overcooked: a partner as the persistent entity",
        (Group("overcooked", tuple(PARTNER_RECIPES), ("partners",)),),
        _tables,
        CLAIMS,
        _pictures,
        "The paper's partners and signatures are not ours: compare signs and ratios, not values.",
        facts=_facts,
    ),
)
