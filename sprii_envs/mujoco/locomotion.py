"""What the walking bodies share: Gymnasium's rewards, costs and infos of its v5 environments, to the last bit.

Gymnasium computes the control cost of the action it is given, which is float32, in float32; so does this.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, flag
from sprii_envs.mujoco.models import Models
from sprii_envs.mujoco.world import MujocoWorld
from sprii_envs.world import Array, Ending, Extras, check_constants

UNHEALTHY = "unhealthy"


@dataclass(frozen=True, kw_only=True)
class Locomotion(MujocoWorld):
    """A body that is to move along +x: its velocity, a reward for being healthy, and the cost of its controls."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True

    packages: ClassVar[tuple[str, ...]] = ("mujoco", "gymnasium")
    endings: ClassVar[tuple[str, ...]] = (UNHEALTHY,)
    view_body: ClassVar[str | int] = "torso"
    camera: ClassVar[str | int] = "track"

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        super().__post_init__()
        check_constants(self, ("forward_reward_weight", "ctrl_cost_weight", "healthy_reward"), least=0.0)
        check(self, flag, "terminate_when_unhealthy")

    @property
    def seconds(self) -> float:
        """The control step as Gymnasium computes it."""
        return float(self.compiled.model.opt.timestep) * self.substeps

    def positions(self, state: Array) -> Array:
        """Where the body is along x, (n,), as rewards see it."""
        return state[:, 0]

    def healthy(self, state: Array) -> NDArray[np.bool_] | None:
        """Whether each body is, (n,); None where health is nothing."""
        return None

    def parts(self, state: Array, force: Array, after: Array) -> Extras:
        """The parts of the reward and what they come from, by Gymnasium's names, (n,) each."""
        velocity = (self.positions(after) - self.positions(state)) / self.seconds
        cost = self.ctrl_cost_weight * np.square(np.ascontiguousarray(force, np.float32)).sum(axis=1)
        parts: Extras = {
            "x_velocity": velocity,
            "reward_forward": self.forward_reward_weight * velocity,
            "reward_ctrl": -cost,
        }
        healthy = self.healthy(after)
        return parts if healthy is None else parts | {"reward_survive": healthy * self.healthy_reward}

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """The sum of the parts, in Gymnasium's order."""
        parts = self.parts(state, force, after)
        gain = parts["reward_forward"]
        if "reward_survive" in parts:
            gain = gain + parts["reward_survive"]
        cost = -parts["reward_ctrl"]
        if "reward_contact" in parts:
            cost = cost - parts["reward_contact"]
        return gain - cost

    def places(self, state: Array) -> Extras:
        """What infos tell of a state, (n,) each: at a reset as after a step."""
        return {"x_position": state[:, 0].copy()}

    def step(self, state: Array, force: Array, prepared: Models) -> tuple[Array, Extras]:
        """MuJoCo's steps, and Gymnasium's infos for `end`."""
        after, _ = super().step(state, force, prepared)
        return after, self.places(after) | self.parts(state, force, after)

    def end(self, after: Array, extras: Extras) -> Ending:
        """A body that is not healthy ends its episode, where it may."""
        healthy = self.healthy(after) if self.terminate_when_unhealthy and self.endings else None
        if healthy is None:
            return Ending(info=extras)
        fallen = ~healthy
        if not fallen.any():
            return Ending(fallen, info=extras)
        reason = np.full(len(after), None, np.object_)
        reason[fallen] = UNHEALTHY
        return Ending(fallen, info={**extras, "reason": reason})

    def reset_info(self, state: Array) -> Extras:
        """As Gymnasium tells of a reset."""
        return self.places(state)

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Positions but x, and velocities, float32."""
        return state[:, 1 : self.compiled.physical].astype(np.float32, order="C")


def clipped_velocities(world: Locomotion, state: Array) -> NDArray[np.float32]:
    """Positions but x, and velocities within ±10, float32."""
    seen = state[:, 1 : world.compiled.physical].astype(np.float32, order="C")
    velocities = seen[:, world.compiled.model.nq - 1 :]
    np.clip(velocities, -10.0, 10.0, out=velocities)
    return seen
