"""Formation: is the property in the code, and is the code the same across a system's episodes? (`app:measurements`)

Pure functions of arrays. Probes are fitted and selected on training systems only.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Array = NDArray[np.floating]

RIDGE_PENALTIES = tuple(10.0 ** np.arange(-4, 5))


class Geometry(NamedTuple):
    """Mean squared distances of train-standardised codes."""

    within: float
    between: float
    ratio: float


def standardise(train: Array, *others: Array) -> tuple[Array, ...]:
    """Centre and scale all arrays (n, d) by the training mean and SD; constant columns become zero."""
    scaler = StandardScaler().fit(train)
    constant = train.std(0) <= 1e-7 * max(1.0, float(np.abs(train).max()))
    return tuple(np.where(constant, 0.0, np.asarray(scaler.transform(array))) for array in (train, *others))


def ridge_probe(
    train_codes: Array,
    train_target: Array,
    test_codes: Array,
    test_target: Array,
    train_systems: NDArray,
    penalties: tuple[float, ...] = RIDGE_PENALTIES,
) -> float:
    """R² of a ridge regression of a persistent property on codes.

    Codes are standardised, and the penalty is selected by 5-fold cross-validation in which a system is never split,
    on the training systems alone.

    Args:
        train_codes, test_codes: (n, d) and (m, d).
        train_target, test_target: (n,) and (m,).
        train_systems: (n,) system ids of the training rows.
    """
    folds = min(5, len(np.unique(train_systems)))
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()),
        {"ridge__alpha": list(penalties)},
        cv=GroupKFold(folds),
        scoring="r2",
    )
    search.fit(train_codes, train_target, groups=train_systems)
    return float(r2_score(test_target, search.predict(test_codes)))


def centroids(codes: Array, systems: NDArray) -> tuple[Array, NDArray]:
    """Mean code of each system, (s, d), and the row of the first member of each, (s,), in the order of their ids."""
    _, first, inverse = np.unique(systems, return_index=True, return_inverse=True)
    counts = np.bincount(inverse)
    order = np.argsort(inverse, kind="stable")
    sums = np.add.reduceat(codes[order], np.r_[0, np.cumsum(counts)[:-1]], axis=0)
    return sums / counts[:, None], first


def between_within(codes: Array, systems: NDArray) -> Geometry:
    """Distances between system centroids over distances between one system's codes.

    `within` is the mean over systems of the mean squared distance between two of its codes, `between` the mean
    squared distance between two centroids. Codes without information give 1/R for R codes a system.

    Args:
        codes: (n, d), standardised by training statistics.
        systems: (n,) ids; every system needs at least two codes.

    Raises:
        ValueError: for a system with one code, or fewer than two systems.
    """
    ids, inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)
    if len(ids) < 2 or counts.min() < 2:
        raise ValueError(
            f"between/within needs >= 2 systems with >= 2 codes each, got {len(ids)} with >= {counts.min()}"
        )
    means, _ = centroids(codes, systems)
    squared = np.bincount(inverse, ((codes - means[inverse]) ** 2).sum(1))
    within = float(np.mean(2.0 * squared / (counts - 1)))
    between = float(2.0 * means.var(0, ddof=1).sum())
    if within == 0.0:  # a collapsed code separates nothing; a perfect one everything
        return Geometry(within, between, float("inf") if between > 0 else 0.0)
    return Geometry(within, between, between / within)
