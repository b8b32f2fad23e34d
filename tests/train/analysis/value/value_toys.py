"""A linear-Gaussian task whose best risks are known: y = c_h·(θ + q₀) + Σ_{t<h} a_t + noise, code = θ·direction."""

from typing import Any

import numpy as np

from sprii_train.analysis.populations import Population, Training
from sprii_train.analysis.value import Cases, FitConfig, ReaderConfig, RouteConfig

HORIZONS = (1, 3)
SIZE = np.array([0.5, 1.0])  # c_h
NOISE = 0.3

READER = ReaderConfig(
    query=8, slot=4, horizon=4, width=32, fit=FitConfig(updates=700, batch=128, learning_rate=5e-3, schedule="cosine")
)
ROUTE = RouteConfig(
    base_width=32, width=32, horizon=4, code=4, select_every=50,
    fit=FitConfig(updates=400, batch=128, learning_rate=5e-3),
)  # fmt: skip


def linear_gaussian(
    population: Population, systems: int, *, episodes: int = 4, features: int = 1, seed: int = 0, **changes: Any
) -> Cases[Any]:
    """Cases of `systems` systems in mixed order; with `features` > 1 a history whose last feature is the present."""
    rng = np.random.default_rng([seed, systems, type(population) is Training])
    ids = rng.permutation(np.repeat(np.arange(systems), episodes))
    theta = rng.standard_normal(systems)[ids]
    n = len(ids)
    query = rng.standard_normal((n, features, 8))
    actions = 0.5 * rng.standard_normal((n, HORIZONS[-1], 1))
    sums = np.cumsum(actions[..., 0], 1)[:, np.array(HORIZONS) - 1]
    signal = SIZE * (theta + query[:, -1, 0])[:, None] + sums
    targets = (signal + NOISE * rng.standard_normal(signal.shape))[..., None]
    fields: dict[str, Any] = {
        "population": population,
        "systems": ids,
        "query": query[:, 0] if features == 1 else query,
        "context": theta[:, None] * np.array([1.0, -0.5, 0.5, 1.0]),
        "factors": {"mass": np.exp(theta)},
        "actions": actions,
        "targets": targets,
        "horizons": HORIZONS,
        "strata": np.where(ids % 2, "odd", "even"),
        "kinds": np.where(rng.random(n) < 0.5, "cold", "moving"),
    }
    return Cases(**(fields | changes))


def oracle_risk(horizons: int = 2) -> np.ndarray:
    """(K,) of the reader that knows θ."""
    return np.full(horizons, NOISE**2)


def null_risk(cases: Cases[Any]) -> np.ndarray:
    """(K,) of the reader that knows everything but θ, on these systems."""
    return NOISE**2 + SIZE**2 * np.mean(np.log(cases.factors["mass"]) ** 2)
