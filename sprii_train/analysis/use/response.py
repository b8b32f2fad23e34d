"""Which coordinates a donor moves: two equal masses' common motion or their relative one (`app:physical-response`).

Pure functions of arrays whose last axis is (x1, y1, x2, y2, vx1, vy1, vx2, vy2), in physical units.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.properties import unknown_name

Array = NDArray[np.float64]

_SIZE = 8

Transform = Literal["mean-difference", "orthonormal"]
TRANSFORMS: dict[Transform, tuple[float, float]] = {
    "mean-difference": (0.5, 1.0),
    "orthonormal": (0.5**0.5, 0.5**0.5),
}
"""Name → factors of the sum and of the difference of the two balls' coordinates.

The energy of the relative coordinate ÷ that of the centre is four times as large with the mean and the difference. The
paper names an "equal-mass center/relative transform" and prints no formula; its simulator's share of 0.71 is out of
reach of the orthonormal one at a query at rest, where one ball alone is pushed.
"""


class Response(NamedTuple):
    """Squared response of n systems to the donor, by coordinate; shares are ratios of sums."""

    centre: Array  # (n,)
    relative: Array  # (n,)

    @property
    def relative_share(self) -> float:
        """The relative coordinate's share of the whole response, in [0, 1]; NaN without any."""
        whole = float(self.centre.sum() + self.relative.sum())
        return float(self.relative.sum()) / whole if whole > 0 else float("nan")

    @property
    def centre_share(self) -> float:
        """The centre's share, 1 − `relative_share`."""
        whole = float(self.centre.sum() + self.relative.sum())
        return float(self.centre.sum()) / whole if whole > 0 else float("nan")

    @property
    def relative_minus_centre(self) -> float:
        """Mean over systems of relative − centre."""
        return float((self.relative - self.centre).mean())


def unstructured_share(transform: Transform) -> float:
    """The relative share of a response that moves every coordinate alike, whatever the factor: 4/5 or 1/2."""
    common, apart = (factor**2 for factor in TRANSFORMS[transform])
    return apart / (common + apart)


def centre_relative(states: ArrayLike, transform: Transform = "orthonormal") -> Array:
    """Coordinates (..., 8) as centre (positions, velocities), then relative (positions, velocities).

    Args:
        transform: `orthonormal`, centre = (first + second)/√2 and relative = (second − first)/√2, which keeps the norm;
            or `mean-difference`, centre = (first + second)/2 and relative = second − first.

    Raises:
        ValueError: for a last axis other than 8, or an unknown transform.
    """
    if transform not in TRANSFORMS:
        raise unknown_name("transform", transform, TRANSFORMS)
    common, apart = TRANSFORMS[transform]
    given = np.asarray(states, np.float64)
    if given.ndim < 1 or given.shape[-1] != _SIZE:
        raise ValueError(f"states must be (..., {_SIZE}): x1, y1, x2, y2, vx1, vy1, vx2, vy2; got {given.shape}")
    pairs = given.reshape(*given.shape[:-1], 2, 2, 2)  # position or velocity, ball, axis
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    both = np.stack([common * (first + second), apart * (second - first)], axis=-3)
    return both.reshape(given.shape)


def donor_response(outputs: ArrayLike, transform: Transform = "orthonormal") -> Response:
    """Squared displacement that the donor's level induces, of a reader's outputs or of the simulator's.

    A displacement is an output minus the mean over levels. Over all pairs of levels the squared differences are the
    same up to one factor, so that the shares are those of pairwise displacements too.

    Args:
        outputs: (n, L, 8) predicted or true increments under L levels.
        transform: of the two balls' coordinates, see `centre_relative`; shares of different transforms do not compare.

    Raises:
        ValueError: for another shape, fewer than two levels or an unknown transform.
    """
    given = np.asarray(outputs, np.float64)
    if given.ndim != 3 or given.shape[1] < 2 or not len(given):
        raise ValueError(f"outputs must be (n, L, {_SIZE}) with L >= 2 levels, got {given.shape}")
    moved = centre_relative(given, transform)
    # Levels are compared with the first before the mean is taken: what no level moves is exactly 0.
    moved = moved - moved[:, :1]
    energy = np.square(moved - moved.mean(1, keepdims=True)).mean(1)
    return Response(energy[:, : _SIZE // 2].sum(-1), energy[:, _SIZE // 2 :].sum(-1))
