"""From a bank of histories to training windows: a pure function of (seed, step)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.overcooked.bank import HistoryBank
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, Kernel, PairSampler, Relation, Uniform
from sprii_envs.relations.rows import rows_of
from sprii_envs.relations.streams import WINDOWS, below, stream
from sprii_train.learners.ad import QUERY, SUPPORT, PlayWindows

SPAN = SUPPORT + QUERY
"""Consecutive episodes of a window."""

LEAST = SPAN + 2 * SUPPORT - 1
"""Episodes of a history in which every window has another one of other support episodes."""


class PairedPlay:
    """Stacked donor and recipient windows: call it with a step.

    A window is five consecutive episodes of a history, from a uniformly drawn one on. Under a relation of one episode
    (`SAME_ROLLOUT`; a bank's episodes are histories) donor and recipient are windows of one history whose support
    episodes are different ones. Recipients are the same whatever the relation and kernel.

    Args:
        bank: of histories.
        split: where both sides come from.
        table: in place of all histories of the split.
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
        table: EpisodeTable | None = None,
    ) -> None:
        self.bank, self.table, self.count = bank, bank.split(split) if table is None else table, pairs
        if relation.same_episode and bank.protocol.episodes < LEAST:
            raise ValueError(
                f"histories have {bank.protocol.episodes} episodes; legal for pairs of one history: at least {LEAST}"
            )
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
        rng = stream(self.seed, step, WINDOWS)
        starts = rng.integers(last + 1, size=len(rows))
        if self.relation.same_episode:
            starts[: self.count] = _apart(rng, starts[self.count :], last)
        return read_windows(self.bank, self.table, rows, starts)


def read_windows(
    bank: HistoryBank, table: EpisodeTable, rows: NDArray[np.int64], starts: NDArray[np.int64]
) -> PlayWindows:
    """Five episodes of each row of a table (a selection of the bank's) from `starts` on."""
    read = (bank.windows(name, rows_of(rows, table), starts, SPAN) for name in ("observations", "actions", "rewards"))
    return PlayWindows(*map(torch.from_numpy, read))


def _apart(rng: np.random.Generator, starts: NDArray[np.int64], last: int) -> NDArray[np.int64]:
    """Uniform among the starts 0…last of windows whose support episodes are none of those that begin at `starts`."""
    before = np.maximum(0, starts - SUPPORT + 1)
    after = np.maximum(0, last - starts - SUPPORT + 1)
    place = below(rng, before + after)
    return np.where(place < before, place, starts + SUPPORT + place - before)
