"""What codes of trajectories hold of a persistent property: between/within, a ridge probe, shuffled labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sprii_train.analysis.formation.geometry import between_within, standardise

Array = NDArray[np.float64]

PENALTIES = tuple(10.0 ** np.arange(-4, 5))
"""Up to 10⁴: raw viscosities are few, and codes that hold nothing of them want a large one."""

FOLDS = 5
SEED = 0
"""Of shuffled labels."""


def separation(fitted: Array, codes: Array, systems: NDArray) -> float:
    """Between/within of codes (n, d) standardised by the training ones (m, d)."""
    return between_within(standardise(fitted, codes)[1], systems).ratio


def fit_probe(codes: Array, values: Array, cases: NDArray) -> Any:
    """Ridge from standardised codes (n, d) to raw values (n,); its penalty is chosen over folds of whole cases."""
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()),
        {"ridge__alpha": list(PENALTIES)},
        cv=GroupKFold(min(FOLDS, len(np.unique(cases)))),
        scoring="neg_mean_squared_error",
    )
    return search.fit(codes, values, groups=cases)


def probe_score(probe: Any, codes: Array, values: Array) -> float:
    """R² of a fitted probe on other codes (n, d); NaN where the values (n,) are all the same."""
    return float(r2_score(values, probe.predict(codes))) if np.ptp(values) else float("nan")


def shuffled(values: NDArray) -> NDArray:
    """The same values in another order: labels that say nothing."""
    return np.random.default_rng(SEED).permutation(values)
