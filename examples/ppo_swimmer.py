"""PPO swims: 64 swimmers of systems that differ, and how far the centres of mass of new ones get in 40 s.

python examples/ppo_swimmer.py                 # 400,000 steps in water: under a minute on one core
python examples/ppo_swimmer.py --fluid bank    # the fluid of the Swimmer bank, in which nothing swims
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.arguments import MOST, option
from sprii_envs.mujoco.swimmer import FLUIDS, centre
from sprii_envs.world import rollout
from sprii_train.plugins.sb3_envs import NativeVecEnv

ID = "sprii/Swimmer-v0"


def progress(model: PPO, fluid: str, seed: int, envs: int = 64, steps: int = 1000) -> dict[str, np.ndarray]:
    """Metres along +x and returns, (N,) each, of an episode of N new systems, and metres coasted if no motor turns."""
    env: Any = gym.make_vec(ID, num_envs=envs, fluid=fluid, max_episode_steps=None)
    observations, infos = env.reset(seed=10_000 + seed)
    values, first, returns = infos["persistent"], env.unwrapped.state, np.zeros(envs)
    for _ in range(steps):
        observations, rewards, *_ = env.step(model.predict(observations, deterministic=True)[0])
        returns += rewards
    last, still = env.unwrapped.state, np.zeros((steps, 2), np.float32)
    coasted = rollout(env.unwrapped.world, values, first, still).states[:, -1]
    moved, drift = (centre(end, values)[:, 0] - centre(first, values)[:, 0] for end in (last, coasted))
    return {"centre, m": moved, "if it coasts, m": drift, "root, m": last[:, 0] - first[:, 0], "return": returns}


def run(steps: int = 400_000, fluid: str = "water", envs: int = 64, seed: int = 0) -> dict[str, np.ndarray]:
    """Train, and print the means over new systems and their least and most."""
    torch.set_num_threads(1)  # more only wait for each other over so small a network
    env = NativeVecEnv(gym.make_vec(ID, num_envs=envs, fluid=fluid))
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=16 * envs, learning_rate=5e-4, device="cpu", seed=seed)
    model.learn(steps)
    found = progress(model, fluid, seed)
    for name, numbers in found.items():
        print(f"{fluid}, seed {seed}: {name}: {numbers.mean():.3f}, {numbers.min():.3f} to {numbers.max():.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=option(), default=400_000, help="of all environments together")
    parser.add_argument("--fluid", choices=FLUIDS, default="water")
    parser.add_argument("--envs", type=option(), default=64)
    parser.add_argument("--seed", type=option(least=0, most=MOST), default=0)
    run(**vars(parser.parse_args()))
