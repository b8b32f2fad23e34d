"""SpringWorld: two balls and a spring in the plane, seen from above (`app:spring-profile`)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.physics import spring
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import Array, Ending, Extras, Moved, Numbers, World, check_constants

PROPERTIES = PersistentProperties(
    [
        PersistentProperty(
            name="mass",
            symbol="m",
            unit="kg",
            low=0.5,
            high=2.0,
            nominal=1.0,
            physical_low=0.01,
            description="mass of each ball",
        ),
        PersistentProperty(
            name="drag",
            symbol="γ",
            unit="1/s",
            low=0.25,
            high=1.5,
            nominal=0.75,
            physical_high=200.0,
            description="rate at which velocities decay without force",
        ),
        PersistentProperty(
            name="stiffness",
            symbol="k",
            unit="N/m",
            low=4.0,
            high=25.0,
            nominal=12.0,
            physical_high=2000.0,
            description="spring constant; moves the separation only, never the centre",
        ),
    ]
)

STRAIN = 0.08
"""Largest initial strain, a fraction of the rest length."""
_KINDS: dict[str, tuple[tuple[float, ...], tuple[float, float], float]] = {
    # (strains drawn from, common speed from … to in m/s, extent of the centre in m)
    "forced": ((-STRAIN, -0.5 * STRAIN, 0.5 * STRAIN, STRAIN), (0.0, 0.0), 0.08),
    "mass": ((0.0,), (0.0, 0.0), 0.08),
    "free": ((-STRAIN, STRAIN), (0.0, 0.0), 0.08),
    "glide": ((0.0,), (0.1, 0.17), 0.08),
    "static": ((0.0,), (0.0, 0.0), 0.08),
    "cold": ((0.0,), (0.0, 0.0), 0.06),
    "moving": ((-STRAIN, STRAIN), (0.01, 0.04), 0.08),
}
DRIFT_TURN = 0.5
"""From the spring's direction to the common velocity of `glide` and `moving`, in radians."""


@dataclass(frozen=True, kw_only=True)
class SpringWorld(World):
    """The pure functions of SpringWorld; the fields are its physical constants, in SI units."""

    dt: float = 0.05
    rest_length: float = 0.35
    force_limit: float = 1.0
    view_width: float = 2.0
    view_margin: float = 0.05
    closest: float = 0.12
    disc_radius: float = 0.05
    line_radius: float = 0.0078
    first_grey: int = 96
    second_grey: int = 224
    line_grey: int = 40

    name: ClassVar[str] = "SpringWorld"
    properties: ClassVar[PersistentProperties] = PROPERTIES
    state_names: ClassVar[tuple[str, ...]] = ("x1", "y1", "x2", "y2", "vx1", "vy1", "vx2", "vy2")
    action_size: ClassVar[int] = 2
    start_draws: ClassVar[int] = 6
    queries: ClassVar[tuple[str, ...]] = tuple(_KINDS)
    endings: ClassVar[tuple[str, ...]] = ("out of view", "too close")
    max_episode_steps: ClassVar[int] = 95
    obs_type: ClassVar[str] = "pixels"
    image_size: ClassVar[int] = 128

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        check_constants(
            self, ("dt", "rest_length", "force_limit", "view_width", "disc_radius", "line_radius"), above=0.0
        )
        check_constants(self, ("dt",), above=0.0, most=1.0)
        check_constants(self, ("view_margin", "closest"), least=0.0)
        check_constants(self, ("first_grey", "second_grey", "line_grey"), least=1.0, most=255.0)

    def prepare(self, values: Array) -> spring.Coefficients:
        """Step coefficients for (mass, drag, stiffness) (N, 3)."""
        mass, drag, stiffness = (np.ascontiguousarray(column) for column in values.T)
        return spring.coefficients(mass, drag, stiffness, self.rest_length, self.dt)

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Any orientation, strain and common velocity by kind of start; without a kind, a mixture of all."""
        x, y, turn, strain, speed, heading = (np.ascontiguousarray(column) for column in u.T)
        if query is None:
            extent, strain, speed = 0.08, STRAIN * (2.0 * strain - 1.0), 0.17 * speed
        else:
            strains, (slowest, fastest), extent = _KINDS[query]
            strain = np.array(strains)[(strain * len(strains)).astype(np.intp)]
            speed = slowest + (fastest - slowest) * speed
        half = 0.5 * self.rest_length * (1.0 + strain)
        turn = (2.0 * np.pi) * turn
        heading = (2.0 * np.pi) * heading if query is None else turn + DRIFT_TURN
        x, y = extent * (2.0 * x - 1.0), extent * (2.0 * y - 1.0)
        dx, dy = half * np.cos(turn), half * np.sin(turn)
        vx, vy = speed * np.cos(heading), speed * np.sin(heading)
        state = np.empty((len(u), 8), np.float64, order="F")
        for i, column in enumerate((x - dx, y - dy, x + dx, y + dy, vx, vy, vx, vy)):
            state[:, i] = column
        return state

    def force(self, action: NDArray[np.float32]) -> Array:
        """The action, shortened to norm 1 where it is longer, times `force_limit` newtons."""
        force = action.astype(np.float64, order="F")
        np.maximum(force, -1e100, out=force)  # an infinite action has a direction too
        np.minimum(force, 1e100, out=force)
        norm = np.sqrt(force[:, 0] * force[:, 0] + force[:, 1] * force[:, 1])
        scale = self.force_limit / np.maximum(norm, 1.0)
        force *= scale[:, None]
        return force

    def step(self, state: Array, force: Array, prepared: spring.Coefficients) -> tuple[Array, Extras]:
        """One step of `dt`, within 2e-9 of the exact solution after 96 steps."""
        return spring.step(state, force, prepared, self.dt), {}

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """−(|centre|² + 0.1·(|v1|² + |v2|²) + 0.001·|F|²) of the state reached and the force applied."""
        cx, cy = 0.5 * (after[:, 0] + after[:, 2]), 0.5 * (after[:, 1] + after[:, 3])
        squares, effort = after[:, 4:] * after[:, 4:], force * force
        speeds = squares[:, 0] + squares[:, 1] + squares[:, 2] + squares[:, 3]
        return -(cx * cx + cy * cy + 0.1 * speeds + 0.001 * (effort[:, 0] + effort[:, 1]))

    def constants_of_one(self, prepared: spring.Coefficients) -> tuple[Any, ...]:
        """The coefficients as numbers, and the substeps."""
        return spring.numbers_of_one(prepared)

    def step_one(self, state: Numbers, action: Numbers, constants: Any) -> Moved:
        """`force`, `step`, `reward` and `end` of one system."""
        fx, fy = (-1e100 if a < -1e100 else 1e100 if a > 1e100 else a for a in action)
        scale = self.force_limit / max(math.sqrt(fx * fx + fy * fy), 1.0)
        fx, fy = fx * scale, fy * scale
        after = x1, y1, x2, y2, *velocities = spring.step_one(state, (fx, fy), constants, self.dt)
        cx, cy, (a, b, c, d) = 0.5 * (x1 + x2), 0.5 * (y1 + y2), velocities
        speeds = a * a + b * b + c * c + d * d
        reward = -(cx * cx + cy * cy + 0.1 * speeds + 0.001 * (fx * fx + fy * fy))
        limit, dx, dy = 0.5 * self.view_width - self.disc_radius - self.view_margin, x2 - x1, y2 - y1
        if abs(x1) > limit or abs(y1) > limit or abs(x2) > limit or abs(y2) > limit:
            return after, reward, False, True, {"reason": "out of view"}
        if dx * dx + dy * dy <= self.closest * self.closest:
            return after, reward, False, True, {"reason": "too close"}
        return after, reward, False, False, {}

    def end(self, after: Array, extras: Extras) -> Ending:
        """Truncated once a disc comes within `view_margin` of the frame's edge, or the balls within `closest`."""
        limit = 0.5 * self.view_width - self.disc_radius - self.view_margin
        beyond = np.abs(after[:, :4]) > limit
        dx, dy = after[:, 2] - after[:, 0], after[:, 3] - after[:, 1]
        close = dx * dx + dy * dy <= self.closest * self.closest
        if not (np.count_nonzero(beyond) or np.count_nonzero(close)):
            return Ending()
        out = beyond[:, 0] | beyond[:, 1] | beyond[:, 2] | beyond[:, 3]
        reason = np.full(len(after), None, object)
        reason[close], reason[out] = "too close", "out of view"
        return Ending(truncated=out | close, info={"reason": reason})

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The spring as a thin line, ball 1 and ball 2 as discs; no velocity and no property shows."""
        first, second = self._pixels(state, size)
        scale = size[1] / self.view_width
        return [
            *rendering.segment(first, second, self.line_radius * scale, self.line_grey, size),
            *rendering.discs((first, second), self.disc_radius * scale, (self.first_grey, self.second_grey), size),
        ]

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """Coloured; the spring is as thick as it is stiff and the balls as large as they are heavy (area ~ mass)."""
        first, second = self._pixels(state, size)
        scale = size[1] / self.view_width
        layers = []
        for i in range(len(state)):  # radii differ by system; people look at a few
            mass, _, stiffness = values[i]
            one, two = first[i : i + 1], second[i : i + 1]
            radius = self.disc_radius * scale * float(np.clip(np.sqrt(mass), 0.5, 2.0))
            thick = scale * (0.004 + 0.0006 * float(np.clip(stiffness, 0.0, 50.0)))
            layers.append(
                rendering.compose(
                    [
                        (rendering.segment(one, two, thick, 255, size), (120, 130, 150)),
                        ([rendering.disc(one, radius, 255, size)], (70, 150, 240)),
                        ([rendering.disc(two, radius, 255, size)], (250, 170, 70)),
                    ],
                    1,
                    size,
                )
            )
        return np.concatenate(layers)

    def _pixels(self, state: Array, size: rendering.Size) -> tuple[Array, Array]:
        both = rendering.to_pixels(state[:, :4].reshape(-1, 2), self.view_width, size)
        return both[0::2], both[1::2]


class SpringWorldEnv(WorldEnv, world=SpringWorld):
    """Two equal balls joined by a spring slide in a viscous plane; a force acts on ball 1 (`app:spring-profile`).

    ## Persistent properties

    | name        | symbol | unit | range      | scale  | nominal | legal       |
    |-------------|--------|------|------------|--------|---------|-------------|
    | `mass`      | m      | kg   | [0.5, 2]   | linear | 1       | ≥ 0.01      |
    | `drag`      | γ      | 1/s  | [0.25, 1.5]| linear | 0.75    | 0 … 200     |
    | `stiffness` | k      | N/m  | [4, 25]    | linear | 12      | 0 … 2000    |

    ## Action: `Box(-1, 1, (2,), float32)`

    | index | meaning                     | physical range |
    |-------|-----------------------------|----------------|
    | 0, 1  | force on ball 1 along x, y  | norm ≤ 1 N     |

    Actions of norm above 1 are shortened to norm 1; NaN is refused.

    ## Observation

    `obs_type="pixels"` (default), uint8 (H, W, 2), 128×128 unless `image_size` says otherwise: the present
    grayscale frame and the previous one (equal at reset). View 2 m wide, y up; discs of radius 0.05 m in grey 96
    (ball 1) and 224 (ball 2), the spring a thin line of grey 40.

    `obs_type="state"`, float32 (8,):

    | index | meaning                        | unit |
    |-------|--------------------------------|------|
    | 0, 1  | position of ball 1             | m    |
    | 2, 3  | position of ball 2             | m    |
    | 4, 5  | velocity of ball 1             | m/s  |
    | 6, 7  | velocity of ball 2             | m/s  |

    ## Dynamics

    m·a1 = F + spring − m·γ·v1, m·a2 = −spring − m·γ·v2, a spring of rest length 0.35 m, no walls, dt = 0.05 s. The
    centre is exact and independent of k; the separation is within 2e-9 of the exact solution after 96 steps.

    ## Reward

    −(|centre|² + 0.1·(|v1|² + |v2|²) + 0.001·|F|²) of the state after the step and the force in newtons.

    ## Start

    Any orientation; centre uniform within ±0.08 m. `options={"query": kind}` chooses a kind of start:

    | kind      | strain (of 0.35 m) | common velocity   | centre   |
    |-----------|--------------------|-------------------|----------|
    | (none)    | uniform in ±0.08   | up to 0.17 m/s    | ±0.08 m  |
    | `forced`  | ±0.04 or ±0.08     | 0                 | ±0.08 m  |
    | `mass`    | 0                  | 0                 | ±0.08 m  |
    | `free`    | ±0.08              | 0                 | ±0.08 m  |
    | `glide`   | 0                  | 0.1 to 0.17 m/s   | ±0.08 m  |
    | `static`  | 0                  | 0                 | ±0.08 m  |
    | `cold`    | 0                  | 0                 | ±0.06 m  |
    | `moving`  | ±0.08              | 0.01 to 0.04 m/s  | ±0.08 m  |

    The common velocity of a kind is 0.5 rad from the direction of ball 1 to ball 2.

    ## Episode

    Never terminates. Truncated after 95 transitions (96 states, 4.75 s), or once the state is no longer *valid*: a disc
    within 0.05 m of the frame's edge ("out of view"), or the balls' centres within 0.12 m ("too close"); then
    `info["reason"]` says which.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system` (pins one), `systems` (a `SystemSet` or
    `SystemDistribution` to draw from), `image_size` (int or (height, width)), and the physical constants, which are the
    fields of `SpringWorld`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (8,), `query` (a kind of start). `info` at reset:
    `system_id`, `persistent` (3,) float64, `extrapolated`.

    Version history: v0, first release; the drifts of `glide` and `moving` were faster and in any direction at first.
    The full page is `docs/envs/spring_world.md`.
    """


class SpringWorldVectorEnv(WorldVectorEnv, world=SpringWorld):
    """N SpringWorld systems stepped and rendered by one array program; see `SpringWorldEnv` for the manual."""
