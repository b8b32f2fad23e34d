"""Proposition 3: which directions prediction and a relation select together (`app:predictive-selection`).

Histories are centred and white, Cov(H) = I, and targets Y = KH + η with η uncorrelated with H; `fit_reference` brings
data into this form. The code is Z = WH with WWᵀ = I.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sprii_envs.arguments import integer
from sprii_train.analysis.theory.arrays import Array, matrix, number, rows


class Reference(NamedTuple):
    """Data in the proposition's form: H = (raw − mean) @ whitener, which is symmetric: coordinates keep their names."""

    mean: Array  # (p,)
    whitener: Array  # (p, p)
    k: Array  # (q, p)
    target_variance: float  # tr Cov(Y)


class Selection(NamedTuple):
    """The optimum of Proposition 3."""

    encoder: Array  # W* (d, p), orthonormal rows; the largest entry of each is positive
    decoder: Array  # C* = K W*ᵀ (q, d)
    reward: float  # tr(W* M_G W*ᵀ), the sum of the d largest eigenvalues
    eigenvalues: Array  # (p,) of M_G, decreasing
    gap: float  # λ_d − λ_{d+1}
    unique: bool  # whether the subspace is; its basis need not be


def disagreement(histories_a: ArrayLike, histories_b: ArrayLike) -> Array:
    """D_G = E[(H^A − H^B)(H^A − H^B)ᵀ] (p, p) of n drawn pairs, (n, p) each. Mean differences count.

    `expected_disagreement` has it without sampling, for the uniform kernel.
    """
    a = rows("histories_a", histories_a)
    difference = a - rows("histories_b", histories_b, like=a)
    return difference.T @ difference / len(a)


def shared_disagreement(shared: Sequence[bool]) -> Array:
    """D_G (p, p) where coordinates are standard and independent: 0 for a shared one, 2 for one that is redrawn."""
    return np.diag(np.where(np.asarray(shared, bool), 0.0, 2.0))


def selection_matrix(k: ArrayLike, disagreement: ArrayLike, beta: float = 1.0) -> Array:
    """M_G = KᵀK − βD_G (p, p).

    Args:
        k: K (q, p) of the white histories.
        disagreement: D_G (p, p) of the white histories.
        beta: weight of the relation, at least 0.
    """
    k = matrix("k", k)
    d = matrix("disagreement", disagreement, k.shape[1], k.shape[1])
    return k.T @ k - number("beta", beta) * (d + d.T) / 2.0


def select(k: ArrayLike, disagreement: ArrayLike, *, d: int, beta: float = 1.0) -> Selection:
    """The d directions that minimise prediction error plus β times disagreement (`eq:spectral-selection`).

    Args:
        k: K (q, p).
        disagreement: D_G (p, p).
        d: dimension of the code, 1 ≤ d < p.
        beta: weight of the relation, at least 0.
    """
    m = selection_matrix(k, disagreement, beta)
    p = len(m)
    if not integer("d", d, least=1) < p:
        raise ValueError(f"d must be at least 1 and below the {p} dimensions of the history, got {d}")
    values, vectors = np.linalg.eigh(m)
    values, encoder = values[::-1], vectors[:, ::-1].T[:d]
    largest = encoder[np.arange(d), np.abs(encoder).argmax(1)]
    encoder = encoder * np.sign(largest)[:, None]
    gap = float(values[d - 1] - values[d])
    # Eigenvalues closer than this are equal up to the rounding of eigh.
    rounding = 8 * p * np.finfo(np.float64).eps * float(np.abs(values).max())
    decoder = matrix("k", k) @ encoder.T
    return Selection(encoder, decoder, float(values[:d].sum()), values, gap, bool(gap > rounding))


def selection_objective(
    encoder: ArrayLike, k: ArrayLike, disagreement: ArrayLike, target_variance: float, beta: float = 1.0
) -> float:
    """J_G(W) = tr Cov(Y) − tr(W M_G Wᵀ) (`eq:app-selection-objective`).

    It is the error of the best decoder of WH plus β times the disagreement of WH.

    Args:
        encoder: W (d, p) with orthonormal rows.
        k, disagreement, beta: as in `selection_matrix`.
        target_variance: tr Cov(Y).
    """
    m = selection_matrix(k, disagreement, beta)
    w = matrix("encoder", encoder, width=len(m))
    off = float(np.abs(w @ w.T - np.eye(len(w))).max())
    if off > 1e-6:
        raise ValueError(f"encoder must have orthonormal rows; W Wᵀ differs from the identity by {off:.3g}")
    return number("target_variance", target_variance) - float(np.trace(w @ m @ w.T))


def fit_reference(histories: ArrayLike, targets: ArrayLike) -> Reference:
    """Whiten histories and regress targets on them: the proposition's K from data.

    What recipients know anyway (U: state, actions, horizon) is to be regressed out of both first.

    Args:
        histories: (n, p), with a covariance of full rank.
        targets: (n, q) or (n,).
    """
    h, y = rows("histories", histories), rows("targets", targets)
    if len(h) != len(y):
        raise ValueError(f"histories and targets must have equally many rows, got {len(h)} and {len(y)}")
    mean = h.mean(0)
    h, y = h - mean, y - y.mean(0)
    values, vectors = np.linalg.eigh(h.T @ h / len(h))
    if values[0] <= len(values) * np.finfo(np.float64).eps * values[-1]:
        raise ValueError(
            f"histories must have a covariance of full rank; its eigenvalues run from {values[0]:.3g} to "
            f"{values[-1]:.3g}: leave out redundant coordinates"
        )
    whitener = (vectors / np.sqrt(values)) @ vectors.T
    return Reference(mean, whitener, y.T @ h @ whitener / len(h), float((y**2).sum() / len(y)))
