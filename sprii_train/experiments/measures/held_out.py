"""What single histories of held-out systems hold, and what a donor's context costs (`tab:dclean-full`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from sprii_train.analysis.donors import Encoded, donor_errors_by_system, encode_split
from sprii_train.analysis.formation import (
    Factor,
    between_within,
    fit_ridge,
    group_means,
    moments,
    sample_of,
    score,
    standardise,
    system_centroids,
    total_variance,
)
from sprii_train.analysis.populations import Training, population_of
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.sources import Source

Array = NDArray[np.float64]


def held_out(source: Source) -> dict[str, Any]:
    """Probes, geometry and errors of the split `source.cell.population`, from one random window an episode.

    Probes are fitted on training systems. `drag_r2` reads single windows, `drag_r2_centroid` the mean code of a
    system's episodes, and so for every property. Errors are mean squared embedding errors; they can be compared between
    arms only beside `target_variance`, for each arm predicts its own embedding. Kept beside the model: the codes'
    first two principal components `xy` (E, 2) by episode, `shares` of the variance, and the properties; and by system,
    in the order of their ids, what `columns` takes.
    """
    learner, reader, properties = source.learner, source.reader, source.setting.properties
    population = source.cell.population
    train = encode_split(learner, reader, "train", seed=SEED)
    held = encode_split(learner, reader, population, seed=SEED, unseal=source.setting.unsealed)
    fitted = sample_of(Training("train"), train.codes.z_p, train.table, properties)
    read = sample_of(population_of(source.store, population), held.codes.z_p, held.table, properties)
    codes, others = standardise(fitted.codes, read.codes)
    geometry = between_within(others, read.systems)
    errors = donor_errors_by_system(learner, held, seed=SEED)
    row: dict[str, Any] = {}
    kept: dict[str, Array] = _code_moments(others, read.systems) | _target_moments(held)
    for name in properties:
        plain, log = Factor(name), Factor(name, log=True)
        single = score(fit_ridge(fitted, plain), read)
        kept[f"{name}_error"] = group_means(single.squared_errors[:, None], read.systems)[0][:, 0]
        kept[f"{name}_value"] = group_means(single.truth[:, None], read.systems)[0]
        row |= {
            f"{name}_r2": single.r2,
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
    for who, of in errors._asdict().items():
        if who == "own" or source.separate:
            for h, by_system, mean in zip(reader.horizons, of.T, of.mean(0), strict=True):
                name = f"{'self' if who == 'own' else who}_h{h}"
                row[name], kept[name] = float(mean), by_system
    last = reader.horizons[-1]
    if source.separate:
        row["gap"] = row[f"shuffled_h{last}"] - row[f"correct_h{last}"]
        kept["gap"] = kept[f"shuffled_h{last}"] - kept[f"correct_h{last}"]
    else:
        row["gap"] = row[f"correct_h{last}"] = None
    pca = PCA(min(2, codes.shape[1]), svd_solver="full").fit(codes)
    xy = pca.transform(others)
    kept |= {"xy": xy.repeat(2, axis=1) if xy.shape[1] == 1 else xy, "shares": pca.explained_variance_ratio_}
    source.keep(kept | {name: held.table[name].astype(np.float64) for name in properties})
    return row


def _code_moments(codes: Array, systems: NDArray[Any]) -> dict[str, Array]:
    """Of standardised codes (E, d): centroids about their mean, scaled to have the variance `between`; `within`."""
    means, _ = group_means(codes, systems)
    inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)[1:]
    squared = np.bincount(inverse, ((codes - means[inverse]) ** 2).sum(1))
    scale = np.sqrt(2.0 * len(means) / (len(means) - 1))
    return {"code": scale * (means - means.mean(0)), "code_within": 2.0 * squared / (counts - 1)}


def _target_moments(held: Encoded) -> dict[str, Array]:
    """Of the last horizon's targets, scaled to have the variance `target_variance`: means, mean squared lengths."""
    targets = held.targets[:, -1].double().numpy()
    targets = (targets - targets.mean(0)) / np.sqrt(targets.shape[1] * (len(targets) - 1) / len(targets))
    systems = held.table["system"]
    squares = group_means((targets**2).sum(1)[:, None], systems)[0][:, 0]
    return {"target": group_means(targets, systems)[0], "target_square": squares}


# The row of other systems: what it would be if these were drawn


def columns(kept: Mapping[str, Array], numbers: Sequence[str]) -> dict[str, Array]:
    """What was kept as columns (N,) by system, from whose means `numbers_of` makes these numbers of the row."""
    found: dict[str, Array] = {}
    for name in numbers:
        if name == "between_within":
            found |= moments("code", kept["code"]) | {"code_within": kept["code_within"]}
        elif name == "target_variance":
            found |= moments("target", kept["target"], kept["target_square"])
        elif name.endswith("_r2"):
            of = name.removesuffix("_r2")
            found |= moments(of, kept[f"{of}_value"] - kept[f"{of}_value"].mean()) | {
                f"{of}_error": kept[f"{of}_error"]
            }
        else:
            found[name] = kept[name]
    return found


def numbers_of(means: Mapping[str, Any], numbers: Sequence[str]) -> dict[str, Any]:
    """The row's numbers from means over systems of its `columns`; elementwise over resamples of the systems.

    They are the row's where all systems have equally many episodes.
    """
    found: dict[str, Any] = {}
    for name in numbers:
        if name == "between_within":
            found[name] = total_variance("code", means) / means["code_within"]
        elif name == "target_variance":
            found[name] = total_variance("target", means)
        elif name.endswith("_r2"):
            of = name.removesuffix("_r2")
            found[name] = 1.0 - means[f"{of}_error"] / total_variance(of, means)
        else:
            found[name] = means[name]
    return found
