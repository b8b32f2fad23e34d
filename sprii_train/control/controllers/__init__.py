"""Controllers: a frozen config and a pure `plan`, for many episodes at once.

    state = initial(config, episodes, action_size)
    action, state = plan(config, score, state, bounds, generator)   # at every step
    state = reset(state, ended)                                     # where episodes begin anew

`CONTROLLERS` maps a name to the published settings; `named_controller` changes some of them.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, get_args

import torch
from torch import Tensor

from sprii_envs.arguments import instance, integer
from sprii_envs.properties import unknown_name
from sprii_train.control.controllers import cem, icem, mppi, shooting
from sprii_train.control.controllers.base import Bounds, Plan, Score, reset
from sprii_train.control.controllers.cem import CEM
from sprii_train.control.controllers.icem import ICEM, Warm
from sprii_train.control.controllers.mppi import MPPI
from sprii_train.control.controllers.shooting import Shooting
from sprii_train.fit import usable_device

Config = Shooting | CEM | MPPI | ICEM
State = Plan | Warm

CONTROLLERS: Mapping[str, Config] = MappingProxyType(
    {"shooting": Shooting(), "cem": CEM(), "mppi": MPPI(), "icem": ICEM()}
)
"""Published settings by name."""

_MODULES: dict[type, Any] = {Shooting: shooting, CEM: cem, MPPI: mppi, ICEM: icem}


def named_controller(name: str, **changes: Any) -> Config:
    """The settings of `CONTROLLERS[name]` with some fields changed.

    Raises:
        ValueError: for an unknown name or field, or a value that is not legal.
    """
    if instance("controller", name, of=str) not in CONTROLLERS:
        raise unknown_name("controller", name, CONTROLLERS)
    config = CONTROLLERS[name]
    legal = [field.name for field in fields(config)]
    for key in changes:
        if key not in legal:
            raise unknown_name(f"field of {type(config).__name__}", key, legal)
    return replace(config, **changes)


def initial(config: Config, episodes: int, action_size: int, device: torch.device | str = "cpu") -> State:
    """The state of a controller before the first step of `episodes` episodes.

    Raises:
        ValueError: for a config that is none, numbers below 1, or a device that this machine lacks.
    """
    instance("controller", config, of=get_args(Config))
    device = usable_device(str(device))
    episodes, action_size = integer("episodes", episodes, least=1), integer("action_size", action_size, least=1)
    return _MODULES[type(config)].initial(config, episodes, action_size, device)


def plan(config: Config, score: Score, state: Any, bounds: Bounds, generator: torch.Generator) -> tuple[Tensor, Any]:
    """One planning step of every episode; no gradient is recorded.

    Args:
        score: action sequences (E, N, H, A) → returns (E, N); see `base.Score` and `planning.rollout_score`.
        state: of `initial`, of the last `plan` or of `reset`.
        bounds: (low (A,), high (A,)), finite.
        generator: drives all noise; equal states of it give equal plans. On the CPU, or where the state is.

    Returns:
        Actions (E, A), within the bounds, and the state for the next step.

    Raises:
        ValueError: for bounds that are not, a state of another config, returns of another shape, or another type of
            any argument.
    """
    instance("controller", config, of=get_args(Config))
    instance("state", state, of=Warm if isinstance(config, ICEM) else Plan)
    instance("generator", generator, of=torch.Generator)
    return _MODULES[type(config)].plan(config, score, state, bounds, generator)


__all__ = [
    "CEM",
    "CONTROLLERS",
    "ICEM",
    "MPPI",
    "Bounds",
    "Config",
    "Plan",
    "Score",
    "Shooting",
    "State",
    "Warm",
    "initial",
    "named_controller",
    "plan",
    "reset",
]
