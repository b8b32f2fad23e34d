"""What may stand for a number in an array: NumPy would turn strings, booleans, dates and masked entries into one.

Also counts and seeds; single numbers of configs are the business of `fields`.
"""

import operator
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGEST_SEED = 2**128 - 1
"""NumPy's own seeds, which environments draw where none is given, have 128 bits."""


def check_count(value: SupportsIndex, name: str, minimum: int = 0, maximum: int = 2**64 - 1) -> int:
    """`value` as a Python int within [minimum, maximum]; TypeError or ValueError naming `name` otherwise."""
    if type(value) is int and minimum <= value <= maximum:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    # Under a mask lies no count, and a tensor of True has an index as True has.
    if isinstance(value, bool | np.bool_ | np.ma.MaskedArray) or "bool" in str(getattr(value, "dtype", "")):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not minimum <= number <= maximum:
        bound = f"at least {minimum}" if number < minimum else f"at most {maximum}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def check_seed(seed: Any, name: str = "seed") -> int | None:
    """A seed of an environment, None or an int in [0, 2^128); TypeError or ValueError naming `name` otherwise."""
    return None if seed is None else check_count(seed, name, 0, LARGEST_SEED)


def is_real(value: Any) -> bool:
    """Whether a scalar is a real number of Python or NumPy: no boolean, no span of time, no int beyond 64 bits."""
    if isinstance(value, bool | np.timedelta64) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        return False
    return isinstance(value, int | float | np.integer | np.floating)


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
