"""MuJoCo's own threads for many systems at once, with their warm starts: `mujoco.batch`, from MuJoCo 4 on.

`mujoco.rollout`, which older versions have too, returns no warm starts.
"""

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Pool:
    """Up to `count` systems on `threads` threads; one caller at a time."""

    def __init__(self, model: Any, count: int, threads: int) -> None:
        """ImportError before MuJoCo 4."""
        self._batch: Any = importlib.import_module("mujoco.batch").Batch(model, count, threads)
        self._controls = self._batch.bind("ctrl")
        self._model, self._count = model, count
        self._now: tuple[Any, int] | None = None
        # Never destroyed: in a fork, where the threads are missing, the destructor would wait for them for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._batch))

    def run(
        self, models: Sequence[Any], revision: int, state: Array, control: Array, substeps: int, after: Array
    ) -> None:
        """Fill `after` (n, T, M) with what follows `state` (n, M) under controls (n, T, A); see `Compiled.run`."""
        n, batch = len(state), self._batch
        if self._now is None or self._now[0] is not models or self._now[1] != revision:
            batch.set_models([*models, *[models[-1]] * (self._count - n)])
            self._now = models, revision
        ids = None if n == self._count else np.arange(n, dtype=np.int32)
        rows = batch.state[:n, 1 : 1 + state.shape[1]]  # MuJoCo's rows begin with the time
        rows[:] = state
        for t in range(control.shape[1]):
            self._controls[:n] = control[:, t]
            batch.step(ids, nstep=substeps)
            after[:, t] = rows

    def let_go(self) -> None:
        """Hold no models but the first, as the system of all."""
        if self._now is not None:
            self._batch.set_models([self._model] * self._count)
            self._now = None
