"""What happens in counterfactual pairs: the share of towers that fall, of collisions that hit, of balls that touch."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import instance
from sprii_envs.cophy import objects
from sprii_envs.cophy.blocktower import FALLEN
from sprii_envs.cophy.simulation import Pairs
from sprii_envs.world import Array

CLOSE = 0.15
"""m; what a fast ball travels beyond a touch before the next frame is more: shares of touches are lower bounds."""
RESTS = 0.05
"""m; a target that has come further was hit."""


def outcomes(pairs: Pairs) -> Mapping[str, float]:
    """Shares in [0, 1] by name, of the pairs' scene, and `moved_apart`: metres between the two videos at their end.

    Blocktower: `ab_falls`, `cd_falls` (heights change by 0.1 m or more in sum), `other_outcome` (one of the two
    falls), `removed`. Collision: `ab_hits`, `cd_hits` (the target moves), `other_outcome`. Balls: `ab_touch`,
    `cd_touch` (of all balls, those that come within 0.15 m of another's surface in a frame), `ab_walls` (likewise
    of a wall).

    ValueError for no pairs.
    """
    instance("pairs", pairs, of=Pairs)
    present = pairs.kinds != objects.ABSENT
    kept = present & pairs.cd[:, 0].any(axis=-1)
    apart = np.linalg.norm((pairs.ab - pairs.cd)[:, -1, :, :3].astype(np.float64), axis=-1)
    told = {"moved_apart": float(apart[kept].mean())}
    if (pairs.kinds == objects.CUBE).any():
        ab, cd = (_falls(video, present) for video in (pairs.ab, pairs.cd))
        removed = (present & ~kept).any(axis=1)
        return told | _shares(ab_falls=ab, cd_falls=cd, other_outcome=ab != cd, removed=removed)
    if (pairs.kinds > objects.SPHERE).any():
        ab, cd = (_hits(video, present) for video in (pairs.ab, pairs.cd))
        return told | _shares(ab_hits=ab, cd_hits=cd, other_outcome=ab != cd)
    ab, cd = (_near(video, present) for video in (pairs.ab, pairs.cd))
    reach = np.abs(pairs.ab[..., :2]).max(axis=-1)
    walls = (reach >= objects.WALL - objects.RADIUS - CLOSE).any(axis=1)
    return told | _shares(ab_touch=ab[present], cd_touch=cd[present], ab_walls=walls[present])


def _shares(**each: NDArray[np.bool_]) -> dict[str, float]:
    return {name: float(flags.mean()) for name, flags in each.items()}


def _falls(video: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    change = np.abs(video[:, -1, :, 2] - video[:, 0, :, 2])
    return (change * present).sum(axis=1) >= FALLEN


def _hits(video: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    way = np.linalg.norm(video[:, -1, :, :2] - video[:, 0, :, :2], axis=-1)
    still = present & (video[:, 0, :, 7:9] == 0.0).all(axis=-1)
    return ((way > RESTS) & still).any(axis=1)


def _near(video: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each ball comes close to another, (N, K)."""
    place: Array = video[..., :3].astype(np.float64)
    apart = np.linalg.norm(place[:, :, :, None] - place[:, :, None], axis=-1)
    k = present.shape[1]
    pair = present[:, :, None] & present[:, None] & ~np.eye(k, dtype=np.bool_)
    return ((apart < 2.0 * objects.RADIUS + CLOSE) & pair[:, None]).any(axis=(1, 3))
