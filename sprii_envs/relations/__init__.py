"""Which interactions are paired: episode table, relations, donor kernels, samplers (`app:relation-sampling`).

The relation says what two episodes share, the kernel which legal donor is drawn, the law who receives; the
three vary independently. NumPy only; every batch is a pure function of (seed, step).
"""

from sprii_envs.relations.audit import Audit
from sprii_envs.relations.common import with_legal_donors
from sprii_envs.relations.donor_bank import donor_bank
from sprii_envs.relations.flat import EpisodeRuns, FlatPairs, StaleError, episode_runs
from sprii_envs.relations.kernels import (
    Candidates,
    Derangement,
    Graph,
    Kernel,
    Mismatch,
    Mixture,
    Uniform,
    Weighted,
    knn_graph,
    load_candidates,
    random_history,
    save_candidates,
)
from sprii_envs.relations.named import NAMED_KERNELS, NAMED_RELATIONS, named_kernel, named_relation
from sprii_envs.relations.relation import SAME_ROLLOUT, SAME_SYSTEM, NoLegalDonorError, Relation
from sprii_envs.relations.rows import TableRows
from sprii_envs.relations.sampler import PairBatch, PairSampler
from sprii_envs.relations.table import EpisodeTable
from sprii_envs.relations.windows import WindowPairs, WindowSampler

__all__ = [
    "NAMED_KERNELS",
    "NAMED_RELATIONS",
    "SAME_ROLLOUT",
    "SAME_SYSTEM",
    "Audit",
    "Candidates",
    "Derangement",
    "EpisodeRuns",
    "EpisodeTable",
    "FlatPairs",
    "Graph",
    "Kernel",
    "Mismatch",
    "Mixture",
    "NoLegalDonorError",
    "PairBatch",
    "PairSampler",
    "Relation",
    "StaleError",
    "TableRows",
    "Uniform",
    "Weighted",
    "WindowPairs",
    "WindowSampler",
    "donor_bank",
    "episode_runs",
    "knn_graph",
    "load_candidates",
    "named_kernel",
    "named_relation",
    "random_history",
    "save_candidates",
    "with_legal_donors",
]
