"""How NOD-Hier is trained on FitzHugh–Nagumo: RMSprop, a decay in stairs, Align first and then prediction only.

All of it is of the published 50,000 updates, and shrinks with fewer.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from sprii_envs.arguments import number
from sprii_train.fit import TrainConfig
from sprii_train.protocol import Objective

PUBLISHED = 50_000
"""Updates that the numbers below are of."""
ALIGNED, WARMUP = 10_000, 2_000
"""Updates with Align, and those over which its weight rises."""
ENDS = {True: (ALIGNED, 30_000, 40_000, 50_000), False: (20_000, 30_000, 40_000, 45_000)}
"""Where stages end, with Align and without; every stage begins the stream of samples again."""
DECAY, EVERY = 0.95, 500
RESET, RESET_RATE = 40_000, 1e-5
"""After this update the rate is that, whatever it was, and decays on."""


@dataclass(frozen=True)
class Stages(TrainConfig):
    """Optimisation of NOD-Hier; `learning_rate`, `weight_decay` and `warmup` of the base are not its own.

    Attributes:
        steps: of an aligned run; one without Align has 45,000 for every 50,000 of them.
        pairs: trajectories that are predicted in an update.
        share: c of the initial rate c/√P, of P parameters.
        clip: of the gradient's norm; the published runs have none, and this is one that is never reached.
        length: of the run itself, `steps` or what is left of them without Align; None before that is known.
    """

    steps: int = PUBLISHED
    pairs: int = 8
    share: float = 0.5
    clip: float = 1e30
    precision: str = "fp32"
    length: int | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        number("Stages.share", self.share, above=0)

    def at(self, updates: int) -> int:
        """Published updates in this run's, one at least."""
        whole = self.steps if self.length is None else self.length
        return max(1, round(updates * whole / PUBLISHED))

    def ends(self, aligned: bool) -> tuple[int, ...]:
        """Updates at which stages end, the last the run's."""
        return tuple(self.at(end) for end in ENDS[aligned])

    def run(self, aligned: bool) -> "Stages":
        """Of one arm: its own number of updates on the same schedule."""
        return replace(self, steps=self.ends(aligned)[-1], length=self.steps)

    # Of `fit`

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        """RMSprop at the initial rate."""
        size = sum(p.numel() for p in learner.parameters() if p.requires_grad)
        return torch.optim.RMSprop(learner.parameters(), lr=self.share / math.sqrt(size))

    def rate(self, step: int, initial: float) -> float:
        """×0.95 every 500 updates; after 40,000 from 1e-5, the stairs as before."""
        every, reset = self.at(EVERY), self.at(RESET)
        if step < reset:
            return initial * DECAY ** (step // every)
        return RESET_RATE * DECAY ** (step // every - reset // every)

    def objective(self, objective: Objective, step: int) -> Objective:
        """Align's weight rises over 2,000 updates and is 0 from 10,000 on."""
        risen = min(1.0, (step + 1) / self.at(WARMUP)) if step < self.at(ALIGNED) else 0.0
        return replace(objective, lambda_p=objective.lambda_p * risen)
