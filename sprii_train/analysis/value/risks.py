"""Errors of fitted readers and routes by case and by system."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import group_means
from sprii_train.analysis.value.cases import Cases

Array = NDArray[np.float64]


class Predictor(Protocol):
    """A fitted reader, base or route."""

    def predict(self, cases: Cases[Any]) -> NDArray[np.float32]: ...


def squared_errors(reader: Predictor, cases: Cases[Any]) -> Array:
    """Squared errors (n, K, D) of the standardised increments."""
    return (reader.predict(cases).astype(np.float64) - cases.targets) ** 2


def reader_errors(
    reader: Predictor,
    cases: Cases[Any],
    *,
    coordinates: Sequence[int] | None = None,
    scale: NDArray[np.floating] | None = None,
) -> Array:
    """Mean squared error over output coordinates, (n, K).

    Args:
        coordinates: those to average, such as an object's position (`tab:frozen-head-components`); None for all.
        scale: (D,) or (K, D) of `Standardiser`: raw-state errors (`app:dclean-profile`); None for standardised ones.
    """
    errors = squared_errors(reader, cases)
    if scale is not None:
        errors = errors * np.asarray(scale, np.float64) ** 2
    return (errors if coordinates is None else errors[..., list(coordinates)]).mean(-1)


def by_system(errors: Array, systems: NDArray[Any], weights: NDArray[Any] | None = None) -> Array:
    """Mean over the cases of each system, (N, K), in the order of `numpy.unique(systems)`.

    Stacked over sources and readers, a column of it is what `analysis.bootstrap` resamples.

    Args:
        errors: (n, K).
        systems: (n,) ids.
        weights: (n,) of the cases, see `Cases.weights`; None is equally.
    """
    if weights is None:
        return group_means(errors, systems)[0]
    column = np.asarray(weights, np.float64)[:, None]
    return group_means(errors * column, systems)[0] / group_means(column, systems)[0]


def strata_by_system(cases: Cases[Any]) -> NDArray[Any] | None:
    """The stratum of each system, (N,), in the same order; None for cases without strata.

    Raises:
        ValueError: for a system in two strata.
    """
    if cases.strata is None:
        return None
    _, first, inverse = np.unique(cases.systems, return_index=True, return_inverse=True)
    strata = cases.strata[first]
    if (strata[inverse] != cases.strata).any():
        system = cases.systems[(strata[inverse] != cases.strata).argmax()]
        raise ValueError(f"system {system!r} lies in two strata; legal: one each")
    return strata


def grid_errors(
    readers: Sequence[Sequence[Predictor]],
    cases: Sequence[Cases[Any]],
    *,
    coordinates: Sequence[int] | None = None,
    scale: NDArray[np.floating] | None = None,
) -> Array:
    """Errors (S, R, N, K) of each source's fitted readers on its own features of the same cases.

    Args:
        readers: of each source, R each.
        cases: of each source: other features, the same systems.
        coordinates, scale: see `reader_errors`.

    Raises:
        ValueError: for unlike numbers of sources or readers, or sources with other cases.
    """
    if len(readers) != len(cases) or not cases:
        raise ValueError(f"a grid needs cases for each source, got {len(readers)} sources and cases for {len(cases)}")
    if len({len(group) for group in readers}) != 1:
        raise ValueError(f"sources have {[len(group) for group in readers]} readers; legal: equally many")
    if not all(np.array_equal(c.systems, cases[0].systems) for c in cases):
        raise ValueError("the sources of a grid must have the same cases in the same order")

    def of(reader: Predictor, c: Cases[Any]) -> Array:
        errors = reader_errors(reader, c, coordinates=coordinates, scale=scale)
        return by_system(errors, c.systems, c.weights)

    return np.stack([np.stack([of(reader, c) for reader in g]) for g, c in zip(readers, cases, strict=True)])
