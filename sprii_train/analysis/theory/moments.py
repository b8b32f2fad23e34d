"""Proposition 1: what a pair law makes of codes; covariance within and between groups."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sprii_train.analysis.theory.arrays import Array, group_means, labels, matrix, rows


class PairMoments(NamedTuple):
    """First and second moments of paired codes: means (d,), covariances (d, d)."""

    mean_a: Array
    mean_b: Array
    cov_a: Array
    cov_b: Array
    cov_ab: Array


class Covariances(NamedTuple):
    """Σ_within and Σ_between, (d, d) each."""

    within: Array
    between: Array


def pair_moments(codes_a: ArrayLike, codes_b: ArrayLike) -> PairMoments:
    """Moments of n drawn pairs, (n, d) each, with denominator n: `pair_second_moment` of them is the pairs' average."""
    a = rows("codes_a", codes_a)
    b = rows("codes_b", codes_b, like=a)
    mean_a, mean_b = a.mean(0), b.mean(0)
    a, b = a - mean_a, b - mean_b
    n = len(a)
    return PairMoments(mean_a, mean_b, a.T @ a / n, b.T @ b / n, a.T @ b / n)


def pair_second_moment(moments: PairMoments) -> float:
    """E‖Z^A − Z^B‖² of any pair law with these moments (`eq:app-general-pair`)."""
    mean_a, mean_b, cov_a, cov_b, cov_ab = (np.asarray(part, np.float64) for part in moments)
    d = len(np.atleast_1d(mean_a))
    for name, part in zip(PairMoments._fields[2:], (cov_a, cov_b, cov_ab), strict=True):
        matrix(name, part, d, d)
    return float(np.trace(cov_a) + np.trace(cov_b) - 2 * np.trace(cov_ab) + ((mean_a - mean_b) ** 2).sum())


def matched_second_moment(within: ArrayLike) -> float:
    """2·tr Σ_within: E‖Z^A − Z^B‖² of codes that are iid given their group (`eq:conditional-pair`).

    With `covariances(...).within` it is the moment of pairs drawn with replacement from each group. A sampler that
    never pairs an episode with itself has the moment of `variance_components(...).within`.
    """
    within = matrix("within", within)
    return 2.0 * float(np.trace(matrix("within", within, len(within), len(within))))


def covariances(codes: ArrayLike, groups: ArrayLike) -> Covariances:
    """Σ_within(G) and Σ_between(G) of the n rows as a population: their sum is Cov(Z), denominator n.

    Args:
        codes: (n, d).
        groups: labels (n,), or (n, k) for a group that several columns name together.
    """
    z = rows("codes", codes)
    ranks, count = labels("groups", groups, len(z))
    means, _ = group_means(z, ranks, count)
    residual, centred = z - means[ranks], means[ranks] - z.mean(0)
    return Covariances(residual.T @ residual / len(z), centred.T @ centred / len(z))


def variance_components(codes: ArrayLike, groups: ArrayLike) -> Covariances:
    """Unbiased Σ_within and Σ_between of a finite bank, groups counting equally.

    With these, Propositions 1 and 2 hold for the sampler on the bank itself, with no large-bank limit: under
    `PairSampler(table, SAME_SYSTEM, distinct="system")` the expected moment of correct pairs is 2·tr Σ_within, and
    deranging them over systems adds 2·tr Σ_between. Σ_between is the analysis-of-variance estimate: the variance of
    the group means (denominator groups − 1) less what averaging a group's episodes leaves of Σ_within. It can be
    slightly indefinite.

    Args:
        codes: (n, d).
        groups: labels (n,) or (n, k); at least two groups of at least two rows.
    """
    z = rows("codes", codes)
    ranks, count = labels("groups", groups, len(z))
    means, sizes = group_means(z, ranks, count)
    if count < 2 or sizes.min() < 2:
        raise ValueError(
            f"variance components need two groups of two rows; got {count} groups, the smallest of {sizes.min()}"
        )
    residual = z - means[ranks]
    weight = 1.0 / (count * (sizes - 1.0))  # a group's mean of squares, averaged over groups
    within = (residual * weight[ranks, None]).T @ residual
    of_means = (residual * (weight / sizes)[ranks, None]).T @ residual
    return Covariances(within, np.cov(means.T, ddof=1).reshape(within.shape) - of_means)


def cross_covariances(codes_a: ArrayLike, codes_b: ArrayLike, groups: ArrayLike) -> Covariances:
    """Σ_AB of drawn pairs as E[Cov(Z^A, Z^B | G)] (`within`) and Cov(E[Z^A | G], E[Z^B | G]) (`between`).

    `within` is zero for conditionally iid pairs. Overlapping windows make it positive, and a draw without replacement
    from R episodes makes it −Σ_within/(R − 1).

    Args:
        codes_a, codes_b: (n, d) each, row i is a pair.
        groups: labels of the pairs' common group, (n,) or (n, k).
    """
    a = rows("codes_a", codes_a)
    b = rows("codes_b", codes_b, like=a)
    ranks, count = labels("groups", groups, len(a))
    means_a, means_b = (group_means(z, ranks, count)[0][ranks] for z in (a, b))
    within = (a - means_a).T @ (b - means_b) / len(a)
    return Covariances(within, (means_a - a.mean(0)).T @ (means_b - b.mean(0)) / len(a))
