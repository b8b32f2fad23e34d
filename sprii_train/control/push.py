"""Pushing for planners: PokeWorld's object to its goal, under a mass, drag and stiffness that do not show.

Observations are the world's states. With the true properties as context `step` is the oracle: the environment's own
array physics, over episodes × candidates. With the nominal ones it is the model that ignores what persists.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sprii_envs.arguments import integer, number
from sprii_envs.envs.poke_world import PROPERTIES, PokeWorld
from sprii_envs.properties import SystemDistribution
from sprii_envs.world import Array
from sprii_train.control.controllers import Bounds

ENV_ID = "sprii/PokeWorld-v0"
CONSTANTS: dict[str, Any] = {"force_limit": 8.0}
"""N for each component: under the world's 20 a finger enters and leaves a contact within one step."""
WORLD = PokeWorld(**CONSTANTS)
WITHIN, LAST = 0.1, 10
"""Metres from the goal, and how many of an episode's last states have to lie there: half a second."""


def _group(**levels: tuple[float, ...]) -> SystemDistribution:
    return SystemDistribution(PROPERTIES, levels)


GROUPS: Mapping[str, SystemDistribution] = MappingProxyType(
    {
        "ID": SystemDistribution(PROPERTIES),
        "OOD_light": _group(mass=(0.15, 0.2, 0.25), drag=(0.0, 0.1, 0.2)),
        "OOD_heavy": _group(mass=(6.0, 7.5, 9.0), drag=(0.0, 0.1, 0.2)),
        "OOD_sticky": _group(drag=(8.0, 10.0, 12.0)),
    }
)
"""The declared ranges, and systems beyond them in mass, in drag, or in both; stiffness stays within its range."""


def bounds(device: torch.device | str = "cpu") -> Bounds:
    """±1, (2,) each: an action is a share of the greatest force along each axis."""
    high = torch.ones(WORLD.action_size, device=device)
    return -high, high


def reward(observation: Tensor, action: Tensor, next_observation: Tensor) -> Tensor:
    """−|object − goal| − 0.0001·|F|² of the place reached and the clipped force in newtons, (B,).

    Args:
        observation: not read.
        action: (B, 2), clipped to ±1.
        next_observation: (B, 8).
    """
    x, y = next_observation[:, 4] - WORLD.goal_x, next_observation[:, 5] - WORLD.goal_y
    effort = (WORLD.force_limit * action.clamp(-1.0, 1.0)).square().sum(1)
    return -torch.hypot(x, y) - 0.0001 * effort


def step(observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
    """The observation one step later, (B, 8) float32, by the environment's physics in float64 on the CPU.

    Args:
        observation: positions and velocities of finger and object, (B, 8).
        action: (B, 2), clipped to ±1.
        context: mass, drag and stiffness in the units of the world, (B, 3).
    """
    state, values = (np.asfortranarray(each.double().cpu().numpy()) for each in (observation, context))
    after, _ = WORLD.step(state, WORLD.force(action.cpu().numpy()), WORLD.prepare(values))
    return torch.from_numpy(WORLD.observe(after)).to(observation.device)


def nominal_context(episodes: int) -> Tensor:
    """Nominal mass, drag and stiffness, 1 kg, 1 1/s and 2,000 N/m^1.5, for every episode, (E, 3)."""
    return torch.tensor(PROPERTIES.nominal, dtype=torch.float32).expand(episodes, -1)


def coordinates(values: ArrayLike) -> Array:
    """Properties (N, 3) on their declared scales, a logarithm for mass and stiffness: what a learned model is told."""
    array = np.asarray(values, np.float64)
    return np.stack([np.log(v) if p.scale == "log" else v for p, v in zip(PROPERTIES, array.T, strict=True)], axis=1)


def success(states: Array, within: float = WITHIN, last: int = LAST) -> NDArray[np.bool_]:
    """Whether the object lies within so many metres of the goal in all of the last states, (E,).

    Args:
        states: (E, T + 1, 8).

    Raises:
        ValueError: for a distance or number of states that is not positive, or more states than there are.
    """
    last, within = integer("last", last, least=1, most=states.shape[1]), number("within", within, above=0)
    gap = states[:, -last:, 4:6] - (WORLD.goal_x, WORLD.goal_y)
    return np.all(np.hypot(gap[..., 0], gap[..., 1]) <= within, axis=1)
