"""Contact, a binary transient target: a logistic probe and its AUROC (`app:measurements`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from sprii_train.analysis.formation.arrangement import system_weights
from sprii_train.analysis.formation.factors import Factor
from sprii_train.analysis.formation.search import grouped_fit, scaled
from sprii_train.analysis.populations import Population, Sample, Training, check_fit

Array = NDArray[np.float64]

LOGISTIC_PENALTIES = (1e-2, 1.0, 1e2)


@dataclass(frozen=True)
class Detector:
    """A fitted logistic reader of one binary column."""

    column: str
    model: Any


class Detected(NamedTuple):
    """Scores of a detector on a sample.

    Attributes:
        auroc: area under the ROC curve, systems weighted equally; 0.5 without information.
        score: (m,) log odds.
        truth: (m,) bool.
        systems: (m,) ids.
    """

    auroc: float
    score: Array
    truth: NDArray[np.bool_]
    systems: NDArray


def fit_logistic(
    train: Sample[Training], column: str = "contact", *, penalties: Sequence[float] = LOGISTIC_PENALTIES
) -> Detector:
    """Logistic regression of a binary target on standardised codes.

    The penalty has the least log loss in 5-fold cross-validation in which a system is never split.

    Raises:
        PopulationError: for anything but training systems.
        ValueError: for values other than 0 and 1, or one class only.
    """
    check_fit(train.population, "a contact probe")
    model = grouped_fit(
        lambda: scaled(LogisticRegression(max_iter=1000)),
        {"model__C": [1.0 / penalty for penalty in penalties]},
        train,
        _binary(train, column),
        "a contact probe",
        splitter=StratifiedGroupKFold,
        metric=log_loss,
        greater_is_better=False,
        response_method="predict_proba",
        labels=[False, True],
    )
    return Detector(column, model)


def detect(detector: Detector, sample: Sample[Population]) -> Detected:
    """AUROC and scores of a fitted detector on a sample of the same codes.

    Raises:
        ValueError: for a sample with one class only.
    """
    truth = _binary(sample, detector.column)
    log_odds = np.asarray(detector.model.decision_function(sample.codes), dtype=np.float64)
    area = roc_auc_score(truth, log_odds, sample_weight=system_weights(sample.systems))
    return Detected(float(area), log_odds, truth, sample.systems)


def _binary(sample: Sample[Population], column: str) -> NDArray[np.bool_]:
    target = Factor(column).of(sample.factors)
    values = np.unique(target)
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(f"{column!r} must be 0 or 1 to be detected, got {values[:4].tolist()}")
    if len(values) < 2:
        raise ValueError(
            f"AUROC of {column!r} needs both classes, but all {len(target)} rows of {sample.population.name!r} are "
            f"{values[0]:g}"
        )
    return target == 1.0
