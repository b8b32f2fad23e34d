"""What may stand for a number: real numbers, however they are given, and nothing that NumPy would turn into one."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sprii_envs.checks import LARGEST_SEED, check_seed, is_real, reals, whole


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


def test_seeds_are_integers_of_at_most_128_bits():
    assert check_seed(None) is None
    assert check_seed(np.int64(3)) == 3
    assert check_seed(LARGEST_SEED) == LARGEST_SEED
    for seed in (1.5, "12", True, np.array([1])):
        with pytest.raises(TypeError, match="seed must be an integer"):
            check_seed(seed)
    for seed, bound in ((-1, "at least 0"), (LARGEST_SEED + 1, f"at most {LARGEST_SEED}")):
        with pytest.raises(ValueError, match=f"seed must be {bound}"):
            check_seed(seed)
