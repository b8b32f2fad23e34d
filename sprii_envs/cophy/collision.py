"""Collision: a ball and a cylinder, one of which moves towards the other."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sprii_envs.cophy import objects
from sprii_envs.cophy.contacts import Bodies, lying, state_of, yaw
from sprii_envs.cophy.objects import RADIUS
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.world import Array

BALL, CYLINDER = 0, 1
"""The objects of a state."""
NEAR, FAR = 1.0, 3.0
"""m; |x| and |y| of the mover at a start, the target being at the origin; FilteredCoPhy's."""
SLOW, FAST = 3.0, 5.0
"""m/s, of the mover; ours, as FilteredCoPhy's 10 m/s leaves the view at once."""
MISS = 0.6
"""m; the mover's path passes the origin at up to this distance; ours."""


@dataclass(frozen=True, kw_only=True)
class Collision(Bodies, scene="collision", shapes=("sphere", "cylinder")):
    """The pure functions of Collision."""

    draws: ClassVar[int] = 4
    queries: ClassVar[tuple[str, ...]] = objects.VARIANTS["collision"][1:]
    max_episode_steps: ClassVar[int] = objects.FRAMES["collision"] - 1

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """The target at the origin, the mover on its way; either moves, unless `query` says which."""
        n, rows = len(u), np.arange(len(u))
        moving = u[:, 0] < 0.5 if query is None else np.full(n, query == "moving_cylinder")
        mover = np.where(moving, CYLINDER, BALL)
        place, velocity = np.zeros((n, 2, 3)), np.zeros((n, 2, 3))
        place[..., 2] = RADIUS
        place[rows, mover, :2], velocity[rows, mover, :2] = approach(u[:, 1:5])
        angle = 2.0 * math.pi * u[:, 6:8]
        cylinder = np.where(u[:, 5:6] < 0.5, yaw(angle[:, 0]), lying(angle[:, 0]))
        return state_of(place, velocity, np.stack([yaw(angle[:, 1]), cylinder], axis=1))


def approach(u: Array) -> tuple[Array, Array]:
    """Place and velocity (N, 2) of a mover that passes the origin within `MISS`, from uniforms (N, 4)."""
    side = np.where(u[:, :2] < 0.5, -1.0, 1.0)
    place = side * (NEAR + (FAR - NEAR) * np.abs(2.0 * u[:, :2] - 1.0))
    distance = np.sqrt((place * place).sum(axis=1))
    aside = MISS * (2.0 * u[:, 2] - 1.0)
    heading = np.arctan2(-place[:, 1], -place[:, 0]) + np.arcsin(aside / distance)
    speed = SLOW + (FAST - SLOW) * u[:, 3]
    return place, speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1)


class CollisionEnv(WorldEnv, world=Collision):
    """CoPhy's Collision: a ball and a cylinder; mass, friction and restitution of each persist (`app:cophy-profile`).

    Needs MuJoCo: `pip install mujoco`, or the extra `mujoco`.

    ## Persistent properties

    | name                               | symbol | unit | range    | levels      | nominal | legal               |
    |------------------------------------|--------|------|----------|-------------|---------|---------------------|
    | `mass_0`, `mass_1`                 | m0, m1 | kg   | [1, 5]   | 1, 2, 5     | 1       | finite, 0.01 … 1000 |
    | `friction_0`, `friction_1`         | mu0, … | 1    | [0.1, 1] | 0.1, 0.5, 1 | 0.5     | finite, 0 … 10      |
    | `restitution_0`, `restitution_1`   | e0, e1 | 1    | [0.1, 1] | 0.1, 0.5, 1 | 0.5     | finite, 0 … 1       |

    0 is the ball, 1 the cylinder. Systems are drawn from the levels; `systems="range"` draws from the ranges. Friction
    and restitution of their contact are the products of the two bodies'; those of the ground are 1 and 0.

    ## Action: `Box(-1, 1, (4,), float32)`

    | index | meaning                              | physical range |
    |-------|--------------------------------------|----------------|
    | 0, 1  | impulse on the ball along x and y     | −2 … 2 N·s     |
    | 2, 3  | impulse on the cylinder along x and y | −2 … 2 N·s     |

    As a constant force over the control step; zeros push nothing. Components are clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (26,), 13 numbers of the ball and 13 of the cylinder, as CoPhy's files have
    them: position x, y, z (m), quaternion x, y, z, w, velocity (m/s), angular velocity of the world (rad/s).
    `obs_type="pixels"`, uint8 (H, W, 2): the present grayscale frame and the previous one (equal at reset), from
    obliquely above, by the ray caster.

    At a reset one of the two rests at the origin. The other is at |x|, |y| uniform in 1 … 3 m and moves at 3 … 5 m/s
    along a line that passes the origin at 0.6 m at most. The cylinder stands or lies, either as likely.

    ## Dynamics

    MuJoCo, 100 time steps of 0.002 s a control step of 0.2 s; a ball of radius 0.5 m and a cylinder of radius 0.5 and
    height 1 m, gravity −10 m/s². The state is (qpos, qvel), 26 numbers, and complete.

    ## Reward

    0: a world without a task.

    ## Episode

    Never terminates; truncated after 14 transitions, the 15 frames of a video.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system`, `systems` ("levels", "range", a `SystemSet` or a
    `SystemDistribution`), `image_size`, and the physical constants, which are the fields of `Collision`.

    ## Reset options

    `query` ("moving_cylinder", "moving_sphere"; either by default), `system` (values by name, a `System`, an id,
    "same"), `state` (26,): place and quaternion w x y z of the ball and of the cylinder, then velocity and spin about
    their own axes of each. `info` at reset: `system_id`, `persistent` (6,) float64, `extrapolated`.

    Version history: v0, first release. The full page is `docs/envs/cophy.md`.
    """


class CollisionVectorEnv(WorldVectorEnv, world=Collision):
    """N collisions stepped by every core; see `CollisionEnv` for the manual."""
