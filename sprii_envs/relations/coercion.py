"""Arrays as they were given: what NumPy would silently make of something else is refused by name."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def plain_array(name: str, values: ArrayLike, ndim: int | None = None) -> NDArray[Any]:
    """`values` as an array, of `ndim` axes where that is wanted; ValueError naming `name` for masked entries and for
    what is no array.

    Under a mask NumPy would read whatever lies there; a tensor that requires a gradient, is elsewhere than in main
    memory or of a type that NumPy lacks, and ragged lists, are no arrays.
    """
    listed: Any = values if isinstance(values, list | tuple) else ()
    if isinstance(values, np.ndarray) and values.dtype == object:
        listed = values.flat
    if np.ma.is_masked(values) or any(value is np.ma.masked for value in listed):
        raise ValueError(f"{name} has masked entries, which have no value: fill them or leave them out")
    try:
        return np.asarray(values)
    except (AttributeError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        wanted = "an array" if ndim is None else f"a {ndim}-D array"
        raise ValueError(f"{name} is not {wanted}: {error}") from None


def integer_array(name: str, values: ArrayLike, ndim: int | None = None) -> NDArray[np.int64]:
    """`values` as int64, of `ndim` axes if given; ValueError naming `name` if they are not integers or too large."""
    given = plain_array(name, values, ndim)
    if (given.size and given.dtype.kind not in "iu") or (ndim is not None and given.ndim != ndim):
        shape = "" if ndim is None else f"{ndim}-D "
        raise ValueError(f"{name} must be {shape}integers, got {given.dtype} of shape {given.shape}")
    if given.dtype == np.uint64 and given.size and given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be integers up to {np.iinfo(np.int64).max}, got {given.max()}")
    return given.astype(np.int64, copy=False)
