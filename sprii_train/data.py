"""From a bank to training windows: a pure function of (seed, step), so that nothing about it needs to be saved."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Bank
from sprii_envs.relations import (
    SAME_SYSTEM,
    EpisodeTable,
    Kernel,
    PairSampler,
    Relation,
    Uniform,
    WindowSampler,
)
from sprii_train.protocol import Windows


class WindowReader:
    """Histories, future actions and targets of a bank's episodes, read at the learner's horizons.

    Args:
        bank: with columns `states` (E, T, S) and `actions` (E, T−1, A).
        history: observations in a history.
        horizons: increasing; the last one bounds the future.
        properties: names of the persistent properties given as labels, standardised by the training systems.
    """

    def __init__(
        self,
        bank: Bank,
        history: int = 24,
        horizons: tuple[int, ...] = (1, 4, 16),
        properties: tuple[str, ...] = (),
    ) -> None:
        if not horizons or list(horizons) != sorted(set(horizons)) or horizons[0] < 1:
            raise ValueError(f"horizons are {horizons}; legal: increasing steps >= 1, such as (1, 4, 16)")
        self.bank, self.history, self.horizons = bank, history, horizons
        self._targets = np.asarray(horizons) - 1
        values = _columns(bank.table, properties)
        train = _columns(bank.split("train"), properties)
        self._labels = (values - train.mean(0)) / train.std(0) if properties else None

    def read(self, episodes: NDArray[np.int64], starts: NDArray[np.int64]) -> Windows:
        """Windows (n, …) of episodes (n,) beginning at observations `starts` (n,)."""
        last = self.horizons[-1]
        states = self.bank.windows("states", episodes, starts, self.history + last)
        actions = self.bank.windows("actions", episodes, starts, self.history - 1 + last)
        labels = None if self._labels is None else _tensor(self._labels[episodes])
        return Windows(
            _tensor(states[:, : self.history]),
            _tensor(actions[:, : self.history - 1]),
            _tensor(states[:, self.history + self._targets]),
            _tensor(actions[:, self.history - 1 :]),
            labels,
        )


class PairedWindows:
    """Stacked donor/recipient windows of one split: call it with a step.

    Args:
        reader: reads the windows.
        split: the split that both sides come from.
        relation, kernel: the pairing law; see `sprii_envs.relations`.
        pairs: pairs in a batch; recipients come from that many distinct systems.
    """

    def __init__(
        self,
        reader: WindowReader,
        split: str = "train",
        *,
        relation: Relation = SAME_SYSTEM,
        kernel: Kernel = Uniform(),  # noqa: B008 (frozen and stateless)
        pairs: int = 48,
        seed: int = 0,
    ) -> None:
        self.reader, self.relation, self.count = reader, relation, pairs
        self.table = reader.bank.split(split)
        self.pairs = PairSampler(self.table, relation, kernel, seed=seed, distinct="system")
        self.windows = WindowSampler(self.table, history=reader.history, horizon=reader.horizons[-1], seed=seed)

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        return {
            "bank": self.reader.bank.fingerprint,
            "sampler": self.pairs.fingerprint(),
            "relation": str(self.relation),
            "pairs": self.count,
            "seed": self.pairs.seed,
            "history": self.reader.history,
            "horizons": list(self.reader.horizons),
        }

    def __call__(self, step: int) -> Windows:
        """Rows 0…n−1 are the donors of rows n…2n−1."""
        w = self.windows.batch(step, self.pairs.batch(step, self.count), self.relation)
        rows = np.concatenate([w.donor, w.recipient])
        return self.reader.read(self.table["episode"][rows], np.concatenate([w.donor_start, w.recipient_start]))


def _columns(table: EpisodeTable, names: tuple[str, ...]) -> NDArray[np.float64]:
    return np.stack([table[name] for name in names], axis=1) if names else np.empty((len(table), 0))


def _tensor(array: NDArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
