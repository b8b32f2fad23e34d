"""Codes of known content: standard normal factors in given directions, and noise of a system, rollout and window."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.populations import Development, Population, Sample, Training

P = TypeVar("P", bound=Population)
Array = NDArray[np.float64]

TRAIN, HELD_OUT = Training("train"), Development("validation")


def planted(
    population: P,
    content: Array,
    *,
    systems: int = 200,
    rollouts: int = 4,
    windows: int = 1,
    noise: Sequence[float] = (0.0, 1.0, 0.0),
    seed: int = 0,
) -> Sample[P]:
    """codes = factors @ content (F, d) + noise of SD (system, rollout, window) in every dimension."""
    rng = np.random.default_rng((seed, population.may_fit))
    factors = rng.standard_normal((systems, len(content)))
    system = np.repeat(np.arange(systems), rollouts * windows)
    rollout = np.repeat(np.arange(systems * rollouts), windows)
    draws = [rng.standard_normal((n, content.shape[1])) for n in (systems, systems * rollouts, len(system))]
    codes = (factors @ content)[system] + noise[0] * draws[0][system] + noise[1] * draws[1][rollout]
    codes += noise[2] * draws[2]
    return Sample(population, codes, system, dict(zip("abc", factors[system].T, strict=False)), rollout)


def directions(factors: int, d: int, *, seed: int = 0) -> Array:
    """Orthonormal rows (F, d)."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, factors)))[0].T
