"""Walker2d: Gymnasium's planar biped, whose masses, joints, grip, motors and gravity persist."""

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

JOINTS = tuple(f"{part}{side}_joint" for side in ("", "_left") for part in ("thigh", "leg", "foot"))


@dataclass(frozen=True, kw_only=True)
class Walker2d(Locomotion):
    """The pure functions of Walker2d; at nominal properties those of Gymnasium's Walker2d-v5."""

    dt: float = 0.008
    start_noise: float = 5e-3
    healthy_z_low: float = 0.8
    healthy_z_high: float = 2.0
    healthy_angle: float = 1.0

    name: ClassVar[str] = "Walker2d"
    model: ClassVar[Source] = GYMNASIUM / "walker2d_v5.xml"
    view_height: ClassVar[float | None] = 0.9
    properties: ClassVar[PersistentProperties] = PersistentProperties(
        [
            multiple("torso_mass", 0.6, 1.6, symbol="m_t", description="mass and inertia of the torso"),
            multiple("left_leg_mass", 0.6, 1.6, symbol="m_l", description="masses and inertias of the left leg"),
            multiple("damping", 0.5, 2.0, symbol="d", description="dampings of the six joints"),
            multiple("friction", 0.6, 1.5, symbol="mu", description="sliding friction of all geoms and the floor"),
            multiple("motor", 0.7, 1.3, symbol="g", description="gears of the six motors: their torques"),
            multiple("gravity", 0.7, 1.3, symbol="G", description="gravity, × 9.81 m/s²"),
        ]
    )
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]] = {
        "torso_mass": scale("body_mass", "torso"),
        "left_leg_mass": scale("body_mass", "thigh_left", "leg_left", "foot_left"),
        "damping": scale("dof_damping", *JOINTS),
        "friction": scale("geom_friction", column=0),
        "motor": scale("actuator_gear", column=0),
        "gravity": scale("opt.gravity"),
    }

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        super().__post_init__()
        check_constants(self, ("healthy_z_low",), least=0.0)
        check_constants(self, ("healthy_z_high", "healthy_angle"), above=0.0)

    def healthy(self, state: Array) -> NDArray[np.bool_]:
        """Upright, and neither too low nor too high."""
        z, angle = state[:, 1], state[:, 2]
        return (z > self.healthy_z_low) & (z < self.healthy_z_high) & (np.abs(angle) < self.healthy_angle)

    def places(self, state: Array) -> Extras:
        """Where it is along x, and how far from its first height."""
        return super().places(state) | {"z_distance_from_origin": state[:, 1] - self.compiled.start[1]}

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Positions but x, and velocities within ±10, float32."""
        return clipped_velocities(self, state)


class Walker2dEnv(WorldEnv, world=Walker2d):
    """Gymnasium's Walker2d-v5 with six persistent properties, multiples of its own numbers; needs MuJoCo.

    Rewards, infos, terminations and dynamics at nominal properties are those of Walker2d-v5, bit for bit; the page is
    `docs/envs/mujoco.md`. Observation: float32 (17,), positions but x, and velocities within ±10. Action:
    `Box(-1, 1, (6,))`. Terminates when unhealthy; truncated after 1,000 transitions of 0.008 s.
    """


class Walker2dVectorEnv(WorldVectorEnv, world=Walker2d):
    """N walkers stepped by every core; see `Walker2dEnv` for the manual."""
