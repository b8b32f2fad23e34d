"""Pendulum: a torque swings up a rod whose mass and length persist (`app:pendulum-profile`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.physics import pendulum
from sprii_envs.properties import PersistentProperties, PersistentProperty, SystemDistribution
from sprii_envs.world import Array, Extras, Moved, Numbers, World, check_constants

PROPERTIES = PersistentProperties(
    [
        PersistentProperty(
            name="mass",
            symbol="m",
            unit="kg",
            low=0.75,
            high=1.25,
            nominal=1.0,
            physical_low=0.01,
            description="mass of the rod; divides what a torque does",
        ),
        PersistentProperty(
            name="length",
            symbol="l",
            unit="m",
            low=0.75,
            high=1.25,
            nominal=1.0,
            physical_low=0.01,
            description="length of the rod; sets how fast gravity turns it and, squared, what a torque does",
        ),
    ]
)

_ID_LEVELS = tuple(hundredths / 100 for hundredths in range(75, 130, 5))


def _group(mass: Sequence[float], length: Sequence[float]) -> SystemDistribution:
    return SystemDistribution(PROPERTIES, {"mass": mass, "length": length})


GROUPS: Mapping[str, SystemDistribution] = MappingProxyType(
    {
        "ID": _group(_ID_LEVELS, _ID_LEVELS),
        "OOD_c0": _group((0.2, 0.4), (1.6, 1.8)),
        "OOD_c1": _group((0.5, 0.7), (1.3, 1.5)),
        "OOD_c2": _group((1.3, 1.5), (0.5, 0.7)),
        "OOD_c3": _group((1.6, 1.8), (0.2, 0.4)),
    }
)
"""The published groups of systems: mass and length each drawn from a list, independently."""


@dataclass(frozen=True, kw_only=True)
class Pendulum(World):
    """The pure functions of Pendulum; the fields are its physical constants, in SI units."""

    dt: float = 0.05
    gravity: float = 10.0
    torque_limit: float = 2.0
    speed_limit: float = 8.0
    start_angle: float = math.pi / 8
    start_speed: float = 0.2
    view_width: float = 2.6
    drawn_length: float = 1.0
    rod_radius: float = 0.06
    rod_grey: int = 128
    bob_radius: float = 0.16
    bob_grey: int = 224
    pivot_radius: float = 0.12
    pivot_grey: int = 48

    name: ClassVar[str] = "Pendulum"
    properties: ClassVar[PersistentProperties] = PROPERTIES
    groups: ClassVar[Mapping[str, SystemDistribution]] = GROUPS
    state_names: ClassVar[tuple[str, ...]] = ("angle", "velocity")
    action_size: ClassVar[int] = 1
    start_draws: ClassVar[int] = 2
    max_episode_steps: ClassVar[int] = 200

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        positive = ("dt", "torque_limit", "speed_limit", "view_width", "drawn_length")
        check_constants(self, (*positive, "rod_radius", "bob_radius", "pivot_radius"), above=0.0)
        check_constants(self, ("gravity",), least=0.0)
        check_constants(self, ("start_angle",), least=0.0, most=math.pi)
        check_constants(self, ("start_speed",), least=0.0, most=self.speed_limit)
        check_constants(self, ("rod_grey", "bob_grey", "pivot_grey"), least=1.0, most=255.0)

    def prepare(self, values: Array) -> pendulum.Coefficients:
        """Step coefficients for (mass, length) (N, 2)."""
        return pendulum.coefficients(values[:, 0], values[:, 1], self.gravity, self.dt)

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Hanging: angle uniform within `start_angle` of π, velocity uniform in ±`start_speed`."""
        state = np.empty((len(u), 2), np.float64, order="F")
        state[:, 0] = math.pi + self.start_angle * (2.0 * u[:, 0] - 1.0)
        state[:, 1] = self.start_speed * (2.0 * u[:, 1] - 1.0)
        return state

    def check_state(self, state: ArrayLike, n: int) -> Array:
        """As in `World`, and the velocity within ±`speed_limit`, which no step leaves."""
        full = super().check_state(state, n)
        beyond = np.abs(full[:, 1]) > self.speed_limit
        if beyond.any():
            row, limit = int(np.argmax(beyond)), self.speed_limit
            where = f" of slot {row}" if n > 1 else ""
            raise ValueError(
                f"state component 'velocity'{where} = {float(full[row, 1])!r}: it must be in [{-limit:g}, {limit:g}]"
            )
        return full

    def force(self, action: NDArray[np.float32]) -> Array:
        """The torque in N·m, (N, 1): the action clipped to ±1, times `torque_limit`."""
        torque = action.astype(np.float64, order="F")
        np.maximum(torque, -1.0, out=torque)
        np.minimum(torque, 1.0, out=torque)
        torque *= self.torque_limit
        return torque

    def step(self, state: Array, force: Array, prepared: pendulum.Coefficients) -> tuple[Array, Extras]:
        """One step of `dt`."""
        return pendulum.step(state, force[:, 0], prepared, self.dt, self.speed_limit), {}

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """−(θ² + 0.1·θ̇² + 0.001·a²) of the state *before* the step, θ wrapped, a the clipped normalised action."""
        cost = pendulum.wrap(state[:, 0])
        cost *= cost
        velocity, torque = state[:, 1], force[:, 0]
        square = velocity * velocity
        square *= 0.1
        cost += square
        np.multiply(torque, torque, out=square)
        square *= 0.001 / (self.torque_limit * self.torque_limit)
        cost += square
        return np.negative(cost, out=cost)

    def constants_of_one(self, prepared: pendulum.Coefficients) -> tuple[float, float]:
        """Velocity gained at sin θ = 1, and per newton metre."""
        return float(prepared.gravity[0]), float(prepared.torque[0])

    def step_one(self, state: Numbers, action: Numbers, constants: tuple[float, float]) -> Moved:
        """`force`, `step` and `reward` of one system."""
        (angle, velocity), (a,), limit = state, action, self.torque_limit
        torque = (-1.0 if a < -1.0 else 1.0 if a > 1.0 else a) * limit
        after = pendulum.step_one(angle, velocity, torque, constants, self.dt, self.speed_limit)
        turned = pendulum.wrap_one(angle)
        cost = turned * turned + velocity * velocity * 0.1 + torque * torque * (0.001 / (limit * limit))
        return after, -cost, False, False, {}

    def observe_one(self, state: Numbers) -> Numbers:
        """(cos θ, sin θ, θ̇)."""
        angle, velocity = state
        return np.cos(angle), np.sin(angle), velocity

    def success(self, states: Array) -> NDArray[np.bool_] | None:
        """Upright, within 60°, in all of the last 100 states; None of shorter episodes, which cannot show it."""
        return pendulum.success(states) if states.shape[1] > 100 else None

    def observe(self, state: Array) -> NDArray[np.float32]:
        """(cos θ, sin θ, θ̇), (N, 3) float32."""
        observation = np.empty((len(state), 3), np.float32)
        observation[:, 0] = np.cos(state[:, 0])
        observation[:, 1] = np.sin(state[:, 0])
        observation[:, 2] = state[:, 1]
        return observation

    @property
    def observation_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """±(1, 1, `speed_limit`)."""
        high = np.array([1.0, 1.0, self.speed_limit], np.float32)
        return -high, high

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """Pivot, rod and bob at `drawn_length` whatever the real length; neither velocity nor system shows."""
        tip = np.full(len(state), self.drawn_length)
        scale = size[1] / self.view_width
        centre, end = self._ends(state, tip, self.view_width, size)
        return [
            rendering.disc(centre, self.pivot_radius * scale, self.pivot_grey, size),
            *rendering.segment(centre, end, self.rod_radius * scale, self.rod_grey, size),
            rendering.disc(end, self.bob_radius * scale, self.bob_grey, size),
        ]

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """For people, with the system as an overlay: the rod as long as it is, the redder the heavier it is.

        Lengths are to scale in a view 4 m wide and shades go from 0.2 to 1.8 kg; beyond either, the nearest is drawn.
        """
        n, block = len(state), max(2**16 // (size[0] * size[1]), 1)  # what is mixed stays in the cache
        if n > block:
            parts = [slice(i, i + block) for i in range(0, n, block)]
            return np.concatenate([self.picture(state[part], values[part], size) for part in parts])
        view = 4.0
        scale = size[1] / view
        centre, end = self._ends(state, np.minimum(values[:, 1], 1.9), view, size)
        # One shape in every picture: its coverage mixes a colour of each system's own into what is below.
        frame = np.full((n, *size, 3), (18.0, 20.0, 28.0), np.float32)
        heavy = np.clip((values[:, 0, None] - 0.2) / 1.6, 0.0, 1.0)
        shade = (1.0 - heavy) * (120, 200, 250) + heavy * (235, 70, 50)
        for patches, colour in (
            ([rendering.disc(centre, 1.0 * scale, 255, size)], np.full((n, 3), (32, 36, 48))),
            (rendering.segment(centre, end, 0.1 * scale, 255, size), shade),
            ([rendering.disc(centre, 0.05 * scale, 255, size)], np.full((n, 3), (18, 20, 28))),
        ):
            cover = rendering.draw(patches, n, size)
            rows, columns = (np.flatnonzero(cover.any(axes)) for axes in ((0, 2), (0, 1)))
            if not len(rows):
                continue
            box = slice(None), slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            under = frame[box]
            under += cover[box][..., None] * np.float32(1 / 255) * (colour[:, None, None].astype(np.float32) - under)
        return (frame + 0.5).astype(np.uint8)

    @staticmethod
    def _ends(state: Array, length: Array, view_width: float, size: rendering.Size) -> tuple[Array, Array]:
        """Pivot and tip in pixels, (N, 2) each; a positive angle turns to the left, as in Gymnasium."""
        tip = np.stack((-length * np.sin(state[:, 0]), length * np.cos(state[:, 0])), axis=1)
        return rendering.to_pixels(np.zeros_like(tip), view_width, size), rendering.to_pixels(tip, view_width, size)


class PendulumEnv(WorldEnv, world=Pendulum):
    """Swing up a rod and hold it upright; its mass and length persist (`app:pendulum-profile`).

    ## Persistent properties

    | name     | symbol | unit | range        | scale  | nominal | legal       |
    |----------|--------|------|--------------|--------|---------|-------------|
    | `mass`   | m      | kg   | [0.75, 1.25] | linear | 1       | ≥ 0.01      |
    | `length` | l      | m    | [0.75, 1.25] | linear | 1       | ≥ 0.01      |

    ## Groups of systems

    `systems="OOD_c3"`, or `systems=GROUPS["OOD_c3"]`; mass and length are drawn independently from lists:

    | group          | mass                | length              | systems |
    |----------------|---------------------|---------------------|---------|
    | `ID` (default) | 0.75, 0.80, …, 1.25 | 0.75, 0.80, …, 1.25 | 121     |
    | `OOD_c0`       | 0.2, 0.4            | 1.6, 1.8            | 4       |
    | `OOD_c1`       | 0.5, 0.7            | 1.3, 1.5            | 4       |
    | `OOD_c2`       | 1.3, 1.5            | 0.5, 0.7            | 4       |
    | `OOD_c3`       | 1.6, 1.8            | 0.2, 0.4            | 4       |

    ## Action: `Box(-1, 1, (1,), float32)`

    | index | meaning                      | physical range |
    |-------|------------------------------|----------------|
    | 0     | torque, positive to the left | −2 … 2 N·m     |

    Clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (3,):

    | index | meaning  | unit  | bounds | at reset                      |
    |-------|----------|-------|--------|-------------------------------|
    | 0     | cos θ    | 1     | ±1     | θ uniform in [7π/8, 9π/8]     |
    | 1     | sin θ    | 1     | ±1     |                               |
    | 2     | θ̇        | rad/s | ±8     | uniform in ±0.2               |

    θ = 0 is upright and θ = π hangs. `obs_type="pixels"`, uint8 (H, W, 2): the present grayscale frame and the previous
    one (equal at reset); a rod drawn 1 m long in a view 2.6 m wide, whatever its real length.

    ## Dynamics

    θ̈ = 3g/(2l)·sin θ + 3·torque/(m·l²) with g = 10 m/s², dt = 0.05 s. The velocity is stepped first, the angle advances
    with the new velocity, and then the velocity is clipped to ±8 rad/s. The state is (θ, θ̇), θ unwrapped.

    ## Reward

    −(θ² + 0.1·θ̇² + 0.001·a²) of the state *before* the step, θ wrapped into (−π, π], a the clipped action in [−1, 1].

    ## Episode

    Never terminates; truncated after 200 transitions. `sprii_envs.physics.pendulum.success` says whether an episode
    solved the task: the last 100 states all within 60° of upright.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system` (pins one: `{"mass": 1.0, "length": 0.8}`, a `System`, an
    id of `systems`), `systems` (a group's name, a `SystemSet` or a `SystemDistribution` to draw from), `image_size`
    (int or (height, width)), and the physical constants, which are the fields of `Pendulum`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (2,): θ and θ̇, |θ̇| ≤ 8; there is one kind of start, so
    no `query`. `info` at reset: `system_id`, `persistent` (2,) float64, `extrapolated`.

    Version history: v0, first release. The full page is `docs/envs/pendulum.md`.
    """


class PendulumVectorEnv(WorldVectorEnv, world=Pendulum):
    """N pendulums stepped and rendered by one array program; see `PendulumEnv` for the manual."""
