"""All Formation measures of one source, in one place (`app:measurements`, `app:poke-formation`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sprii_envs.arguments import integer
from sprii_train.analysis.formation.arrangement import rollout_means, system_centroids, with_codes
from sprii_train.analysis.formation.factors import Factor
from sprii_train.analysis.formation.geometry import (
    Geometry,
    between_within,
    partial_distance_correlation,
    partial_geometry,
    standardise,
)
from sprii_train.analysis.formation.intervals import partial_intervals, ratio_interval
from sprii_train.analysis.formation.probes import Kind, Scored, probe_factors
from sprii_train.analysis.populations import Population, Sample, Training, check_fit
from sprii_train.analysis.statistics import Interval

Level = Literal["centroid", "rollout", "window"]

_ARRANGED = {"centroid": system_centroids, "rollout": rollout_means, "window": lambda sample: sample}


@dataclass(frozen=True)
class Formation:
    """What was formed in one source's codes.

    Attributes:
        geometry: of the rollout means of the held-out systems.
        rho: factor → partial rank correlation of distances between system centroids.
        pdcor: factor → their partial distance correlation; none of three systems.
        scores: (level, kind, factor) → a probe's estimates on the held-out systems.
        intervals: `ratio` and `rho_drag` and so on → system-bootstrap interval, given this source; none unless asked.
    """

    geometry: Geometry
    rho: dict[str, float]
    pdcor: dict[str, float]
    scores: dict[tuple[str, str, str], Scored]
    intervals: dict[str, Interval] = field(default_factory=dict)

    def row(self) -> dict[str, float]:
        """`within`, `between`, `ratio`, `rho_drag`, `pdcor_drag`, and R² as `centroid_ridge_drag`, `window_mlp_drag` and so on."""
        row = self.geometry._asdict()
        row |= {f"rho_{name}": value for name, value in self.rho.items()}
        row |= {f"pdcor_{name}": value for name, value in self.pdcor.items()}
        return row | {"_".join(key): scored.r2 for key, scored in self.scores.items()}


def measure_formation(
    train: Sample[Training],
    held_out: Sample[Population],
    factors: Sequence[Factor],
    *,
    seed: int,
    probes: Sequence[Kind] = ("ridge", "mlp"),
    levels: Sequence[Level] = ("centroid",),
    draws: int = 0,
) -> Formation:
    """Between/within of rollouts, partial geometry of centroids, probes at the levels named.

    Codes are averaged over the windows of a rollout, standardised by the training systems' rollout means, then
    averaged over the rollouts of a system, which is the order of the atlas paragraph of `app:poke-formation`.

    Args:
        train: codes of windows, or of rollouts, of training systems; probes and standardisation are fitted on them.
        held_out: the same of the systems measured; two rollouts a system or more, three systems or more.
        factors: measured, and controls of each other; see `probe_factors` for ratios.
        seed: of the MLP probes.
        probes: kinds; none measures geometry alone.
        levels: `centroid`, `rollout` (mean over its windows) or `window`.
        draws: of the systems, for intervals of the geometry; 0 for none.

    Raises:
        PopulationError: if `train` is not training systems.
        ValueError: for an unknown level, or what `probe_factors`, `between_within` or `partial_geometry` refuses.
    """
    check_fit(train.population, "a Formation measure's standardisation")
    draws = integer("draws", draws)
    if unknown := set(levels) - set(_ARRANGED):
        raise ValueError(f"unknown level {min(unknown)!r}; legal: {', '.join(_ARRANGED)}")
    _, own, other = standardise(rollout_means(train).codes, train.codes, held_out.codes)
    train, held_out = with_codes(train, own), with_codes(held_out, other)
    rollouts = rollout_means(held_out)
    scores: dict[tuple[str, str, str], Scored] = {}
    for level in levels if probes else ():
        arranged = _ARRANGED[level]
        read = probe_factors(arranged(train), arranged(held_out), factors, seed=seed, kinds=probes)
        scores |= {(level, *key): scored for key, scored in read.items()}
    centroids = system_centroids(held_out)
    intervals: dict[str, Interval] = {}
    if draws:
        ratio = ratio_interval(rollouts.codes, rollouts.systems, seed=seed, draws=draws)
        intervals = {} if ratio is None else {"ratio": ratio}
        found = partial_intervals(centroids, factors, seed=seed, draws=draws)
        intervals |= {f"rho_{name}": each for name, each in found.items()}
    rho = partial_geometry(centroids, factors)
    pdcor = partial_distance_correlation(centroids, factors) if len(centroids) > 3 else {}
    return Formation(between_within(rollouts.codes, rollouts.systems), rho, pdcor, scores, intervals)


def formation_row(
    train: Sample[Training],
    held_out: Sample[Population],
    factors: Sequence[Factor],
    *,
    seed: int,
    probes: Sequence[Kind] = ("ridge", "mlp"),
    levels: Sequence[Level] = ("centroid",),
) -> dict[str, float]:
    """`measure_formation` as a row of `results.json`: see there, and `Formation.row` for its keys."""
    return measure_formation(train, held_out, factors, seed=seed, probes=probes, levels=levels).row()
