"""Counter-based uniforms: episode e of key s is a pure function of (s, e), for N slots at once.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in NumPy. There is no
hidden generator state: the whole state of a slot is its key and its episode number.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

SYSTEM, STATE = 0, 1
"""Streams: what an episode draws its system from and what it draws its initial state from are independent, so
that choosing the system by hand leaves the initial state of the same seed untouched."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10
_MULTIPLY = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_BUMP = np.array([[r * bump & 0xFFFFFFFF for bump in (0x9E3779B9, 0xBB67AE85)] for r in range(_ROUNDS)], np.uint64)
"""What is added to the key in each round, (rounds, 2)."""


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> Words:
    """Philox4x32-10 of 32-bit words in uint64 arrays that broadcast together; returns (4, ...)."""
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    even, odd = np.stack((c0, c2)), np.stack((c1, c3))
    trail = (1,) * (even.ndim - 1)
    k = np.stack(np.broadcast_arrays(*key))
    keys = (k + _BUMP.reshape(_ROUNDS, 2, *(1,) * (k.ndim - 1))) & _LOW
    keys = keys.reshape(_ROUNDS, 2, *(1,) * (even.ndim - k.ndim), *k.shape[1:])
    multiply = _MULTIPLY.reshape(2, *trail)
    for r in range(_ROUNDS):
        product = even * multiply
        # The even words get the high halves, crossed over; the odd ones the low halves.
        even = (product >> _HALF)[::-1] ^ odd
        even ^= keys[r]
        odd = (product & _LOW)[::-1]
    return np.stack((even[0], odd[0], even[1], odd[1]))


def uniforms(key: Words, episode: Words, k: int, stream: int = STATE) -> Floats:
    """Uniforms in [0, 1) of 53 bits, (N, k) float64, from keys (N,) and episodes (N,), uint64."""
    return streams(key, episode, ((k, stream),))[0]


def streams(key: Words, episode: Words, wanted: Sequence[tuple[int, int]]) -> list[Floats]:
    """`uniforms(key, episode, k, stream)` for several (k, stream), in one go."""
    n, counts = len(key), [(k + 1) // 2 for k, _ in wanted]
    block = np.concatenate([np.arange(count, dtype=np.uint64) for count in counts])[:, None]
    stream = np.repeat(np.array([s for _, s in wanted], np.uint64), counts)[:, None]
    w = philox((block, stream, episode & _LOW, episode >> _HALF), (key & _LOW, key >> _HALF))
    bits = ((w[0::2] >> np.uint64(5)) << np.uint64(26)) | (w[1::2] >> np.uint64(6))
    # (pair, block, slot) → (slot, block, pair), the order in which one slot would draw them.
    u = np.multiply(bits, 2.0**-53, dtype=np.float64).transpose(2, 1, 0)
    out, first = [], 0
    for (k, _), count in zip(wanted, counts, strict=True):
        out.append(np.ascontiguousarray(u[:, first : first + count].reshape(n, 2 * count)[:, :k]))
        first += count
    return out
