"""Hopper: Gymnasium's one-legged hopper, whose masses, joints, grip and motors persist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.mujoco.edits import Edit, multiple, scale
from sprii_envs.mujoco.locomotion import Locomotion, clipped_velocities
from sprii_envs.mujoco.models import GYMNASIUM, Source
from sprii_envs.properties import PersistentProperties
from sprii_envs.world import Array, Extras, check_constants


@dataclass(frozen=True, kw_only=True)
class Hopper(Locomotion):
    """The pure functions of Hopper; at nominal properties those of Gymnasium's Hopper-v5."""

    dt: float = 0.008
    start_noise: float = 5e-3
    healthy_z_low: float = 0.7
    healthy_angle: float = 0.2
    healthy_state: float = 100.0

    name: ClassVar[str] = "Hopper"
    model: ClassVar[Source] = GYMNASIUM / "hopper.xml"
    view_height: ClassVar[float | None] = 0.9
    properties: ClassVar[PersistentProperties] = PersistentProperties(
        [
            multiple("torso_mass", 0.6, 1.6, symbol="m_t", description="mass and inertia of the torso"),
            multiple("foot_mass", 0.6, 1.6, symbol="m_f", description="mass and inertia of the foot"),
            multiple("damping", 0.5, 1.5, symbol="d", description="dampings of the three joints"),
            multiple("friction", 0.6, 1.5, symbol="mu", description="sliding friction of all geoms and the floor"),
            multiple("motor", 0.7, 1.3, symbol="g", description="gears of the three motors: their torques"),
        ]
    )
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]] = {
        "torso_mass": scale("body_mass", "torso"),
        "foot_mass": scale("body_mass", "foot"),
        "damping": scale("dof_damping", "thigh_joint", "leg_joint", "foot_joint"),
        "friction": scale("geom_friction", column=0),
        "motor": scale("actuator_gear", column=0),
    }

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        super().__post_init__()
        check_constants(self, ("healthy_z_low",), least=0.0)
        check_constants(self, ("healthy_angle", "healthy_state"), above=0.0)

    def healthy(self, state: Array) -> NDArray[np.bool_]:
        """Upright, high enough, and nowhere too fast."""
        z, angle, rest = state[:, 1], state[:, 2], state[:, 2 : self.compiled.physical]
        calm = (np.abs(rest) < self.healthy_state).all(axis=1)
        return calm & (z > self.healthy_z_low) & (np.abs(angle) < self.healthy_angle)

    def places(self, state: Array) -> Extras:
        """Where it is along x, and how far from its first height."""
        return super().places(state) | {"z_distance_from_origin": state[:, 1] - self.compiled.start[1]}

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Positions but x, and velocities within ±10, float32."""
        return clipped_velocities(self, state)


class HopperEnv(WorldEnv, world=Hopper):
    """Gymnasium's Hopper-v5 with five persistent properties, multiples of its own numbers; needs MuJoCo.

    Rewards, infos, terminations and dynamics at nominal properties are those of Hopper-v5, bit for bit; the page is
    `docs/envs/mujoco.md`. Observation: float32 (11,), positions but x, and velocities within ±10. Action:
    `Box(-1, 1, (3,))`. Terminates when unhealthy; truncated after 1,000 transitions of 0.008 s.
    """


class HopperVectorEnv(WorldVectorEnv, world=Hopper):
    """N hoppers stepped by every core; see `HopperEnv` for the manual."""
