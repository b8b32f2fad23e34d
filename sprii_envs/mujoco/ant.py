"""Ant: Gymnasium's four-legged ant, whose masses, joints, grip and motors persist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.mujoco.edits import Edit, multiple, scale
from sprii_envs.mujoco.locomotion import Locomotion
from sprii_envs.mujoco.models import GYMNASIUM, Source
from sprii_envs.properties import PersistentProperties
from sprii_envs.world import Array, Extras, check_constants

BODIES = 14
"""Bodies of the model, the world's included; the legs are those from number 2 on, of which some have no name."""
JOINTS = tuple(f"{part}_{leg}" for leg in (1, 2, 3, 4) for part in ("hip", "ankle"))
_FORCES = tuple(
    f"force_{body}_{axis}"
    for body in range(BODIES)
    for axis in ("torque_x", "torque_y", "torque_z", "force_x", "force_y", "force_z")
)


@dataclass(frozen=True, kw_only=True)
class Ant(Locomotion):
    """The pure functions of Ant; at nominal properties those of Gymnasium's Ant-v5.

    Gymnasium takes the torso's place and the contact forces from what MuJoCo computed before the last of its time
    steps: they are no function of the positions and velocities after it, so the state carries them.
    """

    dt: float = 0.05
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    contact_force_limit: float = 1.0
    healthy_z_low: float = 0.2
    healthy_z_high: float = 1.0
    start_noise: float = 0.1
    view_width: float = 5.0

    name: ClassVar[str] = "Ant"
    model: ClassVar[Source] = GYMNASIUM / "ant.xml"
    normal_velocities: ClassVar[bool] = True
    reading_names: ClassVar[tuple[str, ...]] = ("torso_x", "torso_y", *_FORCES)
    post_constraint: ClassVar[bool] = True
    view_axes: ClassVar[Literal["xy", "xz", "yz"]] = "xy"
    properties: ClassVar[PersistentProperties] = PersistentProperties(
        [
            multiple("torso_mass", 0.6, 1.6, symbol="m_t", description="mass and inertia of the torso"),
            multiple("leg_mass", 0.6, 1.6, symbol="m_l", description="masses and inertias of the four legs"),
            multiple("damping", 0.5, 1.5, symbol="d", description="dampings of the eight joints"),
            multiple("armature", 0.6, 1.6, symbol="J", description="inertias of the eight motors' rotors"),
            multiple("friction", 0.5, 1.5, symbol="mu", description="sliding friction of all geoms and the floor"),
            multiple("motor", 0.7, 1.3, symbol="g", description="gears of the eight motors: their torques"),
        ]
    )
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]] = {
        "torso_mass": scale("body_mass", "torso"),
        "leg_mass": scale("body_mass", *range(2, BODIES)),
        "damping": scale("dof_damping", *JOINTS),
        "armature": scale("dof_armature", *JOINTS),
        "friction": scale("geom_friction", column=0),
        "motor": scale("actuator_gear", column=0),
    }

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        super().__post_init__()
        check_constants(self, ("contact_cost_weight", "contact_force_limit", "healthy_z_low"), least=0.0)
        check_constants(self, ("healthy_z_high",), above=0.0)

    @staticmethod
    def read(data: Any) -> Array:
        """The torso's place and the external forces of the last time step."""
        return np.concatenate([data.xpos[1, :2], data.cfrc_ext.reshape(-1)])

    def positions(self, state: Array) -> Array:
        """Where the torso was before the last time step."""
        return state[:, self.compiled.memory]

    def healthy(self, state: Array) -> NDArray[np.bool_]:
        """Neither too low nor too high."""
        return (state[:, 2] >= self.healthy_z_low) & (state[:, 2] <= self.healthy_z_high)

    def places(self, state: Array) -> Extras:
        """Where it is in the plane."""
        x, y = state[:, 0].copy(), state[:, 1].copy()
        return {"x_position": x, "y_position": y, "distance_from_origin": np.sqrt(x * x + y * y)}

    def parts(self, state: Array, force: Array, after: Array) -> Extras:
        """As of every walking body, and the cost of what touches it."""
        along_y = self.compiled.memory + 1
        contact = self.contact_cost_weight * np.square(self._forces(after)).sum(axis=1)
        return super().parts(state, force, after) | {
            "y_velocity": (after[:, along_y] - state[:, along_y]) / self.seconds,
            "reward_contact": -contact,
        }

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Positions but x and y, velocities, and forces on all bodies but the world, within ±1; float32."""
        seen = state[:, 2 : self.compiled.physical]
        return np.concatenate([seen, self._forces(state)[:, 6:]], axis=1).astype(np.float32, order="C")

    def _forces(self, state: Array) -> Array:
        limit = self.contact_force_limit
        return np.ascontiguousarray(np.clip(state[:, self.compiled.memory + 2 :], -limit, limit))


class AntEnv(WorldEnv, world=Ant):
    """Gymnasium's Ant-v5 with six persistent properties, multiples of its own numbers; needs MuJoCo.

    Rewards, infos, terminations and dynamics at nominal properties are those of Ant-v5, bit for bit; the page is
    `docs/envs/mujoco.md`. Observation: float32 (105,), positions but x and y, velocities, and contact forces. Action:
    `Box(-1, 1, (8,))`. Terminates when unhealthy; truncated after 1,000 transitions of 0.05 s.
    """


class AntVectorEnv(WorldVectorEnv, world=Ant):
    """N ants stepped by every core; see `AntEnv` for the manual."""
