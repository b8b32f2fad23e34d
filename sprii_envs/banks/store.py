"""What every store of episodes has: windows of one side, and both sides of a batch in one call."""

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import ArrayLike, NDArray

from sprii_envs.relations.windows import WindowPairs


class WindowStore(ABC):
    """Episodes of which windows of named columns can be read."""

    @abstractmethod
    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows (n, length, *item) of a column: entries starts…starts+length−1 of each episode."""

    def read(self, w: WindowPairs, column: str, length: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The recipients' and the donors' windows of a batch of `WindowSampler`, (n, length, *item) each.

        Rows that know their table are read as the episodes that they stand for. ValueError if these are of another
        store, and as `windows`.
        """
        recipient = self.windows(column, w.recipient, w.recipient_start, length)
        return recipient, self.windows(column, w.donor, w.donor_start, length)
