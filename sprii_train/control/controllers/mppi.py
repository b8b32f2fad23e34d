"""Model predictive path integral control (Williams et al., "Information theoretic MPC", ICRA 2017, Algorithm 2).

With V = U + ε, ε ~ N(0, σ²): the cost of a candidate is S − return, S = λ(1 − α)·Σ_t u_t·ε_t/σ², its weight is
exp(−cost/λ), normalised, and U moves by the weighted mean of ε. Candidates are clipped to the bounds and ε is what the
clipping left of it, so the plan stays within them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sprii_envs.arguments import MANY, check, integer, number
from sprii_train.control.controllers.base import HORIZON, Bounds, Plan, Score, box, check_warm, evaluate, shift
from sprii_train.control.controllers.noise import Draw, normal


@dataclass(frozen=True)
class MPPI:
    """Settings of MPPI; candidates and iterations score as many sequences a step as `CEM`.

    Attributes:
        candidates, iterations: sequences in an iteration, and updates of the plan a step (published: one).
        horizon: steps in a sequence.
        temperature: λ, in units of return: a candidate that much below the best weighs e times less. None is published
            for our rewards; of 1 and 0.1, the latter did better on the in-distribution pendulums.
        variance: σ² of the noise, in actions scaled to [−1, 1].
        alpha: 0 charges the published cost of leaving the plan, 1 nothing (γ = λ(1 − α) of the 2018 journal version).
    """

    candidates: int = 1000
    iterations: int = 1
    horizon: int = 30
    temperature: float = 0.1
    variance: float = 0.25
    alpha: float = 0.0

    def __post_init__(self) -> None:
        check(self, integer, "candidates", "iterations", least=1, most=MANY)
        check(self, integer, "horizon", least=1, most=HORIZON)
        check(self, number, "temperature", "variance", above=0)
        check(self, number, "alpha", least=0, most=1)

    @property
    def sequences(self) -> int:
        """Action sequences scored a step and episode."""
        return self.candidates * self.iterations


def initial(config: MPPI, episodes: int, action_size: int, device: torch.device | str = "cpu") -> Plan:
    """The middle of the bounds at every step."""
    return Plan(torch.zeros(episodes, config.horizon, action_size, device=device))


@torch.no_grad()
def plan(
    config: MPPI,
    score: Score,
    state: Plan,
    bounds: Bounds,
    generator: torch.Generator,
    draw: Draw = normal,
) -> tuple[Tensor, Plan]:
    """The first actions (E, A) of the updated plans, and these shifted by one. See `controllers.plan`."""
    space = box(bounds)
    mean = check_warm(state.mean, config.horizon, space)
    shape = (len(mean), config.candidates, *mean.shape[1:])
    charge = config.temperature * (1.0 - config.alpha) / config.variance
    for _ in range(config.iterations):
        noise = draw(shape, generator, mean.device).mul_(math.sqrt(config.variance))
        candidates = (mean[:, None] + noise).clamp_(-1.0, 1.0)
        change = candidates - mean[:, None]
        value = evaluate(score, candidates, space) - charge * (mean[:, None] * change).sum((2, 3))
        top = value.amax(dim=1, keepdim=True)
        weight = torch.exp((value - top) / config.temperature)
        weight = (weight / weight.sum(1, keepdim=True))[:, :, None, None]
        # Where no candidate has a finite return, weights are NaN and the plan stays.
        mean = torch.where(torch.isfinite(top)[:, :, None], mean + (weight * change).sum(1), mean)
    return space.scale(mean[:, 0]), Plan(shift(mean, torch.zeros_like(mean[:, :1])))
