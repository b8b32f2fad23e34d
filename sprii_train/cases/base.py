"""What cases are drawn of, and what they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Bank, Store
from sprii_train.analysis.populations import Development, Sealed, Training, population_of
from sprii_train.analysis.value.cases import Cases, Standardiser, fit_standardiser
from sprii_train.data import WindowReader

Rows = NDArray[np.int64]
P = TypeVar("P", Training, Development, Sealed)


class Trained(Protocol):
    """A learner with the setting and the store that it was trained on."""

    @property
    def setting(self) -> Any: ...
    @property
    def store(self) -> Store: ...
    @property
    def bank(self) -> Bank: ...
    @property
    def learner(self) -> Any: ...
    @property
    def reader(self) -> WindowReader: ...


class Drawn(NamedTuple):
    """Recipients and donors of n cases: episodes of the bank, the last observation of each recipient, and where the
    donor's history begins. All (n,)."""

    episodes: Rows
    anchors: Rows
    donors: Rows
    starts: Rows

    def distinct_donors(self) -> Rows:
        """One case (k,) of each donor window."""
        return np.unique(np.stack([self.donors, self.starts]), axis=1, return_index=True)[1]


def cases_from(store: Store, split: str, of: type[P], raw: dict[str, Any], standardiser: Standardiser) -> Cases[P]:
    """Cases of a split, a population `of` that kind, from the fields of `Cases` with increments as they are."""
    population = population_of(store, split)
    assert isinstance(population, of)
    fields: dict[str, Any] = raw | {"targets": standardiser(raw["targets"])}
    return Cases(population, **fields)


def training_from(
    store: Store, raw: dict[str, Any], floors: tuple[float, ...] | None = None
) -> tuple[Cases[Training], Standardiser]:
    """Cases of training systems, and the standardiser of their targets; see `fit_standardiser` for floors."""
    standardiser = fit_standardiser(Training("train"), raw["targets"], floors)
    return cases_from(store, "train", Training, raw, standardiser), standardiser


@dataclass(frozen=True)
class SourceCases:
    """Cases of one source.

    Attributes:
        train, development: of training and of validation systems.
        standardiser: of the targets, fitted on training cases.
        drawn: split → which windows these are.
        panels: name → where (n,) the development cases are of it; a row tells of the first.
    """

    train: Cases[Training]
    development: Cases[Development]
    standardiser: Standardiser
    drawn: Mapping[str, Drawn]
    panels: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def populations(self) -> tuple[tuple[Cases[Any], Drawn], ...]:
        """Training cases, then development cases, each with its windows."""
        return (self.train, self.drawn["train"]), (self.development, self.drawn["validation"])
