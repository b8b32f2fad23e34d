"""What may stand for a number: real numbers, however they are given, and nothing that NumPy would turn into one."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sprii_envs.checks import is_integer, is_real, reals, whole


class Graph:
    """A tensor that requires gradients, as NumPy sees one."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


UNREAL = [
    10**40,
    -(2**63) - 1,
    10**400,
    True,
    np.True_,
    "1",
    b"1",
    bytearray(b"1"),
    None,
    1j,
    np.complex64(1),
    np.datetime64(0, "s"),
    np.timedelta64(1, "s"),
    datetime.date(2000, 1, 1),
    np.ma.masked,
    Graph(),
    {"a": 1.0},
    {1.0},
    np.zeros((), [("a", float)])[()],
]


@pytest.mark.parametrize("value", UNREAL, ids=lambda value: type(value).__name__)
def test_what_is_no_real_number_is_refused_alone_and_in_company(value):
    assert not is_real(value)
    assert not is_integer(value) or abs(value) > 2**63  # how large an integer may be is said by the rules of `fields`
    for given in (value, [value], [0.5, value], [[1, 2], (0.5, value)], [0, value]):
        with pytest.raises(TypeError):
            reals(given)
        with pytest.raises(TypeError):
            whole(given)
    among = np.empty(2, object)
    among[0], among[1] = 0.5, value
    with pytest.raises(TypeError):
        reals(among)


@pytest.mark.parametrize(
    "array",
    [
        np.ma.array([1.0, 2.0]),
        np.array([True, False]),
        np.array(["1", "2"]),
        np.array([b"1"]),
        np.zeros(2, complex),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, [("a", float)]),
        np.zeros(2, "V8"),
        [np.array([True]), np.array([0.5])],
        [[1.0], [1.0, 2.0]],
    ],
    ids=repr,
)
def test_arrays_of_other_kinds_are_refused(array):
    for check in (reals, whole):
        with pytest.raises(TypeError):
            check(array)


def test_real_numbers_keep_their_values():
    mixed = [1, 2.5, np.float32(0.5), np.int8(-3), Fraction(1, 4), Decimal("0.125")]
    assert reals(mixed).tolist() == reals(np.array(mixed, object)).tolist() == [1.0, 2.5, 0.5, -3.0, 0.25, 0.125]
    assert reals([[1, 2], [3, 4]], np.float32).dtype == np.float32
    assert reals([np.inf, -0.0])[0] == np.inf
    assert reals(2**63).item() == float(2**63)
    array = np.zeros((3, 2), np.float32)
    assert reals(array, np.float32) is array  # the hot path of every step: neither copied nor looked through


def test_integers_are_neither_rounded_nor_wrapped():
    assert whole([1, -2]).tolist() == [1, -2]
    assert whole([]).tolist() == []
    assert whole(np.array([2**63], np.uint64), np.uint64).tolist() == [2**63]
    for value, dtype in (
        ([0.5], np.int64),
        ([1.0], np.int64),
        ([-1], np.uint64),
        ([2**63], np.int64),
        ([300], np.int8),
    ):
        with pytest.raises(TypeError):
            whole(value, dtype)
