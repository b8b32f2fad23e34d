"""SAC whose replay buffer also pairs related episodes, and Align on those pairs: it finds what no observation shows.

    python examples/sb3_replay.py

SAC learns to hold up pendulums whose mass and length change every fourth episode. At each of its steps, a small
encoder takes one Align step on windows of two episodes of one system, drawn from SAC's own buffer. Printed is the R²
of a linear probe of mass and length on the codes of one window of systems never met, before and after. One seed of a
small run: an example, no comparison. Twenty seconds on two cores.
"""

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

import sprii_envs  # noqa: F401  (registers the environments)
from sprii_envs.relations import NoLegalDonorError
from sprii_envs.wrappers import RepeatSystem
from sprii_train.objectives import align
from sprii_train.plugins.sb3 import RelationReplayBuffer

ID, WINDOW = "sprii/Pendulum-v0", 32


class Encoder(nn.Module):
    """A window's observations (n, K + 1, 3) and actions (n, K, 1) → code (n, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(5, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.code = nn.Linear(64, 4)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        change = observations[:, 1:, 2:] - observations[:, :-1, 2:]
        features = torch.cat([observations[:, :-1], actions, 4.0 * change], dim=-1)
        return self.code(self.each(features).mean(dim=1))


class AlignCallback(BaseCallback):
    """One Align step of the encoder for every step of the vector environment."""

    def __init__(self, encoder: Encoder, pairs: int = 64) -> None:
        super().__init__()
        self.encoder, self.pairs, self.taken = encoder, pairs, 0
        self.optimizer = torch.optim.AdamW(encoder.parameters(), 2e-3)

    def _on_step(self) -> bool:
        buffer = self.locals["replay_buffer"]
        try:
            recipient, donor, _ = buffer.sample_pairs(self.pairs)
        except NoLegalDonorError:  # no two episodes of one system have ended yet
            return True
        codes = (self.encoder(side.observations, side.actions) for side in (donor, recipient))
        self.optimizer.zero_grad()
        align(*codes).total.backward()
        self.optimizer.step()
        self.taken += 1
        return True


def probe(encoder: Encoder, systems: int = 600) -> dict[str, float]:
    """R² of mass and length on 300 systems, linear in the code, fitted on 300 others."""
    envs, rng = gym.make_vec(ID, num_envs=systems), np.random.default_rng(0)
    seen, taken = [envs.reset(seed=10_000)[0]], []
    for _ in range(WINDOW):
        taken.append(rng.uniform(-1.0, 1.0, (systems, 1)).astype(np.float32))
        seen.append(envs.step(taken[-1])[0])
    with torch.no_grad():
        codes = encoder(*(torch.from_numpy(np.stack(x, axis=1)) for x in (seen, taken))).double().numpy()
    inputs, values = np.column_stack([codes, np.ones(systems)]), envs.unwrapped.values  # type: ignore[attr-defined]
    fit, rest = slice(0, systems // 2), slice(systems // 2, None)
    error = values[rest] - inputs[rest] @ np.linalg.lstsq(inputs[fit], values[fit])[0]
    return dict(zip(("mass", "length"), 1.0 - error.var(0) / values[rest].var(0), strict=True))


def run(steps: int = 8_000, envs: int = 8) -> dict[str, dict[str, float]]:
    """Train SAC and the encoder; the R² before and after."""
    torch.manual_seed(0)
    encoder = Encoder()
    make = lambda: RepeatSystem(gym.make(ID, max_episode_steps=64), episodes=4)  # noqa: E731
    model = SAC(
        "MlpPolicy",
        DummyVecEnv([make] * envs),
        replay_buffer_class=RelationReplayBuffer,
        replay_buffer_kwargs={"steps": WINDOW},
        buffer_size=steps,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=0,
    )
    results, callback = {"untrained": probe(encoder)}, AlignCallback(encoder)
    model.learn(steps, callback)
    buffer = model.replay_buffer
    assert isinstance(buffer, RelationReplayBuffer)
    recipient, donor, _ = buffer.sample_pairs(1000)
    print(
        f"{callback.taken:,} Align steps; of 1,000 pairs {(recipient.system == donor.system).mean():.0%} are of one "
        f"system, {(recipient.episode == donor.episode).mean():.0%} of one episode"
    )
    return results | {"Align on SAC's buffer": probe(encoder)}


if __name__ == "__main__":
    for name, found in run().items():
        print(", ".join(f"{name} R² {value:5.2f}" for name, value in found.items()), "", name)
