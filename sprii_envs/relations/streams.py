"""Counter-based random streams: what is drawn at a step is a pure function of (seed, step).

Workers, ranks, prefetch depth and resumption therefore cannot change a run, and NumPy's global generator is
neither read nor touched.
"""

from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

# One word of Philox's 256-bit counter separates the users of one (seed, step); a stream would have to draw
# 2^194 numbers to run into its neighbour.
PAIRS, WINDOWS, AUDIT, CANDIDATES, COLLECTION, GRAPH, SWEEPS, CONTEXTS = 0, 1, 2, 3, 4, 5, 6, 7
# Stream of `sprii_envs.randomness` from which an episode's evaluation window comes; environments use 0 and 1.
EVALUATION = 2


def stream(seed: int, step: int, purpose: int) -> np.random.Generator:
    """The generator of one step: Philox keyed by (seed, step), each in [0, 2^64), offset by `purpose`."""
    counter = np.array([0, 0, 0, purpose], np.uint64)
    # NumPy takes any ISeedSequence; its type stubs know only one.
    return np.random.Generator(np.random.Philox(_Key((seed, step)), counter=counter))  # pyright: ignore[reportArgumentType]


class _Key(ISeedSequence):
    """Gives Philox its key: `Philox(key=…)` gives the same stream, but first reads the machine's entropy, in 6 µs."""

    def __init__(self, words: tuple[int, int]) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint64) -> Any:
        return self.words


def below(rng: np.random.Generator, bound: NDArray[np.int64]) -> NDArray[np.int64]:
    """Uniform integers in [0, bound), one for each bound (n,).

    A scaled 53-bit uniform: twice as fast as rejection, never equal to its bound, off uniform by less than
    bound/2^53 in relative terms (1e-10 for a million).
    """
    uniform = rng.random(len(bound))
    uniform *= bound
    return uniform.astype(np.int64)
