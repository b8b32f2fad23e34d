"""Swimmer: three links in a fluid, driven at two joints; masses and dampings persist (`app:swimmer-profile`)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.arguments import check, choice
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.mujoco.edits import Edit, multiple, scale
from sprii_envs.mujoco.models import Source
from sprii_envs.mujoco.world import MujocoWorld
from sprii_envs.properties import PersistentProperties
from sprii_envs.world import Array, check_constants

LENGTHS = (0.8, 0.7, 0.6)
"""m, between the middles of a link's round ends, from the front; the model's own."""
RADIUS = 0.08
"""m, of every link; the model's own."""
DENSITY = 900.0
"""kg/m³, of every link in the model file."""
SPEED_LIMIT = 30.0
"""m/s and rad/s; no motor drives a legal system beyond it from rest, and time steps of 0.01 s follow it from within."""
FLUIDS: Mapping[str, Mapping[str, Any]] = {
    "water": {
        "fluid_density": 1000.0,
        "fluid_viscosity": 0.001,
        "torque_limit": 80.0,
        "joint_damping": 8.0,
        "integrator": "implicitfast",
    },
    "bank": {
        "fluid_density": 0.35,
        "fluid_viscosity": 0.08,
        "torque_limit": 0.8,
        "joint_damping": 0.18,
        "integrator": "RK4",
    },
}
"""Name → the constants of a fluid and of joints that suit it; drag as strong as water's is too stiff for RK4."""
INTEGRATORS = {"RK4": 1, "implicitfast": 3}
"""Name → MuJoCo's number of it."""
OWN = "own"
"""What `fluid` says where the constants are those of none of `FLUIDS`."""


@dataclass(frozen=True, kw_only=True)
class Swimmer(MujocoWorld):
    """The pure functions of Swimmer; the fields are its physical constants, in SI units.

    The constants of `FLUIDS` that are not given, or None, are those of `fluid`, which then names what they are: "own"
    where they are no fluid's. Where all four numbers are given but no integrator, it is the model file's, RK4.
    """

    dt: float = 0.04
    start_noise: float = 0.1
    fluid: str = "water"
    fluid_density: float = None  # type: ignore[assignment]  # a number once it is built, as of the next four
    fluid_viscosity: float = None  # type: ignore[assignment]
    torque_limit: float = None  # type: ignore[assignment]
    joint_damping: float = None  # type: ignore[assignment]
    integrator: str = None  # type: ignore[assignment]
    density: float = DENSITY
    root_damping: float = 0.0
    joint_limit: float = 1.75
    control_cost: float = 1e-4
    link_grey: int = 144
    joint_grey: int = 224

    name: ClassVar[str] = "Swimmer"
    model: ClassVar[Source] = Path(__file__).parents[1] / "assets" / "swimmer.xml"
    # Written out, so that banks are read without MuJoCo.
    state_names: ClassVar[tuple[str, ...]] = (
        *("x", "y", "angle", "joint_1", "joint_2"),
        *("x_velocity", "y_velocity", "angle_velocity", "joint_1_velocity", "joint_2_velocity"),
    )
    action_size: ClassVar[int] = 2
    start_draws: ClassVar[int] = 8
    state_limit: ClassVar[float] = 1e6
    view_axes: ClassVar[Literal["xy", "xz", "yz"]] = "xy"
    camera: ClassVar[str | int] = "track"
    model_constants: ClassVar[tuple[str, ...]] = ("density", "root_damping", "joint_limit", *FLUIDS["water"])
    properties: ClassVar[PersistentProperties] = PersistentProperties(
        [
            multiple(
                f"mass_{link}",
                0.75,
                1.25,
                symbol=f"m{link}",
                physical_low=0.25,
                physical_high=4.0,
                description=f"mass and inertia of link {link}, as a multiple of the nominal ones",
            )
            for link in range(3)
        ]
        + [
            multiple(
                f"damping_{joint}",
                0.6,
                1.4,
                symbol=f"d{joint}",
                physical_low=0.0,
                description=f"damping of joint {joint}, as a multiple of the nominal one",
            )
            for joint in (1, 2)
        ]
    )
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]] = {
        **{f"mass_{link}": scale("body_mass", f"link_{link}") for link in range(3)},
        **{f"damping_{joint}": scale("dof_damping", f"joint_{joint}") for joint in (1, 2)},
    }

    def __post_init__(self) -> None:
        """Refuse constants that are not physical; take those that are not given from the fluid."""
        super().__post_init__()
        check(self, choice, "fluid", legal=(*FLUIDS, OWN))
        self._fill()
        check_constants(self, ("density", "torque_limit"), above=0.0)
        least = ("joint_damping", "root_damping", "fluid_density", "fluid_viscosity", "control_cost")
        check_constants(self, least, least=0.0)
        check_constants(self, ("joint_limit",), above=0.0, most=3.0)
        check_constants(self, ("start_noise",), least=0.0, most=self.joint_limit)
        check_constants(self, ("link_grey", "joint_grey"), least=1.0, most=255.0)
        check(self, choice, "integrator", legal=INTEGRATORS)
        now = {name: getattr(self, name) for name in FLUIDS["water"]}
        object.__setattr__(self, "fluid", next((name for name, fluid in FLUIDS.items() if fluid == now), OWN))

    def _fill(self) -> None:
        missing = [name for name in FLUIDS["water"] if getattr(self, name) is None]
        numbers = FLUIDS.get(self.fluid, {}) if missing != ["integrator"] else {"integrator": "RK4"}
        for name in missing:
            if name not in numbers:
                raise ValueError(
                    f"Swimmer.fluid is {OWN!r}, which has no {name}: give it, or a fluid of {', '.join(FLUIDS)}"
                )
            object.__setattr__(self, name, numbers[name])

    @staticmethod
    def adjust(model: Any, constants: Mapping[str, Any]) -> None:
        """Density of the links, the root's angle, joints, motors and the fluid."""
        heavier = constants["density"] / DENSITY
        model.body_mass[:] *= heavier
        model.body_inertia[:] *= heavier
        model.dof_damping[2], model.dof_damping[3:] = constants["root_damping"], constants["joint_damping"]
        model.jnt_range[3:] = -constants["joint_limit"], constants["joint_limit"]
        model.actuator_ctrlrange[:] = -constants["torque_limit"], constants["torque_limit"]
        model.opt.density, model.opt.viscosity = constants["fluid_density"], constants["fluid_viscosity"]
        model.opt.integrator = INTEGRATORS[constants["integrator"]]

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """The root at the origin; its angle, the joints and all velocities uniform in ±`start_noise`."""
        state = np.zeros((len(u), 10), np.float64, order="F")
        state[:, 2:] = self.start_noise * (2.0 * u - 1.0)
        return state

    def check_state(self, state: ArrayLike, n: int) -> Array:
        """As in `World`, with the joints within ±π and the velocities within ±`SPEED_LIMIT`."""
        full = super().check_state(state, n)
        limits = np.array([math.pi] * 2 + [SPEED_LIMIT] * 5)
        beyond = np.abs(full[:, 3:]) > limits
        if beyond.any():
            row, column = np.argwhere(beyond)[0]
            where = f" of slot {row}" if n > 1 else ""
            raise ValueError(
                f"state component {self.state_names[3 + column]!r}{where} = {float(full[row, 3 + column])!r}: "
                f"it must be in [{-limits[column]:g}, {limits[column]:g}]"
            )
        return full

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """The root's mean velocity along x in the step − `control_cost`·|a|², a the clipped normalised action."""
        action = force / self.torque_limit
        effort = action[:, 0] * action[:, 0] + action[:, 1] * action[:, 1]
        return (after[:, 0] - state[:, 0]) / self.dt - self.control_cost * effort

    def observe(self, state: Array) -> NDArray[np.float32]:
        """All but the root's position, (N, 8) float32."""
        return state[:, 2:].astype(np.float32, order="C")

    @property
    def observation_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The largest float32: angles are not wrapped."""
        high = np.full(8, np.finfo(np.float32).max, np.float32)
        return -high, high

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The three links and brighter discs at the joints, seen from above the root; no property shows."""
        if self.renderer == "mujoco":
            return super().patches(state, size)
        links, joints = self._shapes(state, size, self.link_grey, self.joint_grey)
        return [patch for link in links for patch in link] + joints

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """For people: coloured links over a grid of half metres that moves past as the swimmer does."""
        if self.renderer == "mujoco":
            return super().picture(state, values, size)
        n, half = len(state), 0.5 * self.view_width
        spacing, thin = 0.5, 0.006 * size[1] / self.view_width
        grid: list[rendering.Patch] = []
        reach = half * max(1.0, size[0] / size[1])
        for k in range(-math.ceil(reach / spacing), math.ceil(reach / spacing) + 1):
            for axis in (0, 1):
                ends = np.empty((2, n, 2), np.float64)
                # The line at a multiple of the spacing, in coordinates of the camera above the root.
                ends[:, :, axis] = spacing * (k + np.round(state[:, axis] / spacing)) - state[:, axis]
                ends[0, :, 1 - axis], ends[1, :, 1 - axis] = -2.0 * reach, 2.0 * reach
                start, end = (rendering.to_pixels(each, self.view_width, size) for each in ends)
                grid += rendering.segment(start, end, thin, 255, size)
        links, joints = self._shapes(state, size, 255, 255)
        colours = ((250, 200, 90), (240, 150, 80), (215, 105, 90))
        layers = [(grid, (44, 50, 66)), *zip(links, colours, strict=True), (joints, (255, 236, 200))]
        return rendering.compose(layers, n, size)

    def _shapes(
        self, state: Array, size: rendering.Size, link_grey: int, joint_grey: int
    ) -> tuple[list[list[rendering.Patch]], list[rendering.Patch]]:
        """Patches of each link, and of the two joints, with the root at the centre."""
        spots = [rendering.to_pixels(point, self.view_width, size) for point in points(state)]
        radius = RADIUS * size[1] / self.view_width
        links = [rendering.segment(front, back, radius, link_grey, size) for front, back in itertools.pairwise(spots)]
        return links, [rendering.disc(joint, 0.8 * radius, joint_grey, size) for joint in spots[1:-1]]


def points(state: Array) -> list[Array]:
    """Front, first joint, second joint and tail as seen from the root, four of (N, 2) in m, of states (N, 10)."""
    angle, joint_1, joint_2 = state[:, 2], state[:, 3], state[:, 4]
    front = np.stack((0.5 * LENGTHS[0] * np.cos(angle), 0.5 * LENGTHS[0] * np.sin(angle)), axis=1)
    found = [front]
    for length, heading in zip(LENGTHS, (angle, angle + joint_1, angle + joint_1 + joint_2), strict=True):
        found.append(found[-1] - np.stack((length * np.cos(heading), length * np.sin(heading)), axis=1))
    return found


def centre(state: Array, values: Array) -> Array:
    """Place (n, 2) of the centre of mass, m, in states (n, 10) of systems (n, 5), or of one (5,)."""
    ends = points(state)
    capsules = math.pi * RADIUS**2 * (np.array(LENGTHS) + 4.0 / 3.0 * RADIUS)  # m³; one density for all
    masses = capsules * np.asarray(values, np.float64)[..., :3]
    middles = np.stack([0.5 * (front + back) for front, back in itertools.pairwise(ends)], axis=1)
    return state[:, :2] + (masses[..., None] * middles).sum(axis=1) / masses.sum(axis=-1)[..., None]


class SwimmerEnv(WorldEnv, world=Swimmer):
    """Three links joined by two driven hinges, in a fluid; masses and dampings persist (`app:swimmer-profile`).

    Needs MuJoCo: `pip install mujoco`, or the extra `mujoco`.

    ## Persistent properties

    | name                         | symbol     | unit | range        | scale  | nominal | legal            |
    |------------------------------|------------|------|--------------|--------|---------|------------------|
    | `mass_0`, `mass_1`, `mass_2` | m0, m1, m2 | 1    | [0.75, 1.25] | linear | 1       | finite, 0.25 … 4 |
    | `damping_1`, `damping_2`     | d1, d2     | 1    | [0.6, 1.4]   | linear | 1       | finite, 0 … 10   |

    Multiples of nominal: the links weigh 16.41, 14.60 and 12.79 kg, and a mass scales its link's inertia with it; the
    joints have a damping of 8 N·m·s/rad each.

    ## Action: `Box(-1, 1, (2,), float32)`

    | index | meaning                                   | physical range |
    |-------|-------------------------------------------|----------------|
    | 0     | torque at joint 1, between links 0 and 1  | −80 … 80 N·m   |
    | 1     | torque at joint 2, between links 1 and 2  | −80 … 80 N·m   |

    Components are clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (8,):

    | index | meaning                                     | unit  | at reset        |
    |-------|---------------------------------------------|-------|-----------------|
    | 0     | angle of the root (the middle of link 0)    | rad   | uniform in ±0.1 |
    | 1, 2  | angles of the joints, each limited to ±1.75 | rad   | uniform in ±0.1 |
    | 3, 4  | velocity of the root along x, y             | m/s   | uniform in ±0.1 |
    | 5     | angular velocity of the root                | rad/s | uniform in ±0.1 |
    | 6, 7  | velocities of the joints                    | rad/s | uniform in ±0.1 |

    The root's position is not observed; its angle is not wrapped. `obs_type="pixels"`, uint8 (H, W, 2): the present
    grayscale frame and the previous one (equal at reset); a view 4 m wide from above the root, always at its centre.

    ## Dynamics

    MuJoCo, `sprii_envs/assets/swimmer.xml`: capsules of lengths 0.8, 0.7 and 0.6 m and radius 0.08 m, density 900, in
    water, no gravity, no contacts, four time steps of 0.01 s a control step. The state is (qpos, qvel), 10 numbers,
    and complete. `fluid="bank"` is the thin fluid of the Swimmer bank, in which nothing swims: see the full page.

    ## Reward

    The root's mean velocity along x during the step − 1e-4·|a|², a the clipped action in [−1, 1], as in Gymnasium's
    Swimmer-v5. The root swings about the centre of mass; over an episode in water the two get equally far.

    ## Episode

    Never terminates; truncated after 1,000 transitions.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system` (pins one: `{"mass_0": 1.0, …}`, a `System`, an id of
    `systems`), `systems` (a `SystemSet` or `SystemDistribution` to draw from), `image_size` (int or (height, width)),
    and the physical constants, which are the fields of `Swimmer`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (10,): root x, y and angle, joints within ±π, and
    their velocities within ±30; there is one kind of start, so no `query`. `info` at reset: `system_id`, `persistent`
    (5,) float64, `extrapolated`.

    Version history: v0; the first release moved in what is `fluid="bank"` now. The full page is `docs/envs/swimmer.md`.
    """


class SwimmerVectorEnv(WorldVectorEnv, world=Swimmer):
    """N swimmers stepped by every core and rendered by one array program; see `SwimmerEnv` for the manual."""
