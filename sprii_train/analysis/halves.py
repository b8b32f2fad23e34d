"""Held-out systems in two halves: one that sizes are selected on, one that is reported (`app:tds-dclean`)."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray


def selection_half(systems: ArrayLike) -> NDArray[np.bool_]:
    """Where (n,) the systems `systems` (n,) are of the half that is selected on; the others are reported.

    Ids are ranked by a hash, and the first half of the distinct ones selects: a fixed half of a split, whatever the
    order of its episodes.
    """
    ids = np.asarray(systems)
    ranked = sorted(np.unique(ids).tolist(), key=lambda one: hashlib.sha256(str(one).encode()).digest())
    return np.isin(ids, ranked[: len(ranked) // 2])
