"""Relation pairs for `torch.utils.data`: any number of workers and ranks, one stream, exact resume.

Pairs are drawn in the main process, a pure function of (seed, step); workers only read. So workers, start method,
prefetching and world size cannot change a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, distributed
from torch.utils.data import DataLoader, Dataset, Sampler

from sprii_envs.arguments import WORD, integer
from sprii_envs.banks import Bank
from sprii_envs.relations import PairSampler, TableRows, WindowSampler
from sprii_envs.relations.coercion import plain_array

Batch = dict[str, Any]
"""{"recipient": {column: tensor}, "donor": {column: tensor}, "index": tensor}."""
KEYS = ("recipient", "recipient_start", "donor", "donor_start")
"""Columns of an index batch: an episode id and the first observation of its window, for both sides."""


class PairBatches(Sampler[Any]):
    """Index batches (n, 4) int64, columns `KEYS`: a `batch_sampler` for `DataLoader`.

    Step t is `pairs.batch(t, size)` with its windows. A rank yields its slice of that one global batch, so the ranks
    are disjoint and their union is the batch of a single process, whatever the world size.

    Args:
        pairs, windows: of one table; any relation, kernel and law
        size: pairs in a global batch
        length: batches in an epoch; epoch e has the steps e·length … (e + 1)·length − 1
        rank, world_size: by default those of `torch.distributed` where it is initialised, else 0 of 1. ValueError if
            the ranks do not divide `size`.

    `step` is the global step that the next iteration begins at; iterating does not move it (`PairLoader` does, by
    batches consumed), since workers prefetch. With a plain `DataLoader`, set `step` yourself or call `set_epoch`.
    """

    def __init__(
        self,
        pairs: PairSampler,
        windows: WindowSampler,
        size: int = 48,
        length: int = 1000,
        *,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError(f"give both rank and world_size or neither, got {rank} and {world_size}")
        if len(windows.lengths) != len(pairs.table):
            raise ValueError(f"windows know {len(windows.lengths)} episodes, pairs {len(pairs.table)}: use one table")
        windows.check_table(pairs.table.rows_fingerprint())
        grouped = distributed.is_available() and distributed.is_initialized()
        if world_size is None:
            rank, world_size = (distributed.get_rank(), distributed.get_world_size()) if grouped else (0, 1)
        self.pairs, self.windows, self.step = pairs, windows, 0
        self.size, self.length = integer("size", size, least=1), integer("length", length, least=1, most=WORD)
        self.world_size = integer("world_size", world_size, least=1)
        self.rank = integer("rank", rank, most=self.world_size - 1)  # type: ignore[arg-type]
        if self.size % self.world_size:
            raise ValueError(f"{self.size} pairs cannot be shared evenly by {self.world_size} ranks: take a multiple")

    def batch(self, step: int) -> NDArray[np.int64]:
        """This rank's slice of a step's index batch, (size / world_size, 4)."""
        w = self.windows.batch(step, self.pairs.batch(step, self.size), self.pairs.relation)
        ids, share = self.pairs.table["episode"], self.size // self.world_size
        index = np.stack([ids[w.recipient], w.recipient_start, ids[w.donor], w.donor_start], axis=1)
        return index[self.rank * share : (self.rank + 1) * share]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """The batches left in the epoch that `step` lies in."""
        return map(self.batch, range(self.step, (self.step // self.length + 1) * self.length))

    def __len__(self) -> int:
        """Batches in a whole epoch; a resumed one yields those that are left."""
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration at an epoch's first step."""
        self.step = integer("epoch", epoch, most=WORD) * self.length

    def state_dict(self) -> dict[str, Any]:
        """`step` and what fixes the stream; the world size is no part of it."""
        return {**self._fixed(), "step": self.step, "pairs": self.pairs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved step, on any number of ranks; ValueError for the state of another stream."""
        if not isinstance(state, Mapping):
            raise ValueError(f"the state must be what state_dict() gave, got {state!r}")
        fixed = {"apart": None} | self._fixed()
        differ = [f"{k} {state.get(k)!r}, here {v!r}" for k, v in fixed.items() if state.get(k) != v]
        if differ or not {"step", "pairs"} <= set(state):
            raise ValueError(f"this state belongs to other batches: {'; '.join(differ) or 'no step or no pairs'}")
        self.pairs.load_state_dict(state["pairs"])
        self.step = integer("step", state["step"], most=WORD)

    def _fixed(self) -> dict[str, int]:
        w = self.windows
        return {
            **{"size": self.size, "length": self.length},
            **{"history": w.history, "horizon": w.horizon, "window_seed": w.seed},
            **({} if w.apart is None else {"apart": w.apart}),
        }


class PairedWindowDataset(Dataset[Batch]):
    """Windows of a bank, as tensors, for index batches with the columns `KEYS`.

    `dataset[index]` with (n, 4) gives a batch, with (4,) one pair: `{"recipient": {column: …}, "donor": {column: …},
    "index": …}`. A column per observation has `length` entries, (n, length, …), one per transition `length − 1`.
    "frames" are those of `Bank.frames`, uint8, of the size `frame_size` (by default as stored).

    Pickled, it carries the bank's path and no data. BankError for a column or a window that the bank has not.
    """

    def __init__(
        self,
        bank: Bank,
        length: int,
        columns: Sequence[str] = ("states", "actions"),
        frame_size: int | Sequence[int] | None = None,
    ) -> None:
        self.bank, self.length, self.frame_size = bank, integer("length", length, least=2), frame_size
        self.columns = tuple(columns)
        for name in self.columns:
            if name != "frames":
                bank.column(name)

    def __len__(self) -> int:
        """Episodes in the bank."""
        return len(self.bank)

    def __getitem__(self, index: ArrayLike) -> Batch:
        array = index if isinstance(index, TableRows) else plain_array("an index", index)
        if array.shape[-1:] != (len(KEYS),) or array.ndim > 2 or array.dtype.kind not in "iu":
            raise ValueError(
                f"an index is (n, 4) or (4,) integers ({', '.join(KEYS)}), got {array.dtype} {array.shape}"
            )
        if array.ndim == 1:
            return self.__getitems__(array[None])[0]
        sides = {"recipient": array[:, :2], "donor": array[:, 2:]}
        return {side: self._windows(*which.T) for side, which in sides.items()} | {"index": torch.tensor(array)}

    def __getitems__(self, indices: ArrayLike) -> list[Batch]:
        """The pairs of one batch, read at once; for `DataLoader`'s own collation."""
        batch = self[indices]
        return [
            {
                name: {k: v[i] for k, v in part.items()} if isinstance(part, dict) else part[i]
                for name, part in batch.items()
            }
            for i in range(len(np.asarray(indices)))
        ]

    def _windows(self, episodes: NDArray[np.int64], starts: NDArray[np.int64]) -> dict[str, Tensor]:
        out = {}
        for name in self.columns:
            if name == "frames":
                array = self.bank.frames(episodes, starts, self.length, self.frame_size)
            else:
                entries = self.length - (self.bank.column(name).per == "transition")
                array = self.bank.windows(name, episodes, starts, entries)
            out[name] = torch.from_numpy(array)
        return out


class PairLoader(DataLoader[Batch]):
    """A `DataLoader` of whole batches that counts what it has handed out, so that it can be saved mid-epoch.

    `for batch in loader` runs to the end of the epoch, and the next loop is the next epoch; after a `break` or
    `load_state_dict` it goes on behind the last batch consumed, whatever was prefetched. Further arguments are
    `DataLoader`'s (num_workers, prefetch_factor, pin_memory, …). ValueError if the pairs are of another bank than the
    dataset's.
    """

    def __init__(self, dataset: Dataset[Batch], batches: PairBatches, **arguments: Any) -> None:
        if isinstance(dataset, PairedWindowDataset):
            dataset.bank.table.locate(batches.pairs.table.every())
        super().__init__(dataset, sampler=batches, batch_size=None, **arguments)
        self.batches = batches

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().__iter__():
            self.batches.step += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The state behind the last batch consumed."""
        return self.batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there; see `PairBatches.load_state_dict`."""
        self.batches.load_state_dict(state)
