"""Cached features of a CoPhy bank: what a frozen front end makes of every frame of every pair, a store of its own.

Which objects there are is taken from the bank's labels, not from the front end's presence head: it says which objects
a reader may be asked about, not what they are like. Objects stand in the order of their slots. Of an object that an
intervention has removed, the entries of CD are what the front end makes of its absence.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import RecordedBank, Recording, Store, StoreError, StreamSpec, open_store, register_store
from sprii_envs.banks.recorded import MANIFEST
from sprii_envs.cophy.bank import frames, slots
from sprii_envs.cophy.protocols import VIDEOS
from sprii_envs.processes import in_order
from sprii_train.cophy.frontend import (
    FEATURES,
    FrontEnd,
    FrontEndConfig,
    one_thread,
    picture_digest,
    see,
    trunk,
)
from sprii_train.identity import code_of

Array = NDArray[Any]
Rows = NDArray[np.int64]

OWN = {"features": (FEATURES, "float16"), "poses": (3, "float32"), "boxes": (4, "float32")}
"""Columns of the cache: numbers an object, and their type."""
TOGETHER = 8
"""Episodes that a worker sees at once; each by itself, so that the bytes do not depend on it."""


class Features(RecordedBank):
    """The features of a CoPhy bank of E pairs, with O objects each, over T frames: a store over mapped files.

    Its rows, labels and splits are the bank's, and its columns the bank's and its own: `features`, `poses` (estimated
    positions, in the scene's units) and `boxes` (estimated corners, as fractions of the picture), of which an episode
    has one entry (2, T, O, …) whose first axis is the video: 0 AB, 1 CD.

    Attributes:
        bank: the CoPhy bank.
        slot: (E, O) int64 colour slots, increasing.
        kind: (E, O) int64 visible types.
    """

    FORMAT: ClassVar[str] = "sprii-cophy-features"
    REMEDY: ClassVar[str] = "remove the folder, and let features_of write it again"

    def __init__(self, path: files.StrPath, *, verify: bool = False) -> None:
        """Open the features in a folder and the bank that they are of; with `verify`, compare checksums.

        Raises:
            StoreError: naming the file that is missing, damaged or of another format, or for a bank that is another.
        """
        super().__init__(path, verify=verify)
        try:
            place, fingerprint = self.path.parent / self.origin["bank"], self.origin["bank_fingerprint"]
        except (KeyError, TypeError) as error:
            raise StoreError(f"{self.path / MANIFEST} is damaged: it names no bank; {self.REMEDY}") from error
        self.bank: Store = open_store(place)
        if self.bank.fingerprint != fingerprint:
            raise StoreError(f"{self.path} are features of another bank than lies in {place}; {self.REMEDY}")
        self.table = self.bank.table
        self.slot, self.kind = objects(self.bank)

    @classmethod
    def open(cls, path: files.StrPath) -> "Features":
        """The features in a folder; see the class."""
        return cls(path)

    @property
    def features(self) -> NDArray[np.float16]:
        """(E, 2, T, O, 784), none negative."""
        return self.streams["features"].values

    @property
    def poses(self) -> NDArray[np.float32]:
        """(E, 2, T, O, 3), estimated."""
        return self.streams["poses"].values

    @property
    def boxes(self) -> NDArray[np.float32]:
        """(E, 2, T, O, 4), estimated."""
        return self.streams["boxes"].values

    @property
    def columns(self) -> tuple[str, ...]:
        """The cache's columns, then the bank's."""
        return (*self.streams, *self.bank.columns)

    @property
    def quality(self) -> Mapping[str, Any]:
        """What was measured of the front end, see `frontend.quality`."""
        return self.origin["quality"]

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows of a column, the bank's too; see `ArrayStore.windows`."""
        if column not in self.streams and column in self.bank.columns:
            return self.bank.windows(column, episodes, starts, length)
        return super().windows(column, episodes, starts, length)

    def verify(self, *, checksums: bool = True) -> None:
        """StoreError naming the first file, here or of the bank, that is not what was written."""
        self.bank.verify(checksums=checksums)
        super().verify(checksums=checksums)


def objects(store: Store) -> tuple[Rows, Rows]:
    """Slots and kinds (E, O) of the objects of every pair, in the order of the slots.

    Raises:
        StoreError: for pairs of unlike numbers of objects.
    """
    kind = np.asarray(slots(store, np.arange(len(store.table))).kind, np.int64)
    counts = np.unique((kind >= 0).sum(1))
    if len(counts) != 1 or not counts[0]:
        raise StoreError(f"{store.name} has pairs of {', '.join(map(str, counts))} objects; legal: one number of them")
    slot = np.nonzero(kind >= 0)[1].reshape(len(kind), counts[0])
    return slot, np.take_along_axis(kind, slot, 1)


def described(bank: Store, frontend: FrontEnd) -> dict[str, Any]:
    """What features depend on: bank, pictures, weights and code."""
    return {
        "kind": "perceived",
        "bank_fingerprint": bank.fingerprint,
        "pictures": picture_digest(bank, frontend.config.size),
        "frontend": frontend.digest,
        "network": {name: getattr(frontend.config, name) for name in ("trunk", "size", "width", "hidden")},
        "code": code_of(trunk, FrontEnd.forward, FrontEnd.frozen, see, _seen),
    }


def features_of(
    bank: Store,
    frontend: FrontEnd,
    path: files.StrPath,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    quality: Mapping[str, Any] | None = None,
) -> Features:
    """The features that a frozen front end has of a CoPhy bank, in half precision, written at `path` or found there.

    After a kill the same call goes on behind the last episode, and ends in the same bytes, for any number of workers.

    Args:
        bank: of a folder.
        workers: processes, of one thread each.
        progress: called with (episodes done, of).
        quality: kept with the features, see `train_frontend`.

    Raises:
        StoreError: for a path that holds anything else: features of another bank, front end or code.
    """
    workers, path = integer("workers", workers, least=1, most=WORKERS), files.absolute(path)
    length = np.unique(bank.table["length"])
    if len(length) != 1:
        raise StoreError(f"{bank.name} has videos of {length.min()} to {length.max()} frames; legal: one length")
    slot, _ = objects(bank)
    t, o = int(length[0]), slot.shape[1]
    wanted = described(bank, frontend)
    if (path / MANIFEST).exists():
        found = Features(path)
        if other := [name for name, value in wanted.items() if found.origin.get(name) != value]:
            raise StoreError(f"{path} holds other features (of another {', '.join(other)}); choose another folder")
        return found
    tell = progress or (lambda done, of: None)
    specs = {name: StreamSpec((2, t, o, n), kind, rate=str(Fraction(1, t))) for name, (n, kind) in OWN.items()}
    table, total = bank.table, len(bank.table)
    origin = wanted | {"bank": os.path.relpath(files.absolute(bank.name), path.parent), "quality": dict(quality or {})}
    with Recording(path, specs, origin, sealed=bank.sealed_splits, bank=Features) as recording:
        tell(recording.done, total)
        left = range(recording.done, total)
        chunks = [np.array(left[i : i + TOGETHER]) for i in range(0, len(left), TOGETHER)]
        weights = {name: value.numpy() for name, value in frontend.state_dict().items()}
        work = partial(_seen, frontend.config, frontend.slots, weights, bank, t)
        with closing(in_order(work, chunks, min(workers, max(1, len(chunks))))) as seen:
            for rows, episodes in zip(chunks, seen, strict=True):
                for row, arrays in zip(rows, episodes, strict=True):
                    labels = {name: table[name][row] for name in ("system", "episode", "rollout", "split")}
                    recording.append(arrays, length=t, **labels)
                    tell(recording.done, total)
    return Features(path)


def _seen(
    config: FrontEndConfig, count: int, weights: dict[str, Array], bank: Store, t: int, rows: Rows
) -> list[dict[str, Array]]:
    """The entries of some episodes: each is one batch, whatever it is seen with."""
    frontend = FrontEnd(config, count)
    frontend.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    frontend, slot, times = frontend.frozen(), objects(bank)[0], np.arange(t)[None]
    found = []
    with one_thread():
        for row in rows:
            pictures = [frames(bank, row[None], video, times, config.size)[0] for video in VIDEOS]
            seen = see(frontend, np.concatenate(pictures), 2 * t)
            parts = {"features": seen.features, "poses": seen.position, "boxes": seen.box}
            found.append(
                {
                    name: part.numpy()[:, slot[row]].reshape(2, t, -1, part.shape[-1])[None].astype(OWN[name][1])
                    for name, part in parts.items()
                }
            )
    return found


def place_of(bank: Store, frontend: FrontEnd) -> Path:
    """Where the features of a bank lie beside it, by all that they depend on."""
    digest = hashlib.sha256(json.dumps(described(bank, frontend), sort_keys=True).encode()).hexdigest()[:12]
    folder = files.absolute(bank.name)
    return folder.with_name(f"{folder.name}-features-{digest}")


register_store(Features.FORMAT, "sprii_train.cophy.features:Features")
