"""Which interactions are paired: episode table, relations, donor kernels, samplers (`app:relation-sampling`).

The relation says what two episodes share, the kernel which legal donor is drawn, the law who receives; the
three vary independently. NumPy only; every batch is a pure function of (seed, step).
"""

from sprii_envs.relations.audit import Audit
from sprii_envs.relations.kernels import Derangement, Kernel, Uniform
from sprii_envs.relations.relation import SAME_ROLLOUT, SAME_SYSTEM, NoLegalDonorError, Relation
from sprii_envs.relations.sampler import PairBatch, PairSampler
from sprii_envs.relations.table import EpisodeTable
from sprii_envs.relations.windows import WindowPairs, WindowSampler

__all__ = [
    "SAME_ROLLOUT",
    "SAME_SYSTEM",
    "Audit",
    "Derangement",
    "EpisodeTable",
    "Kernel",
    "NoLegalDonorError",
    "PairBatch",
    "PairSampler",
    "Relation",
    "Uniform",
    "WindowPairs",
    "WindowSampler",
]
