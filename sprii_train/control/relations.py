"""Pairs of histories whose contexts are aligned while CaDM trains online (`app:pendulum-control`)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sprii_envs.arguments import instance
from sprii_envs.relations import SAME_SYSTEM, PairSampler, Uniform
from sprii_envs.relations.streams import WINDOWS, below, stream
from sprii_train.control.anchors import Anchors
from sprii_train.control.experience import Experience, Rows
from sprii_train.objectives import AlignTerms, align
from sprii_train.protocol import Objective
from sprii_train.recipes import SHIFTED, Recipe


def check_recipe(recipe: Recipe) -> None:
    """ValueError for a recipe of other terms than Align, or other pairs than those of one system, shifted or not."""
    objective, kernel = instance("recipe", recipe, of=Recipe).objective, recipe.kernel
    if objective.lambda_x or objective.lambda_nce:
        raise ValueError(f"the arm {recipe.name!r} has Cross or InfoNCE; legal in control: Align alone (lambda_p)")
    paired = recipe.relation == SAME_SYSTEM and recipe.alpha is None and kernel in (Uniform(), SHIFTED)
    if not paired or recipe.context != "split":
        raise ValueError(
            f"the arm {recipe.name!r} has the context {recipe.context!r}, the relation {recipe.relation} and the "
            f"kernel {kernel}; legal in control: the split context and pairs of one system, uniform or {SHIFTED!r}"
        )


class RelatedAnchors(NamedTuple):
    """Pairs of anchors, (n,) int64 each: row i of one is the recipient of row i of the other."""

    recipient: Rows
    donor: Rows


class RelationPairs:
    """Pairs of histories of one system, from two different episodes, one pair a system.

    A system is eligible if at least two of its episodes have an anchor with a full history among those given.

    Args:
        experience: the episodes.
        anchors: their anchors.
        which: numbers of the anchors that may be drawn, increasing: those trained on.
        history: K, transitions of a full history.
        shifted: whether each donor is given to the next recipient of the draw.
        systems: pairs in a draw at most.
        seed: of the draws, which are functions of it and of the update; their streams are their own.
    """

    def __init__(
        self,
        experience: Experience,
        anchors: Anchors,
        which: Rows,
        *,
        history: int,
        shifted: bool,
        systems: int,
        seed: int,
    ) -> None:
        self.shifted, self.systems, self.seed = shifted, systems, seed
        self.full = which[anchors.time[which] >= history]
        self.count = np.bincount(anchors.episode[self.full], minlength=len(experience))
        self.first = np.cumsum(self.count) - self.count
        usable = np.flatnonzero(self.count)
        _, episodes = np.unique(experience.systems[usable], return_counts=True)
        self.eligible = int((episodes > 1).sum())
        self._sampler = (
            PairSampler(experience.table().select(usable), SAME_SYSTEM, seed=seed, distinct="system", on_missing="drop")
            if self.eligible
            else None
        )

    def draw(self, iteration: int, epoch: int, step: int) -> RelatedAnchors | None:
        """The pairs of an update: numbers of anchors; None if fewer than two systems are eligible."""
        if self._sampler is None or self.eligible < 2:
            return None
        step += (iteration << 44) + (epoch << 32)
        pairs = self._sampler.batch(step, min(self.systems, self.eligible))
        times = stream(self.seed, step, WINDOWS)
        recipient, donor = (
            self.full[self.first[episode] + below(times, self.count[episode])]
            for episode in (self._sampler.table.rows[side] for side in (pairs.recipient, pairs.donor))
        )
        return RelatedAnchors(recipient, np.roll(donor, 1) if self.shifted else donor)


def align_members(contexts: Tensor, objective: Objective) -> AlignTerms:
    """Align of donors' and recipients' contexts, summed over members.

    Args:
        contexts: (members, 2n, d), n donors, then their n recipients.
        objective: the terms' weights and the variance target; `lambda_p` is not applied.
    """

    def terms(codes: Tensor) -> AlignTerms:
        return align(
            *codes.chunk(2),
            invariance=objective.invariance,
            variance=objective.variance,
            covariance=objective.covariance,
            target_std=objective.target_std,
        )

    if len(contexts) == 1:  # the way over vmap would double the cost of an update's Align
        return terms(contexts[0])
    return AlignTerms(*(term.sum(0) for term in torch.vmap(terms)(contexts)))
