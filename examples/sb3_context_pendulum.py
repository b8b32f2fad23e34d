"""SAC on the pendulum with no context, the true one, or one that a trained encoder infers from the running episode.

    sprii pendulum train r7                                         # writes runs/pendulum-quick-r7-0/model
    python examples/sb3_context_pendulum.py --encoder runs/pendulum-quick-r7-0/model --steps 20000

Writes `sac.png` (return by environment steps) and `sac.csv`. Masses and lengths are drawn anew for every episode, so
without a context the policy must do with what the present observation tells.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.arguments import MOST, option
from sprii_envs.wrappers import ContextObservation
from sprii_train.checkpoints import load
from sprii_train.fit import device_name
from sprii_train.learners import CaDM
from sprii_train.learners.histories import window_history

CONTEXTS = ("none", "oracle", "learned")


def encoder_of(learner: CaDM) -> Callable[[NDArray, NDArray], NDArray[np.float32]]:
    """Observations (T + 1, 3) and actions (T, 1) of the running episode → its context."""

    def encode(observations: NDArray, actions: NDArray) -> NDArray[np.float32]:
        seen, done = (torch.from_numpy(np.asarray(x, np.float32))[None] for x in (observations, actions))
        with torch.inference_mode():
            return learner.context(window_history(seen, done, learner.history))[0].numpy()

    return encode


def make(context: str, systems: str, learner: CaDM | None) -> gym.Env:
    """The pendulum of one group of systems, with a context in its observation."""
    env = gym.make("sprii/Pendulum-v0", systems=systems)
    if context == "learned":
        assert learner is not None
        size = learner.config.members * learner.config.context
        return Monitor(ContextObservation(env, encoder_of(learner), size=size, history=learner.history))
    return Monitor(ContextObservation(env, "all" if context == "oracle" else "none"))


def main() -> None:
    """Train the three, evaluate on the way, plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--encoder", type=Path, help="model folder of `sprii pendulum train`; without it no learned row"
    )
    parser.add_argument("--steps", type=option(), default=20_000, help="environment steps of each")
    parser.add_argument("--every", type=option(), default=2_000, help="steps between evaluations of ten episodes")
    parser.add_argument("--systems", default="ID", help="group of systems, for training and evaluation")
    parser.add_argument("--seed", type=option(least=0, most=MOST), default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/sb3-pendulum"))
    parser.add_argument("--device", type=device_name, default="cpu", help="a torch device to train on")
    told = parser.parse_args()
    if not 1 <= told.every <= told.steps:
        parser.error(f"--every is {told.every}; legal: from 1 to --steps, {told.steps}")
    try:
        found = None if told.encoder is None else load(told.encoder)
        gym.make("sprii/Pendulum-v0", systems=told.systems).close()
    except ValueError as error:
        parser.error(str(error))
    if found is not None and not isinstance(found, CaDM):
        parser.error(f"--encoder {told.encoder} holds a {type(found).__name__}; legal: CaDM")
    if found is not None and (found.config.observation_dim, found.config.action_dim) != (3, 1):
        parser.error(f"--encoder {told.encoder} is of other observations or actions than the pendulum's 3 and 1")
    told.out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axis, rows = figure.subplots(), []
    for context in CONTEXTS if found is not None else CONTEXTS[:2]:
        evaluation = make(context, told.systems, found)
        evaluation.reset(seed=1_000 + told.seed)
        callback = EvalCallback(
            evaluation, n_eval_episodes=10, eval_freq=told.every, log_path=str(told.out / context), verbose=0
        )
        env = make(context, told.systems, found)
        agent = SAC("MlpPolicy", env, seed=told.seed, learning_starts=1_000, device=told.device)
        agent.learn(told.steps, callback=callback, progress_bar=True)
        agent.save(told.out / context / "sac")
        returns = np.array(callback.evaluations_results)
        axis.plot(callback.evaluations_timesteps, returns.mean(1), "o-", label=context, markersize=4)
        rows += [
            [context, step, *map(float, r)] for step, r in zip(callback.evaluations_timesteps, returns, strict=True)
        ]
        print(f"{context}: return {returns[-1].mean():.0f} ± {returns[-1].std():.0f} (SD of ten episodes)")
    axis.set_xlabel("environment steps")
    axis.set_ylabel("mean return of ten episodes")
    axis.grid(alpha=0.3)
    axis.legend(title="context", frameon=False)
    FigureCanvasAgg(figure)
    figure.savefig(told.out / "sac.png", dpi=120)
    with open(told.out / "sac.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["context", "step", *(f"return {i}" for i in range(10))], *rows])
    print(f"figure: {told.out / 'sac.png'}")


if __name__ == "__main__":
    main()
