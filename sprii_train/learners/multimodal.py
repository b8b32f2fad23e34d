"""Multimodal predictor of recorded manipulation (`app:rh-profile`): pictures, sensors and commands.

    e_t  = BN(fusion[BN(stem(grey, difference)), BN(MLP(sensors))])   (128)
    z_p  = causal Transformer([e_t, command feature_{t−1}])_last       (64)
    z_s  = MLP(e_last)                                                 (64)
    r_h  = trunk([z_s, z_p], padded future commands and mask, horizon) (256), h ∈ {1, 4, 16}
    ê_h, f̂_h, x̂_h = heads(r_h)                                         (128), (6), (3)
    L_base = mean_h [MSE(ê_h, e_{t+h}) + MSE(f̂_h, force_{t+h}) + MSE(x̂_h, position_{t+h})] + 0.02·SIGReg(e)

Forces and positions are absolute values, standardised by the training episodes. Targets of ê are the encoder's own
embeddings and carry gradient. SIGReg tests the embeddings of each of the 24 + 3 entries by itself, over the windows of
the batch, and averages. Without pictures (`image` 0) the sensors' feature alone goes through a fusion of its own.

Contexts are `split`; `monolithic`, one history context of 128 in place of (z_s, z_p); and `joint`, the same of one
Transformer over the donor's tokens and then the query's, which segment embeddings tell apart. Windows of the latter
hold the donor's history: `observations["donor"]` and `observations["donor_actions"]`.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
from sprii_train.learners.encoders import Transformer
from sprii_train.learners.jepa import JEPAConfig, history_sizes
from sprii_train.learners.stems import ImageStem, causal_frames
from sprii_train.modules import BatchNorm1d, perceptron
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class MultimodalConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        image: side of the grey pictures; 0 reads none.
        stem: channels of the pictures' stride-2 convolutions; patch: see `ImageStem`.
        sensors: numbers of an observation besides the picture: forces first, then the tool's position.
        force, position: how many of them these are; they are predicted.
        action_dim: of a command.
        context: `split`, `monolithic` or `joint`.
        history: observations of a window; horizons: steps ahead, increasing.
        embedding, persistent, current, action_feature, horizon_feature: feature sizes.
        sensor_width, fusion_width: of hidden layers; two of the sensors' network, one of the fusion.
        width, layers, heads, dropout: of the Transformer.
        trunk_width: of the predictor's two layers.
        sigreg_weight, sigreg_slices: λ_reg and the number of random directions.
    """

    image: int = 96
    stem: tuple[int, ...] = (32, 64, 128, 256)
    patch: int = 0
    sensors: int = 14
    force: int = 6
    position: int = 3
    action_dim: int = 1
    context: Literal["split", "monolithic", "joint"] = "split"
    history: int = 24
    horizons: tuple[int, ...] = (1, 4, 16)
    embedding: int = 128
    persistent: int = 64
    current: int = 64
    action_feature: int = 32
    horizon_feature: int = 32
    sensor_width: int = 192
    fusion_width: int = 192
    width: int = 192
    layers: int = 4
    heads: int = 8
    dropout: float = 0.1
    trunk_width: int = 256
    sigreg_weight: float = 0.02
    sigreg_slices: int = 1024

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "force", "position", "action_dim", "history", "embedding", least=1)
        check(self, integer, "sensor_width", "fusion_width", "trunk_width", "sigreg_slices", least=1)
        check(self, integer, "sensors", least=self.force + self.position)
        check(self, choice, "context", legal=("split", "monolithic", "joint"))
        check(self, number, "sigreg_weight", least=0)
        check(self, integers, "horizons", least=1, some=True)
        self.history_config()  # which checks the rest

    def history_config(self) -> JEPAConfig:
        """Sizes of the controlled JEPA's history encoder."""
        shared = ("action_dim", "image", "stem", "patch", "history", "horizons", "embedding", "persistent", "current")
        more = ("action_feature", "horizon_feature", "width", "layers", "heads", "dropout")
        return JEPAConfig(**{name: getattr(self, name) for name in (*shared, *more)})


class Ahead(NamedTuple):
    """Predictions or targets at K horizons, in this order along the last axis of what `predict` returns."""

    latent: Tensor  # (B, K, embedding)
    force: Tensor  # (B, K, 6) standardised
    position: Tensor  # (B, K, 3) standardised


class JointHistory(Transformer):
    """One causal Transformer over a donor's tokens and then the query's → the code (B, out) of the last one."""

    def __init__(self, token_dim: int, *, width: int, length: int, **sizes: Any) -> None:
        super().__init__(token_dim, width=width, length=length, **sizes)
        self.position = nn.Parameter(torch.zeros(2 * length, width))
        self.segment = nn.Parameter(0.02 * torch.randn(2, width))

    def code(self, *history: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Embeddings (B, T, 128) and actions (B, T − 1, A) of the query, then those of the donor."""
        query, donor = history[:2], history[2:]
        parts = zip((donor, query), self.segment, strict=True)
        x = torch.cat([self.token(self.led(*part)) + segment for part, segment in parts], dim=1) + self.position
        *deep, top = self.blocks
        for block in deep:
            x = block(x)
        return self.head(top(x, "last")[:, -1])


class MultimodalPredictor(nn.Module):
    """The learner; its operations are those of `protocol.Learner`."""

    mask: Tensor
    picture_mean: Tensor
    picture_scale: Tensor

    def __init__(self, config: MultimodalConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=MultimodalConfig)
        d = c.embedding
        self.sensor_encoder = perceptron(c.sensors, c.sensor_width, c.sensor_width, d)
        self.sensor_norm = BatchNorm1d(d)
        if c.image:
            self.picture_encoder = ImageStem(c.image, c.stem, d, c.patch)
            self.picture_norm = BatchNorm1d(d)
            self.register_buffer("picture_mean", torch.zeros(2))
            self.register_buffer("picture_scale", torch.ones(2))
        self.fusion = perceptron(2 * d if c.image else d, c.fusion_width, d)
        self.fusion_norm = BatchNorm1d(d)
        split, context = c.context == "split", c.persistent + c.current
        encoder = JointHistory if c.context == "joint" else Transformer
        self.history = encoder(**history_sizes(c.history_config(), c.persistent if split else context))
        if split:
            self.current = perceptron(d, d, c.current)
        steps, wide = c.horizons[-1], c.trunk_width
        self.horizon = nn.Embedding(len(c.horizons), c.horizon_feature)
        mask = torch.arange(steps) < torch.tensor(c.horizons)[:, None]
        self.register_buffer("mask", mask.float(), persistent=False)
        inputs = context + steps * (c.action_dim + 1) + c.horizon_feature
        self.trunk = nn.Sequential(perceptron(inputs, wide, wide), nn.GELU())
        self.heads = nn.ModuleList(nn.Linear(wide, out) for out in (d, c.force, c.position))
        self.directions_at = (0, 0)

    def at_step(self, seed: int, step: int) -> None:
        """Key the random directions of SIGReg, so that the loss is a pure function of (weights, batch, seed, step)."""
        self.directions_at = (seed, step)

    def standardise(self, mean: Tensor, scale: Tensor) -> None:
        """Fix what grey values and differences in [0, 1] are centred and scaled by, (2,) each."""
        if self.config.image:
            self.picture_mean.copy_(mean)
            self.picture_scale.copy_(scale)

    def embed(self, observations: Any, future: Any) -> Tensor:
        """Histories and targets as in `Windows` → embeddings (B, T + K, 128), normalised in one pass."""
        sensors = torch.cat([observations["sensors"], future["sensors"]], dim=1)
        found = self.sensor_norm(self.sensor_encoder(sensors.flatten(0, 1)))
        if self.config.image:
            frames = causal_frames(observations["frames"], future["frames"])
            mean, scale = (each.to(frames.dtype).view(2, 1, 1) for each in (self.picture_mean, self.picture_scale))
            seen = self.picture_norm(self.picture_encoder(frames.sub_(mean).div_(scale).flatten(0, 1)))
            found = torch.cat([seen, found], dim=-1)
        return self.fusion_norm(self.fusion(found)).unflatten(0, sensors.shape[:2])

    def prepare(self, windows: Windows) -> Batch:
        """Embed everything once."""
        seen, future, c = windows.observations, windows.future_observations, self.config
        e = self.embed(seen, future)
        t = windows.actions.shape[1] + 1
        history = (e[:, :t], windows.actions)
        if c.context == "joint":
            donor, actions = seen["donor"], seen["donor_actions"]
            none = {"sensors": donor["sensors"][:, :0]}
            if c.image:
                none["frames"] = donor["frames"][:, :0, None].expand(-1, -1, 2, -1, -1)
            history = (*history, self.embed(donor, none), actions)
        told = future["sensors"]
        y = torch.cat([e[:, t:], told[..., : c.force + c.position]], dim=-1)
        return Batch(history, e[:, t - 1], windows.future_actions, y, windows.labels)

    def encode_history(self, history: tuple[Tensor, ...]) -> Tensor:
        """(embeddings (B, T, 128), actions (B, T − 1, A)[, the donor's]) → z_p (B, 64); (B, 128) if not split."""
        return self.history.code(*history)

    def encode_current(self, current: Tensor) -> Tensor:
        """Last embedding (B, 128) → z_s (B, 64); (B, 0) where the context is not split."""
        return self.current(current) if self.config.context == "split" else current[:, :0]

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Codes and future commands (B, H, A) → predictions (B, K, 128 + 6 + 3), the parts of `Ahead`."""
        b, k = u.shape[0], self.mask.shape[0]
        context = torch.cat([z_s, z_p], dim=-1)[:, None].expand(b, k, -1)
        actions = (u[:, None] * self.mask[..., None]).flatten(2)
        mask, horizon = self.mask.expand(b, -1, -1), self.horizon.weight.expand(b, -1, -1)
        features = self.trunk(torch.cat([context, actions, mask, horizon], dim=-1))
        return torch.cat([head(features) for head in self.heads], dim=-1)

    def parts(self, told: Tensor) -> Ahead:
        """Predictions or targets by part."""
        c = self.config
        return Ahead(*told.split([c.embedding, c.force, c.position], dim=-1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Sum of the three mean squared errors at each horizon, (B, K), float32."""
        errors = self.parts((prediction.float() - y.float()).square())
        return errors.latent.mean(-1) + errors.force.mean(-1) + errors.position.mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Their mean over horizons, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Self prediction + λ_reg·SIGReg of the windows given."""
        own = self_loss(self, batch, codes)
        e = torch.cat([batch.history[0], self.parts(batch.y).latent], dim=1).float()
        seed, step = self.directions_at
        slices = self.config.sigreg_slices
        directions = sigreg_directions(e.shape[-1], slices, seed=seed, step=step, device=e.device)
        regularizer = sigreg(e.transpose(0, 1), directions)
        return own + self.config.sigreg_weight * regularizer, {"self": own, "sigreg": regularizer}
