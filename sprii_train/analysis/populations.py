"""Populations as types (`app:measurements`): where a probe or reader may be fitted, selected, or only measured.

    Training      fitted and selected on
    Development   selected on and measured
    Confirmation  measured, after everything is frozen
    Sealed        measured, once

A function that fits takes a `Sample[Training]`, which type checkers see; `check_fit` and `check_select` refuse at run
time what nobody has type-checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Store


class PopulationError(ValueError):
    """Something would be fitted or selected on systems that are there to be measured."""


@dataclass(frozen=True)
class Population:
    """A named set of systems, disjoint from every other one."""

    name: str
    may_fit: ClassVar[bool] = False
    may_select: ClassVar[bool] = False


class Training(Population):
    """Sources, probes and readers are fitted on these systems."""

    may_fit = may_select = True


class Development(Population):
    """Checkpoints, penalties and recipes may be selected on these systems, and results reported as development."""

    may_select = True


class Confirmation(Population):
    """Measured after sources, probes and endpoints are frozen."""


class Sealed(Population):
    """Held back for one last evaluation."""


DEVELOPMENT_SPLITS = ("validation", "selection", "development")

P_co = TypeVar("P_co", bound=Population, covariant=True)


@dataclass(frozen=True, eq=False)
class Sample(Generic[P_co]):
    """Codes of n histories of one population.

    Attributes:
        population: whose they are.
        codes: (n, d) float64.
        systems: (n,) ids.
        factors: name → (n,) persistent properties, or transient targets of single windows, for evaluation only.
        rollouts: (n,) ids of the rollouts, unique within a system at least; None if every code is its own.

    Raises:
        ValueError: for arrays of other lengths or codes that are not finite.
    """

    population: P_co
    codes: NDArray[np.float64]
    systems: NDArray[Any]
    factors: Mapping[str, NDArray[np.float64]]
    rollouts: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes, np.float64)
        if codes.ndim != 2 or not codes.size or not np.isfinite(codes).all():
            raise ValueError(f"Sample.codes must be finite and of shape (n, d), got shape {codes.shape}")
        object.__setattr__(self, "codes", codes)
        for name, column in (("systems", self.systems), ("rollouts", self.rollouts), *self.factors.items()):
            if column is not None and np.shape(column) != (len(codes),):
                raise ValueError(f"Sample has {len(codes)} codes, but {name!r} has shape {np.shape(column)}")

    def __len__(self) -> int:
        return len(self.codes)


def check_fit(population: Population, what: str) -> None:
    """PopulationError unless `what` may be fitted on this population."""
    if not population.may_fit:
        raise PopulationError(
            f"{what} may be fitted on training systems only; {population.name!r} is {type(population).__name__.lower()}"
        )


def check_select(population: Population, what: str) -> None:
    """PopulationError unless `what` may be selected on this population."""
    if not population.may_select:
        raise PopulationError(
            f"{what} may be selected on training or development systems only; {population.name!r} is "
            f"{type(population).__name__.lower()}"
        )


def population_of(store: Store, split: str) -> Population:
    """The population of a store's split.

    A split is development only by a name that says so: any other one, such as the `test` of D-Clean, counts as held
    back. A split that the store seals is never training or development.

    Raises:
        ValueError: for a split that the store does not have.
    """
    if split not in store.splits:
        raise ValueError(f"{store.name}: no split {split!r}; splits: {', '.join(store.splits)}")
    if split == "confirmation":
        return Confirmation(split)
    if split in store.sealed_splits:
        return Sealed(split)
    if split == "train":
        return Training(split)
    return Development(split) if split in DEVELOPMENT_SPLITS else Sealed(split)
