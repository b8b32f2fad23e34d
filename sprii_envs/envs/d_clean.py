"""D-Clean: a point mass with drag, driven by a planar force, integrated exactly (`app:dclean-profile`)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.physics import inertial
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import Array, Extras, Moved, Numbers, World, check_constants

PROPERTIES = PersistentProperties(
    [
        PersistentProperty(
            name="drag",
            symbol="γ",
            unit="1/s",
            low=0.5,
            high=4.0,
            nominal=1.0,
            description="rate at which the velocity decays without force",
        )
    ]
)


@dataclass(frozen=True, kw_only=True)
class DClean(World):
    """The pure functions of D-Clean; the fields are its physical constants, in SI units."""

    dt: float = 0.05
    mass: float = 1.0
    force_limit: float = 4.0
    start_extent: float = 1.0
    start_speed: float = 2.0
    view_width: float = 6.0
    disc_radius: float = 0.15
    disc_grey: int = 224

    name: ClassVar[str] = "D-Clean"
    properties: ClassVar[PersistentProperties] = PROPERTIES
    state_names: ClassVar[tuple[str, ...]] = ("x", "y", "vx", "vy")
    action_size: ClassVar[int] = 2
    start_draws: ClassVar[int] = 4
    max_episode_steps: ClassVar[int] = 63

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        check_constants(self, ("dt", "mass", "force_limit", "view_width", "disc_radius"), above=0.0)
        check_constants(self, ("start_extent", "start_speed"), least=0.0)
        check_constants(self, ("disc_grey",), least=1.0, most=255.0)

    def prepare(self, values: Array) -> inertial.Coefficients:
        """Exact step coefficients for drag values (N, 1)."""
        drag = np.ascontiguousarray(values[:, 0])
        each = inertial.coefficients(drag, np.full_like(drag, self.mass), self.dt)
        # One column for x, one for y: equal shapes spare NumPy the broadcast, half the cost of a small step.
        return inertial.Coefficients(*(np.asfortranarray(np.repeat(c, 2, axis=1)) for c in each))

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Position uniform in ±`start_extent`, speed uniform in [0, `start_speed`], any direction."""
        px, py, speed, turn = (np.ascontiguousarray(column) for column in u.T)
        speed, angle = self.start_speed * speed, (2.0 * np.pi) * turn
        state = np.empty((len(u), 4), np.float64, order="F")
        state[:, 0] = self.start_extent * (2.0 * px - 1.0)
        state[:, 1] = self.start_extent * (2.0 * py - 1.0)
        state[:, 2] = speed * np.cos(angle)
        state[:, 3] = speed * np.sin(angle)
        return state

    def force(self, action: NDArray[np.float32]) -> Array:
        """Each component clipped to ±1, times `force_limit` newtons."""
        force = action.astype(np.float64, order="F")
        np.maximum(force, -1.0, out=force)
        np.minimum(force, 1.0, out=force)
        force *= self.force_limit
        return force

    def step(self, state: Array, force: Array, prepared: inertial.Coefficients) -> tuple[Array, Extras]:
        """One exact step of `dt`."""
        return inertial.step(state, force, prepared), {}

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """−(|x|² + 0.1·|v|² + 0.001·|F|²) of the state reached and the force applied."""
        squares, effort = after * after, force * force
        cost = 0.1 * squares[:, 2:]
        cost += squares[:, :2]
        effort *= 0.001
        cost += effort
        total = cost[:, 0] + cost[:, 1]
        return np.negative(total, out=total)

    def constants_of_one(self, prepared: inertial.Coefficients) -> tuple[float, ...]:
        """Decay, travel, kick and shift."""
        return tuple(float(c[0, 0]) for c in prepared)

    def step_one(self, state: Numbers, action: Numbers, constants: tuple[float, ...]) -> Moved:
        """`force`, `step` and `reward` of one system."""
        fx, fy = (self.force_limit * (-1.0 if a < -1.0 else 1.0 if a > 1.0 else a) for a in action)
        x, y, vx, vy = after = inertial.step_one(state, (fx, fy), constants)
        along, across = 0.1 * (vx * vx) + x * x + fx * fx * 0.001, 0.1 * (vy * vy) + y * y + fy * fy * 0.001
        return after, -(along + across), False, False, {}

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """One disc at the position; neither velocity nor drag shows in a frame."""
        centre = rendering.to_pixels(state[:, :2], self.view_width, size)
        return [rendering.disc(centre, self.disc_radius * size[1] / self.view_width, self.disc_grey, size)]


class DCleanEnv(WorldEnv, world=DClean):
    """A point mass in a viscous plane, pushed by a planar force (`app:dclean-profile`).

    ## Persistent property

    | name   | symbol | unit | range    | scale  | nominal | legal       |
    |--------|--------|------|----------|--------|---------|-------------|
    | `drag` | γ      | 1/s  | [0.5, 4] | linear | 1       | finite, ≥ 0 |

    ## Action: `Box(-1, 1, (2,), float32)`

    | index | meaning        | physical range |
    |-------|----------------|----------------|
    | 0     | force along x  | −4 … 4 N       |
    | 1     | force along y  | −4 … 4 N       |

    Components are clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (4,):

    | index | meaning         | unit | at reset                               |
    |-------|-----------------|------|----------------------------------------|
    | 0, 1  | position x, y   | m    | uniform in ±1                          |
    | 2, 3  | velocity vx, vy | m/s  | speed uniform in [0, 2], any direction |

    `obs_type="pixels"`, uint8 (H, W, 2): the present grayscale frame and the previous one (equal at reset); a
    disc of radius 0.15 m in a view 6 m wide, y up, black once it leaves the view.

    ## Dynamics

    dv/dt = F/m − γ·v with m = 1 kg, solved in closed form for a force constant over dt = 0.05 s.

    ## Reward

    −(|x|² + 0.1·|v|² + 0.001·|F|²) of the state after the step and the clipped force in newtons.

    ## Episode

    Never terminates; truncated after 63 transitions, so that an episode has 64 states.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system` (pins one: `{"drag": 2.0}`, a `System`, an id
    of `systems`), `systems` (a `SystemSet` or `SystemDistribution` to draw from), `image_size` (int or
    (height, width)), and the physical constants, which are the fields of `DClean`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (4,); there is one kind of start, so no
    `query`. `info` at reset: `system_id`, `persistent` (1,) float64, `extrapolated`.

    Version history: v0, first release. The full page is `docs/envs/d_clean.md`.
    """


class DCleanVectorEnv(WorldVectorEnv, world=DClean):
    """N D-Clean systems stepped and rendered by one array program; see `DCleanEnv` for the manual."""
