"""The persistent-context atlas of one source: principal components of its validation centroids."""

from typing import Any

import numpy as np

from sprii_train.analysis.formation import project, rollout_means, standardise, system_centroids, with_codes
from sprii_train.experiments.measures.formation import SYSTEMS, measured_windows, training_windows
from sprii_train.experiments.sources import Source


def atlas(source: Source) -> dict[str, Any]:
    """Shares of the variance; coordinates (N, 2) and factors (N,) by system are kept beside the model.

    Codes are averaged over the anchors of a rollout, standardised by the rollout means of 400 training systems, then
    averaged over the rollouts of a validation system (`fig:poke-persistent-atlas`).
    """
    setting, store, learner = source.setting, source.store, source.learner
    train = rollout_means(training_windows(setting, learner, store, SYSTEMS))
    held_out = rollout_means(measured_windows(setting, learner, store, "validation"))
    centroids = system_centroids(with_codes(held_out, standardise(train.codes, held_out.codes)[1]))
    found = project(centroids.codes)
    kept = {"xy": found.xy, "shares": found.shares, **centroids.factors}
    source.keep({name: np.asarray(a, np.float64) for name, a in kept.items()})
    return {"pc1": float(found.shares[0]), "pc2": float(found.shares[1])}
