"""Banks of counterfactual pairs: built from a protocol, and read back as slots, states and pictures."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.arguments import choice, instance, integer, integer_array, shown
from sprii_envs.banks import RecordedBank, Store, StoreError
from sprii_envs.banks.generated import Progress, build_generated
from sprii_envs.checks import whole
from sprii_envs.cophy.objects import COLOURS, FRAMES, GRAVITY, PROPERTIES
from sprii_envs.cophy.protocols import PROTOCOLS, VIDEOS, CoPhyProtocol, kinds_of
from sprii_envs.videos import smaller

if TYPE_CHECKING:
    from sprii_envs.cophy.simulation import Pairs

__all__ = [
    "PROTOCOLS",
    "CoPhyProtocol",
    "Slots",
    "boxes",
    "build_cophy",
    "frames",
    "pairs",
    "scene_of",
    "slots",
    "states",
]

PICTURE = 1024
"""Pixels along a side at most."""


class Slots(NamedTuple):
    """What persists in N pairs; absent slots have kind -1 and zeros."""

    kind: NDArray[np.int8]  # (N, K)
    mass: NDArray[np.float64]  # (N, K) kg
    friction: NDArray[np.float64]  # (N, K)
    restitution: NDArray[np.float64]  # (N, K); 0 throughout where the scene does not vary it and none was told
    gravity: NDArray[np.float64]  # (N, 3) m/s²


def build_cophy(
    protocol: CoPhyProtocol, path: files.StrPath, *, workers: int = 1, progress: Progress | None = None
) -> RecordedBank:
    """Build the bank of `protocol` at `path`, or open it if it is there already; see `build_generated`.

    Columns `ab_states`, `cd_states` (T, K, 13) and `ab_boxes`, `cd_boxes` (T, K, 4), in pixels of 224, float32.

    Raises:
        ValueError: for no protocol of CoPhy, or no number of workers.
        StoreError: as `build_generated`.
        PackageImportError: without MuJoCo.
    """
    return build_generated(instance("protocol", protocol, of=CoPhyProtocol), path, workers=workers, progress=progress)


def scene_of(store: Store) -> str:
    """The scene of a bank; StoreError for a store of anything else."""
    scenes = set(store.table["scene"].tolist()) if "scene" in store.table else set()
    if len(scenes) != 1 or (scene := scenes.pop()) not in COLOURS:
        raise StoreError(f"{store.name} is no bank of one of CoPhy's scenes: {', '.join(COLOURS)}")
    return scene


def slots(store: Store, rows: ArrayLike) -> Slots:
    """What persists in the pairs in some rows (N,) of a bank's table.

    ValueError for rows that the table has not; StoreError for a store of anything else.
    """
    count, at = len(COLOURS[scene_of(store)]), _rows(store, rows)

    def each(name: str) -> NDArray:
        return np.stack([store.table[f"{name}_{slot}"][at] for slot in range(count)], axis=-1)

    gravity = [store.table["gravity_x"][at], store.table["gravity_y"][at], np.full(at.shape, GRAVITY)]
    mass, friction, restitution = map(each, PROPERTIES)
    return Slots(each("kind").astype(np.int8), mass, friction, restitution, np.stack(gravity, axis=-1))


def states(store: Store, rows: ArrayLike, video: str, times: ArrayLike | None = None) -> NDArray[np.float32]:
    """States (N, T, K, 13) of pairs in some rows (N,) at `times` (T,) or (N, T), by default all; see `frames`."""
    return _entries(store, f"{choice('video', video, legal=VIDEOS)}_states", rows, times)


def pairs(store: Store, rows: ArrayLike) -> "Pairs":
    """Pairs in some rows (N,) of a bank's table, as `simulate` gives them."""
    from sprii_envs.cophy.simulation import Pairs

    of = slots(store, rows)
    told = tuple(store.table["explanation"][_rows(store, rows)].tolist())
    return Pairs(states(store, rows, "ab"), states(store, rows, "cd"), *of, told)


def boxes(store: Store, rows: ArrayLike, video: str, times: ArrayLike | None = None) -> NDArray[np.float32]:
    """Boxes (N, T, K, 4) in pixels of 224: x1, y1, x2, y2; else as `states`."""
    return _entries(store, f"{choice('video', video, legal=VIDEOS)}_boxes", rows, times)


def frames(store: Store, rows: ArrayLike, video: str, times: ArrayLike | None, size: int) -> NDArray[np.uint8]:
    """Pictures (N, T, size, size, 3) of pairs in some rows (N,) of a bank's table.

    Those that the bank holds, made smaller where they are larger; or else drawn from its states.

    Args:
        video: "ab" or "cd".
        times: (T,) of every row, or (N, T); None: all.
        size: pixels along a side.

    Raises:
        ValueError: for rows that the table has not, no such video, and a size that is larger than the bank's own
            pictures, or less than 8 where they are drawn.
        StoreError: for a time that no video has, and for a store of anything else.
    """
    scene = scene_of(store)
    column = f"{choice('video', video, legal=VIDEOS)}_frames"
    size = integer("size", size, least=1 if column in store.columns else 8, most=PICTURE)
    if column in store.columns:
        return smaller(_entries(store, column, rows, times), size)
    from sprii_envs.cophy.pictures import pictures

    found = _entries(store, f"{video}_states", rows, times)
    n, t = found.shape[:2]
    kinds = kinds_of(found, slots(store, rows).kind)
    return pictures(scene, found.reshape(n * t, *found.shape[2:]), kinds, size).reshape(n, t, size, size, 3)


def _entries(store: Store, column: str, rows: ArrayLike, times: ArrayLike | None) -> NDArray:
    """Entries (N, T, *item) of a column."""
    at = _rows(store, rows)
    when = np.arange(FRAMES[scene_of(store)]) if times is None else integer_array("times", times)
    if when.ndim not in (1, 2) or (when.ndim == 2 and len(when) not in (1, len(at))):
        raise ValueError(f"times has shape {when.shape}; legal: (T,), or ({len(at)}, T), those of each row")
    when = np.broadcast_to(when, (len(at), when.shape[-1]))
    episodes = np.repeat(store.table["episode"][at], when.shape[1])
    found = store.windows(column, episodes, when.ravel(), 1)
    return found.reshape(*when.shape, *found.shape[2:])


def _rows(store: Store, rows: ArrayLike) -> NDArray[np.int64]:
    """Rows (N,) of a bank's table."""
    legal = f"legal: some of 0 to {len(store.table) - 1}, (N,), at least one"
    try:
        at = whole(rows)
    except TypeError as error:
        raise ValueError(f"rows is {shown(rows)}; {legal}") from error
    if at.ndim != 1 or not at.size or (at < 0).any() or (at >= len(store.table)).any():
        raise ValueError(f"rows is {shown(rows)}; {legal}")
    return at
