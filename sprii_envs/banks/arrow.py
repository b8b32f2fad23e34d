"""Columns of Arrow as arrays, and arrays larger than memory as maps of files without a name; needs pyarrow."""

import mmap
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.store import StoreError


def numbers(column: Any, what: str) -> NDArray[Any]:
    """A column (N,) of numbers, or of lists that are all of one shape, as an array (N, *shape).

    Raises:
        StoreError: naming `what`, for missing values, lists of several lengths, or anything but numbers and booleans.
    """
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # whose functions are made when it is imported

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    shape: list[int] = [len(array)]
    while True:
        if isinstance(array, pa.ExtensionArray):  # arrays of several axes of `datasets`
            array = array.storage
        if array.null_count:
            raise StoreError(f"{what} has {array.null_count} missing values; legal: one in every row")
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or _fixed(array.type)):
            break
        if not len(array):
            width = array.type.list_size if _fixed(array.type) else 0
        else:
            lengths = pc.min_max(pc.list_value_length(array)).as_py()
            if lengths["min"] != lengths["max"]:
                raise StoreError(
                    f"{what} has lists of {lengths['min']} to {lengths['max']} entries; legal: of one length"
                )
            width = lengths["max"]
        shape.append(width)
        array = array.flatten()
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise StoreError(f"{what} holds {array.type}; legal: numbers and booleans")
    return values.reshape(shape)


def _fixed(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_fixed_size_list(kind)


def column_of(values: NDArray[Any]) -> Any:
    """Entries (N, *shape) as a column of N fixed lists of all their numbers; numbers (N,) as they are."""
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))


def spooled(blocks: Iterable[NDArray[Any]], what: str) -> NDArray[Any]:
    """Blocks (n, *shape) end to end, read-only: the map of a file without a name, which goes when the array does.

    Raises:
        StoreError: for blocks of several shapes or types, and for none.
    """
    first: NDArray[Any] | None = None
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            first = block[:0] if first is None else first
            if block.shape[1:] != first.shape[1:] or block.dtype != first.dtype:
                raise StoreError(
                    f"{what} has entries of {block.dtype} {block.shape[1:]} after {first.dtype} {first.shape[1:]}; "
                    "legal: of one type and shape"
                )
            file.write(np.ascontiguousarray(block).data.cast("B") if block.size else b"")
        if first is None:
            raise StoreError(f"{what} has no rows")
        file.flush()
        if file.tell() == 0:
            return first
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, first.dtype).reshape(-1, *first.shape[1:])
