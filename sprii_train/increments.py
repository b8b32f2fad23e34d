"""Windows of frames with what the state does after them, for learners that are told it."""

import numpy as np
import torch

from sprii_train.data import Rows, WindowReader
from sprii_train.protocol import Windows


class IncrementReader(WindowReader):
    """A `WindowReader` whose labels are true increments of the state, s_{t+h} − s_t at each horizon, (n, K·S)."""

    def read(self, episodes: Rows, starts: Rows) -> Windows:
        """Windows (n, …) with their increments, in units of the state, horizons first."""
        now = np.asarray(starts) + self.history - 1
        states = self.bank.windows("states", self._episodes(episodes), now, self.horizons[-1] + 1)
        increments = states[:, self.horizons] - states[:, :1]
        labels = torch.from_numpy(increments.reshape(len(now), -1).astype(np.float32))
        return super().read(episodes, starts)._replace(labels=labels)
