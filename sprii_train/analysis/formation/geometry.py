"""Distances of codes: within and between systems, and against the distances of factors (`app:measurements`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata
from sklearn.preprocessing import StandardScaler

from sprii_train.analysis.formation.arrangement import group_means
from sprii_train.analysis.formation.factors import Factor, controls_of
from sprii_train.analysis.populations import Population, Sample

Array = NDArray[np.float64]

SD_FLOOR = 1e-6
"""Least SD of a live code dimension (`app:poke-formation`, the atlas paragraph)."""


class Geometry(NamedTuple):
    """Mean squared distances of train-standardised codes, and between / within; one source's, never pooled."""

    within: float
    between: float
    ratio: float


def standardise(train: Array, *others: Array) -> tuple[Array, ...]:
    """Centre and scale all arrays (n, d) by the training mean and SD; constant columns become zero.

    A column is constant if its SD is at most `SD_FLOOR`, or rounding noise of its float32 values. The atlas paragraph
    of `app:poke-formation` divides such columns by the floor; that is the same for live columns, while it would give
    rounding noise, or held-out rows that differ, up to a million times the scale of the training rows.
    """
    train = np.asarray(train, np.float64)
    scaler = StandardScaler().fit(train)
    constant = train.std(0) <= np.maximum(SD_FLOOR, 1e-7 * np.abs(train).max(0))
    arrays = (train, *(np.asarray(other, np.float64) for other in others))
    return tuple(np.where(constant, 0.0, np.asarray(scaler.transform(array))) for array in arrays)


def between_within(codes: Array, systems: NDArray) -> Geometry:
    """Distances between system centroids over distances between one system's codes.

    `within` is the mean over systems of the mean squared distance between two of its codes, `between` the mean
    squared distance between two centroids. Codes without information give 1/R for R codes a system.

    Args:
        codes: (n, d), standardised by training statistics.
        systems: (n,) ids; every system needs at least two codes.

    Raises:
        ValueError: for a system with one code, fewer than two systems, or other shapes.
    """
    if np.ndim(codes) != 2 or np.shape(systems) != np.shape(codes)[:1]:
        raise ValueError(
            f"between/within needs codes (n, d) and systems (n,), got {np.shape(codes)}, {np.shape(systems)}"
        )
    ids, inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)
    if len(ids) < 2 or counts.min() < 2:
        raise ValueError(
            f"between/within needs >= 2 systems with >= 2 codes each, got {len(ids)} with >= {counts.min()}"
        )
    means, _ = group_means(codes, systems)
    squared = np.bincount(inverse, ((codes - means[inverse]) ** 2).sum(1))
    within = float(np.mean(2.0 * squared / (counts - 1)))
    between = float(2.0 * means.var(0, ddof=1).sum())
    if within == 0.0:  # a collapsed code separates nothing; a perfect one everything
        return Geometry(within, between, float("inf") if between > 0 else 0.0)
    return Geometry(within, between, between / within)


def partial_spearman(x: Array, y: Array, controls: Sequence[Array] = ()) -> float:
    """Spearman correlation of x and y given the controls, all (n,).

    Everything is ranked (ties get their mean rank), the ranks of x and y are regressed on those of the controls, and
    the residuals correlated. It is 0 where x or y has nothing left: a constant, or a function of the controls.
    """
    return _partial(_rank(x), _rank(y), [_rank(control) for control in controls])


def partial_geometry(sample: Sample[Population], factors: Sequence[Factor]) -> dict[str, float]:
    """Partial correlation ρ of code distance with each factor's distance, given the other factors' distances.

    Distances are taken between all pairs of systems: Euclidean between codes, |difference| between factor values in
    their coordinate. Columns of `tab:pokeworld-geometry`, `tab:refinement-full`, `tab:v3-spring-components`.

    Args:
        sample: one standardised code a system, such as `system_centroids`; three systems or more.
        factors: those measured, and those controlled (`Factor.controls`).

    Returns:
        Name → ρ.

    Raises:
        ValueError: for several codes of a system, fewer than three systems, or a factor that is the same in all.
    """
    systems = len(np.unique(sample.systems))
    if systems < 3 or systems != len(sample):
        raise ValueError(f"partial geometry needs one code for each of >= 3 systems, got {len(sample)} for {systems}")
    code = _rank(pdist(sample.codes))
    ranks = {name: _rank(distances) for name, distances in factor_distances(sample, factors).items()}
    return {
        factor.name: _partial(code, ranks[factor.name], [ranks[c.name] for c in controls_of(factor, factors)])
        for factor in factors
    }


def partial_distance_correlation(sample: Sample[Population], factors: Sequence[Factor]) -> dict[str, float]:
    """Bias-corrected partial distance correlation of codes and each factor, given the other factors together.

    Székely and Rizzo's (2014), of U-centred distance matrices: beside the rank correlation of `partial_geometry` it
    tells of any dependence, not only of one that grows with distance. Its size is that of a squared correlation, its
    sign may be negative. The controls are one vector, each in its own SDs. It is 0 where codes or factor have nothing
    left.

    Args:
        sample, factors: as `partial_geometry` takes them; four systems or more.

    Raises:
        ValueError: as `partial_geometry`, or for three systems.
    """
    if len(sample) < 4:
        raise ValueError(f"partial distance correlation needs >= 4 systems, got {len(sample)}")
    codes, found = _u_centred(sample.codes), {}
    factor_distances(sample, factors)  # refuses a constant one
    for factor in factors:
        whole = pair = [codes, _u_centred(factor.of(sample.factors)[:, None])]
        if controls := controls_of(factor, factors):
            values = np.stack([control.of(sample.factors) for control in controls], axis=1)
            z = _u_centred(values / values.std(0))
            pair = [each - (each * z).sum() / max((z * z).sum(), 1e-300) * z for each in pair]
        left, before = ([(each**2).sum() for each in both] for both in (pair, whole))
        live = all(part > 1e-18 * all_of_it > 0 for part, all_of_it in zip(left, before, strict=True))
        found[factor.name] = float((pair[0] * pair[1]).sum() / np.sqrt(left[0] * left[1])) if live else 0.0
    return found


def _u_centred(values: Array) -> Array:
    """U-centred Euclidean distances (n, n) of rows (n, d): every row sums to 0, and the diagonal is 0."""
    d = squareform(pdist(values))
    n = len(d)
    rows = d.sum(1) / (n - 2)
    centred = d - rows[:, None] - rows[None] + d.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0.0)
    return centred


def factor_distances(sample: Sample[Population], factors: Sequence[Factor]) -> dict[str, Array]:
    """|Difference| of each factor between all pairs of rows, (n(n−1)/2,) as multiples of the largest.

    Raises:
        ValueError: for a factor that is the same in all rows.
    """
    found = {}
    for factor in factors:
        distances = pdist(factor.of(sample.factors)[:, None])
        if not distances.any():
            raise ValueError(f"factor {factor.name!r} is the same in all {len(sample)} systems: it has no distances")
        # Equal steps between levels differ in their last bits; unrounded they would not be ties.
        found[factor.name] = np.round(distances / distances.max(), 9)
    return found


def _rank(values: NDArray[np.floating]) -> Array:
    """Ranks (n,) centred on 0 with root mean square 1; zeros for a constant."""
    ranks = rankdata(values)
    ranks -= ranks.mean()
    scale = np.sqrt(np.mean(ranks * ranks))
    return ranks / scale if scale > 0 else ranks


def _partial(x: Array, y: Array, controls: Sequence[Array]) -> float:
    pair = np.stack([x, y], axis=1)
    if controls:
        design = np.stack(controls, axis=1)
        # Least squares by the normal equations: ranks of few factors are well conditioned, and there are many pairs.
        pair = pair - design @ (np.linalg.pinv(design.T @ design, hermitian=True, rcond=1e-10) @ (design.T @ pair))
    power = np.mean(pair * pair, axis=0)
    if power.min() < 1e-10:  # of a variance of 1: rounding
        return 0.0
    return float(np.mean(pair[:, 0] * pair[:, 1]) / np.sqrt(power[0] * power[1]))
