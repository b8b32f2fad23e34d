"""D-Clean with all that a world and a behaviour may have: kinds of episode, endings, signals, closed loops."""

from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np

from sprii_envs.banks import BankProtocol, behaviours
from sprii_envs.banks.populations import Combinations, Interpolated, Uniform, Union
from sprii_envs.envs.d_clean import DClean
from sprii_envs.world import Ending


@dataclass(frozen=True, kw_only=True)
class Bounded(DClean):
    """Ends at two walls; says how far it is out of the middle, and whether it is far."""

    wall: float = 1.2
    queries = ("still",)
    endings = ("left or right", "top or bottom")
    signals: ClassVar = {"far": "bool", "distance": "float64"}

    def initial(self, u, values, query):
        state = super().initial(u, values, query)
        if query == "still":
            state[:, 2:] = 0.0
        return state

    def step(self, state, force, prepared):
        after, _ = super().step(state, force, prepared)
        distance = np.abs(after[:, 0]) + np.abs(after[:, 1])
        return after, {"far": distance > 1.0, "distance": distance}

    def end(self, after, extras):
        x, y = np.abs(after[:, 0]) > self.wall, np.abs(after[:, 1]) > self.wall
        reason = np.full(len(after), None, object)
        reason[y] = "top or bottom"
        reason[x] = "left or right"
        return Ending(truncated=x | y, info={"reason": reason})


@dataclass(frozen=True)
class Walks:
    """Three kinds of episode: no force from rest, random forces, and a feedback towards a random point."""

    kind: ClassVar[str] = "test_walks"
    episode_kinds: ClassVar[tuple[str, ...]] = ("still", "push", "chase")
    gain: float = 0.5

    def policy(self, rng, world, values, start, steps, episode_kind):
        n = len(values)
        assert start.shape == (n, 4)
        if episode_kind == "still":
            assert not start[:, 2:].any()
            return np.zeros((n, steps, 2), np.float32)
        if episode_kind == "push":
            return rng.uniform(-1, 1, (n, steps, 2)).astype(np.float32)
        target = rng.uniform(-2, 2, (n, 2))
        return lambda t, state: (self.gain * (target - state[:, :2])).clip(-1, 1).astype(np.float32)


behaviours.KINDS[Walks.kind] = Walks
gym.register("test/Bounded-v0", entry_point=f"{__name__}:BoundedEnv")

LEVELS = {"drag": 4}
PROTOCOL = BankProtocol(
    name="bounded",
    version=1,
    env_id="test/Bounded-v0",
    systems={
        "train": Combinations(LEVELS),
        "validation": Union({"uniform": Uniform(2), "between": Interpolated(LEVELS)}),
        "sealed": 3,
    },
    rollouts={
        "train": {"push": 2, "still": 1, "chase": 3},
        "validation": {"push": 1, "chase": 1},
        "sealed": {"chase": 1},
    },
    steps=24,
    behaviour=Walks(),
    systems_per_chunk=2,
    lengths={"still": 9, "push": 20},
    frames=16,
    sealed_splits=("sealed",),
)
"""24 + 10 + 3 episodes of 4 + 5 + 3 systems, in 2 + 3 + 2 chunks."""
