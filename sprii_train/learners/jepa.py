"""Controlled JEPA on states or frames (`app:implementation`, Figure `fig:controlled-architecture`).

    e_t  = observation encoder(o_t)                               (128)
    z_p  = history encoder([e_t, action feature_{t−1}])           (64), a causal Transformer's last token
    z_s  = MLP(e_last)                                            (64)
    ê_h  = q([z_s, z_p], padded future actions and mask, horizon) (128), h ∈ {1, 4, 16}
    L_base = mean_h ‖ê_h − e_{t+h}‖²/128 + 0.02·SIGReg(e)

Targets are the online encoder's own embeddings and carry gradient. The monolithic Native learner has one
128-dimensional history context in place of (z_s, z_p). The supervised reference's context is its regression of the
labels and nothing else: z_p has one dimension a label, and no predictor gradient flows into it.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
from sprii_train.distributed import gather
from sprii_train.learners.encoders import Kind, history_encoder
from sprii_train.learners.stems import FrameNorm, ImageStem, Snapshot, SnapshotNorm, causal_frames
from sprii_train.modules import BatchNorm1d, perceptron
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Batch, Codes, Windows, self_loss

Context = Literal["split", "monolithic", "supervised"]


@dataclass(frozen=True)
class JEPAConfig:
    """Sizes of the controlled JEPA; the defaults are the paper's.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        image: side of square frames; 0 is a learner of states.
        stem: channels of the frames' stride-2 convolutions; the paper's are four, whatever the side.
        patch: side of the disjoint patches that the first block of the stem reads instead; 0 is a convolution.
        frames: `raw`, in [0, 1] as the paper's learners see them, or `scaled` (`FrameNorm`), without which a cheap stem
            sees no velocities within a quick budget.
        norm: of the embeddings: `batch`, by all history and target frames of the update, or `snapshot`
            (`SnapshotNorm`), by statistics of before it, which is SpringWorld's.
        label_dim: number of supervised labels (context `supervised` only).
        context: `split` (z_s, z_p), `monolithic` (Native) or `supervised`.
        history: observations in a window.
        horizons: prediction horizons in steps, increasing.
        embedding, persistent, current, action_feature, horizon_feature: feature sizes; `persistent` 0 is an empty code,
            with no history encoder.
        observation_width: of the two hidden layers of the encoder of states.
        encoder: of histories, see `learners.encoders`; the paper's is the Transformer.
        width, layers, heads: of that encoder; a Transformer's feed-forward blocks are 4 × width.
        head_width: of the hidden layer behind it.
        predictor_width: of the two hidden layers of q.
        dropout: in the history encoder.
        sigreg_weight, sigreg_slices: λ_reg and the number of random directions.
        sigreg_knots: of its quadrature on [0, 3]; 9, every second of the paper's 17, give its gradient to 0.5 %.
        sigreg_samples: `step` tests the windows of each time step (N = 96), averaged, which is the paper's; `pooled`
            the embeddings of all windows and times as one sample (N = 2592). The statistic is proportional to N off
            the null, so `pooled` is 27 times as strong at one weight, and leaves the low rank at which quick budgets
            of `step` stay.
    """

    observation_dim: int = 4
    action_dim: int = 2
    image: int = 0
    stem: tuple[int, ...] = (32, 64, 128, 256)
    patch: int = 0
    frames: Literal["raw", "scaled"] = "raw"
    norm: Literal["batch", "snapshot"] = "batch"
    label_dim: int = 1
    context: Context = "split"
    history: int = 24
    horizons: tuple[int, ...] = (1, 4, 16)
    embedding: int = 128
    persistent: int = 64
    current: int = 64
    action_feature: int = 32
    horizon_feature: int = 32
    observation_width: int = 192
    encoder: Kind = "transformer"
    width: int = 192
    layers: int = 4
    heads: int = 8
    head_width: int = 128
    predictor_width: int = 256
    dropout: float = 0.1
    sigreg_weight: float = 0.02
    sigreg_slices: int = 1024
    sigreg_knots: int = 17
    sigreg_samples: Literal["pooled", "step"] = "step"

    def __post_init__(self) -> None:
        check(self, integer, "observation_dim", "action_dim", "label_dim", "history", "embedding", least=1)
        check(self, integer, "current", "action_feature", "horizon_feature", "width", "layers", least=1)
        check(self, integer, "observation_width", "heads", "head_width", "predictor_width", "sigreg_slices", least=1)
        check(self, integer, "persistent", "image", "patch")
        check(self, integer, "sigreg_knots", least=2)
        check(self, integers, "stem", least=1)
        check(self, integers, "horizons", least=1, some=True)
        check(self, number, "dropout", least=0, below=1)
        check(self, number, "sigreg_weight", least=0)
        check(self, choice, "context", legal=("split", "monolithic", "supervised"))
        check(self, choice, "encoder", legal=get_args(Kind))
        check(self, choice, "frames", legal=("raw", "scaled"))
        check(self, choice, "norm", legal=("batch", "snapshot"))
        check(self, choice, "sigreg_samples", legal=("pooled", "step"))
        factor = (self.patch or 2) * 2 ** (len(self.stem) - 1)
        if self.image and (not self.stem or self.image % factor):
            raise ValueError(
                f"JEPAConfig.image {self.image} must be a multiple of {factor}, by which the {len(self.stem)} blocks "
                "of the stem divide it"
            )
        if self.width % self.heads:
            raise ValueError(f"JEPAConfig.width {self.width} must be a multiple of heads {self.heads}")
        if list(self.horizons) != sorted(set(self.horizons)):
            raise ValueError(f"JEPAConfig.horizons {self.horizons} must be increasing positive steps")


def history_sizes(config: JEPAConfig, out: int) -> dict[str, Any]:
    """What the history encoder of a config is made with, for codes of `out` numbers."""
    c = config
    action = perceptron(c.action_dim, c.action_feature, c.action_feature)
    return {
        "token_dim": c.embedding + c.action_feature, "width": c.width, "layers": c.layers, "heads": c.heads,
        "dropout": c.dropout, "length": c.history, "out": out, "hidden": c.head_width, "action": action,
    }  # fmt: skip


class JEPA(nn.Module):
    """The controlled JEPA as a `Learner` (Table `tab:ctp-interfaces`, first row)."""

    mask: Tensor

    def __init__(self, config: JEPAConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=JEPAConfig)
        self.observed = FrameNorm() if c.image and c.frames == "scaled" else None
        if c.image:
            self.encoder = ImageStem(c.image, c.stem, c.embedding, c.patch)
        else:
            self.encoder = perceptron(c.observation_dim, c.observation_width, c.observation_width, c.embedding)
        # Without this norm the embedding variance falls to 0.02: self error looks superb and nothing is learned.
        self.encoder_norm = BatchNorm1d(c.embedding) if c.norm == "batch" else SnapshotNorm(c.embedding)
        persistent = {
            "split": c.persistent,
            "monolithic": c.persistent + c.current,
            "supervised": c.label_dim,
        }
        context_dim = persistent[c.context]
        self.history = history_encoder(c.encoder, **history_sizes(c, context_dim)) if context_dim else None
        if c.context != "monolithic":
            context_dim += c.current
            self.current = perceptron(c.embedding, c.embedding, c.current)
        steps = c.horizons[-1]
        self.horizon = nn.Embedding(len(c.horizons), c.horizon_feature)
        mask = torch.arange(steps) < torch.tensor(c.horizons)[:, None]
        self.register_buffer("mask", mask.float(), persistent=False)
        w = c.predictor_width
        self.predictor = perceptron(context_dim + steps * (c.action_dim + 1) + c.horizon_feature, w, w, c.embedding)
        self.directions_at = (0, 0)

    def at_step(self, seed: int, step: int) -> None:
        """Key the random directions of SIGReg, so that the loss is a pure function of (weights, batch, seed, step)."""
        self.directions_at = (seed, step)

    def after_step(self) -> None:
        """Move running statistics, after an update and never within it."""
        for norm in (self.observed, self.encoder_norm):
            if isinstance(norm, Snapshot):
                norm.after_step()

    def embed(self, observations: Tensor, future: Tensor) -> Tensor:
        """Histories and targets as in `Windows` → embeddings (B, T + K, embedding), normalised in one pass."""
        if self.config.image:
            inputs = causal_frames(observations, future, self.config.patch)
        else:
            inputs = torch.cat([observations, future], dim=1)
        histories = inputs.shape[1] - future.shape[1]
        if self.observed is not None:
            inputs = self.observed(inputs, histories)
        flat = self.encoder(inputs.flatten(0, 1))
        if isinstance(self.encoder_norm, SnapshotNorm):
            return self.encoder_norm(flat.unflatten(0, inputs.shape[:2]), histories)
        return self.encoder_norm(flat).unflatten(0, inputs.shape[:2])

    def prepare(self, windows: Windows) -> Batch:
        """Embed everything once."""
        e = self.embed(windows.observations, windows.future_observations)
        k = windows.future_observations.shape[1]
        history, future = e.split([e.shape[1] - k, k], dim=1)
        return Batch((history, windows.actions), history[:, -1], windows.future_actions, future, windows.labels)

    def encode_history(self, history: tuple[Tensor, ...]) -> Tensor:
        """(embeddings (B, T, 128), actions (B, T−1, A)) → z_p (B, 64), (B, 128) if monolithic, (B, F) if supervised."""
        return history[0].new_empty(len(history[0]), 0) if self.history is None else self.history.code(*history)

    def encode_current(self, current: Tensor) -> Tensor:
        """Last embedding (B, 128) → z_s (B, 64); (B, 0) for the monolithic context."""
        return current[:, :0] if self.config.context == "monolithic" else self.current(current)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Codes and future actions (B, H, A) → predicted embeddings (B, K, 128), one for each horizon."""
        if self.config.context == "supervised":
            z_p = z_p.detach()
        b, k = u.shape[0], self.mask.shape[0]
        context = torch.cat([z_s, z_p], dim=-1)[:, None].expand(b, k, -1)
        actions = (u[:, None] * self.mask[..., None]).flatten(2)
        mask, horizon = self.mask.expand(b, -1, -1), self.horizon.weight.expand(b, -1, -1)
        return self.predictor(torch.cat([context, actions, mask, horizon], dim=-1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared embedding error at each horizon, (B, K), float32."""
        return (prediction.float() - y.float()).square().mean(-1)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over horizons of the squared embedding error, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def present(self, observations: Tensor) -> Tensor:
        """Presents → z_s (B, d), the embedding where there is none.

        Args:
            observations: states (B, S); frames (B, 2, H, W), each after the one before it, or (B, 1, H, W) without a
                difference.
        """
        embedding = self.target(observations)
        return embedding if self.config.context == "monolithic" else self.encode_current(embedding)

    def target(self, observations: Tensor) -> Tensor:
        """Observations, as `present` takes them → their embeddings (B, embedding)."""
        if self.config.image:
            frames = observations.expand(-1, 2, -1, -1)
            return self.embed(frames, frames.new_empty(len(frames), 0, 2, *frames.shape[2:]))[:, 0]
        return self.embed(observations[:, None], observations[:, None][:, :0])[:, 0]

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Self prediction + λ_reg·SIGReg over all embeddings (+ label regression for the supervised reference)."""
        own, regularizer = self_loss(self, batch, codes), self.regularizer(batch)
        loss = own + self.config.sigreg_weight * regularizer
        parts = {"self": own, "sigreg": regularizer, "target_variance": target_variance(batch.y)}
        if self.config.context == "supervised":
            if batch.labels is None:
                raise ValueError("the supervised context needs labels in its windows")
            supervised = (codes.z_p.float() - batch.labels).square().mean()
            loss, parts = loss + supervised, parts | {"supervised": supervised}
        return loss, parts

    def regularizer(self, batch: Batch) -> Tensor:
        """SIGReg of all embeddings of a batch, histories and targets."""
        e = torch.cat([batch.history[0], batch.y], dim=1)
        directions = sigreg_directions(
            e.shape[-1],
            self.config.sigreg_slices,
            seed=self.directions_at[0],
            step=self.directions_at[1],
            device=e.device,
        )
        tested = e.flatten(0, 1) if self.config.sigreg_samples == "pooled" else e.transpose(0, 1)
        return sigreg(tested, directions, knots=self.config.sigreg_knots)


def target_variance(y: Tensor) -> Tensor:
    """Variance of targets over the rows of all ranks, mean over the rest."""
    y = gather(y.detach().float()).flatten(1)
    return (y - y.mean(0)).square().sum() / ((len(y) - 1) * y.shape[1])  # `var` of an axis that is not the last is slow
