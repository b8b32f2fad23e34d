"""Relation pairs in TorchRL: `ReplayBuffer(storage=..., sampler=RelationSampler(pairs), batch_size=48)`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from sprii_envs.dependencies import needed
from sprii_envs.files import read_json, write_json
from sprii_envs.relations import FlatPairs, PairSampler, StaleError, WindowSampler

with needed("sprii_train.plugins.torchrl needs TorchRL", "torchrl tensordict", "torchrl", "tensordict"):
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data.replay_buffers.samplers import Sampler
    from torchrl.data.replay_buffers.storages import Storage, TensorStorage

_STATE = "relation_sampler.json"


class RelationSampler(Sampler):
    """A replay-buffer sampler of `batch_size` pairs of related episodes, or of windows of them.

    A sample has the leading axes (2, batch_size), with windows (2, batch_size, history), so
    `recipient, donor = buffer.sample()`; `as_pairs` names the two. The k-th sample is `pairs.batch(k, batch_size)`: it
    depends on the pair sampler's seed and step, not on the buffer's generator. With `prefetch=2` or more TorchRL's
    threads race for the steps: each is drawn once, in no fixed order. The info has "correct": whether a pair satisfies
    the relation, in the shape of the sample.

    `pairs`, `windows` and `first` are those of `FlatPairs`. They describe a one-dimensional tensor storage as it is, or
    as it will be once it is filled for the first time. When one of their entries is written again `sample` raises
    StaleError, and so it does when a buffer has loaded a storage that the table does not describe: give the buffer
    (`set_sampler`) a sampler of a new table. ValueError for another kind of storage, or one
    that the table reaches beyond.
    """

    def __init__(
        self, pairs: PairSampler, windows: WindowSampler | None = None, first: ArrayLike | None = None
    ) -> None:
        self.flat = FlatPairs(pairs, windows, first)
        self._described = self.flat.described()
        self._writes = np.zeros(self.flat.entries, np.int64)  # of each entry, since the buffer has this sampler
        self._legal: int | None = None  # how many of them change nothing: 1 where they fill an empty storage
        self._stale = False

    @property
    def pairs(self) -> PairSampler:
        """The pair sampler, whose `step` is that of the next sample."""
        return self.flat.pairs

    def mark_update(self, index: int | torch.Tensor, *, storage: Storage | None = None) -> None:
        """Called by the writers of a storage, of whichever buffer, when entries have been written."""
        written = np.atleast_1d(torch.as_tensor(index).cpu().numpy()).ravel()
        if self._legal is None:
            # The count of a storage's changes is private to TorchRL; versions without it know only its length.
            first = len(written) == len(storage) and getattr(storage, "_mutation_revision", 1) == 1  # type: ignore[arg-type]
            self._legal = int(first)
        written = written[written < self.flat.entries]
        written = written[self._described[written]]
        np.add.at(self._writes, written, 1)
        self._stale |= bool((self._writes[written] > self._legal).any())

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Entries (2, n) or (2, n, history) and {"correct"}; one step on."""
        held = len(storage)  # type: ignore[arg-type]
        if not isinstance(storage, TensorStorage) or storage.ndim != 1 or held < self.flat.entries:
            raise ValueError(
                f"the episode table needs a LazyTensorStorage or LazyMemmapStorage of one dimension and at least "
                f"{self.flat.entries} entries; this {type(storage).__name__} has {storage.ndim} and {held}"
            )
        if self._stale:
            raise StaleError
        entries, correct = (torch.from_numpy(array) for array in self.flat.batch(self.pairs.step, batch_size))
        self.pairs.step += 1
        while correct.ndim < entries.ndim - 1:
            correct = correct[..., None]
        return entries, {"correct": correct.expand(entries.shape).clone()}

    def state_dict(self) -> dict[str, Any]:
        """The pair sampler's state, and what this table has to do with the storage that is saved next to it."""
        filling = self._legal == 1 and bool((self._writes[self._described] == 0).any())
        storage = {"layout": self.flat.layout(), "stale": self._stale, "filling": filling}
        return {**self.pairs.state_dict(), "storage": storage}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there; ValueError for the state of another law or table.

        A buffer has loaded its storage by now. Where the saved sampler lay otherwise in it, or was stale, so is this
        one from here on, whether its pairs can continue or not. What was stale before remains so.
        """
        saved = state_dict.get("storage") if isinstance(state_dict, Mapping) else None
        if saved is not None:  # a state of the pairs alone says nothing of a storage
            self._stale |= bool(saved["stale"]) or saved["layout"] != self.flat.layout()
            if not saved["filling"] and self._legal == 1:
                self._writes = np.maximum(self._writes, 1)  # the loaded entries are there: no filling is left to do
        self.pairs.load_state_dict(state_dict)

    def dumps(self, path: str | Path) -> None:
        """Write the state as JSON into the folder `path`."""
        write_json(Path(path) / _STATE, self.state_dict())

    def loads(self, path: str | Path) -> None:
        """Read what `dumps` wrote; ValueError naming the file if it is missing or damaged."""
        self.load_state_dict(read_json(Path(path) / _STATE))

    def _empty(self) -> None:
        """The episodes of the table are gone."""
        self._stale = True


def as_pairs(sample: TensorDictBase) -> TensorDict:
    """{"recipient": …, "donor": …} of a sample; its batch size is that of one side.

    Also a `transform` of `ReplayBuffer`. `TensorDictReplayBuffer` adds its indices after transforms, in the shape of
    the sample: apply it to what `sample()` returns there.
    """
    return TensorDict({"recipient": sample[0], "donor": sample[1]}, batch_size=sample.batch_size[1:])
