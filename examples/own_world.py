"""Your own physics as a world with persistent properties, a drone in wind: python examples/own_world.py"""

from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

import sprii_envs
from sprii_envs.banks import BankProtocol, UniformSegments, build, register_protocol
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.relations import SAME_SYSTEM, PairSampler
from sprii_envs.world import World
from sprii_envs.world_checks import check_world


@dataclass(frozen=True, kw_only=True)
class Drone(World):
    """Three thrusts move a mass that wind along x drags: m·dv/dt = F − c·(v − w), solved exactly for a constant F."""

    dt: float = 0.1
    thrust: float = 5.0
    properties = PersistentProperties(
        [
            PersistentProperty("mass", "m", "kg", low=0.5, high=2.0, nominal=1.0, scale="log", physical_low=0.01),
            PersistentProperty("drag", "c", "kg/s", low=0.2, high=2.0, nominal=1.0, physical_low=0.01),
            PersistentProperty("wind", "w", "m/s", low=-2.0, high=2.0, nominal=0.5, physical_low=-50.0),
        ]
    )
    state_names = ("x", "y", "z", "vx", "vy", "vz")
    action_size = 3
    start_draws = 3

    def prepare(self, values):
        mass, drag, wind = values.T[..., None]
        decay = np.exp(-drag / mass * self.dt)
        return decay, (1.0 - decay) * mass / drag, drag, wind * [1.0, 0.0, 0.0]

    def initial(self, u, values, query):
        return np.concatenate([2.0 * u - 1.0, np.zeros_like(u)], axis=1)

    def step(self, state, force, prepared):
        decay, reach, drag, wind = prepared
        final = wind + self.thrust * force / drag
        beside = state[:, 3:] - final
        return np.concatenate([state[:, :3] + final * self.dt + beside * reach, final + beside * decay], axis=1), {}

    def reward(self, state, force, after):
        return -(after[:, 0] ** 2 + after[:, 1] ** 2 + after[:, 2] ** 2)


sprii_envs.register("mine/Drone-v0", Drone, max_episode_steps=49)
BANK = register_protocol(BankProtocol("drones", 1, "mine/Drone-v0", {"train": 60}, 4, 50, UniformSegments()))

if __name__ == "__main__":
    check_world(Drone())
    with TemporaryDirectory() as folder:
        bank = build(BANK, f"{folder}/drones", workers=2)
        pairs = PairSampler(bank.split("train"), SAME_SYSTEM, seed=0, distinct="system").batch(0, 16)
        print(bank.windows("states", pairs.donor, 0, 24).shape)  # (16, 24, 6)
