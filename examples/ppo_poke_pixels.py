"""PPO from pixels: 64 PokeWorlds of objects that differ in mass, drag and stiffness, drawn as one array program.

    python examples/ppo_poke_pixels.py                    # 20,000 frames: a minute or two, too few to learn
    python examples/ppo_poke_pixels.py --steps 2000000 --states   # of states a minute; doing nothing returns -43

Prints the mean return of the latest 100 episodes after every rollout, then that of 64 episodes of systems not met.
"""

import argparse

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.arguments import MOST, option
from sprii_train.fit import device_name
from sprii_train.plugins.sb3_envs import NativeVecEnv


class Returns(BaseCallback):
    """Prints the mean return after every rollout."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        if returns:
            mean = sum(returns) / len(returns)
            print(f"{self.num_timesteps:>10,} frames: return {mean:8.2f}, mean of {len(returns)} episodes")


def run(steps: int = 20_000, envs: int = 64, seed: int = 0, states: bool = False, device: str = "cpu") -> float:
    """Train, evaluate; the mean return of one episode of each of as many new systems as there are environments."""
    seen, policy = ("state", "MlpPolicy") if states else ("pixels", "CnnPolicy")
    make = lambda: VecMonitor(NativeVecEnv(gym.make_vec("sprii/PokeWorld-v0", num_envs=envs, obs_type=seen)))  # noqa: E731
    model = PPO(
        policy, make(), n_steps=64, batch_size=16 * envs, n_epochs=4, gamma=0.97, learning_rate=1e-3, seed=seed,
        device=device,
    )  # fmt: skip
    model.learn(steps, Returns())
    fresh = make()
    fresh.seed(10_000 + seed)
    mean, spread = evaluate_policy(model, fresh, n_eval_episodes=envs)
    print(f"new systems: return {mean:.2f} ± {spread:.2f} (SD of {envs} episodes)")
    return float(mean)  # type: ignore[arg-type]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=option(most=MOST), default=20_000, help="frames, of all environments together")
    parser.add_argument("--envs", type=option(), default=64)
    parser.add_argument("--seed", type=option(least=0, most=MOST), default=0)
    parser.add_argument("--states", action="store_true", help="states in place of pixels")
    parser.add_argument("--device", type=device_name, default="cpu", help="a torch device to train on")
    run(**vars(parser.parse_args()))
