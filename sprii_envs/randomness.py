"""Counter-based uniforms: episode e of key s is a pure function of (s, e), for N slots at once.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in NumPy. There is no
hidden generator state: the whole state of a slot is its key and its episode number.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

SYSTEM, STATE = 0, 1
"""Streams: what an episode draws its system from and what it draws its initial state from are independent, so
that choosing the system by hand leaves the initial state of the same seed untouched."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_BUMP_0, _BUMP_1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> Words:
    """Philox4x32-10 of 32-bit words in uint64 arrays that broadcast together; returns (4, ...)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for r in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLY_0, c2 * _MULTIPLY_1
        round_0 = (k0 + np.uint64(r * _BUMP_0 & 0xFFFFFFFF)) & _LOW
        round_1 = (k1 + np.uint64(r * _BUMP_1 & 0xFFFFFFFF)) & _LOW
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ round_0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ round_1, p0 & _LOW
    return np.stack((c0, c1, c2, c3))


def uniforms(key: Words, episode: Words, k: int, stream: int = STATE) -> NDArray[np.float64]:
    """Uniforms in [0, 1) of 53 bits, (N, k) float64, from keys (N,) and episodes (N,), uint64."""
    n, blocks = len(key), (k + 1) // 2
    if k == 0:
        return np.empty((n, 0), np.float64)
    block = np.arange(blocks, dtype=np.uint64)[:, None]
    w = philox((block, np.full_like(block, stream), episode & _LOW, episode >> _HALF), (key & _LOW, key >> _HALF))
    bits = ((w[0::2] >> np.uint64(5)) << np.uint64(26)) | (w[1::2] >> np.uint64(6))
    # (pair, block, slot) → (slot, block, pair), the order in which one slot would draw them.
    u = np.multiply(bits, 2.0**-53, dtype=np.float64)
    return np.ascontiguousarray(u.transpose(2, 1, 0).reshape(n, 2 * blocks)[:, :k])
