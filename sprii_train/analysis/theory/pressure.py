"""Proposition 2: how hard Align pulls on a fixed linear encoder when part of the pairs is wrong.

Histories are H = Lθ + N with independent zero-mean noise N, codes Z = WH.
"""

import numpy as np
from numpy.typing import ArrayLike

from sprii_envs.arguments import integer
from sprii_train.analysis.theory.arrays import Array, matrix, number, rows


def corrupted_pressure(
    encoder: ArrayLike, loadings: ArrayLike, factor_cov: ArrayLike, noise_cov: ArrayLike, alpha: float
) -> float:
    """E‖W(H^A − H^B)‖² when a share `alpha` of the pairs is correct, the rest random (`eq:fidelity-pressure`).

    On a finite bank, pass L = I, and `variance_components` of the histories as `factor_cov` (between) and
    `noise_cov` (within).

    Args:
        encoder: W (d, p).
        loadings: L (p, k).
        factor_cov: Σ_θ (k, k).
        noise_cov: Σ_N (p, p).
        alpha: share of correct pairs, in [0, 1].
    """
    w, noise = _encoder(encoder, noise_cov)
    load = matrix("loadings", loadings, w.shape[1])
    through = w @ load
    cov = matrix("factor_cov", factor_cov, load.shape[1], load.shape[1])
    alpha = number("alpha", alpha, high=1.0)
    return 2.0 * noise + 2.0 * (1.0 - alpha) * float(np.trace(through @ cov @ through.T))


def factor_pressure(encoder: ArrayLike, loading: ArrayLike, gap: float, noise_cov: ArrayLike, alpha: float) -> float:
    """The same when the wrong pairs differ in one factor γ only (`eq:structured-fidelity-pressure`).

    Args:
        encoder: W (d, p).
        loading: L_γ (p,), the direction in which γ shows.
        gap: E_Q[(γ^A − γ^B)²] among the wrong pairs: 2σ_γ² if γ is redrawn independently, `forced_gap(levels)` if
            the sampler forces another level.
        noise_cov: Σ_N (p, p).
        alpha: share of correct pairs, in [0, 1].
    """
    w, noise = _encoder(encoder, noise_cov)
    through = w @ matrix("loading", np.reshape(np.asarray(loading, np.float64), (-1, 1)), w.shape[1])
    wrong = 1.0 - number("alpha", alpha, high=1.0)
    return 2.0 * noise + wrong * number("gap", gap) * float((through**2).sum())


def forced_gap(values: ArrayLike) -> float:
    """E(γ^A − γ^B)² of two distinct entries of a bank of n: 2nσ²/(n − 1), σ² with denominator n.

    Args:
        values: (n,) entries, n ≥ 2: one for each level that the sampler forces to differ (equal entries count
            apart, as they do for a sampler of rows).
    """
    array = rows("values", values)
    if array.shape[1] != 1 or len(array) < 2:
        raise ValueError(f"values must hold at least two numbers, (n,), got shape {np.shape(values)}")
    return 2.0 * float(array.var(ddof=1))


def mean_code_error(within: ArrayLike, repetitions: int) -> float:
    """E‖Z̄_R − μ_G‖² = tr Σ_within / R of the average of R codes that are iid given their group.

    Args:
        within: Σ_within (d, d).
        repetitions: R ≥ 1.
    """
    within = matrix("within", within)
    count = integer("repetitions", repetitions, least=1)
    return float(np.trace(matrix("within", within, len(within), len(within)))) / count


def _encoder(encoder: ArrayLike, noise_cov: ArrayLike) -> tuple[Array, float]:
    """W (d, p) and tr(WΣ_N Wᵀ)."""
    w = matrix("encoder", encoder)
    noise = matrix("noise_cov", noise_cov, w.shape[1], w.shape[1])
    return w, float(np.trace(w @ noise @ w.T))
