"""What can be read of grasps: hardness across shapes, shape across hardness, and from inputs by a network.

Probes are logistic regressions (C = 1) of standardised features. Each is read where it was not fitted: on the shape, or
the level of hardness, that its fit has not seen.
"""

import warnings
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.formation.geometry import partial_spearman

Array = NDArray[np.float64]

EARLY = 8
"""Samples of the short input."""
WIDTH, PASSES = 64, 300
"""Of the network that reads inputs."""


class Grasped(NamedTuple):
    """Of N grasps: features (N, …), shapes, levels and measured hardness (N,)."""

    features: Array
    shape: NDArray[np.str_]
    level: NDArray[np.int64]
    hardness: Array

    def where(self, rows: NDArray[np.bool_]) -> "Grasped":
        """Some of them."""
        return Grasped(self.features[rows], self.shape[rows], self.level[rows], self.hardness[rows])


def hardness_across_shapes(train: Grasped, held: Grasped) -> float:
    """Accuracy of the level on each shape, fitted on the other one; the mean of both ways. Chance is 1/3."""
    shapes = np.unique(train.shape)
    scores = []
    for shape in shapes:
        fitted, read = train.where(train.shape != shape), held.where(held.shape == shape)
        scores.append(np.mean(_probe().fit(fitted.features, fitted.level).predict(read.features) == read.level))
    return float(np.mean(scores))


def shape_across_hardness(train: Grasped, held: Grasped) -> float:
    """Balanced accuracy of the shape on each level, fitted on the others; the mean of all. Chance is 1/2."""
    scores = []
    for level in np.unique(train.level):
        fitted, read = train.where(train.level != level), held.where(held.level == level)
        found = _probe().fit(fitted.features, fitted.shape).predict(read.features)
        scores.append(balanced_accuracy_score(read.shape, found))
    return float(np.mean(scores))


def geometry(train: Grasped, held: Grasped) -> tuple[float, float]:
    """Partial Spearman correlations of the 15 distances between configurations' mean features.

    Features are standardised by the training grasps. The first is with the difference of measured hardness, given
    whether shapes differ; the second is with the latter, given the former.
    """
    features = Standardiser.fit(train.features)(held.features)
    of = list(zip(held.shape.tolist(), held.level.tolist(), strict=True))
    names = sorted(set(of))
    rows = [np.array([each == name for each in of]) for name in names]
    centroids = np.stack([features[own].mean(0) for own in rows])
    hardness = np.array([held.hardness[own].mean() for own in rows], np.float64)
    pairs = list(combinations(range(len(names)), 2))
    distance = np.array([np.linalg.norm(centroids[i] - centroids[j]) for i, j in pairs], np.float64)
    harder = np.array([abs(hardness[i] - hardness[j]) for i, j in pairs], np.float64)
    other = np.array([names[i][0] != names[j][0] for i, j in pairs], np.float64)
    return partial_spearman(distance, harder, [other]), partial_spearman(distance, other, [harder])


def probed(train: Grasped, held: Grasped) -> dict[str, float]:
    """All of the above."""
    rho_hardness, rho_shape = geometry(train, held)
    return {
        "hardness": hardness_across_shapes(train, held),
        "shape": shape_across_hardness(train, held),
        "rho_hardness": rho_hardness,
        "rho_shape": rho_shape,
    }


def shuffled(train: Grasped, held: Grasped, *, seed: int, times: int) -> dict[str, float]:
    """Both accuracies with labels dealt anew among training grasps of a shape, or a level, the mean of some deals."""
    rng = np.random.default_rng(seed)
    hardness, shape = [], []
    for _ in range(times):
        level, of = train.level.copy(), train.shape.copy()
        for one in np.unique(train.shape):
            rows = np.flatnonzero(train.shape == one)
            level[rows] = level[rng.permutation(rows)]
        for one in np.unique(train.level):
            rows = np.flatnonzero(train.level == one)
            of[rows] = of[rng.permutation(rows)]
        hardness.append(hardness_across_shapes(train._replace(level=level), held))
        shape.append(shape_across_hardness(train._replace(shape=of), held))
    return {"hardness": float(np.mean(hardness)), "shape": float(np.mean(shape))}


def readout(train: Grasped, held: list[Grasped], *, seed: int) -> list[dict[str, float]]:
    """Accuracies of a network fitted on inputs of all configurations, on each of several sets of grasps.

    Args:
        train, held: features are samples (N, T, taxels).
        seed: of the network's first weights.
    """
    found: list[dict[str, float]] = [{} for _ in held]
    for name, labels in (("hardness", "level"), ("shape", "shape")):
        network = MLPClassifier((WIDTH,), max_iter=PASSES, n_iter_no_change=PASSES, random_state=seed)
        model = make_pipeline(StandardScaler(), network)
        with warnings.catch_warnings():  # as many passes for every fit
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train.features.reshape(len(train.features), -1), getattr(train, labels))
        for told, own in zip(found, held, strict=True):
            predicted = model.predict(own.features.reshape(len(own.features), -1))
            told[name] = float(np.mean(predicted == getattr(own, labels)))
    return found


def _probe():
    return make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1_000))
