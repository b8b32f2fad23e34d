"""Optimisers and schedules besides the engine's own."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from sprii_envs.arguments import check, integer, number
from sprii_train.fit import TrainConfig

UNCLIPPED = 1e30
"""A gradient norm that is never reached, for runs without clipping."""


@dataclass(frozen=True)
class Stairs(TrainConfig):
    """RMSprop whose rate falls in stairs; `learning_rate`, `weight_decay`, `warmup` and `rates` are not its own.

    Attributes:
        share: c of the initial rate c/√P, of P parameters.
        decay, every: the rate is multiplied by the one every so many updates.
    """

    share: float = 0.5
    decay: float = 0.95
    every: int = 500

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "share", above=0)
        check(self, number, "decay", above=0, most=1)
        check(self, integer, "every", least=1)

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        """RMSprop at the initial rate."""
        size = sum(p.numel() for p in learner.parameters())
        return torch.optim.RMSprop(learner.parameters(), lr=self.share / math.sqrt(size))

    def rate(self, step: int, initial: float) -> float:
        """Of update number `step` (from 0)."""
        return initial * self.decay ** (step // self.every)


def adam(rate: float, steps: int, *, clip: float = UNCLIPPED, **given: object) -> TrainConfig:
    """Adam at a constant rate in float32: AdamW without decay."""
    return TrainConfig(
        steps=steps, rates=((0, rate),), learning_rate=rate, weight_decay=0.0, warmup=0, clip=clip, precision="fp32",
        **given,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
