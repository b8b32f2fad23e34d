"""The episode table: one row per episode, from which every relation is read.

Built from our banks, from a Minari dataset's metadata, from plain arrays or from a DataFrame. Columns are
immutable; labels are compared exactly, so a relation over a continuous property is best keyed by its level.
"""

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations.arrays import naming, read_npz, write_npz
from sprii_envs.relations.coercion import plain_array
from sprii_envs.relations.rows import Rows, TableRows, rows_of

REQUIRED = ("episode", "system", "length")
_INTEGER = ("episode", "rollout", "length")
_FREE = ("episode", "rollout", "length", "split")
"""Columns by which no two tables of one store need agree: whoever selects episodes may number, cut and split them."""
_FORMAT = 1


class EpisodeTable:
    """Immutable columns of equal length, one row per episode.

    Args:
        columns: by name:

            - `episode`: unique int64 ids, any sign and order; unique strings are kept as the column `episode_id`, and
              `episode` then numbers the rows from 0
            - `system`: int64 or str id of the system, a fixed assignment of the persistent properties
            - `rollout`: int64 index of the episode among those of its system; where it is missing, they are counted
              in order
            - `length`: int64 number of observations, at least 1
            - `split`: optional str or int64 (`"train"`, `"validation"`, …)
            - any other name: a persistent property, its level index, a task, a partner, a shape …; 1-D numbers,
              booleans or strings. Integers are stored as int64, floats as float64.

    `rows` (N,) int64 are the row numbers in the table this one was selected from, through any chain of
    selects.

    Raises ValueError naming the column (and the ids) for a missing column, ragged lengths, duplicate episode
    ids or a type that cannot be a label. A NaN is refused when its column is used as a label (`codes`).
    """

    __slots__ = ("_columns", "_rows_digest", "rows")

    rows: Rows

    def __init__(self, columns: Mapping[str, ArrayLike]) -> None:
        missing = [name for name in REQUIRED if name not in columns]
        if missing:
            raise ValueError(
                f"EpisodeTable lacks the column{'s' * (len(missing) > 1)} {_listed(missing)}; "
                f"required are {_listed(REQUIRED)}, given were {_listed(columns)}"
            )
        for name in columns:
            if not isinstance(name, str) or not name:
                raise ValueError(f"column names must be non-empty strings, got {name!r}")
        built = {str(name): column(name, values) for name, values in columns.items()}
        count = len(built["episode"])
        if built["episode"].dtype.kind == "U":
            if "episode_id" in built:
                raise ValueError("column 'episode' holds strings, which 'episode_id' is kept for: drop one of the two")
            ids = built["episode"]
            built = {"episode": _frozen(np.arange(count)), "episode_id": ids} | {
                name: values for name, values in built.items() if name != "episode"
            }
            _check_unique(ids)
        for name, values in built.items():
            if len(values) != count:
                raise ValueError(
                    f"ragged columns: {name!r} has {len(values)} rows, 'episode' has {count}; each needs "
                    "one value per episode"
                )
        if count == 0:
            raise ValueError("EpisodeTable needs at least one episode, got none")
        for name in _INTEGER:
            if name in built and built[name].dtype != np.int64:
                raise ValueError(f"column {name!r} must hold integers, got {built[name].dtype}")
        for name in ("system", "split"):
            if name in built and built[name].dtype.kind not in "iU":
                raise ValueError(f"column {name!r} must hold integers or strings, got {built[name].dtype}")
        if built["length"].min() < 1:
            bad = built["episode"][built["length"] < 1]
            raise ValueError(f"column 'length' must be at least 1 observation; not so for episodes {few(bad)}")
        _check_unique(built["episode"])
        if "rollout" not in built:
            built["rollout"] = _frozen(_counted(built["system"]))
        self._columns = built
        self._rows_digest: str | None = None
        self.rows = _frozen(np.arange(count))

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():  # of copies and pickles too nobody may write into a column
            setattr(self, name, value)
        for array in (*self._columns.values(), self.rows):
            array.flags.writeable = False

    @classmethod
    def from_frame(cls, frame: Any) -> Self:
        """A table from what has a row an episode: a pandas or polars DataFrame, `datasets.Dataset` or `pyarrow.Table`.

        TypeError for what has neither `.columns` nor `.column_names`, or no `[name]`. `banks.from_pandas` takes tables
        with a row a step.
        """
        return cls(frame_columns(frame))

    from_pandas = from_frame

    @classmethod
    def concat(cls, tables: Sequence["EpisodeTable"]) -> Self:
        """The rows of several tables, one after another, in the columns that all have.

        Episodes keep their ids where these differ, and are numbered from 0 where tables share some; `rows` are those of
        the result. Systems of one id are one system; where tables share rollouts of one, all rollouts are numbered
        anew, by system in the order of the rows.

        Raises:
            ValueError: for no table, or a column that holds numbers in one and strings in another.
        """
        if not tables:
            raise ValueError("concat needs a table at least, got none")
        columns: dict[str, NDArray[Any]] = {}
        for name in (c for c in tables[0].columns if all(c in table for table in tables)):
            parts = [table[name] for table in tables]
            if len({part.dtype.kind == "U" for part in parts}) > 1:
                raise ValueError(f"column {name!r} holds strings in one table and numbers in another")
            columns[name] = np.concatenate(parts)
        if len(np.unique(columns["episode"])) < len(columns["episode"]):
            columns["episode"] = np.arange(len(columns["episode"]))
        once = all(not len(_twice(table["system"], table["rollout"])) for table in tables)
        if once and len(_twice(columns["system"], columns["rollout"])):
            del columns["rollout"]  # numbered again, as of a table that has none
        return cls(columns)

    def to_pandas(self) -> Any:
        """The columns as a `pandas.DataFrame` with a row an episode; ImportError without pandas."""
        import pandas

        return pandas.DataFrame({name: values.copy() for name, values in self._columns.items()})

    def without_short(self, observations: int) -> tuple[Self, NDArray[np.int64]]:
        """The episodes of at least so many observations, and the ids of those left out.

        Raises:
            ValueError: if all are shorter.
        """
        observations = integer("observations", observations, least=1)
        whole = self["length"] >= observations
        if not whole.any():
            raise ValueError(f"no episode has {observations} observations; the longest has {self['length'].max()}")
        return (self if whole.all() else self.select(whole)), self["episode"][~whole]

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names in the order given."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(self.rows)

    __iter__ = None  # neither over the columns' names, as a mapping's, nor over the episodes, as `len` counts

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column (N,), read-only; ValueError naming the nearest columns for an unknown one."""
        try:
            return self._columns[name]
        except KeyError:
            close = difflib.get_close_matches(str(name), self._columns, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"no column {name!r} in the episode table ({_listed(self._columns)}){hint}") from None

    def __repr__(self) -> str:
        systems = self.codes("system")[1]
        return f"EpisodeTable({len(self)} episodes, {systems} systems; {', '.join(self._columns)})"

    def select(self, which: str | ArrayLike) -> Self:
        """The sub-table of a split name, a boolean mask (N,) or distinct row numbers, in that order.

        `rows` of the result point into the table that this one came from.
        """
        if isinstance(which, str):
            split = self["split"]
            chosen = np.flatnonzero(split.astype(str) == which)
            if not len(chosen):
                raise ValueError(f"no episode has split {which!r}; splits are {few(np.unique(split))}")
        else:
            known = which.table if isinstance(which, TableRows) else None
            if known is not None and known.rows_fingerprint() != self.rows_fingerprint():
                raise ValueError(
                    f"these are rows of another table than this one of {len(self)} episodes (other episodes or another "
                    "order): select from that one, or locate() them here"
                )
            chosen = plain_array("rows to select", which)
            if chosen.dtype == np.bool_:
                if chosen.shape != (len(self),):
                    raise ValueError(f"the mask has shape {chosen.shape}, the table {len(self)} rows")
                chosen = np.flatnonzero(chosen)
            elif chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
                raise ValueError("select takes a split name, a boolean mask or 1-D row numbers")
            elif chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
                raise ValueError(f"row numbers must lie in [0, {len(self)}), got {chosen.min()}..{chosen.max()}")
            elif len(np.unique(chosen)) != len(chosen):
                raise ValueError("row numbers must be distinct: an episode cannot be in the table twice")
            if not chosen.size:
                raise ValueError("the selection is empty")
        part = object.__new__(type(self))
        part._columns = {name: _frozen(values[chosen]) for name, values in self._columns.items()}
        part._rows_digest = None
        part.rows = _frozen(self.rows[chosen])
        return part

    def budget(self, rollouts: int) -> Self:
        """The sub-table of the first `rollouts` episodes of every system: those of rollout 0…rollouts−1.

        The R2, R4 and R8 of the paper: nested, so a smaller budget takes episodes away and changes none. ValueError
        naming the systems that lack one of them, or for a budget that is no integer of at least 1.
        """
        rollouts = integer("the budget of rollouts", rollouts, least=1)
        codes, systems = self.codes("system")
        chosen = np.flatnonzero((self["rollout"] >= 0) & (self["rollout"] < rollouts))
        found = np.unique(np.stack([codes[chosen], self["rollout"][chosen]]), axis=1)[0]
        has = np.bincount(found, minlength=systems)
        short = np.flatnonzero(has < rollouts)
        if len(short):
            names = np.unique(self["system"])[short]
            raise ValueError(
                f"a budget of {rollouts} rollouts needs rollouts 0 to {rollouts - 1} of every system; {len(short)} of "
                f"{systems} systems lack some: system {names[0]} has {has[short[0]]} of them (systems {few(names)})"
            )
        if len(twice := _twice(codes[chosen], self["rollout"][chosen])):
            row = chosen[twice[0]]
            raise ValueError(
                f"a budget of {rollouts} rollouts needs one episode a rollout, but system {self['system'][row]} has "
                f"rollout {self['rollout'][row]} more than once; a table made without 'rollout' numbers them itself"
            )
        return self.select(chosen)

    def codes(self, name: str) -> tuple[Rows, int]:
        """Labels of a column as dense ranks: ((N,) int64 in [0, count), count). ValueError for NaN."""
        values = self[name]
        if values.dtype.kind == "f":
            nan = np.isnan(values)
            if nan.any():
                raise ValueError(
                    f"column {name!r} is used as a label but is NaN for {int(nan.sum())} episodes: "
                    f"{few(self['episode'][nan])}"
                )
        return factorize(values)

    def by_episode(self) -> Rows:
        """Row numbers (N,) in the order of the episode ids."""
        ids = self["episode"]
        return np.arange(len(ids)) if (ids[1:] > ids[:-1]).all() else np.argsort(ids)

    def fingerprint(self, columns: Iterable[str] | None = None) -> str:
        """SHA-256 (hex) of the named columns (all by default), independent of row and column order.

        It also does not depend on the width of string columns or on the machine's byte order.
        """
        order = self.by_episode()
        digest = hashlib.sha256()
        for name in sorted({"episode", *(self._columns if columns is None else columns)}):
            values = self[name][order]
            if values.dtype.kind == "U":
                values = np.array(values.tolist())
            values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
            digest.update(f"{str(name)!r}:{values.dtype.str}:{len(values)};".encode())
            digest.update(values.tobytes())
        return digest.hexdigest()

    def rows_fingerprint(self) -> str:
        """SHA-256 (hex) of the episode ids in the order of the rows: what row numbers mean. Computed once."""
        if self._rows_digest is None:
            self._rows_digest = hashlib.sha256(self["episode"].astype("<i8", copy=False).tobytes()).hexdigest()
        return self._rows_digest

    def every(self) -> TableRows:
        """All row numbers (N,), knowing this table."""
        return rows_of(np.arange(len(self)), self)

    def locate(self, episodes: ArrayLike) -> ArrayLike:
        """Rows that know their table (`TableRows`) as rows of this one, knowing it; anything else as it is.

        ValueError if their table is no longer known, if this one lacks an episode of theirs, or if its labels here are
        others, so that it is an episode of another store. `rollout`, `length` and `split` may differ.
        """
        if isinstance(episodes, list | tuple) and any(isinstance(row, TableRows) for row in episodes):
            episodes = np.stack(episodes)
        if not isinstance(episodes, TableRows) or episodes.table is self:
            return episodes
        given, ids, order = np.ravel(np.asarray(episodes)), np.ravel(episodes.episodes), self.by_episode()
        other = episodes.table
        rows = order[np.searchsorted(self["episode"], ids, sorter=order).clip(max=len(self) - 1)]
        lacking = self["episode"][rows] != ids
        if lacking.any():
            raise ValueError(f"no episode {ids[lacking.argmax()]} in this table, but in the one that these rows are of")
        for name in self._columns:
            if name not in _FREE and other is not None and name in other:
                here, there = self[name][rows], other[name][given]
                differ = (here != there) & ((here == here) | (there == there))
                if differ.any():
                    i = differ.argmax()
                    raise ValueError(
                        f"these are rows of another store's table: its episode {ids[i]} has {name} {there[i]}, the one "
                        f"here {here[i]}"
                    )
        return rows_of(rows.reshape(episodes.shape), self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz, atomically: a killed save leaves the old file or none. No pickle."""
        arrays = {f"column/{name}": values for name, values in self._columns.items()}
        write_npz(path, _FORMAT, {"rows": self.rows, **arrays})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; ValueError naming the file if it is damaged or something else."""
        arrays = read_npz(path, _FORMAT, "an episode table", ("rows",))
        rows = arrays.pop("rows")
        with naming(path, "an episode table"):
            table = cls({name.removeprefix("column/"): values for name, values in arrays.items()})
            if rows.shape != (len(table),) or rows.dtype != np.int64 or rows.min() < 0:
                raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}, of {len(table)} episodes")
        table.rows = _frozen(rows)
        return table


def frame_columns(frame: Any) -> dict[str, Any]:
    """Columns of a data frame by name; TypeError for what has none, see `EpisodeTable.from_frame`."""
    names = getattr(frame, "column_names", None)  # of Arrow, whose `columns` are the arrays
    names = getattr(frame, "columns", None) if names is None else names
    if names is None or not hasattr(frame, "__getitem__"):
        raise TypeError(f"from_frame needs .columns and frame[name], got {type(frame).__name__}")
    series = {str(name): frame[name] for name in names}
    return {name: each.to_numpy() if hasattr(each, "to_numpy") else np.asarray(each) for name, each in series.items()}


def factorize(values: NDArray[Any]) -> tuple[Rows, int]:
    """Dense ranks of the values: ((N,) int64, number of distinct values). Equal values share a rank."""
    if values.dtype.kind in "ib" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values) + 1024:  # a presence table beats a sort
            shifted = values.astype(np.int64) - low
            present = np.zeros(high - low + 1, bool)
            present[shifted] = True
            rank = np.cumsum(present) - 1
            return rank[shifted], int(rank[-1]) + 1
    distinct, inverse = np.unique(values, return_inverse=True)
    return inverse.astype(np.int64, copy=False), len(distinct)


def _check_unique(ids: NDArray[Any]) -> None:
    ordered = np.sort(ids)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(twice):
        raise ValueError(f"column 'episode' must hold unique ids; {len(twice)} occur more than once: {few(twice)}")


def _counted(labels: NDArray[Any]) -> Rows:
    """Of each row, how many before it have its label."""
    codes = factorize(labels)[0]
    order = np.argsort(codes, kind="stable")
    first = np.searchsorted(codes[order], codes[order])
    counted = np.empty(len(codes), np.int64)
    counted[order] = np.arange(len(codes)) - first
    return counted


def _twice(systems: NDArray[Any], rollouts: NDArray[Any]) -> Rows:
    """Rows of a system's rollout that an earlier row has too."""
    _, first = np.unique(np.stack([factorize(systems)[0], rollouts]), axis=1, return_index=True)
    return np.delete(np.arange(len(rollouts)), first)


def few(values: Iterable[Any], limit: int = 5) -> str:
    """The first few values for an error message: '3, 7, 9, … (12 in all)'."""
    listed = list(values)
    shown = ", ".join(str(value) for value in listed[:limit])
    return shown if len(listed) <= limit else f"{shown}, … ({len(listed)} in all)"


def column(name: str, values: ArrayLike) -> NDArray[Any]:
    """Labels as a read-only 1-D int64, float64, bool or minimal-width str copy; ValueError for what is no label."""
    array = plain_array(f"column {name!r}", values, 1)
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must be 1-D, one value per episode, got shape {array.shape}")
    if array.dtype.kind == "O" or (array.dtype.kind in "biufU" and not hasattr(values, "dtype")):
        # NumPy makes one label of the values 1 and "1", True and 1, or NaN and "nan" of a plain list.
        array = _from_objects(name, list(values))  # type: ignore[arg-type]
    kind = array.dtype.kind
    if kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"column {name!r} holds {array.max()}, which exceeds int64")
    if kind in "iu" or array.size == 0:
        return _frozen(array.astype(np.int64))
    if kind == "f":
        return _frozen(array.astype(np.float64) + 0.0)  # −0.0 and 0.0 are one label
    if kind == "b":
        return _frozen(array.copy())
    if kind in "UT":
        array = array.astype(str)
        width = max(1, int(np.strings.str_len(array).max()))
        return _frozen(array.astype(f"<U{width}"))
    raise ValueError(f"column {name!r} must hold integers, floats, booleans or strings, got {array.dtype}")


def _from_objects(name: str, given: list[Any]) -> NDArray[Any]:
    try:
        values = [value.item() if hasattr(value, "item") else value for value in given]
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"column {name!r} must hold one label per episode: {error}") from None
    kinds = set(map(type, values))
    for legal in (bool, int, (int, float, np.floating), str):
        # bool is an int in Python; a column that mixes them is a mistake, not a label
        if all(issubclass(kind, legal) for kind in kinds) and (bool not in kinds or kinds == {bool}):
            array = np.array(values)
            if legal is int and array.dtype.kind != "i":
                over = max(values, key=abs, default=0)
                raise ValueError(f"column {name!r} holds {over}, which exceeds int64")
            return array
    wrong = next((i for i, v in enumerate(values) if not isinstance(v, str)), 0)
    raise ValueError(
        f"column {name!r} must hold integers, floats, booleans or strings of one type; "
        f"row {wrong} holds {values[wrong]!r} ({type(values[wrong]).__name__})"
    )


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
