"""How Align's and Cross's gradients lie to each other on SpringWorld's sources (`app:spring-gradient`)."""

from collections.abc import Sequence

import numpy as np

from sprii_train.analysis.gradients import GradientObservations, by_phase, by_source, summarise
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of
from sprii_train.experiments.targets.spring import WEIGHTS
from sprii_train.reports.claims import Claim
from sprii_train.reports.gradient_figures import cosine_courses
from sprii_train.reports.page import Picture, Table, number

PHASES = ("early", "middle", "late")
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


GRADIENT_CLAIMS = (
    Claim(
        "No gradient vanishes",
        WEIGHTS,
        lambda a: min(a[arm]["smallest_norm"] for arm in WEIGHTS),
        lambda v: v > 0.0,
        "smallest norm of any observation (> 0; the paper had none of zero)",
    ),
    Claim(
        "The two gradients are nearly orthogonal on average, whatever the weights",
        WEIGHTS,
        lambda a: max(abs(a[arm]["mean"]) for arm in WEIGHTS),
        lambda v: v < 0.1,
        "largest |mean cosine| (< 0.1; paper 0.038)",
    ),
    Claim(
        "They are not uniformly aligned: a good part of the cosines is negative",
        WEIGHTS,
        lambda a: min(a[arm]["negative"] for arm in WEIGHTS),
        lambda v: v > 20.0,
        "smallest share of negative cosines (> 20 %; paper 34.3)",
    ),
    Claim(
        "The mean cosine is positive, whatever the weights",
        WEIGHTS,
        lambda a: min(a[arm]["mean"] for arm in WEIGHTS),
        lambda v: v > 0.0,
        "smallest mean cosine (> 0; paper 0.021)",
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
