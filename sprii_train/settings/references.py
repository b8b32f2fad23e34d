"""Supervised references of SpringWorld as `Budget.others`, and their schedule (`app:spring-development`)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from sprii_envs.arguments import check, integer, number
from sprii_train.fit import TrainConfig
from sprii_train.learners.encoders import Kind
from sprii_train.learners.reference import ReferenceConfig
from sprii_train.settings.base import Budget, Other

REFERENCES = tuple(f"reference-{kind}" for kind in get_args(Kind))


@dataclass(frozen=True)
class ReferenceTraining(TrainConfig):
    """The references' optimisation; the defaults are the reference's, but for the updates, which nobody tells.

    Attributes:
        last: rate at the end, as a share of the largest.
        select_every: updates between two losses on the selection systems; the weights of the least one are kept.
        select_batches: of which such a loss is the mean.
    """

    steps: int = 10_000
    pairs: int = 4
    weight_decay: float = 1e-4
    warmup: int = 100
    clip: float = 5.0
    last: float = 0.1
    select_every: int = 500
    select_batches: int = 32

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "last", least=0, most=1)
        check(self, integer, "select_every", "select_batches", least=1)
        if self.select_every > self.steps:
            raise ValueError(f"ReferenceTraining.select_every is {self.select_every}; legal: 1 to {self.steps} steps")

    def rate(self, step: int, initial: float) -> float:
        """Linear warm-up, then cosine to the last share."""
        if step < self.warmup:
            return initial * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return initial * (self.last + (1 - self.last) * 0.5 * (1 + math.cos(math.pi * progress)))


def references(preset: str, budget: Budget) -> Mapping[str, Other]:
    """`reference-KIND`: the stem of the budget's JEPA, the reference's own sizes and schedule."""
    jepa, train, seconds = budget.learner, ReferenceTraining(), 20.0
    if preset == "smoke":
        train = ReferenceTraining(
            steps=20, pairs=4, warmup=5, checkpoint_every=10, log_every=5, select_every=10, select_batches=2
        )
        seconds = 0.03
    elif preset == "quick":
        train = ReferenceTraining(
            steps=1_500, pairs=12, learning_rate=1e-3, checkpoint_every=250, select_every=150, select_batches=16
        )
        seconds = 0.15
    stem = {name: getattr(jepa, name) for name in ("image", "stem", "patch", "frames", "embedding", "history")}
    return {
        f"reference-{kind}": Other(ReferenceConfig(encoder=kind, **stem), train, seconds) for kind in get_args(Kind)
    }
