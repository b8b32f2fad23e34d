"""Agents of the pendulum: planners with a learned model or the true equations, random actions; and what the paper has.

What an evaluation prints beside (`references`) is the planner that knows each system, random actions, and the rows of
`tab:pendulum-r7`.
"""

import re
from typing import Any, TypeVar

import torch

from sprii_train.control import pendulum
from sprii_train.control.agent import PlanningAgent
from sprii_train.control.context_fit import ContextFit
from sprii_train.control.controllers import Config
from sprii_train.control.known import Believed, Told
from sprii_train.evaluation import Published, RandomAgent
from sprii_train.fit import usable_device
from sprii_train.reports.paper import paper_panels

ENV_ID = "sprii/Pendulum-v0"
LABEL = "tab:pendulum-r7"


def planner_name(controller: Config) -> str:
    """As tables call it: `CEM`, `iCEM`, `MPPI`, `Shooting`."""
    return type(controller).__name__.replace("ICEM", "iCEM")


def learned(
    model: Any, controller: Config, *, seed: int, device: torch.device | str = "cpu", fit: ContextFit | None = None
) -> PlanningAgent:
    """Planning with a trained model, by its own reward where it has one; context re-inferred at every step, and fitted
    where `fit` is given.

    Raises:
        ValueError: for a model that lacks an operation of `control.agent.DynamicsModel`, or of other observations or
            actions than the pendulum's, or another seed.
    """
    device = usable_device(device)
    reward = None if callable(getattr(model, "reward", None)) else pendulum.reward
    agent = PlanningAgent(
        model, controller, reward, seed=seed, reads_next=False, rows=getattr(model, "rows", None),
        device=device, bounds=pendulum.bounds(device), fit=fit,
    )  # fmt: skip
    agent.check_sizes(3, pendulum.WORLD.action_size)
    return agent


class KnownModel(Believed):
    """The true equations as a model whose context is given: mass and length, (E, 2), or (1, 2) for all episodes."""

    def step(self, observation: torch.Tensor, action: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """See `pendulum.step`."""
        return pendulum.step(observation, action, context)


AnyPlanner = TypeVar("AnyPlanner", bound=PlanningAgent)


def known(controller: Config, *, seed: int) -> Told:
    """The oracle: planning with the true equations of the true mass and length."""
    return _with_equations(Told, controller, seed)


def nominal(controller: Config, *, seed: int) -> PlanningAgent:
    """Planning with the true equations of the nominal mass and length, whatever the system."""
    return _with_equations(PlanningAgent, controller, seed)


def _with_equations(kind: type[AnyPlanner], controller: Config, seed: int) -> AnyPlanner:
    return kind(
        KnownModel(pendulum.nominal_context(1)), controller, pendulum.reward, seed=seed, reads_next=False,
        rows=8_192, bounds=pendulum.bounds(),  # equations are cheaper than the calls that compute them
    )  # fmt: skip


def references(controller: Config, *, seed: int = 0) -> dict[str, Any]:
    """What to print beside an agent: the oracle with its planner, random actions, and the paper's rows."""
    return {"oracle": known(controller, seed=seed), "random": RandomAgent(seed=seed)} | paper()


def paper() -> dict[str, Published]:
    """The rows of `tab:pendulum-r7` as the paper prints them, by column."""
    header, *lines = paper_panels(LABEL)[0]
    note = f"paper: {LABEL}, mean and SD over three seeds, other systems and starts"
    return {
        f"paper: {name}": Published({line[0]: _cell(line[i]) for line in lines}, note)
        for i, name in enumerate(header) if i
    }  # fmt: skip


def _cell(text: str) -> dict[str, float]:
    """`-326.5 ± 46.5 (96.7%)` as numbers."""
    found = re.fullmatch(r"(-?[\d.]+) ± ([\d.]+) \(([\d.]+)%\)", text.replace("−", "-"))
    assert found is not None, text
    mean, sd, success = map(float, found.groups())
    return {"return": mean, "sd": sd, "success": success / 100.0}
