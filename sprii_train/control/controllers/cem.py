"""The cross-entropy method over action sequences, as published with CaDM (Lee et al., ICML 2020) after PETS.

Each iteration draws candidates from a truncated normal around the mean, and moves mean and variance to those of the
elites. A step begins at the last plan shifted by one, with the initial variance, and executes the final mean.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sprii_train.control.controllers.base import (
    Bounds,
    Plan,
    Score,
    best,
    box,
    check_elites,
    check_warm,
    evaluate,
    moments,
    shift,
)
from sprii_train.control.controllers.noise import Draw, truncated_normal


@dataclass(frozen=True)
class CEM:
    """Settings of CEM; the defaults are CaDM's.

    Attributes:
        candidates, elites, iterations: sequences in an iteration, how many of them are refitted, how often.
        horizon: steps in a sequence.
        smoothing: share of the old mean and variance that a refit keeps.
        variance: of the first iteration, in actions scaled to [−1, 1].
    """

    candidates: int = 200
    elites: int = 50
    iterations: int = 5
    horizon: int = 30
    smoothing: float = 0.1
    variance: float = 0.25

    def __post_init__(self) -> None:
        check_elites(self)

    @property
    def sequences(self) -> int:
        """Action sequences scored a step and episode."""
        return self.candidates * self.iterations


def initial(config: CEM, episodes: int, action_size: int, device: torch.device | str = "cpu") -> Plan:
    """The middle of the bounds at every step."""
    return Plan(torch.zeros(episodes, config.horizon, action_size, device=device))


@torch.no_grad()
def plan(
    config: CEM,
    score: Score,
    state: Plan,
    bounds: Bounds,
    generator: torch.Generator,
    draw: Draw = truncated_normal,
) -> tuple[Tensor, Plan]:
    """The first actions (E, A) of the final means, and these shifted by one. See `controllers.plan`."""
    space = box(bounds)
    mean = check_warm(state.mean, config.horizon, space)
    variance = torch.full_like(mean, config.variance)
    shape = (len(mean), config.candidates, *mean.shape[1:])
    for _ in range(config.iterations):
        # Two SDs reach no further than the nearer bound, so that a truncated draw needs no clipping.
        room = (1.0 - mean.abs()).clamp_min(0.0) / 2.0
        spread = torch.minimum(variance.sqrt(), room)
        noise = draw(shape, generator, mean.device)
        candidates = torch.addcmul(mean[:, None], spread[:, None], noise)
        elites, values = best(candidates, evaluate(score, candidates, space), config.elites)
        middle, square = moments(elites, values, mean, variance)
        mean, variance = middle.lerp(mean, config.smoothing), square.lerp(variance, config.smoothing)
    return space.scale(mean[:, 0]), Plan(shift(mean, torch.zeros_like(mean[:, :1])))
