"""How Align's and Cross's gradients lie to each other on SpringWorld's sources (`app:spring-gradient`)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.gradients import GradientObservations, by_phase, by_source, summarise
from sprii_train.analysis.statistics import Interval, mean_of
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of
from sprii_train.experiments.targets.spring import WEIGHTS
from sprii_train.experiments.targets.within import Within, has_arrays
from sprii_train.reports.claims import Arms, Claim, extreme
from sprii_train.reports.gradient_figures import cosine_courses
from sprii_train.reports.page import Picture, Table, number

PHASES = ("early", "middle", "late")
BLOCKS = 10  # of one source's observations, by the course of its training
SEED = 0
NOTE = (
    "Every 100 updates as in the paper, fifty times in shorter runs. The batch is that of the update just made, in "
    "evaluation mode; losses are unweighted; g_p is the history Transformer without the observation stem."
)


def _observed(group: Sequence[Row]) -> GradientObservations:
    """All sources of one recipe."""
    kept = [arrays_of(row, "gradients") for row in group]
    kept = [k | {"source": np.full(len(k["step"]), row["seed"])} for k, row in zip(kept, group, strict=True)]
    return GradientObservations(**{name: np.concatenate([k[name] for k in kept]) for name in kept[0]})


def _distribution(rows: Sequence[Row]) -> list[Table]:
    lines = []
    for group in arms_of(rows).values():
        s = summarise(_observed(group))
        cells = [number(v) for v in (s.mean, s.q1, s.median, s.q3)]
        lines.append([group[0]["label"], str(s.valid), *cells, f"{s.negative:.1f}", f"{s.zero_norm:.1f}"])
    columns = ["Weights", "Valid n", "Mean", "Q1", "Median", "Q3", "Negative (%)", "Zero norm (%)"]
    return [Table("Cosine of ∇Align and ∇Cross on the persistent encoder, sources pooled", columns, lines)]


def _phases(rows: Sequence[Row]) -> list[Table]:
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for group in arms_of(rows).values():
        observed = _observed(group)
        pooled, sources = summarise(observed), by_source(observed)
        phases = by_phase(observed, group[0]["steps"])
        found = [*(sources.get(seed) for seed in seeds), *(phases.get(phase) for phase in PHASES)]
        means = [None if one is None else one.mean for one in found]
        lines.append([group[0]["label"], *map(number, (pooled.align_norm, pooled.cross_norm, *means))])
    columns = ["Weights", "‖∇Align‖", "‖∇Cross‖", *(f"Source {seed}" for seed in seeds), *map(str.capitalize, PHASES)]
    note = "Norms are medians; the other columns are mean cosines. Observations of one source are not independent runs."
    return [Table("Norms, and cosines by source and third of the training", columns, lines, note)]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    courses = {str(group[0]["label"]): _observed(group) for group in arms_of(rows).values()}
    caption = "A dot an observation of one source, a line their running mean over a tenth of the training."
    return [Picture("cosines", "Cosine of ∇Align and ∇Cross while sources train", caption, cosine_courses(courses))]


def _blocks(arm: str, of: Callable[[np.ndarray], np.ndarray]) -> Within:
    """Of the mean of a function of one source's cosines, over blocks: neighbouring observations are not independent."""

    def interval(arms: Arms) -> Interval | None:
        if not has_arrays(arms, (arm,), "gradients"):
            return None
        observed = _observed([arms[arm]])
        cosines = observed.cosine[np.argsort(observed.step)]
        values = of(cosines[np.isfinite(cosines)])
        if len(values) < 2 * BLOCKS:
            return None
        means = [float(block.mean()) for block in np.array_split(values, BLOCKS)]
        return system_bootstrap({"": means}, {"": mean_of("")}, seed=SEED, unit="block of observation")[""]

    return interval


def _mean(choose: Callable[..., float]) -> dict[str, Any]:
    return extreme(
        choose,
        [{"measure": lambda a, arm=arm: a[arm]["mean"], "interval": _blocks(arm, lambda c: c)} for arm in WEIGHTS],
    )


GRADIENT_CLAIMS = (
    Claim(
        "No gradient vanishes",
        WEIGHTS,
        lambda a: min(a[arm]["smallest_norm"] / min(a[arm]["align_norm"], a[arm]["cross_norm"]) for arm in WEIGHTS),
        "smallest norm of any observation ÷ the median of Cross",
        above=0.01,
        paper="none of zero",
        null="no contexts",
        exact=True,
    ),
    Claim(
        "The two gradients are nearly orthogonal on average, whatever the weights",
        WEIGHTS,
        **_mean(max),
        what="largest mean cosine",
        above=-0.1,
        below=0.1,
        paper=0.038,
        null="random directions hold too",
    ),
    Claim(
        "They are not uniformly aligned: a good part of the cosines is negative",
        WEIGHTS,
        **extreme(
            min,
            [
                {
                    "measure": lambda a, arm=arm: a[arm]["negative"],
                    "interval": _blocks(arm, lambda c: 100.0 * (c < 0)),
                }
                for arm in WEIGHTS
            ],
        ),
        what="smallest share of negative cosines in percent",
        above=20,
        paper=34.3,
        null="random directions hold too",
    ),
    Claim(
        "The mean cosine is positive, whatever the weights",
        WEIGHTS,
        **_mean(min),
        what="smallest mean cosine",
        above=0,
        paper=0.021,
        null=0.0,
    ),
)


SPRING_GRADIENT_TARGETS = (
    Target(
        "tab:spring-gradient-distribution",
        "SpringWorld: cosines of the gradients of Align and Cross",
        (Group("spring", WEIGHTS, ("gradients",)),),
        _distribution,
        GRADIENT_CLAIMS,
        _pictures,
        NOTE,
    ),
    Target(
        "tab:spring-gradient-source-phase",
        "SpringWorld: gradient norms, and cosines by source and phase",
        (Group("spring", WEIGHTS, ("gradients",)),),
        _phases,
        GRADIENT_CLAIMS,
        _pictures,
        NOTE,
    ),
)
