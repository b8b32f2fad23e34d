"""PokeWorld: a finger pushes an object of unknown mass, drag and contact stiffness (`app:poke-profile`)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.arguments import check, integer
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.physics import poke
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import Array, Ending, Extras, Moved, Numbers, World, check_constants

PROPERTIES = PersistentProperties(
    [
        PersistentProperty(
            name="mass",
            symbol="m",
            unit="kg",
            low=0.5,
            high=3.0,
            nominal=1.0,
            scale="log",
            physical_low=0.1,
            description="mass of the object; below 0.1 kg the default substeps would not resolve its contacts",
        ),
        PersistentProperty(
            name="drag",
            symbol="γ",
            unit="1/s",
            low=0.5,
            high=4.0,
            nominal=1.0,
            description="rate at which the object's velocity decays when nothing touches it",
        ),
        PersistentProperty(
            name="stiffness",
            symbol="k",
            unit="N/m^1.5",
            low=500.0,
            high=6000.0,
            nominal=2000.0,
            scale="log",
            physical_low_open=True,
            physical_high=60000.0,
            description="contact stiffness; above 60,000 the default substeps would not resolve contacts",
        ),
    ]
)


@dataclass(frozen=True, kw_only=True)
class PokeWorld(World):
    """The pure functions of PokeWorld; the fields are its physical constants, in SI units."""

    dt: float = 0.05
    substeps: int = 20
    finger_mass: float = 1.0
    force_limit: float = 20.0
    finger_radius: float = 0.06
    object_radius: float = 0.09
    damping_ratio: float = 0.25
    arena: float = 1.0
    restitution: float = 0.5
    start_extent: float = 0.35
    start_near: float = 0.35
    start_far: float = 0.6
    launch_chance: float = 0.25
    launch_slow: float = 0.5
    launch_fast: float = 2.0
    goal_x: float = 0.6
    goal_y: float = 0.0
    view_width: float = 2.0
    finger_grey: int = 240
    object_grey: int = 144
    goal_grey: int = 64
    goal_radius: float = 0.04

    name: ClassVar[str] = "PokeWorld"
    properties: ClassVar[PersistentProperties] = PROPERTIES
    state_names: ClassVar[tuple[str, ...]] = (
        "finger_x",
        "finger_y",
        "finger_vx",
        "finger_vy",
        "object_x",
        "object_y",
        "object_vx",
        "object_vy",
    )
    action_size: ClassVar[int] = 2
    start_draws: ClassVar[int] = 7
    signals: ClassVar[Mapping[str, str]] = {"contact": "?", "contact_force": "f4"}
    max_episode_steps: ClassVar[int] = 63
    obs_type: ClassVar[str] = "pixels"

    def __post_init__(self) -> None:
        """Refuse constants that are not physical, or substeps too long for the contacts of legal systems."""
        positive = ("dt", "finger_mass", "force_limit", "finger_radius", "object_radius", "arena", "view_width")
        check_constants(self, (*positive, "goal_radius"), above=0.0)
        check_constants(self, ("damping_ratio", "start_extent", "launch_slow"), least=0.0)
        check_constants(self, ("restitution", "launch_chance"), least=0.0, most=1.0)
        check_constants(self, ("finger_grey", "object_grey", "goal_grey"), least=1.0, most=255.0)
        check(self, integer, "substeps", least=1)
        touching = self.finger_radius + self.object_radius
        widest = self.arena - self.object_radius
        check_constants(self, ("start_extent",), least=0.0, most=widest)
        check_constants(self, ("start_near",), least=touching)
        check_constants(self, ("start_far",), least=self.start_near, most=self.arena - self.finger_radius)
        check_constants(self, ("launch_fast",), least=self.launch_slow)
        check_constants(self, ("goal_x", "goal_y"), least=-widest, most=widest)
        lightest, stiffest = PROPERTIES["mass"].physical_low, PROPERTIES["stiffness"].physical_high
        longest = poke.stable_substep(lightest, stiffest, self.damping_ratio, self.finger_mass, touching)
        if self.dt / self.substeps > longest:
            raise ValueError(
                f"dt / substeps = {self.dt / self.substeps:g} s: the contacts of a legal system need at most "
                f"{longest:.3g} s, that is substeps ≥ {int(self.dt / longest) + 1}"
            )

    @cached_property
    def _scene(self) -> poke.Scene:
        return poke.Scene(
            self.dt,
            self.substeps,
            self.finger_mass,
            self.finger_radius + self.object_radius,
            self.arena - self.finger_radius,
            self.arena - self.object_radius,
            self.restitution,
        )

    def prepare(self, values: Array) -> poke.Coefficients:
        """Step constants for mass, drag and stiffness (N, 3)."""
        mass, drag, stiffness = (np.ascontiguousarray(column) for column in values.T)
        return poke.coefficients(mass, drag, stiffness, self.damping_ratio, self._scene)

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Object uniform in a square, finger at rest at a uniform distance in any direction, at times a launch."""
        px, py, distance, turn, launch, speed, heading = (np.ascontiguousarray(column) for column in u.T)
        state = np.zeros((len(u), 8), np.float64, order="F")
        state[:, 4] = self.start_extent * (2.0 * px - 1.0)
        state[:, 5] = self.start_extent * (2.0 * py - 1.0)
        distance = self.start_near + (self.start_far - self.start_near) * distance
        angle = (2.0 * np.pi) * turn
        for axis, offset in enumerate((distance * np.cos(angle), distance * np.sin(angle))):
            centre = state[:, 4 + axis]
            # A finger that would reach into a wall starts on the other side, at the same distance.
            inside = np.abs(centre + offset) <= self.arena - self.finger_radius
            state[:, axis] = np.where(inside, centre + offset, centre - offset)
        speed = self.launch_slow + (self.launch_fast - self.launch_slow) * speed
        speed = np.where(launch < self.launch_chance, speed, 0.0)
        state[:, 6] = speed * np.cos((2.0 * np.pi) * heading)
        state[:, 7] = speed * np.sin((2.0 * np.pi) * heading)
        return state

    def force(self, action: NDArray[np.float32]) -> Array:
        """Each component clipped to ±1, times `force_limit` newtons."""
        force = action.astype(np.float64, order="F")
        np.maximum(force, -1.0, out=force)
        np.minimum(force, 1.0, out=force)
        force *= self.force_limit
        return force

    def step(self, state: Array, force: Array, prepared: poke.Coefficients) -> tuple[Array, Extras]:
        """`substeps` semi-implicit steps; reports contact in any of them and the mean normal force, newtons."""
        after, contact, push = poke.step(state, force, prepared, self._scene)
        return after, {"contact": contact, "contact_force": push.astype(np.float32)}

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """−|object − goal| − 0.0001·|F|², of the object's place reached and the force applied."""
        x, y = after[:, 4] - self.goal_x, after[:, 5] - self.goal_y
        effort = force * force
        cost = 0.0001 * (effort[:, 0] + effort[:, 1])
        cost += np.sqrt(x * x + y * y)
        return np.negative(cost, out=cost)

    def constants_of_one(self, prepared: poke.Coefficients) -> tuple[Any, ...]:
        """The coefficients as numbers."""
        return tuple(c[0].tolist() for c in prepared)

    def step_one(self, state: Numbers, action: Numbers, constants: tuple[Any, ...]) -> Moved:
        """`force`, `step`, `reward` and `end` of one system."""
        limit, (a, b) = self.force_limit, action
        fx = (-1.0 if a < -1.0 else 1.0 if a > 1.0 else a) * limit
        fy = (-1.0 if b < -1.0 else 1.0 if b > 1.0 else b) * limit
        after, contact, push = poke.step_one(state, (fx, fy), constants, self._scene)
        x, y = after[4] - self.goal_x, after[5] - self.goal_y
        cost = 0.0001 * (fx * fx + fy * fy) + math.sqrt(x * x + y * y)
        return after, -cost, False, False, {"contact": contact, "contact_force": float(np.float32(push))}

    def end(self, after: Array, extras: Extras) -> Ending:
        """Never ends; every step reports the contact."""
        return Ending(info=extras)

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The goal's mark, the object and the finger; velocities and properties do not show in a frame."""
        radius = self._pixels(self.goal_radius, size)
        mark = _marks(len(state), self.goal_x, self.goal_y, radius, self.goal_grey, self.view_width, size)
        return [mark, self._object(state, self.object_grey, size), self._finger(state, self.finger_grey, size)]

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """In colour, with the arena's edge and a ring for the goal; the finger flashes while it presses the object."""
        n = len(state)
        edge = self.arena * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        corners = rendering.to_pixels(edge, self.view_width, size)[:, None].repeat(n, axis=1)
        walls = [
            rendering.segment(*ends, 1.5, 255, size) for ends in zip(corners, np.roll(corners, 1, axis=0), strict=True)
        ]
        place = rendering.to_pixels(np.repeat([[self.goal_x, self.goal_y]], n, axis=0), self.view_width, size)
        radius = self._pixels(self.object_radius, size)
        gap = state[:, 4:6] - state[:, :2]
        pressing = np.hypot(gap[:, 0], gap[:, 1]) < self.finger_radius + self.object_radius
        layers = [
            ([side for wall in walls for side in wall], (96, 104, 120)),
            ([rendering.disc(place, radius, 255, size)], (110, 190, 130)),
            ([rendering.disc(place, 0.8 * radius, 255, size)], (18, 20, 28)),
            ([self._object(state, 255, size)], (92, 150, 220)),
            ([self._finger(state, 255, size)], np.where(pressing[:, None, None], (255, 140, 70), (236, 236, 240))),
        ]
        return rendering.compose(layers, n, size)

    def _object(self, state: Array, grey: int, size: rendering.Size) -> rendering.Patch:
        centre = rendering.to_pixels(state[:, 4:6], self.view_width, size)
        return rendering.disc(centre, self._pixels(self.object_radius, size), grey, size)

    def _finger(self, state: Array, grey: int, size: rendering.Size) -> rendering.Patch:
        centre = rendering.to_pixels(state[:, :2], self.view_width, size)
        return rendering.disc(centre, self._pixels(self.finger_radius, size), grey, size)

    def _pixels(self, length: float, size: rendering.Size) -> float:
        return length * size[1] / self.view_width


@lru_cache(maxsize=8)
def _marks(
    n: int, x: float, y: float, radius: float, grey: int, view_width: float, size: rendering.Size
) -> rendering.Patch:
    """The goal's mark in n frames: it never moves, so it is rasterised once."""
    centre = rendering.to_pixels(np.repeat([[x, y]], n, axis=0), view_width, size)
    return rendering.disc(centre, radius, grey, size)


class PokeWorldEnv(WorldEnv, world=PokeWorld):
    """A finger pushes an object whose mass, drag and contact stiffness are hidden (`app:poke-profile`).

    ## Persistent properties

    | name        | symbol | unit    | range       | scale  | nominal | legal         |
    |-------------|--------|---------|-------------|--------|---------|---------------|
    | `mass`      | m      | kg      | [0.5, 3]    | log    | 1       | finite, ≥ 0.1 |
    | `drag`      | γ      | 1/s     | [0.5, 4]    | linear | 1       | finite, ≥ 0   |
    | `stiffness` | k      | N/m^1.5 | [500, 6000] | log    | 2000    | > 0, ≤ 60,000 |

    All three belong to the object.

    ## Action: `Box(-1, 1, (2,), float32)`

    | index | meaning                  | physical range |
    |-------|--------------------------|----------------|
    | 0     | force along x, on finger | −20 … 20 N     |
    | 1     | force along y, on finger | −20 … 20 N     |

    Components are clipped; NaN is refused.

    ## Observation

    `obs_type="pixels"` (default), uint8 (H, W, 2): the present grayscale frame and the previous one (equal at
    reset). A frame is the arena, 2 m wide, y up, black, with the finger (grey 240, radius 0.06 m), the object
    (grey 144, radius 0.09 m) and a dim dot at the goal (grey 64, radius 0.04 m); the brighter covers the darker.

    `obs_type="state"`, float32 (8,):

    | index | meaning                | unit | at reset                                            |
    |-------|------------------------|------|-----------------------------------------------------|
    | 0, 1  | finger position x, y   | m    | 0.35–0.60 from the object, any direction            |
    | 2, 3  | finger velocity vx, vy | m/s  | 0                                                   |
    | 4, 5  | object position x, y   | m    | uniform in ±0.35                                    |
    | 6, 7  | object velocity vx, vy | m/s  | 0, or (chance 0.25) speed 0.5–2.0, in any direction |

    ## Dynamics

    The finger (1 kg) has no drag; the object decelerates by γ·v. While the discs overlap by δ, a force
    max(0, k·δ^1.5 − 2ζ·√(k_loc·m_eff)·v_n) drives them apart, with ζ = 0.25, k_loc = 1.5·k·√δ, m_eff = m/(m + 1)
    and v_n the speed of separation. The walls at ±1 m give back half the speed. A step of 0.05 s is 20
    semi-implicit substeps.

    ## Reward

    −|object − goal| − 0.0001·|F|², of the object's position after the step and the clipped force in newtons; the
    goal is at (0.6, 0) m.

    ## Episode

    Never terminates; truncated after 63 transitions, so that an episode has 64 states.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system` (pins one, by all three values, as a `System`, or
    as an id of `systems`), `systems` (a `SystemSet` or `SystemDistribution` to draw from), `image_size` (int or
    (height, width)), and the physical constants, which are the fields of `PokeWorld`.

    ## Reset options and info

    `system` (values by name, a `System`, an id, "same"), `state` (8,); there is one kind of start, so no
    `query`. `info` at reset: `system_id`, `persistent` (3,) float64, `extrapolated`. `info` at every step:
    `contact`, whether the discs overlapped in any substep, and `contact_force`, the normal force averaged over
    the substeps, newtons.

    Version history: v0, first release. The full page is `docs/envs/poke_world.md`.
    """


class PokeWorldVectorEnv(WorldVectorEnv, world=PokeWorld):
    """N PokeWorld systems stepped and rendered by one array program; see `PokeWorldEnv` for the manual."""
