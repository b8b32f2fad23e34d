"""The windows that formation is measured on: histories of a split that end at the setting's anchors."""

from typing import Any, cast

import numpy as np

from sprii_envs.banks import Store
from sprii_train.analysis.formation import sample_of
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.cases.encoding import encode_histories
from sprii_train.settings.base import Setting


def measured_windows(
    setting: Setting, learner: Any, store: Store, split: str, *, systems: int | None = None, unseal: bool = False
) -> Sample[Population]:
    """Codes of a split, one row for every anchor of every episode: `formation.rollout_means` averages the anchors."""
    reader = setting.reader(store, learner.config)
    table = setting.episodes(store, split, systems=systems, unseal=unseal)
    codes = np.stack([encode_histories(learner, reader, table, setting.starts(a)) for a in setting.anchors], axis=1)
    rows = np.repeat(np.arange(len(table)), len(setting.anchors))
    return sample_of(population_of(store, split), codes.reshape(len(rows), -1), table, setting.properties, rows)


def training_windows(setting: Setting, learner: Any, store: Store, systems: int) -> Sample[Training]:
    """The same of a fixed random choice of training systems."""
    windows = measured_windows(setting, learner, store, "train", systems=systems)
    assert isinstance(windows.population, Training)
    return cast(Sample[Training], windows)
