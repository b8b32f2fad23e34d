"""Tiny settings and toy learners shared by the training tests."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sprii_envs.banks import D_CLEAN, Bank
from sprii_train.learners import JEPAConfig
from sprii_train.protocol import Batch, Codes, Windows, self_loss

HISTORY, HORIZONS = 6, (1, 3)

PROTOCOL = D_CLEAN.replace(
    systems={"train": 12, "validation": 4, "test": 6}, rollouts=4, steps=20, systems_per_chunk=12
)
"""Episode e has system e // 4; 12 train, 4 validation and 6 test systems. A start lies in 0…11."""

JEPA_CONFIG = JEPAConfig(
    history=HISTORY, horizons=HORIZONS, embedding=8, persistent=4, current=3, action_feature=4,
    horizon_feature=4, width=8, layers=2, heads=2, predictor_width=16, sigreg_slices=16,
)  # fmt: skip


def jepa_config(**changes: Any) -> JEPAConfig:
    return replace(JEPA_CONFIG, **changes)


def naive_windows(bank: Bank, episodes: np.ndarray, starts: np.ndarray) -> Windows:
    """The windows of a bank, one index at a time."""
    fields: list[list[np.ndarray]] = [[], [], [], []]
    states, actions = bank["states"], bank["actions"]
    for episode, start in zip(episodes, starts, strict=True):
        now = start + HISTORY - 1
        fields[0].append(np.stack([states[episode, start + i] for i in range(HISTORY)]))
        fields[1].append(np.stack([actions[episode, start + i] for i in range(HISTORY - 1)]))
        fields[2].append(np.stack([states[episode, now + h] for h in HORIZONS]))
        fields[3].append(np.stack([actions[episode, now + i] for i in range(HORIZONS[-1])]))
    drag = bank.table["drag"]
    train = drag[: 12 * 4]
    labels = ((drag[episodes] - train.mean()) / train.std())[:, None]
    return Windows(*(torch.tensor(np.stack(f), dtype=torch.float32) for f in fields), torch.tensor(labels).float())


class Plain(nn.Module):
    """Linear maps of flattened windows; nothing random, no statistics, every operation by the book."""

    def __init__(self, persistent: int = 3) -> None:
        super().__init__()
        self.history = nn.Linear(HISTORY * 4, persistent)
        self.current = nn.Linear(4, 2)
        self.q = nn.Linear(2 + persistent + HORIZONS[-1] * 2, len(HORIZONS) * 4)
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def prepare(self, windows: Windows) -> Batch:
        return Batch(
            windows.observations,
            windows.observations[:, -1],
            windows.future_actions,
            windows.future_observations,
        )

    def encode_history(self, history: Tensor) -> Tensor:
        return self.history(history.flatten(1))

    def encode_current(self, current: Tensor) -> Tensor:
        return self.current(current)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        self.calls.append((z_s.detach(), z_p.detach(), u))
        return self.q(torch.cat([z_s, z_p, u.flatten(1)], dim=1)).unflatten(1, (len(HORIZONS), 4))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction - y).square().mean((1, 2))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        own = self_loss(self, batch, codes)
        return own, {"self": own}
