"""Donors from histories alone: the graphs of `app:inferred-relations`."""

import numpy as np

from sprii_envs.relations import EpisodeTable, Graph, knn_graph, random_history
from sprii_train.analysis.formation import standardise
from sprii_train.experiments.sources import Source
from sprii_train.experiments.worlds import encode_histories

NEIGHBOURS = 3


def inferred_graph(teacher: Source) -> Graph:
    """Every training rollout's three nearest neighbours in the teacher's standardised codes of one history each.

    Physical labels and the grouping into systems are not read.
    """
    world = teacher.world
    table = world.episodes(teacher.bank, "train")
    reader = world.reader(teacher.bank, teacher.learner.config)
    codes = encode_histories(teacher.learner, reader, table, world.starts(world.anchors[-1]))
    (standardised,) = standardise(codes)
    return knn_graph(standardised, NEIGHBOURS, table["episode"])


def random_graph(table: EpisodeTable, seed: int) -> Graph:
    """RandomHistory: three random other rollouts of the same universe."""
    return random_history(np.asarray(table["episode"]), NEIGHBOURS, seed)
