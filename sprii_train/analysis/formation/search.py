"""Fits on training systems: systems weighted equally, penalties selected without splitting one."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sprii_envs.arguments import numbers
from sprii_envs.standardiser import constant
from sprii_train.analysis.formation.arrangement import system_weights
from sprii_train.analysis.populations import Sample, Training, check_fit


def grouped_fit(
    build: Callable[[], Any],
    grid: Mapping[str, Sequence[float]],
    train: Sample[Training],
    target: NDArray,
    what: str,
    *,
    folds: int = 5,
    splitter: Callable[[int], Any] = GroupKFold,
    metric: Callable[..., float] = r2_score,
    **scoring: Any,
) -> Any:
    """A model fitted on all rows, at the value of its one parameter that cross-validates best.

    Args:
        build: returns the scikit-learn model; called where requests for weights are legal.
        grid: the parameter and its values; a single value is not searched.
        train: codes (n, d).
        target: (n,).
        what: a name for errors.
        folds: of systems; fewer if there are fewer systems. One in which the target is the same in all rows has no R²
            and is not scored; if that is so of every one, there are fewer.
        splitter: takes the number of folds.
        metric, scoring: of the held-out folds, as `make_scorer` takes them.

    Raises:
        PopulationError: for anything but training systems.
        ValueError: for a target without variation, in all rows or within every fold, or a search over fewer than two
            systems.
    """
    check_fit(train.population, what)
    if constant(_column(target)).all():
        raise ValueError(f"{what} has nothing to fit: its target is the same in all {len(target)} training rows")
    weights = system_weights(train.systems)
    ((parameter, values),) = grid.items()
    values = numbers(f"{parameter} of {what}", list(values), least=0, some=True)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a bound on the iterations is part of a recipe
        model = build()
        if len(values) == 1:
            return model.set_params(**{parameter: values[0]}).fit(train.codes, target, sample_weight=weights)
        systems = len(np.unique(train.systems))
        if systems < 2:
            raise ValueError(f"{what} is cross-validated over training systems and needs 2 or more, got {systems}")
        for count in range(min(folds, systems), 1, -1):
            splits = list(splitter(count).split(train.codes, target, train.systems))
            if metric is r2_score:
                splits = [s for s in splits if not constant(_column(target[s[1]])).all()]
            if splits:
                break
        else:
            raise ValueError(
                f"{what} cannot be cross-validated over {systems} training systems: its target is the same in all rows "
                "of every fold, which has no R²"
            )
        scorer = make_scorer(metric, **scoring).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {parameter: list(values)}, cv=splits, scoring=scorer)
        search.set_params(error_score="raise")
        search.fit(train.codes, target, sample_weight=weights)
    return search.best_estimator_


def scaled(model: Any) -> Pipeline:
    """Standardise codes, then the model; both take the weights."""
    steps = (("scale", StandardScaler()), ("model", model))
    return Pipeline([(name, step.set_fit_request(sample_weight=True)) for name, step in steps])


def _column(target: NDArray) -> NDArray[np.float64]:
    return np.asarray(target, np.float64).reshape(len(target), -1)
