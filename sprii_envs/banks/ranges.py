"""Which entries of which episodes a window reads: checked in one place for every kind of store."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations.coercion import integer_array

Whole = NDArray[np.int64]


class Ranges(NamedTuple):
    """Windows begin…begin+length−1 of rows: `rows` and `begins` are (n,) int64."""

    rows: Whole
    begins: Whole
    length: int


def ranges(
    lengths: Whole,
    fewer: int,
    episodes: ArrayLike,
    starts: ArrayLike,
    length: int,
    of: str,
    ids: Whole | None = None,
) -> Ranges:
    """The windows of a column whose episodes have `lengths − fewer` entries, (E,); episodes are rows of it.

    `episodes` and `starts` are (n,) integers or broadcast to that. ValueError naming the first window that is not
    inside its episode, and for anything else that is no window; `of` names the column, `ids` (E,) the episodes
    where they are not their row numbers.
    """
    length = integer("length", length, least=1)
    rows, begins = np.atleast_1d(integer_array("episodes", episodes)), integer_array("starts", starts)
    try:
        rows, begins = np.broadcast_arrays(rows, begins)
    except ValueError:
        raise ValueError(f"episodes {rows.shape} and starts {begins.shape} do not fit together") from None
    if rows.ndim != 1:
        raise ValueError(f"episodes and starts must be one-dimensional, got shape {rows.shape}")
    outside = (rows < 0) | (rows >= len(lengths))
    if outside.any():
        raise ValueError(f"no episode {rows[outside.argmax()]}; episode ids are 0 to {len(lengths) - 1}")
    entries = lengths[rows] - fewer
    crossing = (begins < 0) | (begins > entries - length)
    if crossing.any():
        i = int(crossing.argmax())
        episode = rows[i] if ids is None else ids[rows[i]]
        raise ValueError(
            f"window of {length} from {begins[i]} is not inside episode {episode}, "
            f"which has {entries[i]} entries of {of!r}"
        )
    return Ranges(rows, begins, length)
