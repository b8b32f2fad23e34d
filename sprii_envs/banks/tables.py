"""Tables with a step a row, as data frames and HuggingFace's `datasets` hold them, as stores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.arrow import numbers, spooled
from sprii_envs.banks.store import ArrayStore, StoreError
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.table import column as label
from sprii_envs.relations.table import few, frame_columns

_BATCH = 1 << 12
"""Rows that are read at once; of pictures, a 64th."""


def from_pandas(
    data: Any,
    *,
    system: str = "system",
    labels: Sequence[str] | Mapping[str, Any] | EpisodeTable = (),
    columns: Sequence[str] | None = None,
    episode: str = "episode_index",
    frame: str | None = "frame_index",
    sealed: tuple[str, ...] = (),
    name: str = "table",
) -> ArrayStore:
    """A store of a table with a step a row: a pandas or polars data frame, a `datasets.Dataset`, a `pyarrow.Table`.

    Rows are put in the order of episode, as they first appear, and frame. A data frame's columns are kept in memory,
    those of a Dataset or of Arrow are streamed into memory maps: they may be larger than memory.

    Args:
        system: the column that says what persists; of it, `split`, columns of text and those named in `labels`, an
            episode has one value.
        labels: more such columns, by their names; or labels that the table does not hold, by episode: a mapping or an
            `EpisodeTable` with a column `episode`.
        columns: those whose windows can be read: numbers, lists of numbers of one shape, pictures; NaN stays what it
            is. By default all but labels and the two below.
        episode: the column of the episode's id, integers or texts.
        frame: the column of the step in its episode; None takes rows in their order.
        sealed: splits kept for one last evaluation.
        name: for messages.

    Raises:
        StoreError: naming the column that is missing, varies in an episode though it is a label, or holds what no
            stream holds; and the episode whose frames are not one after another.
        TypeError: for what is no table, or several.
    """
    table = _Table(data, name)
    if isinstance(labels, str):
        raise StoreError(f"{name}: labels is {labels!r}; legal: a list of columns, such as [{labels!r}], or a table")
    given = tuple(labels) if isinstance(labels, list | tuple) else ()
    elsewhere = {} if isinstance(labels, list | tuple) else labels_of(labels, name)
    for wanted in (episode, None if "system" in elsewhere else system, frame, *(columns or ())):
        if wanted is not None and wanted not in table.names:
            raise StoreError(f"{name} has no column {wanted!r}; columns: {few(table.names, 20)}")
    ids = _labels(episode, table)
    if not len(ids):
        raise StoreError(f"{name} has no rows")
    first, codes = _appearing(ids)
    order = _order(codes, None if frame is None else table.plain(frame), ids, name)
    lengths = np.bincount(codes)
    begins = np.cumsum(lengths) - lengths
    told = [c for c in table.names if c in given or c in (system, "split") or (columns is None and table.is_text(c))]
    found: dict[str, NDArray[Any]] = {"episode": ids[first], "length": lengths}
    if system != "system" and system in table.names and "system" in (*told, *given):
        raise StoreError(
            f"{name}: both system={system!r} and the column 'system' would be the table's 'system'; rename the latter, "
            "or give columns=… without it"
        )
    for column in dict.fromkeys([*told, *(c for c in given if c not in told)]):
        if column in (episode, frame):
            continue
        if column not in table.names:
            raise StoreError(f"{name} has no column {column!r}; columns: {few(table.names, 20)}")
        values = _labels(column, table)[order]
        finite_labels({column: values}, ids[order], name)
        differ = values != np.repeat(values[begins], lengths)
        if differ.any():
            at = ids[order][differ.argmax()]
            raise StoreError(
                f"{name}: {column!r} varies in episode {at}, so it is no label; give columns=… without it, or a table "
                "that does not hold it"
            )
        if column == "length":
            check_lengths(values[begins], lengths, ids[first], name)
        found["system" if column == system else column] = values[begins]
    if elsewhere:
        own = _by_episode(elsewhere, found["episode"], name)
        check_lengths(own.pop("length", lengths), lengths, ids[first], name)
        finite_labels(own, found["episode"], name)
        found |= own
    streamed = [c for c in table.names if c not in told and c not in (episode, frame, *given)]
    streams = {c: table.array(c, order) for c in (streamed if columns is None else columns)}
    try:
        return ArrayStore(EpisodeTable(found), streams, sealed=sealed, name=name)
    except ValueError as error:
        raise error if isinstance(error, StoreError) else StoreError(f"{name}: {error}") from None


class _Table:
    """Columns of whatever holds them, by name."""

    def __init__(self, data: Any, name: str) -> None:
        self.data, self.name = data, name
        self.kind = "dataset" if hasattr(data, "with_format") else "arrow" if hasattr(data, "to_batches") else "frame"
        if self.kind == "frame" and not (hasattr(data, "columns") and hasattr(data, "__getitem__")):
            raise TypeError(f"from_pandas needs a table with .columns or .column_names, got {type(data).__name__}")
        if isinstance(splits := getattr(data, "column_names", ()), dict):
            raise TypeError(
                f"from_pandas needs one table, got a {type(data).__name__} of {', '.join(map(repr, splits))}; give one "
                "of them, or datasets.concatenate_datasets of them with a column 'split'"
            )
        self.names = [str(column) for column in (data.columns if self.kind == "frame" else data.column_names)]

    def plain(self, column: str) -> NDArray[Any]:
        """A column of numbers or texts (N,)."""
        if self.kind == "frame":
            series = self.data[column]
            return series.to_numpy() if hasattr(series, "to_numpy") else np.asarray(series)
        parts = [batch[column].to_numpy(zero_copy_only=False) for batch in self._batches(column, _BATCH)]
        return np.concatenate(parts) if parts else np.empty(0)

    def is_text(self, column: str) -> bool:
        """Whether the first entry is text."""
        if self.kind == "frame":
            values = self.plain(column)
            return len(values) > 0 and isinstance(values[0], str)
        import pyarrow as pa

        batch = next(self._batches(column, 1), None)
        return batch is not None and (pa.types.is_string(kind := batch[column].type) or pa.types.is_large_string(kind))

    def array(self, column: str, order: NDArray[np.int64]) -> NDArray[Any]:
        """Entries (N, *shape) in an order."""
        blocks, what = self._blocks(column), f"{self.name}: {column!r}"
        if self.kind == "frame":
            found = np.concatenate(list(blocks))
            return found if _sorted(order) else found[order]
        mapped = spooled(blocks, what)
        if _sorted(order):
            return mapped
        return spooled((mapped[order[i : i + _BATCH]] for i in range(0, len(order), _BATCH)), what)

    def _blocks(self, column: str) -> Iterator[NDArray[Any]]:
        what = f"{self.name}: {column!r}"
        if self.kind == "frame":
            yield _stacked(self.plain(column), what)
            return
        if self.kind == "dataset" and _is_image(self.data.features[column]):
            for batch in self.data.select_columns([column]).with_format("numpy").iter(_BATCH // 64):
                yield np.asarray(batch[column])
            return
        for batch in self._batches(column, _BATCH):
            yield numbers(batch[column], what)

    def _batches(self, column: str, size: int) -> Iterator[Any]:
        if self.kind == "dataset":
            yield from self.data.select_columns([column]).with_format("arrow").iter(size)
        else:
            yield from self.data.select([column]).to_batches(max_chunksize=size)


def _labels(column: str, table: _Table) -> NDArray[Any]:
    """A column as labels (N,); StoreError for what is none."""
    try:
        return label(column, table.plain(column))
    except ValueError as error:
        raise StoreError(f"{table.name}: {error}") from None


def _is_image(feature: Any) -> bool:
    return type(feature).__name__ == "Image"


def _stacked(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Numbers (N,), or entries that are lists or arrays of one shape (N, *shape)."""
    try:
        array = np.stack([np.asarray(each) for each in values]) if values.dtype.kind == "O" else values
    except ValueError as error:
        raise StoreError(f"{what} has entries of several shapes: {error}") from None
    if array.dtype.kind not in "biuf":
        raise StoreError(f"{what} holds {array.dtype}; legal: numbers and booleans, or name it in labels")
    return array


def labels_of(labels: Any, name: str) -> dict[str, NDArray[Any]]:
    """Labels by column, of a mapping, an `EpisodeTable` or a data frame.

    Raises:
        StoreError: for anything else, a column that is none of labels, and a data frame whose index is its own: of one
            named as the ids of episodes they are taken.
    """
    if isinstance(labels, Mapping):
        try:
            return {str(name): label(str(name), values) for name, values in labels.items()}
        except ValueError as error:
            raise StoreError(f"{name}: {error}") from None
    ids, index = ("episode", "episode_index"), getattr(labels, "index", None)
    if hasattr(labels, "reset_index") and not set(ids) & set(map(str, labels.columns)):
        if getattr(index, "name", None) in ids:
            labels = labels.reset_index()
        elif not np.array_equal(np.asarray(index), np.arange(len(labels))):
            raise StoreError(f"{name}: the labels' index is none of episodes; legal: a column or index named 'episode'")
    try:
        return frame_columns(labels)
    except TypeError:
        raise StoreError(
            f"{name}: labels are a {type(labels).__name__}; legal: a mapping, an EpisodeTable or a data frame"
        ) from None


def finite_labels(columns: Mapping[str, NDArray[Any]], ids: NDArray[Any], name: str) -> None:
    """StoreError naming the label and the episode where one is NaN or infinite, which equals no other, or all."""
    for column, values in columns.items():
        if values.dtype.kind == "f" and values.shape == ids.shape and (odd := ~np.isfinite(values)).any():
            at = int(odd.argmax())
            raise StoreError(
                f"{name}: the label {column!r} of episode {ids[at]} is {values[at]}; legal: a finite number, text, or "
                "True or False"
            )


def check_lengths(values: NDArray[Any], lengths: NDArray[np.int64], ids: NDArray[Any], name: str) -> None:
    """StoreError where a label `length` is not the episodes' observations, which the table's column of that name is."""
    if (odd := values != lengths).any():
        at = int(odd.argmax())
        raise StoreError(
            f"{name}: the label 'length' of episode {ids[at]} is {values[at]}, but the table's length is its "
            f"{lengths[at]} observations; give a label of your own another name"
        )


def _appearing(ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row of the first step of each episode as they appear, and the episode's number of every row."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[inverse]


def _order(codes: NDArray[np.int64], frames: NDArray[Any] | None, ids: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Rows by episode and frame; StoreError where frames are no integers one after another."""
    if frames is None:
        return np.argsort(codes, kind="stable")
    if frames.dtype.kind not in "iu":
        raise StoreError(f"{name}: frames are {frames.dtype}; legal: integers, or frame=None for rows in their order")
    order = np.lexsort((frames, codes))
    step, same = np.diff(frames[order].astype(np.int64)), np.diff(codes[order]) == 0
    if (wrong := same & (step != 1)).any():
        i = int(wrong.argmax())
        at, after = frames[order][i], frames[order][i + 1]
        raise StoreError(f"{name}: in episode {ids[order][i]}, frame {after} follows {at}; legal: one after another")
    return order


def _by_episode(given: dict[str, NDArray[Any]], ids: NDArray[Any], name: str) -> dict[str, NDArray[Any]]:
    """Labels that the table does not hold, in the order of its episodes."""
    known = given.pop("episode", None)
    if known is None:
        raise StoreError(f"{name}: labels by episode need a column 'episode'; given: {', '.join(given)}")
    for column, values in given.items():
        if len(values) != len(known):
            raise StoreError(f"{name}: labels have {len(known)} episodes and {len(values)} values of {column!r}")
    if len(twice := np.unique(known)) < len(known):
        again = [value for value in twice.tolist() if np.count_nonzero(known == value) > 1]
        raise StoreError(f"{name}: labels name the episode {again[0]!r} more than once; legal: once each")
    order = np.argsort(known)
    at = order[np.searchsorted(known, ids, sorter=order).clip(max=len(known) - 1)]
    if (lacking := known[at] != ids).any():
        raise StoreError(f"{name}: no labels of the episodes {few(ids[lacking])}")
    return {column: values[at] for column, values in given.items() if column != "rollout"}


def _sorted(order: NDArray[np.int64]) -> bool:
    return bool((order == np.arange(len(order))).all())
