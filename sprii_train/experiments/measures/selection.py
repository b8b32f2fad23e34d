"""A learner's own prediction on systems that its size is selected on (`app:tds-dclean`, `app:tds-spring`)."""

from typing import Any

import numpy as np

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.value.common import hash_halves
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import Setting

SEED = 20_266  # of windows and donors


def selection(source: Source) -> dict[str, Any]:
    """Task loss at the last horizon by donor, as a share of the targets' variance: embeddings differ in scale.

    `selection` is with a same-system donor's history, `shuffled_selection` with another system's, `own_selection` with
    the recipient's own. 1 is what the mean of the targets scores.
    """
    episodes = selection_episodes(source.setting, source.store)
    encoded = encode_split(source.learner, source.reader, episodes, seed=SEED)
    errors = donor_errors(source.learner, encoded, seed=SEED)
    variance = float(encoded.targets[:, -1].double().var(0).mean())
    names = {"selection": errors.correct, "shuffled_selection": errors.shuffled, "own_selection": errors.own}
    return {name: float(error[-1]) / variance for name, error in names.items()}


def selection_episodes(setting: Setting, store: Store) -> EpisodeTable:
    """Validation episodes of the systems that are selected on: those of no reported group, or a fixed half."""
    table = setting.episodes(store, "validation")
    if reported := getattr(setting.cases, "groups", ()):
        return table.select(~np.isin(table["group"], reported))
    return halves(table)[0]


def halves(table: EpisodeTable) -> tuple[EpisodeTable, EpisodeTable]:
    """Episodes of the half of the systems that is selected on, and of the half that is reported; see `hash_halves`."""
    systems = np.unique(table["system"])
    selected, reported = (table.select(np.isin(table["system"], systems[half])) for half in hash_halves(systems))
    return selected, reported
