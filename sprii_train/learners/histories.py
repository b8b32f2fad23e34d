"""The last K transitions of many episodes at once, for learners that read a running history.

The first transition of an episode is in slot 0, slots not yet filled are zero (padding stands on the right), and once K
transitions are there the oldest leaves: the order in which the published CaDM reads them.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class History(NamedTuple):
    """Transitions of B episodes in K slots; zero beyond `filled`.

    Attributes:
        observations: (B, K, S) float32, o_i before each action.
        actions: (B, K, A) float32.
        after: (B, K, S) float32, o_{i+1} after it.
        filled: (B,) int64, number of slots.
    """

    observations: Tensor
    actions: Tensor
    after: Tensor
    filled: Tensor

    @property
    def differences(self) -> Tensor:
        """(B, K, S) float32, o_{i+1} − o_i in the units of the observations."""
        return self.after - self.observations

    @property
    def mask(self) -> Tensor:
        """(B, K) bool, which slots are filled."""
        return torch.arange(self.actions.shape[1], device=self.filled.device) < self.filled[:, None]


def empty_history(
    episodes: int, length: int, observation_dim: int, action_dim: int, device: torch.device | str = "cpu"
) -> History:
    """The histories of `episodes` episodes that have just begun, with `length` slots."""
    seen, done = (torch.zeros(episodes, length, size, device=device) for size in (observation_dim, action_dim))
    return History(seen, done, seen, torch.zeros(episodes, dtype=torch.int64, device=device))


def append(history: History, observation: Tensor, action: Tensor, after: Tensor) -> History:
    """The histories with one more transition each: (B, S), (B, A), (B, S) float32. The argument is left as it is."""
    length = history.actions.shape[1]
    full = (history.filled == length)[:, None, None]
    newest = torch.arange(length, device=action.device) == history.filled.clamp(max=length - 1)[:, None]

    def with_newest(slots: Tensor, value: Tensor) -> Tensor:
        slid = torch.where(full, slots.roll(-1, 1), slots)
        return torch.where(newest[..., None], value[:, None], slid)

    return History(
        with_newest(history.observations, observation),
        with_newest(history.actions, action),
        with_newest(history.after, after),
        (history.filled + 1).clamp(max=length),
    )


def reset(history: History, ended: Tensor) -> History:
    """The histories with those of the episodes `ended` (B,) bool emptied."""
    kept = ~ended[:, None, None]
    seen, done, after = (slots * kept for slots in history[:3])
    return History(seen, done, after, history.filled * ~ended)


def window_history(observations: Tensor, actions: Tensor, length: int) -> History:
    """The histories at the ends of windows (B, T, S) with the T − 1 actions (B, T − 1, A) between the observations."""
    filled = min(actions.shape[1], length)

    def slots(values: Tensor) -> Tensor:
        return F.pad(values[:, -length:], (0, 0, 0, length - filled))

    count = torch.full((len(actions),), filled, dtype=torch.int64, device=actions.device)
    return History(slots(observations[:, :-1]), slots(actions), slots(observations[:, 1:]), count)


def filled_slots(times: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Which transition of its episode each slot holds when `times` (W,) int64 transitions have gone by.

    Returns:
        Numbers of transitions (W, K) int64, 0 in an empty slot, and which slots are filled, (W, K) bool.
    """
    slot, count = torch.arange(length, device=times.device), times.clamp(max=length)
    filled = slot < count[:, None]
    return ((times - count)[:, None] + slot) * filled, filled
