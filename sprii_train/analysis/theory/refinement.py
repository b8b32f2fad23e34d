"""Semantic refinement: what a finer relation makes eligible in one fixed representation (`app:semantic-theory`)."""

import numpy as np
from numpy.typing import ArrayLike

from sprii_train.analysis.theory.arrays import Array, group_means, labels, rows


def refinement(codes: ArrayLike, coarse: ArrayLike, fine: ArrayLike) -> Array:
    """E[Cov(E[Z | G₂] | G₁)] (d, d): Σ_between(G₂) − Σ_between(G₁), positive semidefinite.

    It is variance that agreement under G₁ penalises and agreement under G₂ leaves alone; Σ_within falls by as much.
    With few rows a fine group, it also holds the noise of the groups' means.

    Args:
        codes: (n, d), the population (denominator n).
        coarse, fine: labels of G₁ and G₂, (n,) or (n, k) each.

    Raises:
        ValueError: if one fine group lies in two coarse ones; G₁ must be a function of G₂.
    """
    z = rows("codes", codes)
    g1, n1 = labels("coarse", coarse, len(z))
    g2, n2 = labels("fine", fine, len(z))
    split = int((np.bincount(np.unique(g2 * n1 + g1) // n1) > 1).sum())
    if split:
        raise ValueError(f"fine must refine coarse, but {split} fine groups lie in more than one coarse group")
    gain = group_means(z, g2, n2)[0][g2] - group_means(z, g1, n1)[0][g1]
    return gain.T @ gain / len(z)
