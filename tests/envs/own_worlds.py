"""Worlds of one's own, registered as a user does: three actions and pictures; one action and an ending; odd corners."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import sprii_envs
from sprii_envs import rendering
from sprii_envs.banks import BankProtocol, UniformSegments, register_protocol
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import Ending, World


@dataclass(frozen=True, kw_only=True)
class Kite(World):
    """A mass in three dimensions whose drag and lift persist."""

    dt: float = 0.1
    pull: float = 2.0

    properties = PersistentProperties(
        [
            PersistentProperty("drag", "c", "1/s", low=0.2, high=2.0, nominal=1.0, scale="log"),
            PersistentProperty("lift", "a", "m/s²", low=-1.0, high=1.0, nominal=0.5, physical_low=-100.0),
        ]
    )
    state_names = ("x", "y", "z", "vx", "vy", "vz")
    action_size = 3
    start_draws = 3
    max_episode_steps = 20

    def prepare(self, values):
        return 1.0 - self.dt * values[:, 0], self.dt * values[:, 1]

    def initial(self, u, values, query):
        return np.concatenate([2.0 * u - 1.0, np.zeros_like(u)], axis=1)

    def step(self, state, force, prepared):
        kept, lift = prepared
        velocity = state[:, 3:] * kept[:, None] + self.pull * self.dt * force
        velocity[:, 2] += lift
        return np.concatenate([state[:, :3] + self.dt * velocity, velocity], axis=1), {}

    def reward(self, state, force, after):
        return -(after[:, 0] * after[:, 0] + after[:, 1] * after[:, 1])

    def patches(self, state, size):
        return [rendering.disc(rendering.to_pixels(state[:, [0, 2]], 6.0, size), 2.5, 200, size)]


@dataclass(frozen=True, kw_only=True)
class Cellar(World):
    """Heat leaks out of a room with one heater; an episode ends when it freezes. No pictures, no time constant."""

    properties = PersistentProperties([PersistentProperty("leak", "k", "1/h", low=0.05, high=0.5, nominal=0.2)])
    state_names = ("warmth",)
    action_size = 1
    start_draws = 1
    queries = ("cold",)
    signals: ClassVar = {"power": "float64"}
    endings = ("frozen",)

    def prepare(self, values):
        return (values[:, :1],)

    def initial(self, u, values, query):
        return 1.0 + u if query == "cold" else 10.0 + 10.0 * u

    def step(self, state, force, prepared):
        return state + 2.0 * force - prepared[0] * state, {"power": np.abs(force[:, 0])}

    def reward(self, state, force, after):
        return -np.abs(after[:, 0] - 18.0)

    def end(self, after, extras):
        frozen = after[:, 0] < 1.0
        return Ending(terminated=frozen, info={"reason": np.where(frozen, np.array("frozen", object), None)})


sprii_envs.register("test/Kite-v0", Kite)
sprii_envs.register("test/Cellar-v0", Cellar, max_episode_steps=30)

KITES = register_protocol(
    BankProtocol("kites", 1, "test/Kite-v0", {"train": 6, "test": 3}, 2, 12, UniformSegments(), systems_per_chunk=2)
)
CELLARS = BankProtocol("cellars", 1, "test/Cellar-v0", {"train": 6}, 3, 25, UniformSegments(), systems_per_chunk=3)
