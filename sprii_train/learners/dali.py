"""The context part of DALI (dynamics-aligned latent imagination, 2025), for states (`app:dclean-official`).

    z_p    = SiLU(LN(flatten(block([x_i, u_i], i = 0 … 23))))     (8), block: one head of attention and a feed-forward
    x̂_t+1  = f([x_t, u_t, z_p])                                   the next state, standardised
    L      = mean ‖x̂_t+1 − x_t+1‖²/4,  t drawn from 1 … 23 for each window of an update

The context of t reads states 0 … t; of a shorter prefix the first token is repeated in front. In evaluation t is 23,
the end of the history, and x_24 the first state after it. World model, actor, critic and their imagination are left
out, and so are the inverse and cross-modal terms. Not told, and ours: which of a prefix's states is predicted, the
action of its last token (0), neither positions nor norms inside the block, SiLU in its feed-forward, z-scored inputs.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer
from sprii_train import distributed
from sprii_train.devices import moved
from sprii_train.learners.scaling import Scales, check_fitted, checked_history
from sprii_train.modules import own_rows
from sprii_train.protocol import Batch, Codes, Windows, self_loss
from sprii_train.randomness import torch_seed


@dataclass(frozen=True)
class DALIConfig:
    """Sizes; the defaults are the source's, 465,180 parameters.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        history: states in a history.
        persistent: d of z_p.
        width: of tokens, attention and its feed-forward.
        forward_width: of the two hidden layers of the forward model.
    """

    observation_dim: int = 4
    action_dim: int = 2
    history: int = 24
    persistent: int = 8
    width: int = 256
    forward_width: int = 128

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "observation_dim", "action_dim", "persistent", "width", "forward_width", least=1)
        check(self, integer, "history", least=2)

    @property
    def horizons(self) -> tuple[int, ...]:
        """The next state."""
        return (1,)


class Block(nn.Module):
    """One head of attention over all tokens and a feed-forward of two layers, both residual; (B, T, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query_key_value(x).chunk(3, dim=-1)
        # At so few tokens a plain softmax beats the fused kernel on CPUs.
        x = x + self.out((q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1) @ v)
        return x + self.feed(x)


class DALI(nn.Module):
    """The learner; its operations are those of `protocol.Learner`."""

    def __init__(self, config: DALIConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=DALIConfig)
        inputs = c.observation_dim + c.action_dim
        self.scales = Scales(c.observation_dim, c.action_dim)
        self.token = nn.Sequential(nn.Linear(inputs, c.width), nn.LayerNorm(c.width), nn.SiLU())
        self.block = Block(c.width)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(c.history * c.width, c.persistent), nn.LayerNorm(c.persistent), nn.SiLU()
        )
        self.dynamics = nn.Sequential(
            nn.Linear(inputs + c.persistent, c.forward_width), nn.SiLU(),
            nn.Linear(c.forward_width, c.forward_width), nn.SiLU(),
            nn.Linear(c.forward_width, c.observation_dim),
        )  # fmt: skip
        self.prefixes_at = (0, 0)

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise states and actions by these windows."""
        self.scales.fit(windows)

    def at_step(self, seed: int, step: int) -> None:
        """Key the lengths of prefixes."""
        self.prefixes_at = (seed, step)

    def prepare(self, windows: Windows) -> Batch:
        """Tokens (B, 24, S + A) of prefixes in training, of whole histories otherwise; the state and action at their
        end (B, S), (B, 1, A), and the next state (B, 1, S).

        Raises:
            ValueError: for histories of another length, or in training without statistics.
        """
        c, rows = self.config, len(windows.actions)
        checked_history("DALI", windows, c.history)
        check_fitted(self, self.scales.observation, self.scales.action)
        states = self.scales.states(torch.cat([windows.observations, windows.future_observations[:, :1]], dim=1))
        actions = self.scales.actions(torch.cat([windows.actions, windows.future_actions[:, :1]], dim=1))
        tokens = self.scales.tokens(windows.observations, windows.actions)
        if not self.training:
            last = c.history - 1
            return Batch(tokens, states[:, last], actions[:, last:], states[:, last + 1 :], windows.labels)
        at, every = moved(self._ends(rows), tokens.device), torch.arange(rows, device=tokens.device)
        slots = (torch.arange(c.history, device=tokens.device) + at[:, None] - (c.history - 1)).clamp(min=0)
        prefix = tokens[every[:, None], slots]
        taken = torch.arange(c.history, device=tokens.device) < c.history - 1  # the last token has no action yet
        prefix[..., c.observation_dim :] *= taken[:, None]
        now, after = states[every, at], states[every, at + 1]
        return Batch(prefix, now, actions[every, at][:, None], after[:, None], windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """Tokens (B, 24, S + A) → z_p (B, 8)."""
        return self.head(self.block(self.token(history)))

    def encode_current(self, current: Tensor) -> Tensor:
        """Standardised states (B, S), as they are."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """States, codes and actions (B, 1, A) → the next standardised states (B, 1, S)."""
        return self.dynamics(torch.cat([z_s, u[:, 0], z_p], dim=-1))[:, None]

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of the next state, (B, 1), float32."""
        return F.mse_loss(prediction.float(), y.float(), reduction="none").mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The same, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The error with the own context."""
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}

    def present(self, observations: Tensor) -> Tensor:
        """States (B, S) → standardised ones."""
        return self.scales.states(observations)

    target = present

    def _ends(self, rows: int) -> Tensor:
        """Last states of prefixes (B,) of this rank's windows, drawn for those of all ranks."""
        seed, step = self.prefixes_at
        generator = torch.Generator().manual_seed(torch_seed(seed, step))
        count = distributed.world() * rows
        return own_rows(torch.randint(1, self.config.history, (count,), generator=generator), torch.Size((rows,)))
