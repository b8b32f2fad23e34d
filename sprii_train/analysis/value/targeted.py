"""Does a recipe's context help where its factor matters (`app:poke-targeted-utility`)?"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.bootstrap import slope_bootstrap
from sprii_train.analysis.statistics import Interval, source_means

Array = NDArray[np.float64]


class TargetedUtility(NamedTuple):
    """Slopes of ΔU on sensitivity dominance: of each source (S,), and their mean with its interval over systems."""

    sources: Array
    mean: Interval


def targeted_utility(
    first: tuple[Array, Array],
    second: tuple[Array, Array],
    dominance: Array,
    *,
    seed: int,
    draws: int = 10_000,
    level: float = 0.95,
) -> TargetedUtility:
    """Slope of ΔU = (E_null − E_persistent)_first − (E_null − E_persistent)_second on sensitivity dominance.

    Implements `tab:poke-targeted-utility` over systems: ΔU and dominance are means over a system's cases.

    Args:
        first, second: the errors (null, persistent) of two recipes at one horizon, (S, R, N) each; a positive slope
            says that `first` gains where its property matters more.
        dominance: (N,) mean over a system's cases of `physical.dominance`.

    Raises:
        ValueError: for unlike numbers of sources or systems, and as `slope_bootstrap`.
    """
    means = [source_means(errors)[0] for errors in (*first, *second)]
    if len({m.shape for m in means}) != 1 or np.shape(dominance) != means[0].shape[1:]:
        shapes = [m.shape for m in means]
        raise ValueError(f"errors must agree in (S, N) and dominance be (N,), got {shapes} and {np.shape(dominance)}")
    utility = (means[0] - means[1]) - (means[2] - means[3])
    interval = slope_bootstrap(dominance, utility, seed=seed, draws=draws, level=level)
    return TargetedUtility(np.polyfit(dominance, utility.T, 1)[0], interval)
