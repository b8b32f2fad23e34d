"""Embeddings of a frozen stem in place of states: every frame is seen once, and kept in half precision.

    e = half(stem(frame_t, frame_t − frame_{t−1}))     (episodes, observations, d), one file, memory-mapped

A frame's embedding depends on no other frame than the one before it, so that any window is a slice.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.files import check_file, inventory, read_json, recover, write_json, written_folder
from sprii_train.checkpoints import CheckpointError
from sprii_train.data import Rows, WindowReader
from sprii_train.learners.pretext import Pretext

CHUNK = 16
"""Episodes embedded at once: bounds memory, changes nothing."""

Progress = Callable[[int, int], None]
"""Of episodes embedded, and of all."""


@torch.no_grad()
def embedded(stem: Pretext, frames: NDArray[np.uint8], precision: str = "fp32") -> NDArray[np.float16]:
    """Frames (n, 1 + T, H, W), the one before the first in front → embeddings (n, T, d) by a stem in evaluation mode.

    Args:
        precision: `fp32` or `bf16`, of the stem's products.
    """
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return stem.eval().embed(torch.from_numpy(frames)).half().numpy()


class Embeddings:
    """The embeddings of some episodes of a bank, read-only and memory-mapped.

    Args:
        folder: that `write` has made.

    Raises:
        CheckpointError: naming the file that is missing, damaged or of another shape.
    """

    def __init__(self, folder: Path) -> None:
        recover(folder)
        remedy = f"remove {folder} and repeat the command"
        told = read_json(folder / "embeddings.json", CheckpointError, remedy)
        for name in ("embeddings.npy", "episodes.npy"):
            entry = told.get("files", {}).get(name)
            # Of a third of a gigabyte the size is enough; it was written whole.
            check_file(folder / name, entry, checksums=False, error=CheckpointError, remedy=remedy)
        self.folder, self.described = folder, told
        self.values = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
        self.episodes = np.load(folder / "episodes.npy", allow_pickle=False)
        if self.values.ndim != 3 or len(self.values) != len(self.episodes):
            raise CheckpointError(f"{folder} holds {self.values.shape} of {len(self.episodes)} episodes; {remedy}")

    def rows(self, episodes: Rows) -> NDArray[np.int64]:
        """Where episodes (n,) are, −1 for those that are not."""
        found = np.searchsorted(self.episodes, episodes).clip(max=len(self.episodes) - 1)
        return np.where(self.episodes[found] == episodes, found, -1)

    @staticmethod
    def write(
        folder: Path,
        stem: Pretext,
        bank: Bank,
        splits: Sequence[str],
        precision: str,
        identity: dict[str, Any],
        progress: Progress = lambda done, count: None,
    ) -> None:
        """Embed every frame of every episode of some splits, whole or not at all.

        Args:
            identity: kept beside them, for people: whose stem and whose frames.
        """
        episodes = np.sort(np.concatenate([bank.split(split)["episode"] for split in splits]))
        image, length = stem.config.image, int(bank.table["length"].max())
        with written_folder(folder) as part:
            shape = (len(episodes), length, stem.config.embedding)
            values = open_memmap(part / "embeddings.npy", mode="w+", dtype=np.float16, shape=shape)
            for first in range(0, len(episodes), CHUNK):
                some = episodes[first : first + CHUNK]
                frames = bank.frames(some, np.zeros(len(some), np.int64), length, image)
                frames = np.concatenate([frames[:, :1], frames], axis=1)  # nothing moved before the first
                values[first : first + CHUNK] = embedded(stem, frames, precision)
                progress(first + len(some), len(episodes))
            values.flush()
            np.save(part / "episodes.npy", episodes, allow_pickle=False)
            kept = {"identity": identity, "splits": list(splits), "shape": list(shape), "dtype": "float16"}
            write_json(part / "embeddings.json", kept | {"files": inventory(part)})


class EmbeddingReader(WindowReader):
    """Windows of a frozen stem's embeddings, as of a column of states; see `WindowReader`.

    Args:
        stem: makes the stem, for episodes that are not among the embeddings: these are drawn and seen as they are read.
        embeddings: of the bank's episodes; None has none of them.
        precision: see `embedded`.
    """

    def __init__(
        self,
        bank: Bank,
        history: int,
        horizons: tuple[int, ...],
        properties: tuple[str, ...] = (),
        *,
        stem: Callable[[], Pretext],
        embeddings: Embeddings | None = None,
        precision: str = "fp32",
    ) -> None:
        super().__init__(bank, history, horizons, properties)
        if not isinstance(bank, Bank):
            raise ValueError(f"{getattr(bank, 'name', bank)!r} draws no frames, of which embeddings are")
        self.stem, self.embeddings, self.precision = stem, embeddings, precision

    def columns(self, episodes: Rows, starts: Rows, length: int) -> torch.Tensor:
        """Embeddings (n, length, d) float32, of half precision's digits."""
        episodes, starts = self._episodes(episodes), np.asarray(starts, np.int64)
        rows = np.full(len(episodes), -1) if self.embeddings is None else self.embeddings.rows(episodes)
        seen = rows >= 0
        if seen.all() and self.embeddings is not None:
            return torch.from_numpy(self._kept(rows, starts, length))
        made = np.concatenate(
            [self._made(episodes[~seen][i : i + CHUNK], starts[~seen][i : i + CHUNK], length)
             for i in range(0, int((~seen).sum()), CHUNK)]
        )  # fmt: skip
        found = np.empty((len(episodes), *made.shape[1:]), np.float32)
        found[~seen] = made
        if seen.any():
            found[seen] = self._kept(rows[seen], starts[seen], length)
        return torch.from_numpy(found)

    def _kept(self, rows: Rows, starts: Rows, length: int) -> NDArray[np.float32]:
        assert self.embeddings is not None
        values = self.embeddings.values
        if len(starts) and not (starts.min() >= 0 and starts.max() + length <= values.shape[1]):
            raise ValueError(
                f"a window of {length} observations begins at {int(starts.max())}; legal: within an episode's "
                f"{values.shape[1]}"
            )
        return values[rows[:, None], starts[:, None] + np.arange(length)].astype(np.float32)

    def _made(self, episodes: Rows, starts: Rows, length: int) -> NDArray[np.float32]:
        stem = self.stem()
        before = self._bank.frames(episodes, np.maximum(starts - 1, 0), 1, stem.config.image)
        frames = self._bank.frames(episodes, starts, length, stem.config.image)
        return embedded(stem, np.concatenate([before, frames], axis=1), self.precision).astype(np.float32)
