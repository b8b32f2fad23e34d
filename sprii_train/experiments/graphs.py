"""Donors from histories alone: the graphs of `app:inferred-relations`."""

from typing import Any

import numpy as np

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable, Graph, knn_graph, random_history
from sprii_train.analysis.formation import standardise
from sprii_train.cases.encoding import encode_histories
from sprii_train.settings.base import Setting

NEIGHBOURS = 3


def inferred_graph(setting: Setting, store: Store, teacher: Any) -> Graph:
    """Every training rollout's three nearest neighbours in the teacher's standardised codes of one history each.

    Physical labels and the grouping into systems are not read.
    """
    table = setting.episodes(store, "train")
    reader = setting.reader(store, teacher.config)
    codes = encode_histories(teacher, reader, table, setting.starts(setting.anchors[-1]))
    (standardised,) = standardise(codes)
    return knn_graph(standardised, NEIGHBOURS, table["episode"])


def random_graph(table: EpisodeTable, seed: int) -> Graph:
    """RandomHistory: three random other rollouts of the same universe."""
    return random_history(np.asarray(table["episode"]), NEIGHBOURS, seed)
