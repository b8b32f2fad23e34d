"""What cases are drawn of, and what they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Bank, Store
from sprii_train.analysis.populations import Development, Training
from sprii_train.analysis.value.cases import Cases, Standardiser
from sprii_train.data import WindowReader

Rows = NDArray[np.int64]


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
