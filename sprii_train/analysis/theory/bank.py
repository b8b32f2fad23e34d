"""D_G of a sampler on its own bank, exactly and without drawing a pair."""

import numpy as np
from numpy.typing import ArrayLike

from sprii_envs.relations import Kernel, Mismatch, Mixture, PairSampler, Uniform
from sprii_train.analysis.theory.arrays import Array, rows


def expected_disagreement(sampler: PairSampler, values: ArrayLike) -> Array:
    """E_{Π_G}[(V^A − V^B)(V^A − V^B)ᵀ] (p, p) of one vector an episode, over the sampler's own pair law.

    Its trace is the alignment pressure of the relation on these vectors: Proposition 1 with the law's own dependence,
    forced mismatches and uneven donors. Memory is linear in the episodes, and no pair is listed.

    Args:
        sampler: of any relation, law and `distinct`, with the kernel `Uniform()`, `Mismatch(...)` or a `Mixture` of the
            two. A deranged donor depends on the rest of its batch; `corrupted_pressure` has that case.
        values: (episodes, p), row i of the sampler's table: codes, summaries of histories, or property values.
    """
    if not _by_recipient(sampler.kernel):
        raise ValueError(
            "expected_disagreement needs a donor law that depends on the recipient alone: Uniform(), Mismatch(...) or "
            f"a Mixture of them, not {sampler.kernel!r}"
        )
    n = len(sampler.table)
    v = rows("values", values)
    if len(v) != n:
        raise ValueError(f"values must have one row for each of the {n} episodes, got {len(v)}")
    v = v - v.min(0)  # differences stay the same, and the weights below stay marginals: non-negative
    recipient = sampler.recipients.marginal(n)
    donor = sampler.bound.donor_marginal(recipient)
    # Row j: the sum over recipients of P(recipient)·P(j | recipient)·V^B.
    weighted = np.stack([sampler.bound.donor_marginal(recipient * column) for column in v.T], 1)
    cross = weighted.T @ v
    return (v * recipient[:, None]).T @ v + (v * donor[:, None]).T @ v - cross - cross.T


def _by_recipient(kernel: Kernel) -> bool:
    if isinstance(kernel, Mixture):
        return _by_recipient(kernel.correct) and _by_recipient(kernel.wrong)
    return isinstance(kernel, Uniform | Mismatch)
