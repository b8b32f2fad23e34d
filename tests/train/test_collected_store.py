"""Training reads saved episodes of any environment as it reads every store."""

from pathlib import Path

import gymnasium as gym
import torch

from sprii_envs.banks import open_store
from sprii_envs.collection import collect_related
from sprii_envs.wrappers import PersistentEnv
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import TrainConfig, fit
from sprii_train.learners import CaDM, CaDMConfig
from sprii_train.protocol import Objective

CONFIG = CaDMConfig(
    history=4, window=3, context=3, encoder=(8,), dynamics=(8,), encoder_decay=(0.0, 0.0), dynamics_decay=(0.0, 0.0)
)


def test_a_learner_trains_on_what_was_collected(tmp_path: Path):
    env = PersistentEnv(gym.make("Pendulum-v1"), {"m": (0.5, 2.0), "l": (0.5, 1.5)})
    found = collect_related(env, systems=8, episodes_per_system=3, steps=20)
    found.save(tmp_path / "pendulums")
    store = open_store(tmp_path / "pendulums")
    reader = WindowReader(store, CONFIG.history + 1, CONFIG.horizons, ("m", "l"), observation="observations")
    data = PairedWindows(reader, pairs=6, seed=0)
    windows = data(0)
    assert windows.observations.shape == (12, 5, 3)
    shown = torch.from_numpy(found["observations"]).unfold(1, 5, 1).movedim(-1, 2)  # (E, starts, 5, 3)
    rows = [int((shown == window).all((2, 3)).any(1).nonzero()) for window in windows.observations]
    assert (found.table["m"][rows[:6]] == found.table["m"][rows[6:]]).all()  # a donor's system is its recipient's
    assert all(a != b for a, b in zip(rows[:6], rows[6:], strict=True))
    train = TrainConfig(steps=3, pairs=6, warmup=1, precision="fp32")
    learner = CaDM(CONFIG, seed=0)
    learner.fit_statistics(windows)
    before = [tensor.clone() for tensor in learner.parameters()]
    fit(learner, data, Objective(), train, tmp_path / "run", tensorboard=False)
    assert any(not torch.equal(a, b) for a, b in zip(before, learner.parameters(), strict=True))
