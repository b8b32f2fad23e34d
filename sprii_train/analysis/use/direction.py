"""Does a wrong donor move a prediction the way its physics would? (`app:poke-direction`)

    P(f, G) = Σ_s ⟨Δẑ_{f,s}, Δz^cf_{f,s}⟩ / Σ_s ‖Δz^cf_{f,s}‖²

Δẑ is the wrong-donor minus matched prediction, Δz^cf the paired displacement of the counterfactual target. 1 is the
counterfactual's own motion, 0 none along it, −1 its opposite.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.formation.arrangement import group_sums
from sprii_train.analysis.statistics import Contrast, Interval

Array = NDArray[np.float64]

DRAWS = 10_000


class Projection(NamedTuple):
    """The two sums of P(f, G) of one source, by system."""

    systems: NDArray[Any]  # (n,) ids, increasing
    numerators: Array  # (n,)
    denominators: Array  # (n,)


def projection(predicted: ArrayLike, counterfactual: ArrayLike, systems: ArrayLike) -> Projection:
    """Sums of one source, queries pooled within their system.

    Args:
        predicted: (r, D) Δẑ of r queries.
        counterfactual: (r, D) Δz^cf of the same queries.
        systems: (r,) ids.

    Raises:
        ValueError: for shapes that do not fit.
    """
    moved, wanted = np.asarray(predicted, np.float64), np.asarray(counterfactual, np.float64)
    labels = np.asarray(systems)
    if moved.ndim != 2 or not len(moved) or moved.shape != wanted.shape or labels.shape != moved.shape[:1]:
        raise ValueError(
            f"a projection needs displacements (r, D) twice and systems (r,), got {moved.shape}, {wanted.shape} and "
            f"{labels.shape}"
        )
    products = np.stack([(moved * wanted).sum(1), np.square(wanted).sum(1)], axis=1)
    sums, first, _ = group_sums(products, labels)
    return Projection(labels[first], sums[:, 0], sums[:, 1])


def along(sources: Sequence[Projection]) -> float:
    """P(f, G): a ratio of sums over systems in every source, then the mean over sources.

    Raises:
        ValueError: for no source, sources on other systems, or a counterfactual that moves in no system.
    """
    return float(_statistic("P", len(sources))(_means(_columns({"P": sources}))))


def contrasts(
    mass: tuple[Sequence[Projection], Sequence[Projection]],
    drag: tuple[Sequence[Projection], Sequence[Projection]],
    *,
    seed: int,
    draws: int = DRAWS,
    level: float = 0.95,
) -> dict[str, Interval]:
    """`mass`: Δ_m = P(m, G1) − P(m, G2), `drag`: Δ_γ = P(γ, G2) − P(γ, G1), and `sum`, with paired-system intervals.

    A draw resamples the systems once for all four statistics and all sources and takes the ratios of its own sums. The
    numbers of sources may differ.

    Args:
        mass, drag: the sources' projections under (G1, G2), all on the same systems.
        seed, draws, level: of the bootstrap over systems, `bootstrap.system_bootstrap`.

    Raises:
        ValueError: as `along`, and for other systems in one of the four.
    """
    groups: dict[str, Sequence[Projection]] = {"m1": mass[0], "m2": mass[1], "d1": drag[0], "d2": drag[1]}
    columns = _columns(groups)
    m1, m2, d1, d2 = (_statistic(name, len(sources)) for name, sources in groups.items())
    wanted: dict[str, Contrast] = {
        "mass": lambda means: m1(means) - m2(means),
        "drag": lambda means: d2(means) - d1(means),
        "sum": lambda means: m1(means) - m2(means) + d2(means) - d1(means),
    }
    return system_bootstrap(columns, wanted, seed=seed, draws=draws, level=level)


def _columns(groups: Mapping[str, Sequence[Projection]]) -> dict[str, Array]:
    """Every source's sums (n,) as conditions of a bootstrap: a ratio of their means is one of their sums."""
    if not all(groups.values()):
        raise ValueError("P(f, G) needs at least one source")
    systems = next(iter(groups.values()))[0].systems
    if any(not np.array_equal(one.systems, systems) for sources in groups.values() for one in sources):
        raise ValueError("P(f, G) and its contrasts need the same systems in every source, factor and relation")
    return {
        f"{name} {part} {i}": values
        for name, sources in groups.items()
        for i, one in enumerate(sources)
        for part, values in (("along", one.numerators), ("length", one.denominators))
    }


def _means(columns: Mapping[str, Array]) -> dict[str, Any]:
    return {name: values.mean() for name, values in columns.items()}


def _statistic(name: str, sources: int) -> Contrast:
    """P of one group from the means of its columns."""

    def mean_ratio(means: Mapping[str, Any]) -> Any:
        lengths = [means[f"{name} length {i}"] for i in range(sources)]
        if not all(np.all(length > 0) for length in lengths):
            raise ValueError("P(f, G) is undefined: the counterfactual target moves in none of the systems drawn")
        return sum(means[f"{name} along {i}"] / length for i, length in enumerate(lengths)) / sources

    return mean_ratio
