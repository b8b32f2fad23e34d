"""Training windows of trajectories with the number of their system, or with the history that each gets as a donor's."""

import copy
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import choice
from sprii_train.devices import moved
from sprii_train.fields.windows import PairedFields
from sprii_train.identity import digest
from sprii_train.protocol import each

Donors = Literal["matched", "random", "own"]


class EnvironmentWindows(NamedTuple):
    """Whole trajectories, each of which is its own history."""

    fields: Tensor  # (B, T, X) float32
    systems: Tensor  # (B,) int64, places of the systems in their order
    support: Tensor  # (B, T, X), what each offers to its partner

    @property
    def actions(self) -> Tensor:
        """(B, 0): nothing acts."""
        return self.fields.flatten(1)[:, :0]

    def to(self, device: torch.device | str) -> "EnvironmentWindows":
        """The same windows on a device."""
        return each(self, lambda tensor: moved(tensor, device))


class EnvironmentFields:
    """Stacked donor and recipient trajectories of pairs of a system; who is whose donor is a second choice.

    The trajectories of a step do not depend on it, so arms that differ in `donors` alone see the same histories.

    Args:
        pairs: of `PairedFields` with `condition="self"`.
        donors: that a recipient's second prediction is made with: its partner's history (`matched`), the partner of
            the next pair, of another system (`random`), or its own again (`own`). Every history serves as often.

    Raises:
        ValueError: for random donors of fewer than two pairs, or of pairs that may be of one system.
    """

    def __init__(self, pairs: PairedFields, donors: Donors = "matched") -> None:
        self.pairs, self.donors = pairs, choice("donors", donors, legal=get_args(Donors))
        if pairs.condition != "self":
            raise ValueError(f"the windows are conditioned by {pairs.condition!r}; legal: self")
        self._systems, self._row = np.unique(pairs.table["system"], return_inverse=True)
        if donors == "random" and not 2 <= pairs.count <= len(self._systems):
            raise ValueError(
                f"random donors are of {pairs.count} pairs; legal: 2 to {len(self._systems)}, the number of systems"
            )
        self._share = (0, 1)

    @property
    def count(self) -> int:
        """Pairs in a batch."""
        return self.pairs.count

    def identity(self) -> dict[str, Any]:
        """What the windows depend on."""
        return self.pairs.identity() | {"donors": self.donors}

    def shard(self, rank: int, world: int) -> "EnvironmentFields":
        """The same batches, of which one rank's share of the pairs is given."""
        part = copy.copy(self)
        self.pairs.shard(rank, world)  # which refuses ranks that do not divide them
        part._share = (rank, world)
        return part

    def histories(self, steps: int) -> str:
        """A digest of the episodes of that many updates, in their order."""
        episodes = [self.pairs.table["episode"][self.pairs.rows(step)[1]].tolist() for step in range(steps)]
        return digest(repr(episodes))

    def __call__(self, step: int) -> EnvironmentWindows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        fields, n = self.pairs(step).fields, self.pairs.count
        rows = self.pairs.rows(step)[1]
        systems = torch.from_numpy(self._row[rows].astype(np.int64))
        windows = EnvironmentWindows(fields, systems, fields[self._offered(n)])
        rank, world = self._share
        own = torch.arange(2 * n).view(2, world, -1)[:, rank].flatten()
        return each(windows, lambda tensor: tensor[own])

    def _offered(self, n: int) -> NDArray[np.int64]:
        """The row whose history row i offers to row (i + n) mod 2n."""
        rows = np.arange(2 * n).reshape(2, n)
        if self.donors == "own":
            rows = rows[::-1]
        elif self.donors == "random":
            rows = np.roll(rows, 1, axis=1)
        return rows.ravel()
