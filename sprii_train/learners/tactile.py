"""Predictive encoder of tactile histories (`app:baxter-profile`): no actions, one anchor.

    e_t  = BN(MLP(o_t))                                      (128), o_t 16 taxels
    z_p  = head of the causal Transformer over e_0 … e_39    (64)
    z_s  = MLP(e_39)                                         (64)
    ê_h  = q([z_s, z_p, horizon])                            (128), h ∈ {1, 20, 40}
    L_base = mean_h ‖ê_h − e_{39+h}‖²/128 + 0.02·SIGReg(e)

SIGReg tests the embeddings of each of the 40 + 3 samples by itself, over the windows of the batch, and averages.
Targets are the encoder's own embeddings and carry gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, integers, number
from sprii_train.modules import BatchNorm1d, CausalBlock, perceptron
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class TactileConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        taxels: of a sample.
        history: samples of a history.
        horizons: samples ahead of the last one that are predicted, increasing.
        embedding, persistent, current, horizon_feature: feature sizes.
        observation_width: of the two hidden layers of the encoder of samples.
        width, layers, heads: of the Transformer; its feed-forward blocks are 4 × width.
        head_width, predictor_width: hidden widths behind the Transformer, and of the predictor's two layers.
        dropout: in the Transformer.
        sigreg_weight, sigreg_slices: λ_reg and the number of random directions.
    """

    taxels: int = 16
    history: int = 40
    horizons: tuple[int, ...] = (1, 20, 40)
    embedding: int = 128
    persistent: int = 64
    current: int = 64
    horizon_feature: int = 32
    observation_width: int = 192
    width: int = 192
    layers: int = 4
    heads: int = 8
    head_width: int = 128
    predictor_width: int = 256
    dropout: float = 0.1
    sigreg_weight: float = 0.02
    sigreg_slices: int = 1024

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "taxels", "history", "embedding", "persistent", "current", "horizon_feature", least=1)
        check(self, integer, "observation_width", "width", "layers", "heads", "head_width", least=1)
        check(self, integer, "predictor_width", "sigreg_slices", least=1)
        check(self, integers, "horizons", least=1, some=True)
        check(self, number, "dropout", least=0, below=1)
        check(self, number, "sigreg_weight", least=0)
        if self.width % self.heads:
            raise ValueError(f"TactileConfig.width {self.width} must be a multiple of heads {self.heads}")
        if list(self.horizons) != sorted(set(self.horizons)):
            raise ValueError(f"TactileConfig.horizons {self.horizons} must be increasing positive steps")


class TactileEncoder(nn.Module):
    """The learner; its operations are those of `protocol.Learner`, on windows without actions."""

    def __init__(self, config: TactileConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=TactileConfig)
        self.encoder = perceptron(c.taxels, c.observation_width, c.observation_width, c.embedding)
        self.encoder_norm = BatchNorm1d(c.embedding)
        self.token = nn.Linear(c.embedding, c.width)
        self.position = nn.Parameter(0.02 * torch.randn(c.history, c.width))
        self.blocks = nn.ModuleList(CausalBlock(c.width, c.heads, c.dropout) for _ in range(c.layers))
        self.head = nn.Sequential(nn.LayerNorm(c.width), perceptron(c.width, c.head_width, c.persistent))
        self.current = perceptron(c.embedding, c.embedding, c.current)
        self.horizon = nn.Embedding(len(c.horizons), c.horizon_feature)
        wide = c.predictor_width
        self.predictor = perceptron(c.current + c.persistent + c.horizon_feature, wide, wide, c.embedding)
        self.directions_at = (0, 0)

    def at_step(self, seed: int, step: int) -> None:
        """Key the random directions of SIGReg, so that the loss is a pure function of (weights, batch, seed, step)."""
        self.directions_at = (seed, step)

    def prepare(self, windows: Windows) -> Batch:
        """Embed histories and targets in one pass."""
        samples = torch.cat([windows.observations, windows.future_observations], dim=1)
        e = self.encoder_norm(self.encoder(samples.flatten(0, 1))).unflatten(0, samples.shape[:2])
        t = windows.observations.shape[1]
        return Batch(e[:, :t], e[:, t - 1], windows.future_actions, e[:, t:], windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """Embeddings (B, T, 128) → z_p (B, 64), of the last token."""
        x = self.token(history) + self.position[: history.shape[1]]
        *deep, top = self.blocks
        for block in deep:
            x = block(x)
        return self.head(top(x, "last")[:, -1])

    def encode_current(self, current: Tensor) -> Tensor:
        """Last embedding (B, 128) → z_s (B, 64)."""
        return self.current(current)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Codes → predicted embeddings (B, K, 128), one for each horizon; `u` has no entries."""
        horizon = self.horizon.weight.expand(len(z_s), -1, -1)
        context = torch.cat([z_s, z_p], dim=-1)[:, None].expand(-1, horizon.shape[1], -1)
        return self.predictor(torch.cat([context, horizon], dim=-1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared embedding error at each horizon, (B, K), float32."""
        return (prediction.float() - y.float()).square().mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over horizons of the squared embedding error, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Self prediction + λ_reg·SIGReg of the windows given."""
        own = self_loss(self, batch, codes)
        e = torch.cat([batch.history, batch.y], dim=1).float()
        seed, step = self.directions_at
        slices = self.config.sigreg_slices
        directions = sigreg_directions(e.shape[-1], slices, seed=seed, step=step, device=e.device)
        regularizer = sigreg(e.transpose(0, 1), directions)
        return own + self.config.sigreg_weight * regularizer, {"self": own, "sigreg": regularizer}
