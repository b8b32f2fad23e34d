"""What is a number, and arrays of them: NumPy would turn strings, booleans, dates and masked entries into numbers.

Single values of configs and arguments, and the sentences that refuse them, are the business of `arguments`.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import DTypeLike, NDArray


def is_integer(value: Any) -> TypeGuard[int | np.integer]:
    """Whether a scalar is an integer of Python or NumPy: no boolean, no span of time, no array."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def is_real(value: Any) -> TypeGuard[int | float | np.integer | np.floating]:
    """Whether a scalar is a real number of Python or NumPy; integers have at most 64 bits."""
    if is_integer(value):
        return -(2**63) <= int(value) < 2**64
    return isinstance(value, float | np.floating)


def reals(value: Any, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Real numbers as an array of a floating-point type, the given one where it has that type; TypeError otherwise.

    Refused are strings, bytes, booleans, None, dates, complex and structured values, masked arrays, integers beyond 64
    bits, and tensors that NumPy cannot read, as those that require gradients.
    """
    given = value if type(value) is np.ndarray else _array(value)  # no call more in the hot path of every step
    kind = given.dtype.kind
    if kind not in "fiu" and not (
        kind == "O" and all(is_real(v) or isinstance(v, Fraction | Decimal) for v in given.flat)
    ):
        raise TypeError(f"not real numbers: {value!r}")
    try:
        return np.asarray(given, dtype)
    except OverflowError as e:  # of a Fraction
        raise TypeError(f"not real numbers: {value!r}") from e


def whole(value: Any, dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Integers as an array of an integer type; TypeError for anything else, and for those that it does not hold."""
    given = _array(value)
    converted = given.astype(dtype) if given.dtype.kind in "iu" or given.size == 0 else None
    if converted is None or (converted != given).any():
        raise TypeError(f"not integers of {np.dtype(dtype)}: {value!r}")
    return converted


def _array(value: Any) -> NDArray[Any]:
    """`value` as NumPy reads it; TypeError where it cannot, and where it would lose what the entries are."""
    if isinstance(value, np.ma.MaskedArray | bytearray) or (
        isinstance(value, list | tuple) and not all(map(_kept, _leaves(value)))
    ):
        raise TypeError(f"not real numbers: {value!r}")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as e:
        raise TypeError(f"not real numbers: {value!r}") from e


def _leaves(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list | tuple):
            yield from _leaves(item)
        else:
            yield item


def _kept(leaf: Any) -> bool:
    """Whether an entry of a list is told from a number after NumPy has made one array of them all."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind not in "bmM" and not isinstance(leaf, np.ma.MaskedArray)
    return is_real(leaf) if isinstance(leaf, int) else not isinstance(leaf, bytearray)
