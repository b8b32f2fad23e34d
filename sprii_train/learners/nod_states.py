"""NOD on states: its mass–spring network with actions (Chen et al. 2026; `app:dclean-profile`, `app:dclean-official`).

    z_p    = Linear(LSTM([x_i, u_i], i = 0 … 23)_last)            (4)
    x̂_k+1  = x̂_k + 0.05·f([x̂_k, u_k, z_p']),  x̂_0 the present    k = 0 … 15
    L      = mean over h ∈ {1, 4, 16} of ‖x̂_h − x_h‖²/4,  z_p' = z_p of the related window + N(0, 0.1²)

Trajectories are decoupled: no window is predicted with the code of its own history, but with that of the other half of
its pair. States are in units of their training SD. Left out: positions of masses that move between systems, and the
symplectic variants of the release. Its widths are not in the paper and were not found: an LSTM of 32, two hidden layers
of 32 with tanh in f (only that the last one is Linear 32 → 4 is told), and that the SD of the noise is 0.1, are ours.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, integers, number
from sprii_train import distributed
from sprii_train.learners.scaling import Scales, check_fitted, checked_history
from sprii_train.modules import own_rows
from sprii_train.protocol import Batch, Codes, Windows


@dataclass(frozen=True)
class NODStatesConfig:
    """Sizes.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        history: states in a history.
        horizons: steps ahead that are predicted, increasing.
        persistent: d of z_p.
        condition: of the LSTM's state.
        width: of the two hidden layers of f.
        interval: of an Euler step.
        noise: SD of what is added to codes in training.
    """

    observation_dim: int = 4
    action_dim: int = 2
    history: int = 24
    horizons: tuple[int, ...] = (1, 4, 16)
    persistent: int = 4
    condition: int = 32
    width: int = 32
    interval: float = 0.05
    noise: float = 0.1

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "observation_dim", "action_dim", "history", "persistent", "condition", "width", least=1)
        check(self, integers, "horizons", least=1, some=True)
        check(self, number, "interval", above=0)
        check(self, number, "noise", least=0)
        if list(self.horizons) != sorted(set(self.horizons)):
            raise ValueError(f"NODStatesConfig.horizons are {self.horizons}; legal: increasing positive steps")


class NODStates(nn.Module):
    """The learner; its operations are those of `protocol.Learner`."""

    native_of_pairs = True
    without_cross = "predicts with the code of a pair's other window already"

    def __init__(self, config: NODStatesConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=NODStatesConfig)
        inputs = c.observation_dim + c.action_dim
        self.scales = Scales(c.observation_dim, c.action_dim)
        self.condition = nn.LSTM(inputs, c.condition, batch_first=True)
        self.code = nn.Linear(c.condition, c.persistent)
        self.rate = nn.Sequential(
            nn.Linear(inputs + c.persistent, c.width), nn.Tanh(),
            nn.Linear(c.width, c.width), nn.Tanh(),
            nn.Linear(c.width, c.observation_dim),
        )  # fmt: skip

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise states and actions by these windows."""
        self.scales.fit(windows)

    def prepare(self, windows: Windows) -> Batch:
        """Tokens (B, 24, S + A), the last state (B, S), further actions, and states at the horizons (B, K, S).

        Raises:
            ValueError: for histories of another length, or in training without statistics.
        """
        checked_history("NODStates", windows, self.config.history)
        check_fitted(self, self.scales.observation, self.scales.action)
        scales = self.scales
        tokens = scales.tokens(windows.observations, windows.actions)
        u = scales.actions(windows.future_actions)
        current = scales.states(windows.observations[:, -1])
        return Batch(tokens, current, u, scales.states(windows.future_observations), windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """Tokens (B, 24, S + A) → z_p (B, 4)."""
        return self.code(self.condition(history)[0][:, -1])

    def encode_current(self, current: Tensor) -> Tensor:
        """Standardised states (B, S), as they are."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """States, codes and actions (B, H, A) → standardised states at the horizons, (B, K, S)."""
        x, found = z_s, []
        for step in range(self.config.horizons[-1]):
            x = x + self.config.interval * self.rate(torch.cat([x, u[:, step], z_p], dim=-1))
            if step + 1 in self.config.horizons:
                found.append(x)
        return torch.stack(found, dim=1)

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error at each horizon, (B, K), float32."""
        return F.mse_loss(prediction.float(), y.float(), reduction="none").mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over horizons, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The error of every window with the noisy code of its pair's other window."""
        z_p = codes.z_p.roll(len(codes.z_p) // 2, 0)
        if self.training and self.config.noise:
            drawn = torch.randn(distributed.world() * z_p.numel(), device=z_p.device)  # keyed by seed and step, `fit`
            z_p = z_p + self.config.noise * own_rows(drawn, z_p.shape)
        loss = self.task_loss(self.predict(codes.z_s, z_p, batch.u), batch.y).mean()
        return loss, {"self": loss}

    def present(self, observations: Tensor) -> Tensor:
        """States (B, S) → standardised ones."""
        return self.scales.states(observations)

    target = present
