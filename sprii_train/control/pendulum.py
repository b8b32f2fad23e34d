"""Pendulum for planners: its reward and its true dynamics in torch, on observations (`app:pendulum-control`).

With the mass and length of each episode as context, `step` is the oracle; with those of a nominal system for all of
them (`nominal_context`), the model that ignores what persists.
"""

import torch
from torch import Tensor

from sprii_envs.envs.pendulum import PROPERTIES, Pendulum
from sprii_train.control.controllers import Bounds

WORLD = Pendulum()


def bounds(device: torch.device | str = "cpu") -> Bounds:
    """±1, (1,) each: the action is a share of the greatest torque."""
    high = torch.ones(WORLD.action_size, device=device)
    return -high, high


def reward(observation: Tensor, action: Tensor, next_observation: Tensor | None = None) -> Tensor:
    """−(θ² + 0.1·θ̇² + 0.001·a²) of the observation before the step, (B,).

    Args:
        observation: (cos θ, sin θ, θ̇), (B, 3); the first two need not be of length 1, as predicted ones are not.
        action: (B, 1), clipped to ±1.
        next_observation: not read; `rollout_score(reads_next=False)` saves it.
    """
    cos, sin, velocity = observation.unbind(-1)
    # An arc tangent of strided columns takes six times as long on a CPU.
    angle, torque = torch.atan2(sin.contiguous(), cos.contiguous()), action[..., 0].clamp(-1.0, 1.0)
    return -(angle * angle + 0.1 * (velocity * velocity) + 0.001 * (torque * torque))


def step(observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
    """The observation one step later, (B, 3), as `sprii_envs.physics.pendulum.step` moves the state.

    Args:
        observation: (cos θ, sin θ, θ̇), (B, 3).
        action: (B, 1), clipped to ±1.
        context: mass in kg and length in m, (B, 2).
    """
    cos, sin, velocity = observation.unbind(-1)
    mass, length = context.unbind(-1)
    torque = WORLD.torque_limit * action[..., 0].clamp(-1.0, 1.0)
    velocity = (
        velocity + 1.5 * WORLD.gravity * WORLD.dt / length * sin + 3.0 * WORLD.dt / mass / length / length * torque
    )
    turn = WORLD.dt * velocity  # of the velocity before it is clipped
    c, s = turn.cos(), turn.sin()
    limit = WORLD.speed_limit
    # Column by column in memory, because whoever reads it reads columns.
    return torch.stack((cos * c - sin * s, sin * c + cos * s, velocity.clamp(-limit, limit))).movedim(0, -1)


def nominal_context(episodes: int, device: torch.device | str = "cpu") -> Tensor:
    """Nominal mass and length, 1 kg and 1 m, for every episode, (E, 2)."""
    return torch.tensor(PROPERTIES.nominal, dtype=torch.float32, device=device).expand(episodes, -1)
