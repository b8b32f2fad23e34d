"""A linear world with two persistent properties, as experience for tests."""

import numpy as np

from sprii_train.control.experience import Experience
from sprii_train.learners import CaDMConfig

CONFIG = CaDMConfig(
    observation_dim=2, action_dim=1, history=4, window=3, context=3, encoder=(16, 16, 16), dynamics=(16, 16, 16, 16)
)
PROPERTIES = ("gain", "length")
"""One of the names is also a column of every episode table."""


def rollout(start: np.ndarray, actions: np.ndarray, gain: np.ndarray, length: np.ndarray) -> np.ndarray:
    """x' = x + gain·a, y' = y + length: (n, 2), (n, T, 1), (n,), (n,) → (n, T + 1, 2)."""
    change = np.stack([gain[:, None] * actions[:, :, 0], np.broadcast_to(length[:, None], actions.shape[:2])], 2)
    return start[:, None] + np.concatenate([np.zeros_like(change[:, :1]), change.cumsum(1)], 1)


def collect(systems: list[int], steps: int = 12, seed: int = 0, into: Experience | None = None) -> Experience:
    """An episode of each of the systems (a system may recur), whose properties are functions of its number."""
    rng = np.random.default_rng((seed, len(systems), steps))
    store = Experience(2, 1, PROPERTIES) if into is None else into
    number = np.array(systems)
    values = np.stack([0.5 + (number * 7 % 11) / 10, 0.2 + (number * 3 % 13) / 12], 1)
    actions = rng.choice(np.array([-1.0, 1.0], np.float32), (len(number), steps, 1))
    states = rollout(rng.normal(size=(len(number), 2)), actions, *values.T)
    store.add(states, actions, [f"system-{i}" for i in systems], values)
    return store
