"""A rule, PPO and a planner that knows the equations on the same pendulums, with paired contrasts.

    python examples/evaluate_agents.py --steps 100000

Writes `ppo.json`. PPO sees the present observation only; the planner is told each mass and length.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from sprii_envs.arguments import option
from sprii_train.control.controllers import named_controller
from sprii_train.control.pendulum_agents import ENV_ID, references
from sprii_train.evaluation import Evaluation, evaluate_agent
from sprii_train.plugins.sb3_envs import NativeVecEnv


def pump(observations: np.ndarray) -> np.ndarray:
    """Push along with the swing, and hold near the top: (N, 3) → (N, 1)."""
    cos, sin, velocity = observations.T
    hold = -8.0 * sin - 2.0 * velocity
    return np.where(cos > 0.9, hold, np.sign(velocity)).clip(-1.0, 1.0)[:, None]


def main() -> None:
    """Train, evaluate, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=option(), default=100_000, help="environment steps of PPO")
    parser.add_argument("--episodes", type=option(), default=20, help="of each group")
    parser.add_argument("--out", type=Path, default=Path("ppo.json"))
    told = parser.parse_args()
    venv = VecNormalize(NativeVecEnv(gym.make_vec(ENV_ID, num_envs=16)), gamma=0.95)
    ppo = PPO("MlpPolicy", venv, n_steps=200, batch_size=400, gamma=0.95, learning_rate=1e-3, seed=0, device="cpu")
    ppo.learn(told.steps)
    beside = {"rule": pump} | references(named_controller("icem", horizon=20))
    found = evaluate_agent(ppo, ENV_ID, episodes=told.episodes, references=beside)
    found.show()
    found.to_json(told.out)
    for name in ("rule", "oracle"):
        other = found.references[name]
        assert isinstance(other, Evaluation)
        for row in found.contrast(other):
            print(f"{row['group']}: PPO − {name} = {row['return']:.0f}, {row['verdict']}")


if __name__ == "__main__":
    main()
