"""Which donor is drawn: Q_G(A | B) of `app:relation-sampling`, kept apart from what a pair must share.

One kernel a file; a further one is one more class with `columns` and `bind`.
"""

from sprii_envs.relations.kernels.base import BoundKernel, Kernel
from sprii_envs.relations.kernels.derangement import Derangement, derangement
from sprii_envs.relations.kernels.uniform import Uniform

__all__ = ["BoundKernel", "Derangement", "Kernel", "Uniform", "derangement"]
