"""Row numbers that know their table, so that no other table or store takes them for its own."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class Table(Protocol):
    """What row numbers know of their `EpisodeTable`."""

    def __contains__(self, name: object) -> bool: ...
    def __getitem__(self, name: str) -> NDArray[Any]: ...
    def rows_fingerprint(self) -> str: ...


class TableRows(np.ndarray[Any, np.dtype[np.int64]]):
    """Row numbers of `table`: an int64 array whose slices, entries and copies know the table too.

    Stores read the episodes that they stand for, whatever the rows of these are there; tables refuse those of another.
    Arithmetic gives plain arrays, and so does `np.asarray`. Joined with other integers, `table` is None.
    """

    __array_priority__ = 1.0  # type: ignore[assignment]  # of arrays joined, the one that knows decides their type
    table: Table | None

    def __array_finalize__(self, obj: Any) -> None:
        self.table = getattr(obj, "table", None)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        if func is np.concatenate and isinstance(result, TableRows):
            tables = {id(table): table for table in (getattr(part, "table", None) for part in args[0])}
            result.table = tables.popitem()[1] if len(tables) == 1 else None
        return result

    def __getitem__(self, key: Any) -> Any:
        # One row of a loop is as much in need of its table as all of them: an array of no axis, not a NumPy scalar.
        part = super().__getitem__(key)
        return part if isinstance(part, np.ndarray) else rows_of(part, self.table)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.item())

    def __reduce__(self) -> tuple[Any, ...]:
        return rows_of, (np.asarray(self), self.table)

    @property
    def episodes(self) -> Rows:
        """The ids of these episodes."""
        if self.table is None:
            raise ValueError("these row numbers were joined with other integers, so their table is no longer known")
        return self.table["episode"][np.asarray(self)]


def rows_of(rows: Any, table: Table | None) -> TableRows:
    """Row numbers of a table, knowing it."""
    known = np.asarray(rows).view(TableRows)
    known.table = table
    return known
