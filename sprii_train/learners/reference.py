"""Supervised reference encoders of SpringWorld (`tab:spring-complete`, `app:spring-development`).

They are trained on the task itself: histories of a system, a present, future actions → increments of the state.

    e_t = GELU(LayerNorm(Linear(convolutions(frame, difference))))               (128)
    m_i = LayerNorm(encoder([e_t, e_{t+1} − e_t, a_t]_t)) of history i           (64), see `learners.encoders`
    z_p = [mean_i m_i, max_i m_i]                                                (128), zero without a history
    z_s = GRU(e of the frames that the recipient shows)                          (64)
    ŷ_h = MLP([z_p, z_s, GRU(actions)_h, horizon, known])                        (8), 229-256-128-8
    L   = mean_h ‖ŷ_h − y_h‖²/8, y_h = s_{t+h} − s_t standardised; some training windows have no history

The paper names the four encoders and gives their errors alone. The last five features are ours: of a horizon, weights
of the two nearest trained ones (one of them is 1 at a trained horizon), linear in its logarithm; and whether there is a
history. So are the causal blocks under the Transformer's summary token. No relation between trajectories is learned
from.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
from sprii_train.devices import moved
from sprii_train.learners.encoders import Kind, history_encoder, recurrent_states
from sprii_train.learners.stems import FrameNorm, ImageStem, causal_frames
from sprii_train.modules import dropout, perceptron
from sprii_train.protocol import Batch, Codes, Windows, each, self_loss


class ContextQueries(NamedTuple):
    """B queries, each with W histories of its system. Frames are uint8, the first of each row twice."""

    histories: Tensor  # (B, W, 1 + T, H, W)
    actions: Tensor  # (B, W, T − 1, A)
    shown: Tensor  # (B, 1 + q + 1, H, W): the recipient's, the present one last
    future_actions: Tensor  # (B, H, A)
    targets: Tensor  # (B, K, S) increments at the learner's horizons, standardised

    def to(self, device: torch.device | str) -> "ContextQueries":
        """The same queries on a device."""
        return each(self, lambda tensor: moved(tensor, device))


@dataclass(frozen=True)
class ReferenceConfig:
    """Sizes; the defaults are the reference's.

    Attributes:
        encoder: of histories.
        observation_dim, action_dim: coordinates of the state that is predicted, and of actions.
        image, stem, patch, frames: as of a `JEPAConfig`.
        history: observations of the longest history.
        horizons: trained on, increasing.
        embedding: of a frame.
        width, layers, heads: of the encoder; `width` is the size of its codes too.
        query, future: of the states of the recurrent networks over shown frames and over future actions.
        hidden: widths of the head's hidden layers.
        unknown: share of training windows whose histories are withheld.
    """

    encoder: Kind = "gru"
    observation_dim: int = 8
    action_dim: int = 2
    image: int = 128
    stem: tuple[int, ...] = (32, 64, 128, 256)
    patch: int = 0
    frames: Literal["raw", "scaled"] = "raw"
    history: int = 96
    horizons: tuple[int, ...] = (1, 4, 16, 32)
    embedding: int = 128
    width: int = 64
    layers: int = 2
    heads: int = 4
    query: int = 64
    future: int = 32
    hidden: tuple[int, ...] = (256, 128)
    unknown: float = 0.25

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, choice, "encoder", legal=get_args(Kind))
        check(self, choice, "frames", legal=("raw", "scaled"))
        check(self, integer, "observation_dim", "action_dim", "image", "embedding", "width", "layers", least=1)
        check(self, integer, "heads", "query", "future", least=1)
        check(self, integer, "history", least=2)
        check(self, integer, "patch")
        check(self, integers, "stem", "horizons", least=1, some=True)
        check(self, integers, "hidden", least=1)
        check(self, number, "unknown", least=0, below=1)
        factor = (self.patch or 2) * 2 ** (len(self.stem) - 1)
        if self.image % factor:
            raise ValueError(f"ReferenceConfig.image is {self.image}; legal: multiples of {factor}, by its stem")
        if self.encoder == "transformer" and self.width % self.heads:
            raise ValueError(f"ReferenceConfig.width {self.width} must be a multiple of heads {self.heads}")
        if list(self.horizons) != sorted(set(self.horizons)):
            raise ValueError(f"ReferenceConfig.horizons {self.horizons} must be increasing positive steps")


class Reference(nn.Module):
    """The four references as a `Learner` of `ContextQueries`; of pairs' `Windows` it encodes histories alone."""

    def __init__(self, config: ReferenceConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=ReferenceConfig)
        self.observed = FrameNorm() if c.frames == "scaled" else None
        self.encoder = ImageStem(c.image, c.stem, c.embedding, c.patch)
        self.encoder_norm = nn.Sequential(nn.LayerNorm(c.embedding), nn.GELU())
        own: dict[str, Any] = {"summary": True} if c.encoder == "transformer" else {}
        self.history = history_encoder(
            c.encoder, 2 * c.embedding + c.action_dim, width=c.width, layers=c.layers, heads=c.heads, dropout=0.0,
            length=c.history - 1, out=c.width, **own,
        )  # fmt: skip
        self.history_norm = nn.LayerNorm(c.width)
        self.current = nn.GRU(c.embedding, c.query, batch_first=True)
        self.future = nn.GRU(c.action_dim, c.future, batch_first=True)
        inputs = 2 * c.width + c.query + c.future + len(c.horizons) + 1
        self.predictor = perceptron(inputs, *c.hidden, c.observation_dim)

    def after_step(self) -> None:
        """Move the statistics of frames, after an update and never within it."""
        if self.observed is not None:
            self.observed.after_step()

    def embed(self, frames: Tensor) -> Tensor:
        """Frames (B, 1 + T, H, W), the one before the first in front → embeddings (B, T, embedding)."""
        inputs = causal_frames(frames, frames.new_empty(len(frames), 0, 2, *frames.shape[2:]), self.config.patch)
        if self.observed is not None:
            inputs = self.observed(inputs, inputs.shape[1])
        return self.encoder_norm(self.encoder(inputs.flatten(0, 1))).unflatten(0, inputs.shape[:2])

    def tokens(self, frames: Tensor, actions: Tensor) -> Tensor:
        """Frames as `embed` takes them and the actions between them (B, T − 1, A) → tokens (B, T − 1, 258)."""
        e = self.embed(frames)
        return torch.cat([e[:, :-1], e[:, 1:] - e[:, :-1], actions], dim=-1)

    def prepare(self, windows: "ContextQueries | Windows") -> Batch:
        """Histories as tokens (B, W, T − 1, 258), and what the recipient shows as embeddings (B, q + 1, 128)."""
        if isinstance(windows, Windows):  # a history, whose last transition the recipient shows
            seen = windows.observations
            tokens = self.tokens(seen, windows.actions)[:, None]
            shown = torch.cat([seen[:, -2:-1], seen[:, -2:]], dim=1)
            return Batch(tokens, self.embed(shown), windows.future_actions, None, windows.labels)
        w = windows
        current = self.embed(w.shown)  # first: the statistics of frames are the histories'
        tokens = self.tokens(w.histories.flatten(0, 1), w.actions.flatten(0, 1))
        return Batch(tokens.unflatten(0, w.histories.shape[:2]), current, w.future_actions, w.targets)

    def encode_history(self, history: Tensor) -> Tensor:
        """Tokens of W histories (B, W, T − 1, 258) → memories (B, 128)."""
        codes = self.history_norm(self.history(history.flatten(0, 1))).unflatten(0, history.shape[:2])
        return torch.cat([codes.mean(1), codes.amax(1)], dim=-1)

    def encode_current(self, current: Tensor) -> Tensor:
        """Embeddings of the frames that a recipient shows (B, q + 1, 128) → (B, 64)."""
        return recurrent_states(self.current, current)[:, -1]

    def present(self, observations: Tensor) -> Tensor:
        """Frames (B, q + 1, H, W), the present one last → z_s (B, 64)."""
        return self.encode_current(self.embed(torch.cat([observations[:, :1], observations], dim=1)))

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Codes and future actions (B, H, A) → standardised increments (B, K, 8) over the trained horizons."""
        return self.answers(z_s, z_p, u, self.config.horizons)

    def answers(self, z_s: Tensor, z_p: Tensor, u: Tensor, horizons: tuple[int, ...]) -> Tensor:
        """The same over any horizons between the least and the largest trained one.

        Raises:
            ValueError: for another horizon, or for more steps than there are actions.
        """
        trained = self.config.horizons
        if not trained[0] <= min(horizons) <= max(horizons) <= min(trained[-1], u.shape[1]):
            raise ValueError(f"horizons are {horizons}; legal: {trained[0]} to {min(trained[-1], u.shape[1])}")
        states = recurrent_states(self.future, u)
        ahead = torch.stack([states[:, h - 1] for h in horizons], dim=1)
        known = (z_p != 0).any(-1, keepdim=True)
        b, k = len(u), len(horizons)
        horizon = moved(torch.tensor([nearest(h, trained) for h in horizons]), u.device)
        context = torch.cat([z_p, z_s, known], dim=-1)[:, None].expand(b, k, -1)
        return self.predictor(torch.cat([context, ahead, horizon.expand(b, k, -1)], dim=-1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared standardised error at each horizon, (B, K), float32."""
        return (prediction.float() - y.float()).square().mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Its mean over horizons, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss; in training, with some histories withheld."""
        ones = codes.z_p.new_ones(len(codes.z_p), 1)
        kept = dropout(ones, self.config.unknown, self.training) > 0
        loss = self_loss(self, batch, codes._replace(z_p=codes.z_p * kept))
        return loss, {"self": loss}


def nearest(horizon: int, trained: tuple[int, ...]) -> list[float]:
    """Weights of the trained horizons, of which the two around this one share 1, linearly in its logarithm."""
    weights = [float(horizon == h) for h in trained]
    if horizon not in trained:
        above = next(i for i, h in enumerate(trained) if h > horizon)
        low, high = (math.log(h) for h in trained[above - 1 : above + 1])
        weights[above] = (math.log(horizon) - low) / (high - low)
        weights[above - 1] = 1.0 - weights[above]
    return weights
