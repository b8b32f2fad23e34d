"""HalfCheetah: Gymnasium's planar cheetah, whose masses, joints, grip and motors persist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.mujoco.edits import Edit, multiple, scale
from sprii_envs.mujoco.locomotion import Locomotion
from sprii_envs.mujoco.models import GYMNASIUM, Source
from sprii_envs.properties import PersistentProperties

JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")


@dataclass(frozen=True, kw_only=True)
class HalfCheetah(Locomotion):
    """The pure functions of HalfCheetah; at nominal properties those of Gymnasium's HalfCheetah-v5."""

    dt: float = 0.05
    ctrl_cost_weight: float = 0.1
    start_noise: float = 0.1

    name: ClassVar[str] = "HalfCheetah"
    model: ClassVar[Source] = GYMNASIUM / "half_cheetah.xml"
    normal_velocities: ClassVar[bool] = True
    endings: ClassVar[tuple[str, ...]] = ()
    view_height: ClassVar[float | None] = 0.9
    properties: ClassVar[PersistentProperties] = PersistentProperties(
        [
            multiple("torso_mass", 0.6, 1.6, symbol="m_t", description="mass and inertia of the torso"),
            multiple("back_leg_mass", 0.6, 1.6, symbol="m_b", description="masses and inertias of the back leg"),
            multiple("damping", 0.5, 1.5, symbol="d", description="dampings of the six joints"),
            multiple("stiffness", 0.5, 1.5, symbol="k", description="stiffnesses of the springs in the six joints"),
            multiple("friction", 0.5, 2.0, symbol="mu", description="sliding friction of all geoms and the floor"),
            multiple("motor", 0.7, 1.3, symbol="g", description="gears of the six motors: their torques"),
        ]
    )
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]] = {
        "torso_mass": scale("body_mass", "torso"),
        "back_leg_mass": scale("body_mass", "bthigh", "bshin", "bfoot"),
        "damping": scale("dof_damping", *JOINTS),
        "stiffness": scale("jnt_stiffness", *JOINTS),
        "friction": scale("geom_friction", column=0),
        "motor": scale("actuator_gear", column=0),
    }


class HalfCheetahEnv(WorldEnv, world=HalfCheetah):
    """Gymnasium's HalfCheetah-v5 with six persistent properties, multiples of its own numbers; needs MuJoCo.

    Rewards, infos and dynamics at nominal properties are those of HalfCheetah-v5, bit for bit; the page is
    `docs/envs/mujoco.md`. Observation: float32 (17,), positions but x, and velocities. Action: `Box(-1, 1, (6,))`.
    Never terminates; truncated after 1,000 transitions of 0.05 s.
    """


class HalfCheetahVectorEnv(WorldVectorEnv, world=HalfCheetah):
    """N cheetahs stepped by every core; see `HalfCheetahEnv` for the manual."""
