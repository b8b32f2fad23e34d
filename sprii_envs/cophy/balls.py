"""Balls: two to six balls in a walled court, seen from above; how they rebound tells what they are made of."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sprii_envs.cophy import objects
from sprii_envs.cophy.contacts import GROUND, WALLS, Bodies, Surface, state_of
from sprii_envs.cophy.objects import RADIUS
from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.world import Array

REACH = 3.0
"""m; places start uniform in ± it along x and y; FilteredCoPhy's."""
SPEED = 3.0
"""m/s; velocities start uniform in ± it along x and y; FilteredCoPhy's."""
GAP = 0.1
"""m, between two balls at a start, at least; ours."""
TRIES = 24
"""Places drawn for each ball, of which the first one that is free is taken."""


@dataclass(frozen=True, kw_only=True)
class Balls(Bodies, scene="balls", shapes=("sphere",) * 4):
    """The pure functions of Balls."""

    surfaces: ClassVar[tuple[Surface, ...]] = (GROUND, *WALLS)
    draws: ClassVar[int] = 2 * TRIES + 2
    max_episode_steps: ClassVar[int] = objects.FRAMES["balls"] - 1

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Balls apart from each other on the ground, each with a velocity of its own."""
        n, k = len(u), len(self.shapes)
        each = u.reshape(n, k, self.draws)
        place = np.full((n, k, 3), RADIUS)
        candidates = REACH * (2.0 * each[:, :, :-2].reshape(n, k, TRIES, 2) - 1.0)
        for i in range(k):
            place[:, i, :2] = free(candidates[:, i], place[:, :i, :2])
        velocity = np.zeros((n, k, 3))
        velocity[..., :2] = SPEED * (2.0 * each[:, :, -2:] - 1.0)
        return state_of(place, velocity)


def free(candidates: Array, others: Array) -> Array:
    """Of candidates (n, tries, 2) the first at least `GAP` from every ball at `others` (n, k, 2), else the farthest."""
    apart = candidates[:, :, None] - others[:, None]
    least = np.sqrt((apart * apart).sum(axis=-1)).min(axis=2, initial=np.inf)
    good = least >= 2.0 * RADIUS + GAP
    chosen = np.where(good.any(axis=1), good.argmax(axis=1), least.argmax(axis=1))
    return candidates[np.arange(len(candidates)), chosen]


class BallsEnv(WorldEnv, world=Balls):
    """CoPhy's Balls: four balls in a court; mass, friction and restitution of each persist (`app:cophy-profile`).

    Needs MuJoCo: `pip install mujoco`, or the extra `mujoco`.

    ## Persistent properties

    | name                                  | symbol   | unit | range    | levels      | nominal | legal             |
    |---------------------------------------|----------|------|----------|-------------|---------|-------------------|
    | `mass_0` … `mass_3`                   | m0 … m3  | kg   | [1, 5]   | 1, 2, 5     | 1       | finite, 0.01 … 1000 |
    | `friction_0` … `friction_3`           | mu0 …    | 1    | [0.1, 1] | 0.1, 0.5, 1 | 0.5     | finite, 0 … 10    |
    | `restitution_0` … `restitution_3`     | e0 …     | 1    | [0.1, 1] | 0.1, 0.5, 1 | 0.5     | finite, 0 … 1     |

    Systems are drawn from the levels; `systems="range"` draws from the ranges. Friction and restitution of a contact
    are the products of the two bodies'; those of the ground are 1 and 0, of the walls 0 and 1.

    ## Action: `Box(-1, 1, (8,), float32)`

    | index       | meaning                            | physical range |
    |-------------|------------------------------------|----------------|
    | 2 i, 2 i + 1 | impulse on ball i along x and y   | −2 … 2 N·s     |

    As a constant force over the control step; zeros push nothing. Components are clipped; NaN is refused.

    ## Observation

    `obs_type="state"` (default), float32 (52,), 13 numbers a ball, as CoPhy's files have them:

    | index          | meaning                       | unit  | at reset                              |
    |----------------|-------------------------------|-------|---------------------------------------|
    | 13 i … + 2     | position x, y, z              | m     | x, y uniform in ±3, balls apart; 0.5  |
    | 13 i + 3 … + 6 | quaternion x, y, z, w         | 1     | 0, 0, 0, 1                            |
    | 13 i + 7 … + 9 | velocity                      | m/s   | x, y uniform in ±3; 0                 |
    | 13 i + 10 … 12 | angular velocity, of the world | rad/s | 0                                    |

    `obs_type="pixels"`, uint8 (H, W, 2): the present grayscale frame and the previous one (equal at reset), from
    above, by the ray caster (x to the left, y down).

    ## Dynamics

    MuJoCo, 100 time steps of 0.002 s a control step of 0.2 s; balls of radius 0.5 m that slide and roll on the ground,
    between smooth walls at ±4.3 m, gravity −10 m/s². The state is (qpos, qvel), 52 numbers, and complete.

    ## Reward

    0: a world without a task.

    ## Episode

    Never terminates; truncated after 29 transitions, the 30 frames of a video.

    ## Arguments

    `obs_type`, `render_mode` ("rgb_array", "human"), `system`, `systems` ("levels", "range", a `SystemSet` or a
    `SystemDistribution`), `image_size`, and the physical constants, which are the fields of `Balls`.

    ## Reset options

    `system` (values by name, a `System`, an id, "same"), `state` (52,): places and quaternions w x y z of all balls,
    then velocities and spins about their own axes. `info` at reset: `system_id`, `persistent` (12,) float64,
    `extrapolated`.

    `sprii/CoPhyBalls2-v0`, `…3`, `…5` and `…6` have other numbers of balls. Version history: v0, first release. The
    full page is `docs/envs/cophy.md`.
    """


class BallsVectorEnv(WorldVectorEnv, world=Balls):
    """N courts stepped by every core; see `BallsEnv` for the manual."""


class Balls2(Balls, scene="balls", shapes=("sphere",) * 2):
    """Balls with two balls."""


class Balls2Env(WorldEnv, world=Balls2):
    """Two balls; see `BallsEnv` for the manual."""


class Balls2VectorEnv(WorldVectorEnv, world=Balls2):
    """N courts of two balls; see `BallsEnv` for the manual."""


class Balls3(Balls, scene="balls", shapes=("sphere",) * 3):
    """Balls with three balls."""


class Balls3Env(WorldEnv, world=Balls3):
    """Three balls; see `BallsEnv` for the manual."""


class Balls3VectorEnv(WorldVectorEnv, world=Balls3):
    """N courts of three balls; see `BallsEnv` for the manual."""


class Balls5(Balls, scene="balls", shapes=("sphere",) * 5):
    """Balls with five balls."""


class Balls5Env(WorldEnv, world=Balls5):
    """Five balls; see `BallsEnv` for the manual."""


class Balls5VectorEnv(WorldVectorEnv, world=Balls5):
    """N courts of five balls; see `BallsEnv` for the manual."""


class Balls6(Balls, scene="balls", shapes=("sphere",) * 6):
    """Balls with six balls."""


class Balls6Env(WorldEnv, world=Balls6):
    """Six balls; see `BallsEnv` for the manual."""


class Balls6VectorEnv(WorldVectorEnv, world=Balls6):
    """N courts of six balls; see `BallsEnv` for the manual."""
