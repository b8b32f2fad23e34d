"""Counter-based random streams: what is drawn at a step is a pure function of (seed, step).

Workers, ranks, prefetch depth and resumption therefore cannot change a run, and NumPy's global generator is
neither read nor touched.
"""

import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

# One word of Philox's 256-bit counter separates the users of one (seed, step); a stream would have to draw
# 2^194 numbers to run into its neighbour.
PAIRS, WINDOWS, AUDIT = 0, 1, 2


def check_count(value: SupportsIndex, name: str, minimum: int = 0, maximum: int = 2**64 - 1) -> int:
    """`value` as a Python int within [minimum, maximum]; TypeError or ValueError naming `name` otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not minimum <= number <= maximum:
        bound = f"at least {minimum}" if number < minimum else f"at most {maximum}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def stream(seed: int, step: int, purpose: int) -> np.random.Generator:
    """The generator of one step: Philox keyed by (seed, step), each in [0, 2^64), counter offset by `purpose`."""
    key = np.array([seed, step], np.uint64)
    counter = np.array([0, 0, 0, purpose], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def below(rng: np.random.Generator, bound: NDArray[np.int64]) -> NDArray[np.int64]:
    """Uniform integers in [0, bound), one for each bound (n,) int64.

    A scaled 53-bit uniform: twice as fast as rejection, never equal to its bound, off uniform by less than
    bound/2^53 in relative terms (1e-10 for a million).
    """
    return (rng.random(len(bound)) * bound).astype(np.int64)


def hashed_uniform(seed: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """One uniform in [0, 1) for each id (n,) int64: a pure function of (seed, id), whatever stands beside it.

    Two rounds of the splitmix64 finaliser, so that neither consecutive ids nor consecutive seeds correlate.
    """
    x = ids.astype(np.uint64)
    for word in (np.uint64(seed), np.uint64(0x9E3779B97F4A7C15)):
        x = (x ^ word) * np.uint64(0xD1342543DE82EF95) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
