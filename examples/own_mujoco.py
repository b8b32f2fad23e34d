"""Your own MJCF as a world with persistent properties, a cart and a pole: python examples/own_mujoco.py"""

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

import sprii_envs
from sprii_envs.mujoco import MujocoWorld, multiple, scale
from sprii_envs.properties import PersistentProperties

MJCF = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.1"/>
      <geom name="cart" type="box" size="0.2 0.1 0.1" mass="1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0" damping="0.02"/>
        <geom name="pole" type="capsule" fromto="0 0 0 0 0 0.6" size="0.03" mass="0.3"/>
      </body></body>
  </worldbody>
  <actuator><motor joint="rail" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class CartPole(MujocoWorld):
    """A pole on a cart that is pushed: which pole it is shows only in how it moves."""

    start_noise: float = 0.05
    name = "CartPole"
    model = MJCF
    properties = PersistentProperties(
        [multiple("pole_mass", 0.5, 2.0), multiple("hinge_damping", 0.25, 4.0), multiple("gravity", 0.5, 1.5)]
    )
    edits: ClassVar = {
        "pole_mass": scale("body_mass", "pole"),
        "hinge_damping": scale("dof_damping", "hinge"),
        "gravity": scale("opt.gravity"),
    }

    def reward(self, state, force, after):
        """How upright the pole is, (N,)."""
        return np.cos(after[:, 1])


sprii_envs.register("mine/CartPole-v0", CartPole, max_episode_steps=100)

if __name__ == "__main__":
    env = gym.make_vec("mine/CartPole-v0", num_envs=64, obs_type="pixels")
    print(env.reset(seed=0)[0].shape)  # (64, 64, 64, 2)
    one: Any = gym.make("mine/CartPole-v0").unwrapped
    one.reset(seed=0)
    done = one.counterfactual(one.vary("pole_mass", [0.5, 1.0, 2.0]), np.ones((20, 1), np.float32))
    print(done.states[:, -1, 1])  # rad: the same start and pushes, other poles
