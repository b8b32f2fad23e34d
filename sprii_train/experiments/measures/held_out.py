"""What single histories of held-out systems hold, and what a donor's context costs (`tab:dclean-full`)."""

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.formation import (
    Factor,
    between_within,
    fit_ridge,
    sample_of,
    score,
    standardise,
    system_centroids,
)
from sprii_train.analysis.populations import Training, population_of
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.sources import Source


def held_out(source: Source) -> dict[str, Any]:
    """Probes, geometry and errors of the split `source.cell.population`, from one random window an episode.

    Probes are fitted on training systems. `drag_r2` reads single windows, `drag_r2_centroid` the mean code of a
    system's episodes, and so for every property. Errors are mean squared embedding errors; they can be compared between
    arms only beside `target_variance`, for each arm predicts its own embedding. Kept beside the model: the codes'
    first two principal components `xy` (E, 2) by episode, `shares` of the variance, and the properties.
    """
    learner, reader, properties = source.learner, source.reader, source.setting.properties
    population = source.cell.population
    train = encode_split(learner, reader, "train", seed=SEED)
    held = encode_split(learner, reader, population, seed=SEED, unseal=source.setting.unsealed)
    fitted = sample_of(Training("train"), train.codes.z_p, train.table, properties)
    read = sample_of(population_of(source.store, population), held.codes.z_p, held.table, properties)
    codes, others = standardise(fitted.codes, read.codes)
    geometry = between_within(others, read.systems)
    errors = donor_errors(learner, held, seed=SEED)
    row: dict[str, Any] = {}
    for name in properties:
        plain, log = Factor(name), Factor(name, log=True)
        row |= {
            f"{name}_r2": score(fit_ridge(fitted, plain), read).r2,
            f"{name}_r2_centroid": score(fit_ridge(system_centroids(fitted), plain), system_centroids(read)).r2,
            f"log_{name}_r2": score(fit_ridge(fitted, log), read).r2,
        }
    row |= {
        "within": geometry.within,
        "between": geometry.between,
        "between_within": geometry.ratio,
        "code_sd": float(read.codes.std(0).mean()),
        "target_variance": float(held.targets[:, -1].double().var(0).mean()),
        "episodes_per_system": len(read.systems) / len(np.unique(read.systems)),
        "systems": len(np.unique(read.systems)),
    }
    for i, h in enumerate(reader.horizons):
        row[f"self_h{h}"] = float(errors.own[i])
        if source.separate:
            row[f"correct_h{h}"] = float(errors.correct[i])
            row[f"shuffled_h{h}"] = float(errors.shuffled[i])
    last = reader.horizons[-1]
    row["gap"] = row[f"shuffled_h{last}"] - row[f"correct_h{last}"] if source.separate else None
    if not source.separate:
        row[f"correct_h{last}"] = None
    pca = PCA(min(2, codes.shape[1]), svd_solver="full").fit(codes)
    xy = pca.transform(others)
    kept = {"xy": xy.repeat(2, axis=1) if xy.shape[1] == 1 else xy, "shares": pca.explained_variance_ratio_}
    source.keep(kept | {name: held.table[name].astype(np.float64) for name in properties})
    return row
