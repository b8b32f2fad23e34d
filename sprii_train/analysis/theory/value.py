"""Proposition 4: what a donor is worth to the best reader, and to readers that are not the best (`app:utility-theory`).

X is what the recipient has, D the donor's code. Readers are given by their predictions on n common draws of (X, D).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sprii_train.analysis.theory.arrays import Array, rows


class ReaderGain(NamedTuple):
    """R(f₀) − R(f_D) = value + excess_without − excess_with (`eq:app-reader-excess-risk`)."""

    total: float  # the risk that the readers save
    value: float  # Δ*, what the best readers would save, at least 0
    excess_without: float  # excess risk of the reader of X
    excess_with: float  # excess risk of the reader of (X, D)


def squared_gain(
    mean_without: ArrayLike,
    mean_with: ArrayLike,
    reader_without: ArrayLike | None = None,
    reader_with: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> ReaderGain:
    """Squared loss: Δ* = E‖m_D − m_0‖² (`eq:app-bayes-task-value`), excess risks E‖f − m‖².

    Args:
        mean_without: m_0 = E[Y | X], (n, k) or (n,).
        mean_with: m_D = E[Y | X, D], of that shape.
        reader_without, reader_with: predictions f_0 of X and f_D of (X, D); by default the best readers.
        weights: (n,) probabilities of the rows; by default equal.
    """
    m0 = rows("mean_without", mean_without)
    md = rows("mean_with", mean_with, like=m0)
    f0 = m0 if reader_without is None else rows("reader_without", reader_without, like=m0)
    fd = md if reader_with is None else rows("reader_with", reader_with, like=m0)
    weight = _weights(weights, len(m0))
    return _gain(*(float(weight @ ((a - b) ** 2).sum(1)) for a, b in ((md, m0), (f0, m0), (fd, md))))


def log_gain(
    law_without: ArrayLike,
    law_with: ArrayLike,
    reader_without: ArrayLike | None = None,
    reader_with: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> ReaderGain:
    """Log loss, in nats: Δ* = I(Y; D | X) = E KL(p_D‖p_0) (`eq:app-log-loss-task-value`), excess risks E KL(p‖p̂).

    Args:
        law_without: p_0 = P(Y = · | X), (n, c); rows sum to 1.
        law_with: p_D = P(Y = · | X, D), (n, c).
        reader_without, reader_with: the learned p̂_0 and p̂_D, (n, c) each; by default the best readers.
        weights: (n,) probabilities of the rows; by default equal.

    Raises:
        ValueError: if rows are not distributions, or a probability is zero where the truth is not (infinite risk).
    """
    p0 = _laws("law_without", law_without)
    pd = _laws("law_with", law_with, like=p0)
    q0 = p0 if reader_without is None else _laws("reader_without", reader_without, like=p0)
    qd = pd if reader_with is None else _laws("reader_with", reader_with, like=p0)
    weight = _weights(weights, len(p0))
    pairs = (("law_without", pd, p0), ("reader_without", p0, q0), ("reader_with", pd, qd))
    return _gain(*(float(weight @ _kl(name, p, q)) for name, p, q in pairs))


def categorical_readers(joint: ArrayLike) -> tuple[Array, Array, Array]:
    """p_0 and p_D (n, c) and the probabilities (n,) of the n possible (x, d), from P(X, D, Y) (x, d, c).

    >>> p0, pd, weights = categorical_readers(joint)
    >>> log_gain(p0, pd, weights=weights).value  # I(Y; D | X)
    """
    table = np.asarray(joint, np.float64)
    if table.ndim != 3 or not (table >= 0).all() or not np.isclose(table.sum(), 1.0):
        raise ValueError(f"joint must be probabilities P(X, D, Y) that sum to 1, got shape {table.shape}")
    x_d = table.sum(2)
    with_donor = table[x_d > 0]
    without = np.broadcast_to(table.sum(1, keepdims=True), table.shape)[x_d > 0]
    return without / without.sum(1, keepdims=True), with_donor / with_donor.sum(1, keepdims=True), x_d[x_d > 0]


def _gain(value: float, excess_without: float, excess_with: float) -> ReaderGain:
    return ReaderGain(value + excess_without - excess_with, value, excess_without, excess_with)


def _weights(weights: ArrayLike | None, n: int) -> Array:
    if weights is None:
        return np.full(n, 1.0 / n)
    array = np.asarray(weights, np.float64)
    if array.shape != (n,) or not (array >= 0).all() or not np.isclose(array.sum(), 1.0):
        raise ValueError(f"weights must be {n} probabilities that sum to 1, got shape {array.shape}")
    return array


def _laws(name: str, values: ArrayLike, like: Array | None = None) -> Array:
    laws = rows(name, values, like)
    if not (laws >= 0).all() or not np.allclose(laws.sum(1), 1.0):
        raise ValueError(f"{name} must hold one distribution a row: non-negative, with sum 1")
    return laws


def _kl(name: str, p: Array, q: Array) -> Array:
    """KL(p‖q) (n,) of the rows."""
    if ((q == 0) & (p > 0)).any():
        raise ValueError(f"{name} gives probability 0 to an outcome that occurs: its log loss is infinite")
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return (p * np.log(ratio)).sum(1)
