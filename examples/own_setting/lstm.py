"""A learner of one's own: an LSTM reads a history, an MLP predicts what the sensors will say."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class LSTMConfig:
    """Sizes of the learner; `horizons` are the steps ahead that it predicts."""

    observation_dim: int = 2
    action_dim: int = 1
    persistent: int = 16
    width: int = 64
    horizons: tuple[int, ...] = (1, 4, 16)


class LSTMPredictor(nn.Module):
    """The five operations and what feeds them, and two optional ones that some measures read."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = c = config
        self.lstm = nn.LSTM(c.observation_dim + c.action_dim, c.width, batch_first=True)
        self.code = nn.Linear(c.width, c.persistent)
        inputs = c.observation_dim + c.persistent + c.action_dim * c.horizons[-1]
        outputs = c.observation_dim * len(c.horizons)
        self.head = nn.Sequential(nn.Linear(inputs, c.width), nn.GELU(), nn.Linear(c.width, outputs))

    def prepare(self, windows: Windows) -> Batch:
        """Signals and openings as one sequence, the last signals, and what follows."""
        signals, actions = windows.observations, F.pad(windows.actions, (0, 0, 1, 0))
        history = torch.cat([signals, actions], dim=-1)
        return Batch(history, signals[:, -1], windows.future_actions, windows.future_observations, windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """(B, T, S + A) → z_p (B, 16)."""
        return self.code(self.lstm(history)[0][:, -1])

    def encode_current(self, current: Tensor) -> Tensor:
        """The present signals (B, S) are their own feature."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Changes from the present to every horizon, added to it: (B, K, S)."""
        change = self.head(torch.cat([z_s, z_p, u.flatten(1)], dim=-1))
        return z_s[:, None] + change.unflatten(-1, (len(self.config.horizons), -1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """(B, K)."""
        return (prediction - y).square().mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """(B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Its own prediction error."""
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}

    def present(self, observations: Tensor) -> Tensor:
        """Features of presents (B, S) that readers may see."""
        return observations
