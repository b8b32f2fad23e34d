"""iCEM (Pinneri et al., "Sample-efficient cross-entropy method for real-time planning", CoRL 2020).

CEM with noise that is correlated in time, fewer candidates from iteration to iteration, elites kept within a step and
into the next one, and the mean among the last candidates.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sprii_envs.arguments import check, choice, integer, number
from sprii_train.control.controllers.base import (
    Bounds,
    Box,
    Score,
    best,
    box,
    check_elites,
    check_warm,
    evaluate,
    moments,
    shift,
)
from sprii_train.control.controllers.noise import Draw, coloured


@dataclass(frozen=True)
class ICEM:
    """Settings of iCEM; the defaults score a sixth of `CEM`'s sequences.

    Attributes:
        candidates, elites, iterations: sequences in the first iteration, how many are refitted, how often.
        horizon: steps in a sequence.
        smoothing: share of the old mean and SD that a refit keeps.
        variance: of the first iteration, in actions scaled to [−1, 1].
        beta: of the noise, whose power falls as 1/f^beta; 0 is white.
        decay: by which the number of candidates is divided from one iteration to the next, down to twice the elites.
        kept: elites that compete again in the next iteration and, shifted, at the next step.
        execute: `best`, the best sequence of the last iteration (published), or `mean`, that of its elites, smoothed.
    """

    candidates: int = 64
    elites: int = 10
    iterations: int = 3
    horizon: int = 30
    smoothing: float = 0.1
    variance: float = 0.25
    beta: float = 2.0
    decay: float = 1.25
    kept: int = 3
    execute: Literal["best", "mean"] = "best"

    def __post_init__(self) -> None:
        check_elites(self)
        check(self, integer, "kept")
        check(self, number, "beta", least=0)
        check(self, number, "decay", least=1)
        check(self, choice, "execute", legal=("best", "mean"))
        if self.kept > self.elites:
            raise ValueError(f"ICEM.kept is {self.kept}; legal: at most elites = {self.elites}")

    @property
    def populations(self) -> tuple[int, ...]:
        """New candidates of every iteration."""
        return tuple(
            max(int(self.candidates / self.decay**i), min(2 * self.elites, self.candidates))
            for i in range(self.iterations)
        )

    @property
    def sequences(self) -> int:
        """Action sequences scored a step and episode: new ones, kept ones and the mean."""
        return sum(self.populations) + self.iterations * self.kept + 1


class Warm(NamedTuple):
    """What iCEM carries to the next step.

    Attributes:
        mean: the plan that begins there, (E, H, A), normalised.
        elites: the best sequences of the last step, not yet shifted, (E, kept, H, A).
        started: (E,) bool; False where there was no last step.
    """

    mean: Tensor
    elites: Tensor
    started: Tensor


def initial(config: ICEM, episodes: int, action_size: int, device: torch.device | str = "cpu") -> Warm:
    """The middle of the bounds at every step, and no elites."""
    mean = torch.zeros(episodes, config.horizon, action_size, device=device)
    elites = mean.new_zeros(episodes, config.kept, config.horizon, action_size)
    return Warm(mean, elites, torch.zeros(episodes, dtype=torch.bool, device=device))


@torch.no_grad()
def plan(
    config: ICEM,
    score: Score,
    state: Warm,
    bounds: Bounds,
    generator: torch.Generator,
    draw: Draw | None = None,
) -> tuple[Tensor, Warm]:
    """The first actions (E, A) of the best sequences or of the means, and the state. See `controllers.plan`."""
    space = box(bounds)
    mean = check_warm(state.mean, config.horizon, space)
    if state.elites.shape != (len(mean), config.kept, *mean.shape[1:]):
        raise ValueError(f"the state keeps elites {tuple(state.elites.shape)}; legal: {config.kept} an episode")
    spread = torch.full_like(mean, math.sqrt(config.variance))
    draw = draw or partial(coloured, beta=config.beta)
    # Kept elites, shifted, end in a sampled action; an episode without a last step gets whole samples in their place.
    spare = _samples(draw, config.kept, mean, spread, generator)
    kept = torch.where(state.started[:, None, None, None], shift(state.elites, spare[:, :, -1:]), spare)
    for count in config.populations[:-1]:
        pool = torch.cat((_samples(draw, count, mean, spread, generator), kept), dim=1)
        elites, mean, spread, _ = _improve(config, score, pool, mean, spread, space)
        kept = elites[:, : config.kept]
    pool = torch.cat((_samples(draw, config.populations[-1], mean, spread, generator), kept, mean[:, None]), dim=1)
    elites, mean, spread, found = _improve(config, score, pool, mean, spread, space)
    chosen = mean if config.execute == "mean" else torch.where(found, elites[:, 0], mean)
    state = Warm(shift(mean, mean[:, -1:]), elites[:, : config.kept], torch.ones_like(state.started))
    return space.scale(chosen[:, 0]), state


def _samples(draw: Draw, count: int, mean: Tensor, spread: Tensor, generator: torch.Generator) -> Tensor:
    """(E, count, H, A) around the mean (E, H, A), clipped to the bounds."""
    noise = draw((len(mean), count, *mean.shape[1:]), generator, mean.device)
    return torch.addcmul(mean[:, None], spread[:, None], noise).clamp_(-1.0, 1.0)


def _improve(
    config: ICEM, score: Score, pool: Tensor, mean: Tensor, spread: Tensor, space: Box
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Elites of a pool, the smoothed mean and SD, and whether the first elite has a finite return, (E, 1, 1)."""
    elites, values = best(pool, evaluate(score, pool, space), config.elites)
    middle, square = moments(elites, values, mean, spread.square())
    mean, spread = middle.lerp(mean, config.smoothing), square.sqrt().lerp(spread, config.smoothing)
    return elites, mean, spread, (values[:, :1] > -math.inf)[:, :, None]
