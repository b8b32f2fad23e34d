"""From a bank of histories to training windows: a pure function of (seed, step)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.overcooked.bank import HistoryBank
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, Kernel, PairSampler, Relation, Uniform
from sprii_envs.relations.rows import rows_of
from sprii_envs.relations.streams import WINDOWS, stream
from sprii_train.learners.ad import QUERY, SUPPORT, PlayWindows

SPAN = SUPPORT + QUERY
"""Consecutive episodes of a window."""


class PairedPlay:
    """Stacked donor and recipient windows: call it with a step.

    A window is five consecutive episodes of a history, from a uniformly drawn one on.

    Args:
        bank: of histories.
        split: where both sides come from.
        relation, kernel: the pairing law over histories; the partner is the table's system.
        pairs: in a batch.
    """

    def __init__(
        self,
        bank: HistoryBank,
        split: str = "train",
        *,
        relation: Relation = SAME_SYSTEM,
        kernel: Kernel = Uniform(),  # noqa: B008 (frozen and stateless)
        pairs: int = 16,
        seed: int = 0,
    ) -> None:
        self.bank, self.table, self.count = bank, bank.split(split), pairs
        self.seed, self.relation, self.kernel = integer("seed", seed, most=WORD), relation, kernel
        # Recipients of different partners, while there are enough: otherwise a small batch may not be derangeable.
        distinct = "system" if pairs <= len(set(self.table["system"].tolist())) else None
        self.pairs = PairSampler(self.table, relation, kernel, seed=seed, distinct=distinct)

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        return {
            "bank": self.bank.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "sampler": self.pairs.fingerprint(),
            "relation": str(self.relation),
            "pairs": self.count,
            "seed": self.seed,
        }

    def __call__(self, step: int) -> PlayWindows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        drawn = self.pairs.batch(step, self.count)
        rows = np.concatenate([drawn.donor, drawn.recipient])
        last = self.bank.protocol.episodes - SPAN
        starts = stream(self.seed, step, WINDOWS).integers(last + 1, size=len(rows))
        return read_windows(self.bank, self.table, rows, starts)


def read_windows(
    bank: HistoryBank, table: EpisodeTable, rows: NDArray[np.int64], starts: NDArray[np.int64]
) -> PlayWindows:
    """Five episodes of each row of a table (a selection of the bank's) from `starts` on."""
    read = (bank.windows(name, rows_of(rows, table), starts, SPAN) for name in ("observations", "actions", "rewards"))
    return PlayWindows(*map(torch.from_numpy, read))
