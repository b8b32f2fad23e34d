"""Which contexts are aligned while CaDM trains online: the recipes CaDM, Random and R7 (`app:pendulum-control`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sprii_envs.fields import check, choice, instance, integer
from sprii_envs.relations import SAME_SYSTEM, PairSampler
from sprii_envs.relations.streams import WINDOWS, below, stream
from sprii_train.control.anchors import Anchors
from sprii_train.control.experience import Experience, Rows
from sprii_train.objectives import AlignTerms, align
from sprii_train.protocol import Objective


@dataclass(frozen=True)
class ControlRecipe:
    """One row of `tab:pendulum-r7`.

    Attributes:
        name: key on the command line and in files.
        label: as the paper's table prints it.
        objective: weight and variance target of Align; CaDM's own loss has weight 1.
        donors: `same-system`, or `shifted`: the same donors, each given to the next recipient of the batch.
        systems: pairs in a draw at most, one for each system.
    """

    name: str
    label: str
    objective: Objective = Objective(target_std=0.1)  # noqa: RUF009 (frozen)
    donors: Literal["same-system", "shifted"] = "same-system"
    systems: int = 32

    def __post_init__(self) -> None:
        check(self, instance, "name", "label", of=str)
        check(self, instance, "objective", of=Objective)
        check(self, choice, "donors", legal=("same-system", "shifted"))
        check(self, integer, "systems", least=2)
        if self.objective.lambda_x or self.objective.lambda_nce:
            raise ValueError("ControlRecipe.objective has Cross or InfoNCE; legal: Align alone (lambda_p)")


_R7 = Objective(lambda_p=0.003, target_std=0.1)

CONTROL_RECIPES: Mapping[str, ControlRecipe] = {
    recipe.name: recipe
    for recipe in (
        ControlRecipe("cadm", "CaDM"),
        ControlRecipe("random", "Random relation", _R7, "shifted"),
        ControlRecipe("r7", "SPRII (R7)", _R7),
    )
}


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
        recipe: donors, and pairs in a draw at most.
        seed: of the draws, which are functions of it and of the update; their streams are their own.
    """

    def __init__(
        self, experience: Experience, anchors: Anchors, which: Rows, *, history: int, recipe: ControlRecipe, seed: int
    ) -> None:
        self.recipe, self.seed = recipe, seed
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
        pairs = self._sampler.batch(step, min(self.recipe.systems, self.eligible))
        times = stream(self.seed, step, WINDOWS)
        recipient, donor = (
            self.full[self.first[episode] + below(times, self.count[episode])]
            for episode in (self._sampler.table.rows[side] for side in (pairs.recipient, pairs.donor))
        )
        return RelatedAnchors(recipient, donor if self.recipe.donors == "same-system" else np.roll(donor, 1))


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
