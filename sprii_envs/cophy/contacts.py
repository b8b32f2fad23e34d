"""Rigid bodies with a mass, a friction and a restitution each, which multiply where two touch, as in Bullet.

MuJoCo takes the larger friction of two geoms and knows no restitution. So every pair that may touch is an explicit
`<pair>` of the model, whose friction is the product of two and whose contact is a spring and a damper (`solref` of
−k, −b): linear in the overlap, so that the restitution depends neither on speed nor on masses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.cophy import objects, pictures
from sprii_envs.cophy.objects import HALF_HEIGHT, HALF_SIDE, PROPERTIES, RADIUS
from sprii_envs.mujoco.edits import Edit, assign
from sprii_envs.mujoco.world import MujocoWorld
from sprii_envs.properties import PersistentProperties, PersistentProperty, SystemDistribution
from sprii_envs.world import Array, check_constants

STIFFNESS = 5000.0
"""1/s², of a contact per unit of mass: one lasts π/√k = 44 ms, and bodies sink in by v/√k at most, 7 cm at 5 m/s."""
STEP = 0.002
"""s, MuJoCo's, for which `RESTITUTIONS` holds."""
DAMPING_RATIOS = (
    *(0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6),
    *(0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0),
)
RESTITUTIONS = (
    *(1.0, 0.9694, 0.9401, 0.8591, 0.7439, 0.6488, 0.5696, 0.5031, 0.4468, 0.3574, 0.2909, 0.2401),
    *(0.1696, 0.1245, 0.0883, 0.0649, 0.0490, 0.0379, 0.0298, 0.0238, 0.0193, 0.0157),
)
"""What two spheres that meet head on at each damping ratio keep of their speed, measured.

Means over six speeds of 2 … 8 m/s, mass ratios 1:5 … 5:1 and six instants of the time step; a single collision may be
0.021 off. Down to 0.5 it is the closed form of a spring and a damper that cannot pull (Schwager and Pöschel, 2007).
"""
SMOOTH = 1e-5
"""MuJoCo's least friction."""
UNIT = 1e-3
"""How far the length of a given quaternion may be from 1."""


def damping_ratio(restitution: Array) -> Array:
    """Of the contact that keeps `restitution` of the speed, any shape; of less than 0.0157 that of 0.0157."""
    kept = np.log(np.clip(restitution, RESTITUTIONS[-1], 1.0))
    return np.interp(-kept, -np.log(RESTITUTIONS), DAMPING_RATIOS)


class Surface(NamedTuple):
    """A fixed plane that every body may touch."""

    name: str
    place: tuple[float, float, float]
    normal: tuple[float, float, float]
    friction: float
    restitution: float


GROUND = Surface("ground", (0.0, 0.0, 0.0), (0.0, 0.0, 1.0), 1.0, 0.0)
"""Of friction 1, as Bullet's plane; that nothing rebounds from it is ours."""
WALLS = tuple(
    Surface(f"wall_{i}", (-objects.WALL * x, -objects.WALL * y, 0.0), (x, y, 0.0), 0.0, 1.0)
    for i, (x, y) in enumerate(((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)))
)
"""Round Balls' court: smooth, so that a ball rebounds with its own restitution; planes, so that none leaves."""

_GEOMS = {
    "sphere": f'type="sphere" size="{RADIUS}"',
    "cylinder": f'type="cylinder" size="{RADIUS} {HALF_HEIGHT}"',
    "box": f'type="box" size="{HALF_SIDE} {HALF_SIDE} {HALF_SIDE}"',
}
_KINDS = {"sphere": objects.SPHERE, "cylinder": objects.CYLINDER_UP, "box": objects.CUBE}
_REST = "0.02 1"
"""`solref` of what does not rebound: MuJoCo's own, critically damped."""


@dataclass(frozen=True, kw_only=True)
class Bodies(MujocoWorld):
    """Free bodies on the ground, of a subclass `class Two(Bodies, scene="balls", shapes=("sphere",) * 2)`.

    A state is MuJoCo's (qpos, qvel), 13 numbers a body; nothing is remembered beyond it. An action is an impulse on
    each body, horizontal, as a constant force over the control step; zeros push nothing.
    """

    dt: float = objects.INTERVAL
    impulse_limit: float = 2.0

    scene: ClassVar[str]
    shapes: ClassVar[tuple[str, ...]]
    """Of every body: sphere, cylinder, box."""
    surfaces: ClassVar[tuple[Surface, ...]] = (GROUND,)
    rebounds: ClassVar[bool] = True
    """Whether restitution is a property; otherwise no contact has any."""
    draws: ClassVar[int]
    """Uniforms that one body's start consumes."""
    time_step: ClassVar[float] = STEP
    model_constants: ClassVar[tuple[str, ...]] = ("impulse_limit", "dt")

    def __init_subclass__(cls, *, scene: str = "", shapes: Sequence[str] = (), **kwargs: Any) -> None:
        """Declare what follows from the bodies."""
        if scene:
            cls.scene = scene
        if shapes:
            cls.shapes, k = tuple(shapes), len(shapes)
            named = PROPERTIES if cls.rebounds else PROPERTIES[:2]
            properties = [_declared(name, i, cls.scene) for name in named for i in range(k)]
            cls.edits = {**{f"mass_{i}": assign("body_mass", f"object_{i}") for i in range(k)}, **cls.more_edits}
            cls.properties = PersistentProperties([*properties, *cls.more_properties])
            levels = objects.LEVELS[cls.scene]
            of = {p.name: levels.get(p.name) or levels[p.name.rpartition("_")[0]] for p in cls.properties}
            cls.groups = {
                "levels": SystemDistribution(cls.properties, of),
                "range": SystemDistribution(cls.properties),
            }
            cls.computed = {"pair_friction": partial(_frictions, cls), "pair_solref": partial(_springs, cls)}
            cls.model = _mjcf(cls)
            parts = ("x", "y", "z", "qw", "qx", "qy", "qz")
            rates = ("x", "y", "z", "roll", "pitch", "yaw")
            cls.state_names = (
                *(f"object_{i}_{part}" for i in range(k) for part in parts),
                *(f"object_{i}_{rate}_velocity" for i in range(k) for rate in rates),
            )
            cls.action_size, cls.start_draws = 2 * k, cls.draws * k
        super().__init_subclass__(**kwargs)

    more_properties: ClassVar[tuple[PersistentProperty, ...]] = ()
    more_edits: ClassVar[Mapping[str, Edit]] = {}

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        super().__post_init__()
        check_constants(self, ("start_noise",), least=0.0, most=0.0)  # starts are random as they are
        check_constants(self, ("view_width",), least=4.0, most=4.0)  # the scene's camera is where it is
        check_constants(self, ("impulse_limit",), above=0.0, most=20.0)

    @staticmethod
    def adjust(model: Any, constants: Mapping[str, Any]) -> None:
        """The force whose impulse over a control step is the largest."""
        force = constants["impulse_limit"] / constants["dt"]
        model.actuator_ctrlrange[:] = -force, force

    def check_state(self, state: ArrayLike, n: int) -> Array:
        """As in `MujocoWorld`; ValueError for a quaternion whose length is not within 1e-3 of 1."""
        full = super().check_state(state, n)
        k = len(self.shapes)
        length = np.linalg.norm(full[:, : 7 * k].reshape(n, k, 7)[..., 3:], axis=-1)
        if (odd := np.abs(length - 1.0) > UNIT).any():
            row, i = np.argwhere(odd)[0]
            where = f" of slot {row}" if n > 1 else ""
            raise ValueError(
                f"state components 'object_{i}_qw' … 'object_{i}_qz'{where} are a quaternion of length "
                f"{length[row, i]:.6g}; legal: 1, within {UNIT:g}"
            )
        return full

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Every body's 13 numbers in CoPhy's order, one body after another, (N, 13 K) float32."""
        return bodies(state).reshape(len(state), -1).astype(np.float32)

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The ray caster's pictures in grey, or with `renderer="mujoco"` MuJoCo's; no property shows."""
        return [rendering.whole(self.picture(state, state, size))]

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """The scene's picture by the ray caster, bodies in the first colours of the scene."""
        if self.renderer == "mujoco":
            return super().picture(state, values, size)
        n, k, slots = len(state), len(self.shapes), len(objects.COLOURS[self.scene])
        states, kinds = np.zeros((n, slots, objects.STATE)), np.full((n, slots), objects.ABSENT)
        states[:, :k], kinds[:, :k] = bodies(state), [_KINDS[shape] for shape in self.shapes]
        return pictures.pictures(self.scene, states, kinds, size)


def bodies(state: Array) -> Array:
    """States (N, 13 K) of MuJoCo as (N, K, 13) of CoPhy: position, quaternion x y z w, velocity, spin, of the world."""
    n, k = len(state), state.shape[1] // objects.STATE
    poses, rates = state[:, : 7 * k].reshape(n, k, 7), state[:, 7 * k :].reshape(n, k, 6)
    turn = poses[..., 3:] / np.sqrt((poses[..., 3:] * poses[..., 3:]).sum(axis=-1, keepdims=True))
    axis, spin = turn[..., 1:], rates[..., 3:]  # MuJoCo's spin is of the body's own axes
    across = 2.0 * np.cross(axis, spin)
    spin = spin + turn[..., :1] * across + np.cross(axis, across)
    return np.concatenate([poses[..., :3], axis, turn[..., :1], rates[..., :3], spin], axis=-1)


def state_of(position: Array, velocity: Array, turn: Array | None = None) -> Array:
    """MuJoCo's states (N, 13 K), F-ordered, of bodies without spin at (N, K, 3), turned by w x y z (N, K, 4)."""
    n, k = position.shape[:2]
    state = np.zeros((n, objects.STATE * k), np.float64, order="F")
    poses = np.zeros((n, k, 7))
    poses[..., :3], poses[..., 3:] = position, (1.0, 0.0, 0.0, 0.0) if turn is None else turn
    rates = np.zeros((n, k, 6))
    rates[..., :3] = velocity
    state[:, : 7 * k], state[:, 7 * k :] = poses.reshape(n, -1), rates.reshape(n, -1)
    return state


def yaw(angle: Array) -> Array:
    """Quaternions w x y z, (..., 4), of turns by `angle` (...,) about the vertical."""
    zero = np.zeros_like(angle)
    return np.stack([np.cos(0.5 * angle), zero, zero, np.sin(0.5 * angle)], axis=-1)


def lying(angle: Array) -> Array:
    """Quaternions w x y z, (..., 4), that lay a body's own z axis level, towards `angle` (...,) from x."""
    a, b = np.cos(0.5 * angle), np.sin(0.5 * angle)
    return math.sqrt(0.5) * np.stack([a, -b, a, b], axis=-1)


def _declared(name: str, i: int, scene: str) -> PersistentProperty:
    levels = objects.LEVELS[scene][name]
    most = {"mass": 1000.0, "friction": 10.0, "restitution": 1.0}[name]
    return PersistentProperty(
        name=f"{name}_{i}",
        symbol={"mass": "m", "friction": "mu", "restitution": "e"}[name] + str(i),
        unit="kg" if name == "mass" else "1",
        low=min(levels),
        high=max(levels),
        nominal=1.0 if name == "mass" else 0.5,
        physical_low=0.01 if name == "mass" else 0.0,
        physical_high=most,
        description=f"{name} of object {i}",
    )


def _touching(kind: type[Bodies]) -> tuple[list[tuple[int, Surface]], list[tuple[int, int]]]:
    """Which bodies touch which surfaces and each other, in the order that MuJoCo sorts pairs into."""
    k = len(kind.shapes)
    return [(i, surface) for i in range(k) for surface in kind.surfaces], list(combinations(range(k), 2))


def _products(kind: type[Bodies], own: Array, name: str) -> Array:
    """`own` (n, K) of bodies times that of what they touch, (n, pairs)."""
    fixed, free = _touching(kind)
    a = [own[:, i] * getattr(surface, name) for i, surface in fixed]
    return np.stack(a + [own[:, i] * own[:, j] for i, j in free], axis=1)


def _frictions(kind: type[Bodies], values: Array) -> Array:
    """`pair_friction` (n, pairs, 5) of systems (n, F)."""
    k = len(kind.shapes)
    product = np.maximum(_products(kind, values[:, k : 2 * k], "friction"), SMOOTH)
    out = np.empty((*product.shape, 5), np.float64)
    out[..., :2], out[..., 2:] = product[..., None], (0.005, 0.0001, 0.0001)  # the last three act on nothing here
    return out


def _springs(kind: type[Bodies], values: Array) -> Array:
    """`pair_solref` (n, pairs, 2) of systems (n, F)."""
    k = len(kind.shapes)
    fixed, free = _touching(kind)
    out = np.empty((len(values), len(fixed) + len(free), 2), np.float64)
    out[:] = [float(each) for each in _REST.split()]
    if kind.rebounds:
        springy = np.array([surface.restitution > 0.0 for _, surface in fixed] + [True] * len(free))
        zeta = damping_ratio(_products(kind, values[:, 2 * k : 3 * k], "restitution")[:, springy])
        out[:, springy, 0] = -STIFFNESS
        out[:, springy, 1] = -2.0 * math.sqrt(STIFFNESS) * zeta
    return out


def _mjcf(kind: type[Bodies]) -> str:
    """The model of a kind of world; properties overwrite its masses and pairs."""
    fixed, free = _touching(kind)
    colours = objects.COLOURS[kind.scene]
    planes = "".join(
        f'<geom name="{s.name}" type="plane" size="0 0 1" pos="{s.place[0]} {s.place[1]} {s.place[2]}" '
        f'zaxis="{s.normal[0]} {s.normal[1]} {s.normal[2]}" rgba="0.6 0.6 0.6 {1 if s is GROUND else 0}"/>'
        for s in kind.surfaces
    )
    free_bodies = "".join(
        f'<body name="object_{i}" pos="{2 * i} 0 0.5"><freejoint name="object_{i}"/><geom name="object_{i}" '
        f'{_GEOMS[shape]} mass="1" rgba="{" ".join(f"{c / 255:.3f}" for c in objects.PALETTE[colour])} 1"/></body>'
        for i, (shape, colour) in enumerate(zip(kind.shapes, colours, strict=False))
    )
    names = [(f"object_{i}", s.name) for i, s in fixed] + [(f"object_{i}", f"object_{j}") for i, j in free]
    pairs = "".join(f'<pair name="{a}-{b}" geom1="{a}" geom2="{b}" condim="3"/>' for a, b in names)
    pushes = "".join(
        f'<motor name="push_{i}_{axis}" joint="object_{i}" gear="{gear}" ctrllimited="true" ctrlrange="-10 10"/>'
        for i in range(len(kind.shapes))
        for axis, gear in (("x", "1 0 0 0 0 0"), ("y", "0 1 0 0 0 0"))
    )
    return (
        f'<mujoco model="{kind.__name__}"><size memory="4M"/>'
        f'<option timestep="{kind.time_step}" integrator="implicitfast" cone="elliptic" impratio="3" '
        f'gravity="0 0 {objects.GRAVITY}"><flag warmstart="disable"/></option>'
        '<default><geom contype="0" conaffinity="0"/><pair solimp="0.99 0.99 0.001"/></default>'
        f'<worldbody><light directional="true" pos="0 0 8" dir="0.3 0.4 -1"/>{planes}{free_bodies}</worldbody>'
        f"<contact>{pairs}</contact><actuator>{pushes}</actuator></mujoco>"
    )
