"""Random shooting: the first action of the best of N action sequences drawn uniformly within the bounds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sprii_envs.arguments import MANY, check, integer
from sprii_train.control.controllers.base import HORIZON, Bounds, Plan, Score, best, box, check_warm, evaluate
from sprii_train.control.controllers.noise import Draw, uniform


@dataclass(frozen=True)
class Shooting:
    """Settings of random shooting; the defaults are as many candidates and steps as one iteration of `CEM`.

    Attributes:
        candidates: action sequences a step.
        horizon: steps in each.
    """

    candidates: int = 200
    horizon: int = 30

    def __post_init__(self) -> None:
        check(self, integer, "candidates", least=1, most=MANY)
        check(self, integer, "horizon", least=1, most=HORIZON)

    @property
    def sequences(self) -> int:
        """Action sequences scored a step and episode."""
        return self.candidates


def initial(config: Shooting, episodes: int, action_size: int, device: torch.device | str = "cpu") -> Plan:
    """A plan of no steps: nothing is carried from one step to the next."""
    return Plan(torch.zeros(episodes, 0, action_size, device=device))


@torch.no_grad()
def plan(
    config: Shooting,
    score: Score,
    state: Plan,
    bounds: Bounds,
    generator: torch.Generator,
    draw: Draw = uniform,
) -> tuple[Tensor, Plan]:
    """The first actions (E, A) of the best sequences, and the state as it was. See `controllers.plan`."""
    space = box(bounds)
    mean = check_warm(state.mean, 0, space)
    shape = (len(mean), config.candidates, config.horizon, mean.shape[-1])
    candidates = draw(shape, generator, mean.device)
    chosen, _ = best(candidates, evaluate(score, candidates, space), 1)
    return space.scale(chosen[:, 0, 0]), state
