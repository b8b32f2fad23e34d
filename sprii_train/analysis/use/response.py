"""Which coordinates a donor moves: two equal masses' common motion or their relative one (`app:physical-response`).

Pure functions of arrays whose last axis is (x1, y1, x2, y2, vx1, vy1, vx2, vy2), in physical units.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_SIZE = 8


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


def centre_relative(states: ArrayLike) -> Array:
    """Coordinates (..., 8) as centre (positions, velocities), then relative (positions, velocities): orthonormal.

    centre = (first + second)/√2 and relative = (second − first)/√2 keep the norm of two equal masses' coordinates.

    Raises:
        ValueError: for a last axis other than 8.
    """
    given = np.asarray(states, np.float64)
    if given.ndim < 1 or given.shape[-1] != _SIZE:
        raise ValueError(f"states must be (..., {_SIZE}): x1, y1, x2, y2, vx1, vy1, vx2, vy2; got {given.shape}")
    pairs = given.reshape(*given.shape[:-1], 2, 2, 2)  # position or velocity, ball, axis
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    both = np.stack([first + second, second - first], axis=-3) / np.sqrt(2.0)
    return both.reshape(given.shape)


def donor_response(outputs: ArrayLike) -> Response:
    """Squared displacement that the donor's level induces, of a reader's outputs or of the simulator's.

    A displacement is an output minus the mean over levels. Over all pairs of levels the squared differences are the
    same up to one factor, so that the shares are those of pairwise displacements too.

    Args:
        outputs: (n, L, 8) predicted or true increments under L levels.

    Raises:
        ValueError: for another shape or fewer than two levels.
    """
    given = np.asarray(outputs, np.float64)
    if given.ndim != 3 or given.shape[1] < 2 or not len(given):
        raise ValueError(f"outputs must be (n, L, {_SIZE}) with L >= 2 levels, got {given.shape}")
    moved = centre_relative(given)
    # Levels are compared with the first before the mean is taken: what no level moves is exactly 0.
    moved = moved - moved[:, :1]
    energy = np.square(moved - moved.mean(1, keepdims=True)).mean(1)
    return Response(energy[:, : _SIZE // 2].sum(-1), energy[:, _SIZE // 2 :].sum(-1))
