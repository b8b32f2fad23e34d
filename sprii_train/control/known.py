"""Models whose context is given instead of inferred, and the planner that is told each episode's system."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from sprii_envs.world import Array
from sprii_train.control.agent import PlanningAgent
from sprii_train.learners.histories import History


@dataclass(frozen=True)
class Believed:
    """A context that is believed whatever is seen: (E, d), or (1, d) for all episodes. Models add `step`."""

    believed: Tensor
    history: int = 1

    def context(self, history: History) -> Tensor:
        """(E, d)."""
        return self.believed.expand(len(history.filled), -1)


def as_they_are(values: Array) -> Tensor:
    """Properties (E, F) as a context."""
    return torch.tensor(values, dtype=torch.float32)


@dataclass
class Told(PlanningAgent):
    """A planner whose model, a `Believed`, is told the properties of each episode's own system.

    Attributes:
        code: properties (E, F) float64 → the model's contexts (E, d).
    """

    code: Callable[[Array], Tensor] = as_they_are

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """See `PlanningAgent`; what was told before is forgotten."""
        self.model = replace(self.model, believed=self.model.believed[:1])
        super().check(env)

    def tell(self, values: Array) -> None:
        """The systems, (E, F)."""
        self.model = replace(self.model, believed=self.code(values).to(self.device))
