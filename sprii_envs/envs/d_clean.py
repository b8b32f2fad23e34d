"""D-Clean: a point mass with drag, driven by a planar force, integrated exactly (`app:dclean-profile`)."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.core import SpriiEnv, SpriiVectorEnv
from sprii_envs.physics import inertial
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import Array, Extras, World

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
    view_width: float = 8.0
    disc_radius: float = 0.2
    disc_grey: int = 224

    name: ClassVar[str] = "D-Clean"  # type: ignore[misc]
    properties: ClassVar[PersistentProperties] = PROPERTIES  # type: ignore[misc]
    state_names: ClassVar[tuple[str, ...]] = ("x", "y", "vx", "vy")  # type: ignore[misc]
    action_size: ClassVar[int] = 2  # type: ignore[misc]
    start_draws: ClassVar[int] = 4  # type: ignore[misc]
    max_episode_steps: ClassVar[int] = 63  # type: ignore[misc]

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        for name in ("dt", "mass", "force_limit", "view_width", "disc_radius"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} = {value!r}: it must be a finite number > 0")
        for name in ("start_extent", "start_speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} = {value!r}: it must be a finite number ≥ 0")
        if not 1 <= self.disc_grey <= 255:
            raise ValueError(f"disc_grey = {self.disc_grey!r}: it must be in [1, 255]")

    def prepare(self, values: Array) -> inertial.Coefficients:
        """Exact step coefficients for drag values (N, 1)."""
        drag = np.ascontiguousarray(values[:, 0])
        return inertial.coefficients(drag, np.full_like(drag, self.mass), self.dt)

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
        s, f = after * after, force * force
        cost = s[:, 2] + s[:, 3]
        cost *= 0.1
        cost += s[:, 0]
        cost += s[:, 1]
        effort = f[:, 0] + f[:, 1]
        effort *= 0.001
        cost += effort
        return np.negative(cost, out=cost)

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """One disc at the position; neither velocity nor drag shows in a frame."""
        centre = rendering.to_pixels(state[:, :2], self.view_width, size)
        return [rendering.disc(centre, self.disc_radius * size[1] / self.view_width, self.disc_grey, size)]


CONSTANTS = tuple(f.name for f in fields(DClean))


class DCleanEnv(SpriiEnv):
    """MANUAL"""

    def __init__(self, **kwargs: Any) -> None:
        """See the class docstring for the arguments."""
        super().__init__(DClean, **kwargs)


class DCleanVectorEnv(SpriiVectorEnv):
    """N D-Clean systems stepped and rendered by one array program; see `DCleanEnv` for the manual."""

    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        """See `DCleanEnv` for the arguments and `SpriiVectorEnv` for resets."""
        super().__init__(DClean, num_envs, **kwargs)
