"""Simulator sensitivities: what a one per cent change of a property does to a case's future (`app:poke-value`).

Two uses: fixed weights of the `phys` routes, and how much more a case depends on one property than on another.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import number
from sprii_envs.standardiser import Standardiser, constant
from sprii_envs.world import World, rollout
from sprii_train.analysis.populations import Training, check_fit

Array = NDArray[np.float64]

CHUNK = 1024  # cases simulated at a time by default


def sensitivities(
    world: World,
    values: ArrayLike,
    states: ArrayLike,
    actions: ArrayLike,
    horizons: Sequence[int],
    *,
    relative: float = 0.01,
    chunk: int = CHUNK,
) -> Array:
    """Derivatives (n, K, S, F) of the state after each horizon by the log of each property, one case a row.

    Central differences with each property `relative` above and below, the query and its actions fixed; equal to
    `sprii_envs.world.sensitivity` of each case. The increment from the present has the same derivative.

    Args:
        values: (n, F) in the order of `world.properties`.
        states: (n, S) at the present.
        actions: (n, H, A), H at least the last horizon.
        chunk: cases simulated at a time, which bounds memory and changes nothing.

    Raises:
        ValueError: for arrays of other lengths, horizons beyond the actions, or `relative` outside (0, 1).
    """
    v, s, a = np.asarray(values, np.float64), np.asarray(states, np.float64), np.asarray(actions, np.float32)
    if v.ndim != 2 or s.ndim != 2 or a.ndim != 3 or not len(v) == len(s) == len(a):
        raise ValueError(
            f"values must be (n, F), states (n, S) and actions (n, H, A), got {v.shape}, {s.shape} and {a.shape}"
        )
    if not horizons or min(horizons) < 1 or max(horizons) > a.shape[1]:
        raise ValueError(f"horizons must lie in 1…{a.shape[1]}, the steps with actions, got {tuple(horizons)}")
    relative = number("relative", relative, above=0, below=1)
    parts = [slice(i, i + chunk) for i in range(0, len(v), chunk)]
    return np.concatenate([_differences(world, v[p], s[p], a[p], list(horizons), relative) for p in parts])


def output_weights(sensitivity: Array, scale: Array) -> Array:
    """Weights (D,) of a `phys` route's output coordinates (`app:reader-interfaces`), of mean 1.

    The paper names a "prescribed physical sensitivity procedure" without its formula. Ours: the mean over training
    cases, horizons and properties of |∂ standardised target / ∂ log property|, so that the residual is large where
    properties matter.

    Args:
        sensitivity: (n, K, D, F) of training cases, see `sensitivities`.
        scale: (D,) or (K, D) of `Standardiser`.

    Raises:
        ValueError: for shapes that do not fit, or if nothing depends on any property.
    """
    weights = _standardised(sensitivity, scale).mean((0, 1, 3))
    if not weights.sum() > 0:
        raise ValueError("no output coordinate depends on a property: there are no physical weights")
    return weights / weights.mean()


def factor_sensitivity(sensitivity: Array, scale: Array, factor_scale: ArrayLike) -> Array:
    """S (n, K, F): root mean square over coordinates of ∂ standardised target / ∂ standardised log property.

    Args:
        sensitivity: (n, K, D, F).
        scale: (D,) of the targets, of training cases.
        factor_scale: (F,) SDs of the log properties over training systems.
    """
    change = _standardised(sensitivity, scale) * np.asarray(factor_scale, np.float64)
    return np.sqrt((change**2).mean(2))


def dominance(population: Training, train: Array, cases: Array) -> Array:
    """d = z_train(S_first) − z_train(S_second), (n,): how much more cases depend on the first property.

    Args:
        population: whose `train` are; the z-scores are fitted there.
        train: (m, 2) sensitivities of training cases at one horizon, the two properties in columns.
        cases: (n, 2) of the cases.

    Raises:
        PopulationError: for z-scores of another population.
        ValueError: for a sensitivity that does not vary over training cases.
    """
    check_fit(population, "z-scores of sensitivities")
    if constant(train).any():
        raise ValueError(f"sensitivities of training cases must vary, got SDs {train.std(0).tolist()}")
    z = Standardiser.fit(train)(cases)
    return z[:, 0] - z[:, 1]


def _differences(world: World, v: Array, s: Array, a: NDArray, horizons: list[int], relative: float) -> Array:
    n, factors = v.shape
    # All cases under each property above, then below: (F, 2, n) rollouts in one.
    rows = np.broadcast_to(v, (factors, 2, n, factors)).copy()
    f = np.arange(factors)
    rows[f, 0, :, f] *= 1.0 + relative
    rows[f, 1, :, f] *= 1.0 - relative
    copies = (2 * factors, 1, 1)
    begin = np.tile(s, copies[:2])
    found = rollout(world, rows.reshape(-1, factors), begin, np.tile(a, copies)).states[:, horizons]
    above, below = found.reshape(factors, 2, n, *found.shape[1:]).swapaxes(0, 1)
    return np.moveaxis((above - below) / (2.0 * relative), 0, -1)


def _standardised(sensitivity: Array, scale: Array) -> Array:
    if sensitivity.ndim != 4 or np.shape(scale) not in (sensitivity.shape[2:3], sensitivity.shape[1:3]):
        raise ValueError(
            "sensitivities must have shape (n, K, D, F) and scales (D,) or (K, D), got "
            f"{sensitivity.shape} and {np.shape(scale)}"
        )
    return np.abs(sensitivity) / np.asarray(scale)[..., None]
