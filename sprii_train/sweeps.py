"""SpringWorld's schedule of pairs: sweeps over all systems, whose windows share one pair of starts.

    sweep = every system once, in a new order, in batches of `pairs`; what is over is left out
    one (donor start, recipient start), one recipient episode and one other donor episode a sweep, for all systems

All windows of an update are thus equally old: histories differ in systems and forces, not in the moment. Of
`Derangement`, the Random control, a system's donor is the system so many places on, one shift a sweep.
"""

from typing import Any

import numpy as np

from sprii_envs.relations import SAME_SYSTEM, Derangement, Kernel, Relation, Uniform, WindowPairs
from sprii_envs.relations.rows import rows_of
from sprii_envs.relations.streams import SWEEPS, stream
from sprii_train.data import PairedWindows


class SweptWindows(PairedWindows):
    """`PairedWindows` of a schedule in sweeps; the n-th episode of every system is its replicate n.

    Raises:
        ValueError: for a pairing that is not `sweeps`, fewer systems than pairs, or systems with unlike episodes.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not sweeps(self.relation, self.kernel):
            raise ValueError(
                f"sweeps pair episodes of one system or of systems so many places on, not '{self.relation}' with "
                f"{self.kernel!r}; legal: SAME_SYSTEM with Uniform() or Derangement(by='system')"
            )
        order = np.lexsort((self.table["episode"], self.table["system"]))
        systems, counts = np.unique(self.table["system"], return_counts=True)
        lengths = self.table["length"]
        if counts.min() != counts.max() or lengths.min() != lengths.max():
            raise ValueError(
                "sweeps need equally many episodes of one length in every system, got "
                f"{counts.min()} to {counts.max()} of {lengths.min()} to {lengths.max()} observations"
            )
        if self.count > len(systems):
            raise ValueError(f"a sweep of {len(systems)} systems has no batch of {self.count} pairs")
        self._rows = order.reshape(len(systems), -1)
        self._starts = int(self.windows.last_start([0])[0]) + 1

    def identity(self) -> dict[str, Any]:
        """That of `PairedWindows`, with the schedule."""
        return super().identity() | {"sweeps": True}

    def draw(self, step: int) -> WindowPairs:
        """The pairs of a step: a part of the sweep that it lies in."""
        systems, replicates = self._rows.shape
        sweep, part = divmod(step, systems // self.count)
        rng = stream(self.pairs.seed, sweep, SWEEPS)
        recipient_start, donor_start = rng.integers(self._starts, size=2)
        replicate = rng.integers(replicates)
        other = (replicate + rng.integers(1, replicates)) % replicates
        recipients = rng.permutation(systems)[part * self.count : (part + 1) * self.count]
        shift = rng.integers(1, systems) if isinstance(self.kernel, Derangement) else 0  # last: recipients are shared
        rows = self._rows[recipients, replicate], self._rows[(recipients + shift) % systems, other]
        recipient, donor = (rows_of(each, self.table) for each in rows)
        starts = (np.full(self.count, start, np.int64) for start in (recipient_start, donor_start))
        return WindowPairs(recipient, next(starts), donor, next(starts))


def sweeps(relation: Relation, kernel: Kernel) -> bool:
    """Whether a pairing law has a schedule in sweeps."""
    return relation == SAME_SYSTEM and (isinstance(kernel, Uniform) or kernel == Derangement())
