"""How well embeddings of frames tell what moves where, and how fast: why a learner of pixels forms nothing, if so."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Store
from sprii_train.analysis.formation import Factor, fit_ridge, score
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.cases.encoding import features
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import Setting

SYSTEMS = 200
"""Training systems that the probes are fitted on."""

Embed = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""Episodes and times (n,) → embeddings (n, d)."""


def sight(source: Source) -> dict[str, Any]:
    """`{"sight": {component: R²}}` of a source's own embeddings of validation frames; see `sight_of`."""
    reader, learner = source.reader, source.learner
    return {
        "sight": sight_of(
            source.setting,
            source.store,
            lambda episodes, times: features(learner, reader.presents(episodes, times), "target"),
        )
    }


def sight_of(setting: Setting, store: Store, embed: Embed) -> dict[str, float]:
    """R² by ridge, training systems → validation, of every component of the state, mean over its coordinates."""
    train = _sample(setting, store, embed, "train", SYSTEMS)
    assert isinstance(train.population, Training)
    held_out = _sample(setting, store, embed, "validation")
    found = {}
    for name in setting.components:
        factors = [Factor(column) for column in train.factors if column.partition("|")[0] == name]
        found[name] = float(np.mean([score(fit_ridge(train, each), held_out).r2 for each in factors]))  # type: ignore[arg-type]
    return found


def _sample(setting: Setting, store: Store, embed: Embed, split: str, systems: int | None = None) -> Sample[Population]:
    table = setting.episodes(store, split, systems=systems)
    episodes = np.repeat(table["episode"], len(setting.anchors))
    times = np.tile(np.asarray(setting.anchors), len(table))
    states = store.windows("states", episodes, times, 1)[:, 0].astype(np.float64)
    factors = {
        f"{name}|{axis}": column
        for name, part in setting.components.items()
        for axis, column in enumerate(states[:, part].T)
    }
    systems_of = np.repeat(table["system"], len(setting.anchors))
    return Sample(population_of(store, split), embed(episodes, times), systems_of, factors)
