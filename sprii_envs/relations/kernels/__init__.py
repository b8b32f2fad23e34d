"""Which donor is drawn: Q_G(A | B) of `app:relation-sampling`, kept apart from what a pair must share.

One kernel a file; a further one is one more class with `columns` and `bind`.
"""

from sprii_envs.relations.kernels.base import BoundKernel, Counts, Kernel, Listed, ListedKernel, Support
from sprii_envs.relations.kernels.candidates import Candidates, load_candidates, save_candidates
from sprii_envs.relations.kernels.derangement import Derangement, derangement
from sprii_envs.relations.kernels.graph import Graph, knn_graph, random_history
from sprii_envs.relations.kernels.mismatch import Mismatch
from sprii_envs.relations.kernels.mixture import Mixture
from sprii_envs.relations.kernels.uniform import Uniform
from sprii_envs.relations.kernels.weighted import Weighted

__all__ = [
    "BoundKernel",
    "Candidates",
    "Counts",
    "Derangement",
    "Graph",
    "Kernel",
    "Listed",
    "ListedKernel",
    "Mismatch",
    "Mixture",
    "Support",
    "Uniform",
    "Weighted",
    "derangement",
    "knn_graph",
    "load_candidates",
    "random_history",
    "save_candidates",
]
