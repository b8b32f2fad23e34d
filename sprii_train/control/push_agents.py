"""Agents that push: planners with a learned model, told or not, and with the true equations."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sprii_envs.world import Array
from sprii_train.control import push
from sprii_train.control.agent import PlanningAgent
from sprii_train.control.controllers import Config
from sprii_train.control.known import Believed, Told

ROWS = 16_384
"""Of the equations at once, which cost little more than the calls that compute them."""


class Equations(Believed):
    """The environment's physics as a model whose context is given: mass, drag and stiffness, (E, 3) or (1, 3)."""

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """See `push.step`."""
        return push.step(observation, action, context)


@dataclass(frozen=True)
class ToldModel(Believed):
    """A learner of a supervised context, which is given.

    Attributes:
        learner: with `told(labels)` and `step`, such as `PooledDynamics`.
    """

    learner: Any = None

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """See the learner's."""
        return self.learner.step(observation, action, context)


def learned(model: Any, controller: Config, *, seed: int, **options: Any) -> PlanningAgent:
    """Planning with a trained model, its context inferred anew at every step.

    Args:
        options: of `PlanningAgent`.

    Raises:
        ValueError: for a model that is none, or of other observations or actions.
    """
    agent = PlanningAgent(model, controller, push.reward, seed=seed, bounds=push.bounds(), **options)
    agent.check_sizes(len(push.WORLD.state_names), push.WORLD.action_size)
    return agent


def told(learner: Any, controller: Config, *, seed: int) -> Told:
    """Planning with a learned model that is told the true properties, by a learner of a supervised context."""

    def code(values: Array) -> Tensor:
        with torch.no_grad():
            return learner.told(torch.tensor(push.coordinates(values), dtype=torch.float32))

    model = ToldModel(code(push.nominal_context(1).double().numpy()), learner=learner)
    return Told(model, controller, push.reward, seed=seed, bounds=push.bounds(), code=code)


def known(controller: Config, *, seed: int) -> Told:
    """The oracle: planning with the environment's physics and the true properties."""
    model = Equations(push.nominal_context(1))
    return Told(model, controller, push.reward, seed=seed, rows=ROWS, bounds=push.bounds())


def nominal(controller: Config, *, seed: int) -> PlanningAgent:
    """Planning with the environment's physics and the nominal properties, whatever the system."""
    model = Equations(push.nominal_context(1))
    return PlanningAgent(model, controller, push.reward, seed=seed, rows=ROWS, bounds=push.bounds())
