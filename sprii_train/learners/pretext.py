"""A stem of frames that is trained without any relation: what moves, what moved it, and where that leads.

    e_t = norm(stem(frame_t, frame_t − frame_{t−1}))
    L   = ‖g(e_t, e_{t+1}) − a_t‖²/σ²          inverse dynamics: what acts, and its velocity
        + ‖f(e_t, a_t … a_{t+H−1}) − e_{t+H}‖²  latent prediction H = 16 steps ahead: what is acted upon, and its own
        + V + C/25                              variance and covariance of e as in Align: no collapse, no repetition

Windows are of single episodes; nothing tells which of them share a system. The JEPA's own loss gives velocities no
weight for thousands of updates, and these three terms do from the first hundreds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, integer, integers, number
from sprii_train.learners.stems import FrameNorm, ImageStem, causal_frames
from sprii_train.modules import BatchNorm1d, perceptron
from sprii_train.objectives import align
from sprii_train.protocol import Batch, Codes, Windows

MOST = 1024
"""Frames embedded at once outside of training: bounds memory, changes nothing."""


@dataclass(frozen=True)
class PretextConfig:
    """Sizes of the stem and of the heads that are dropped after its training.

    Attributes:
        image: side of square frames.
        stem, patch: see `JEPAConfig`; patches of 4 cost a third of a convolution of 16 channels, and see as much.
        embedding, action_dim: sizes of e and a.
        history: frames of a window, more than `ahead`.
        ahead: H.
        hidden: width of the two hidden layers of f and g.
        action_sd: σ, so that both predictions are told in shares of a variance.
    """

    image: int = 64
    stem: tuple[int, ...] = (32, 64)
    patch: int = 4
    embedding: int = 128
    action_dim: int = 2
    history: int = 24
    ahead: int = 16
    hidden: int = 256
    action_sd: float = 0.3

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "image", "embedding", "action_dim", "hidden", "ahead", least=1)
        check(self, integer, "history", least=self.ahead + 1)
        check(self, integer, "patch")
        check(self, integers, "stem", least=1, some=True)
        check(self, number, "action_sd", above=0)
        factor = (self.patch or 2) * 2 ** (len(self.stem) - 1)
        if self.image % factor:
            raise ValueError(
                f"PretextConfig.image is {self.image}; legal: a multiple of {factor}, by which the stem divides it"
            )


class Pretext(nn.Module):
    """The stem with its heads, a `Learner` without codes: `fit` trains it by its native loss alone."""

    def __init__(self, config: PretextConfig) -> None:
        super().__init__()
        self.config = c = config
        self.observed = FrameNorm()
        self.encoder = ImageStem(c.image, c.stem, c.embedding, c.patch)
        self.encoder_norm = BatchNorm1d(c.embedding)
        self.inverse = perceptron(2 * c.embedding, c.hidden, c.hidden, c.action_dim)
        self.ahead = perceptron(c.embedding + c.ahead * c.action_dim, c.hidden, c.hidden, c.embedding)

    def after_step(self) -> None:
        """Move the statistics of frames, after an update and never within it."""
        self.observed.after_step()

    def embed(self, observations: Tensor, future: Tensor | None = None) -> Tensor:
        """Frames (B, 1 + T, H, W) uint8, the one before the first in front → e (B, T, embedding)."""
        none = observations.new_empty(len(observations), 0, 2, *observations.shape[2:]) if future is None else future
        frames = self.observed(causal_frames(observations, none, self.config.patch), observations.shape[1] - 1)
        return self.encoder_norm(self.encoder(frames.flatten(0, 1))).unflatten(0, frames.shape[:2])

    def prepare(self, windows: Windows) -> Batch:
        """Embed everything once."""
        e = self.embed(windows.observations)
        return Batch(e, e[:, -1], windows.actions, e)

    def encode_history(self, history: Tensor) -> Tensor:
        """An empty code, (B, 0)."""
        return history[:, 0, :0]

    def encode_current(self, current: Tensor) -> Tensor:
        """The embedding itself."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Embeddings (…, embedding) and the actions from them on (…, H, A) → those H steps later."""
        return self.ahead(torch.cat([z_s, u.flatten(-2)], dim=-1))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of embeddings, (B,)."""
        return (prediction.float() - y.float()).square().flatten(1).mean(1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the four terms, and each."""
        e, actions, ahead = batch.history, batch.u, self.config.ahead
        told = self.inverse(torch.cat([e[:, :-1], e[:, 1:]], dim=-1))
        inverse = ((told.float() - actions) / self.config.action_sd).square().mean()
        futures = actions.unfold(1, ahead, 1).transpose(2, 3)  # (B, T − H, H, A)
        later = self.task_loss(self.predict(e[:, :-ahead], codes.z_p, futures), e[:, ahead:]).mean()
        rows = e.flatten(0, 1)
        half = len(rows) // 2
        spread = align(rows[:half], rows[half : 2 * half], invariance=0.0, variance=1.0, covariance=1.0 / 25)
        parts = {"inverse": inverse, "ahead": later, "variance": spread.variance, "covariance": spread.covariance}
        return inverse + later + spread.total, parts
