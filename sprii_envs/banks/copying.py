"""Any store read whole, episode by episode, for those who write it in another format."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import shown
from sprii_envs.banks.generated import Arrays, Episodes, Labels, Progress, record_episodes
from sprii_envs.banks.recorded import RecordedBank, Recording, StreamSpec
from sprii_envs.banks.store import Store, StoreError
from sprii_envs.relations import EpisodeTable


def specs(store: Store, columns: Iterable[str] | None = None) -> dict[str, StreamSpec]:
    """Shape and type of columns (by default all), as they are read: a faster stream has its rate as the first axis.

    Raises:
        StoreError: for a column that the store does not have.
    """
    wanted = store.columns if columns is None else tuple(columns)
    if unknown := [name for name in wanted if name not in store.columns]:
        raise StoreError(f"{store.name}: no column {unknown[0]!r}; columns: {', '.join(store.columns)}")
    row = int(store.table["length"].argmax())
    episode, length = store.table["episode"][[row]], int(store.table["length"][row])
    found: dict[str, StreamSpec] = {}
    for name in wanted:
        try:
            entry, per = store.windows(name, episode, [length - 1], 1), "observation"
        except ValueError:  # the last observation has no transition
            if length == 1:
                raise StoreError(f"{store.name}: {name!r} has no entry: all episodes are one observation") from None
            entry, per = store.windows(name, episode, [length - 2], 1), "transition"
        found[name] = StreamSpec(entry.shape[2:], entry.dtype.str, per=per, finite=False)
    return found


def chosen(store: Store, table: EpisodeTable | None, unseal: bool) -> EpisodeTable:
    """The episodes to copy: those of `table`, with its labels and splits, by default all of splits that are not sealed.

    Raises:
        StoreError: for what is no store, and for episodes of sealed splits without `unseal`.
    """
    if not (hasattr(store, "table") and hasattr(store, "windows")):
        raise StoreError(f"store is {shown(store)}; legal: a Store, such as what open_store(path) returns")
    if table is not None and not isinstance(table, EpisodeTable):
        raise StoreError(f"table is {shown(table)}; legal: an EpisodeTable, such as {store.name}'s, or None")
    whole = store.table if table is None else store.table.select(np.asarray(store.table.locate(table.every())))
    sealed = np.isin(whole["split"].astype(str), store.sealed_splits)
    if not sealed.any() or unseal:
        return whole if table is None else _overlaid(whole, table)
    if table is not None:
        raise StoreError(
            f"{store.name}: the split {str(whole['split'][sealed][0])!r} is sealed; copy it with unseal=True"
        )
    if sealed.all():
        raise StoreError(f"{store.name}: every split is sealed; copy them with unseal=True")
    return whole.select(~sealed)


def _overlaid(own: EpisodeTable, table: EpisodeTable) -> EpisodeTable:
    """A store's episodes with what a table of them tells besides; their lengths are the store's."""
    told = {name: table[name] for name in table.columns if name not in ("episode", "length")}
    return EpisodeTable({name: own[name] for name in own.columns} | told)


def episodes(store: Store, table: EpisodeTable, columns: Mapping[str, StreamSpec], first: int = 0) -> Iterator[Arrays]:
    """Column → all entries of an episode, one episode of `table` after another from its row `first` on."""
    for row in range(first, len(table)):
        episode, length = table["episode"][[row]], int(table["length"][row])
        yield {
            name: _whole(store, name, episode, length - (spec.per == "transition"), spec)
            for name, spec in columns.items()
        }


def _whole(store: Store, name: str, episode: NDArray[np.int64], length: int, spec: StreamSpec) -> NDArray[Any]:
    if length == 0:
        return np.empty((0, *spec.shape), spec.dtype)
    return store.windows(name, episode, [0], length)[0]


def labels(table: EpisodeTable, row: int) -> Labels:
    """What is told of an episode, but its length, as Python's numbers and texts."""
    return {name: table[name][row].item() for name in table.columns if name != "length"}


def copy_store(
    store: Store,
    path: files.StrPath,
    origin: dict[str, Any],
    *,
    table: EpisodeTable,
    columns: Mapping[str, StreamSpec],
    sealed: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> RecordedBank:
    """Record a store as a bank at `path`, or open it if it is there already; after a kill the same call goes on.

    Raises:
        StoreError: see `record_episodes`.
    """

    def left(recording: Recording) -> Episodes:
        first = recording.done
        for row, arrays in enumerate(episodes(store, table, columns, first), first):
            yield labels(table, row) | {"length": int(table["length"][row])}, arrays

    size = sum(int(spec.counts(table["length"]).sum()) * spec.entry_bytes for spec in columns.values())
    return record_episodes(path, columns, origin, len(table), size, left, progress, sealed=sealed)
