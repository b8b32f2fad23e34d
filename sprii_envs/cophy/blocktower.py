"""Blocktower: three or four cubes on each other, which stand or fall, under a gravity that is not quite vertical."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sprii_envs.cophy import objects
from sprii_envs.cophy.contacts import Bodies, state_of, yaw
from sprii_envs.cophy.objects import HALF_SIDE
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.mujoco.edits import Edit, assign
from sprii_envs.properties import PersistentProperty
from sprii_envs.world import Array

BASE = 1.0
"""m; the lowest cube starts uniform in ± it along x and y; as published."""
OFFSET = 0.6
"""m; every other cube is uniform in ± it off the one below, along x and y; as published."""
FALLEN = 0.1
"""m; a tower in which the heights change by less in sum is stable; as published."""


@dataclass(frozen=True, kw_only=True)
class Blocktower(Bodies, scene="blocktower", shapes=("box",) * 3):
    """The pure functions of Blocktower."""

    rebounds: ClassVar[bool] = False
    draws: ClassVar[int] = 3
    time_step: ClassVar[float] = 0.004
    max_episode_steps: ClassVar[int] = objects.FRAMES["blocktower"] - 1
    more_properties: ClassVar[tuple[PersistentProperty, ...]] = tuple(
        PersistentProperty(
            name=f"gravity_{axis}",
            symbol=f"g{axis}",
            unit="m/s²",
            low=min(objects.LEVELS["blocktower"][f"gravity_{axis}"]),
            high=max(objects.LEVELS["blocktower"][f"gravity_{axis}"]),
            nominal=0.0,
            physical_low=-10.0,
            physical_high=10.0,
            description=f"gravity along {axis}",
        )
        for axis in "xy"
    )
    more_edits: ClassVar[Mapping[str, Edit]] = {
        "gravity_x": assign("opt.gravity", column=0),
        "gravity_y": assign("opt.gravity", column=1),
    }

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """A tower at rest: object 0 on the ground, every other on the one before."""
        n, k = len(u), len(self.shapes)
        each = u.reshape(n, k, 3)
        place = np.empty((n, k, 3))
        shift = np.where(np.arange(k)[:, None] == 0, BASE, OFFSET) * (2.0 * each[..., :2] - 1.0)
        place[..., :2] = np.cumsum(shift, axis=1)
        place[..., 2] = HALF_SIDE * (2.0 * np.arange(k) + 1.0)
        return state_of(place, np.zeros((n, k, 3)), yaw(2.0 * math.pi * each[..., 2]))


def stable(heights: Array) -> Array:
    """Whether towers stand throughout, (N,) bool, by their heights (N, T, K), m."""
    change = heights[:, -1] - heights[:, 0]
    return np.abs(change).sum(axis=-1) < FALLEN


class BlocktowerEnv(WorldEnv, world=Blocktower):
    """CoPhy's Blocktower: three cubes; their masses and frictions and the gravity persist (`app:cophy-profile`).

    Needs MuJoCo: `pip install mujoco`, or the extra `mujoco`.

    ## Persistent properties

    | name                          | symbol   | unit | range       | levels       | nominal | legal               |
    |-------------------------------|----------|------|-------------|--------------|---------|---------------------|
    | `mass_0` … `mass_2`           | m0 … m2  | kg   | [1, 10]     | 1, 10        | 1       | finite, 0.01 … 1000 |
    | `friction_0` … `friction_2`   | mu0 …    | 1    | [0.5, 1]    | 0.5, 1       | 0.5     | finite, 0 … 10      |
    | `gravity_x`, `gravity_y`      | gx, gy   | m/s² | [−0.5, 0.5] | −0.5, 0, 0.5 | 0       | finite, −10 … 10    |

    0 is the lowest cube. Systems are drawn from the levels; `systems="range"` draws from the ranges. The friction of a
    contact is the product of the two bodies'; the ground's is 1. Nothing rebounds.

    ## Action: `Box(-1, 1, (6,), float32)`

    | index        | meaning                         | physical range |
    |--------------|---------------------------------|----------------|
    | 2 i, 2 i + 1 | impulse on cube i along x and y | −2 … 2 N·s     |

    As a constant force over the control step; zeros push nothing. Components are clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (39,), 13 numbers a cube, as CoPhy's files have them: position x, y, z (m),
    quaternion x, y, z, w, velocity (m/s), angular velocity of the world (rad/s). `obs_type="pixels"`, uint8 (H, W, 2):
    the present grayscale frame and the previous one (equal at reset), by the ray caster.

    At a reset the lowest cube is at x, y uniform in ±1 m, every other uniform in ±0.6 m off the one below; each has a
    yaw of its own, and all rest.

    ## Dynamics

    MuJoCo, 50 time steps of 0.004 s a control step of 0.2 s; cubes of side 1 m, gravity −10 m/s² along z. The state is
    (qpos, qvel), 39 numbers, and complete.

    ## Reward

    0: a world without a task.

    ## Episode

    Never terminates; truncated after 29 transitions, the 30 frames of a video.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system`, `systems` ("levels", "range", a `SystemSet` or a
    `SystemDistribution`), `image_size`, and the physical constants, which are the fields of `Blocktower`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (39,): places and quaternions w x y z of all cubes,
    then velocities and spins about their own axes. `info` at reset: `system_id`, `persistent` (8,) float64,
    `extrapolated`.

    `sprii/CoPhyBlocktower4-v0` has four cubes. Version history: v0, first release. The full page is
    `docs/envs/cophy.md`.
    """


class BlocktowerVectorEnv(WorldVectorEnv, world=Blocktower):
    """N towers stepped by every core; see `BlocktowerEnv` for the manual."""


class Blocktower4(Blocktower, scene="blocktower", shapes=("box",) * 4):
    """Blocktower with four cubes."""


class Blocktower4Env(WorldEnv, world=Blocktower4):
    """Four cubes; see `BlocktowerEnv` for the manual."""


class Blocktower4VectorEnv(WorldVectorEnv, world=Blocktower4):
    """N towers of four cubes; see `BlocktowerEnv` for the manual."""
