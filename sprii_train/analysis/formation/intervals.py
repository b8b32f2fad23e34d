"""System-bootstrap intervals of one source's geometry: systems are resampled, its weights stay (`app:measurements`)."""

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from sprii_train.analysis.bootstrap import system_bootstrap, system_resamples
from sprii_train.analysis.formation.arrangement import group_means
from sprii_train.analysis.formation.factors import Factor, controls_of
from sprii_train.analysis.formation.geometry import between_within, factor_distances, partial_geometry
from sprii_train.analysis.formation.moments import moments, total_variance
from sprii_train.analysis.populations import Population, Sample
from sprii_train.analysis.statistics import Interval, check_level

Array = NDArray[np.float64]


def ratio_interval(
    codes: Array, systems: NDArray, *, seed: int, draws: int = 10_000, level: float = 0.95
) -> Interval | None:
    """Percentile interval of between/within; a system that is drawn twice counts twice, with all its codes.

    Args:
        codes, systems: as `between_within` takes them.
        seed, draws, level: of `bootstrap.system_bootstrap`.

    Returns:
        None where a draw has no ratio: for codes that do not vary within systems, or of so few systems that some draw
        has only those whose codes do not.

    Raises:
        ValueError: as `between_within` and `system_bootstrap`.
    """
    if between_within(codes, systems).within == 0.0:
        return None
    means, _ = group_means(codes, systems)
    inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)[1:]
    squared = np.bincount(inverse, ((codes - means[inverse]) ** 2).sum(1))
    n = len(means)
    still = squared == 0.0
    if still.any() and not system_resamples(n, seed=seed, draws=draws)[:, ~still].any(1).all():
        return None
    columns = moments("code", means - means.mean(0)) | {"within": 2.0 * squared / (counts - 1)}

    def ratio(of: Any) -> Any:
        return 2.0 * n / (n - 1) * total_variance("code", of) / of["within"]

    return system_bootstrap(columns, {"": ratio}, seed=seed, draws=draws, level=level)[""]


def partial_intervals(
    sample: Sample[Population], factors: Sequence[Factor], *, seed: int, draws: int = 10_000, level: float = 0.95
) -> dict[str, Interval]:
    """Percentile intervals of the ρ of `partial_geometry`, one draw of the systems for all factors.

    A pair of systems has the product of their counts as its weight; the pair of a system with its own copy has no
    distance to relate and is left out, and so is a draw of one system alone, which has no other pairs: of few systems
    one in n^(n − 1). As in `partial_geometry`, ρ is 0 in a draw that leaves nothing to relate. Ranks of the pairs are
    not taken anew in every draw: correlations of ranks are linearised in the weights, of the ranks themselves too, so
    that a draw costs a few quadratic forms.

    Args:
        sample, factors: as `partial_geometry` takes them.

    Returns:
        Name → interval.

    Raises:
        ValueError: as `partial_geometry`, for a level outside (0, 1), or where no draw has two systems.
    """
    check_level(level)
    estimates = partial_geometry(sample, factors)
    distances = [pdist(sample.codes), *factor_distances(sample, factors).values()]
    moments = _moments([np.asarray(each, np.float64) for each in distances], len(sample), seed=seed, draws=draws)
    order = [factor.name for factor in factors]
    found = {}
    for i, factor in enumerate(factors, 1):
        controls = [1 + order.index(control.name) for control in controls_of(factor, factors)]
        low, high = np.quantile(_partial(moments, i, controls), [(1 - level) / 2, (1 + level) / 2])
        found[factor.name] = Interval(estimates[factor.name], float(low), float(high), level, len(sample), "system")
    return found


def _moments(distances: Sequence[Array], n: int, *, seed: int, draws: int) -> Array:
    """Second moments (draws, V, V) of the ranks of V distances over pairs of n systems, ranks in (−½, ½).

    Draws of one system alone are left out.
    """
    counts = system_resamples(n, seed=seed, draws=draws).astype(np.float32)
    counts = counts[(counts > 0).sum(1) > 1]
    if not len(counts):
        raise ValueError(f"draws is {draws}, and none of them has two of the {n} systems; legal: more draws")
    pairs = (counts.sum(1) ** 2 - (counts**2).sum(1)).astype(np.float64) / 2
    ranks = [(rankdata(each) - 0.5) / len(each) - 0.5 for each in distances]
    found = np.empty((len(counts), len(ranks), len(ranks)))
    for i, j in combinations_with_replacement(range(len(ranks)), 2):
        x, y = ranks[i], ranks[j]
        # M = Σ W x(W) y(W), and a rank is itself a mean over the pairs: three sums that are linear in the weights.
        terms = x * y + _ranked_by(distances[i], y) + _ranked_by(distances[j], x)
        form = squareform(terms).astype(np.float32)
        of_draws = ((counts @ form) * counts).sum(1, dtype=np.float64) / 2 / pairs
        found[:, i, j] = found[:, j, i] = of_draws - 2 * np.mean(x * y)
    return found


def _ranked_by(distances: Array, other: Array) -> Array:
    """Mean over pairs l of ([d_k < d_l] + ½[d_k = d_l] − ½) · other_l for every pair k: its part in all ranks."""
    values, inverse = np.unique(distances, return_inverse=True)
    sums = np.bincount(inverse, other, len(values))
    above = sums.sum() - np.cumsum(sums)
    return ((above + 0.5 * sums)[inverse] - 0.5 * sums.sum()) / len(distances)


def _partial(moments: Array, column: int, controls: Sequence[int]) -> Array:
    """Correlation (draws,) of variable 0 and a column given the controls."""
    pair = np.array([0, column])
    left = moments[:, pair[:, None], pair]
    if controls:
        c = np.array(controls)
        across = moments[:, pair[:, None], c]
        inverse = np.linalg.pinv(moments[:, c[:, None], c], rcond=1e-10, hermitian=True)
        left = left - across @ inverse @ across.swapaxes(1, 2)
    power = left[:, 0, 0] * left[:, 1, 1]
    alive = (left[:, 0, 0] > 1e-12) & (left[:, 1, 1] > 1e-12)
    return np.where(alive, np.clip(left[:, 0, 1] / np.sqrt(np.where(alive, power, 1.0)), -1.0, 1.0), 0.0)
