"""Predictors that condition on one or two observed segments (`app:fixed-weight`).

    e_i        = segment(s_i)                    (B, 128), of each of two segments; a masked one says nothing
    z_p        = aggregate(e_1, e_2, masks)      (B, 64)
    z_s        = query(q)                        (B, 64), of its first observation and its torques
    prediction = decode(predict([z_p, z_s]))     (B, 32), observations at four landmarks
    native     = MSE + 0.1 ‖latent − sg target(y)‖² + 0.1 ‖decode(target(y)) − y‖², all means

`PersistentJEPA` aggregates by a network of embeddings and masks, `MaskedGRU` by a recurrent cell for which a masked
step is the identity. Without a segment both have the same code whatever was observed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, integer, number
from sprii_train.protocol import Batch, Codes, Windows, self_loss

SEGMENT, QUERY, TARGET = 48, 16, 32
"""Numbers of a segment (8 at the start, 32 at landmarks, 8 torques), of a query (8 and 8) and of a target."""


@dataclass(frozen=True)
class SegmentConfig:
    """Sizes of both; the defaults are the paper's.

    Attributes:
        width: of the two hidden layers of every network.
        embedding: of a segment.
        latent: of contexts, queries, targets and predictions.
        latent_weight, reconstruction_weight: of the two further terms.
    """

    width: int = 256
    embedding: int = 128
    latent: int = 64
    latent_weight: float = 0.1
    reconstruction_weight: float = 0.1

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "width", "embedding", "latent", least=1)
        check(self, number, "latent_weight", "reconstruction_weight", least=0)


@dataclass(frozen=True)
class PersistentJEPAConfig(SegmentConfig):
    """Of the feed-forward aggregator."""


@dataclass(frozen=True)
class MaskedGRUConfig(SegmentConfig):
    """Of the recurrent one.

    Attributes:
        state: of the cell.
    """

    state: int = 160

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "state", least=1)


def mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Two hidden layers with GELU."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )


class SegmentLearner(nn.Module, ABC):
    """What both have in common; a subclass aggregates.

    Windows hold `observations` {"segments": (B, 2, 48), "mask": (B, 2) of 0 and 1, "query": (B, 16)}, and the target as
    the one `future_observations`, (B, 1, 32), all standardised.
    """

    def __init__(self, config: SegmentConfig) -> None:
        super().__init__()
        self.config, d = config, config.latent
        self.segment = mlp(SEGMENT, config.width, config.embedding)
        self.query = mlp(QUERY, config.width, d)
        self.target_encoder = mlp(TARGET, config.width, d)
        self.predictor = mlp(2 * d, config.width, d)
        self.decoder = mlp(d, config.width, TARGET)

    @abstractmethod
    def aggregate(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Embeddings (B, 2, e), masks (B, 2) → (B, d)."""

    def prepare(self, windows: Windows) -> Batch:
        """Segments with their masks, the query, and the target."""
        seen = windows.observations
        return Batch((seen["segments"], seen["mask"]), seen["query"], None, windows.future_observations[:, 0])

    def encode_history(self, history: tuple[Tensor, Tensor]) -> Tensor:
        """((B, 2, 48), (B, 2)) → z_p (B, d)."""
        segments, mask = history
        return self.aggregate(self.segment(segments), mask)

    def encode_current(self, current: Tensor) -> Tensor:
        """(B, 16) → (B, d)."""
        return self.query(current)

    def latent(self, z_s: Tensor, z_p: Tensor) -> Tensor:
        """The predicted latent (B, d)."""
        return self.predictor(torch.cat([z_p, z_s], dim=-1))

    def predict(self, z_s: Tensor, z_p: Tensor, u: None = None) -> tuple[Tensor, Tensor]:
        """Observations (B, 32), and the latent (B, d) that they are decoded from."""
        latent = self.latent(z_s, z_p)
        return self.decoder(latent), latent

    def task_loss(self, prediction: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        """Mean squared error of each row, (B,)."""
        return (prediction[0] - y).square().mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """See the module."""
        decoded, latent = self.predict(codes.z_s, codes.z_p)
        target = self.target_encoder(batch.y)
        own = self.task_loss((decoded, latent), batch.y).mean()
        parts = {
            "self": own,
            "latent": F.mse_loss(latent, target.detach()),
            "reconstruction": F.mse_loss(self.decoder(target), batch.y),
        }
        loss = own + self.config.latent_weight * parts["latent"]
        return loss + self.config.reconstruction_weight * parts["reconstruction"], parts


class PersistentJEPA(SegmentLearner):
    """Aggregates by a network of both embeddings, masked, and of the masks."""

    def __init__(self, config: PersistentJEPAConfig) -> None:
        super().__init__(config)
        self.aggregator = mlp(2 * config.embedding + 2, config.width, config.latent)

    def aggregate(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """See `SegmentLearner.aggregate`."""
        return self.aggregator(torch.cat([(embedded * mask[..., None]).flatten(1), mask], dim=-1))


class MaskedGRU(SegmentLearner):
    """Aggregates by a cell over the segments, from a state of zeros."""

    def __init__(self, config: MaskedGRUConfig) -> None:
        super().__init__(config)
        self.cell = nn.GRUCell(config.embedding, config.state)
        self.head = nn.Linear(config.state, config.latent)

    def aggregate(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """See `SegmentLearner.aggregate`."""
        state = embedded.new_zeros(len(embedded), self.cell.hidden_size)
        for i in range(embedded.shape[1]):
            state = torch.where(mask[:, i, None] > 0, self.cell(embedded[:, i], state), state)
        return self.head(state)


class Adapter(nn.Module):
    """A gated linear update of a frozen predictor's latent by a difference Δ of its contexts.

        update     = out(GELU(W Δ) · sigmoid(gate(query)))
        prediction = decode(latent + update)

    W and `out` have no bias and `out` begins at zero: at first, and for Δ = 0 ever after, it changes nothing. Windows
    hold `observations` {"delta": (B, m), "query": (B, d), "latent": (B, d)} and the target. Its operations are those of
    a learner whose context is Δ, so that `fit` trains it; the decoder is held as it is.
    """

    def __init__(self, base: SegmentLearner, inputs: int | None = None) -> None:
        """
        Args:
            base: whose decoder is used.
            inputs: m, numbers of Δ; None are as many as of its contexts.
        """
        super().__init__()
        d = base.config.latent
        self.weight = nn.Linear(d if inputs is None else inputs, d, bias=False)
        self.gate = nn.Linear(d, d)
        self.out = nn.Linear(d, d, bias=False)
        nn.init.zeros_(self.out.weight)
        self.decoder = mlp(d, base.config.width, TARGET)
        self.decoder.load_state_dict(base.decoder.state_dict())
        self.decoder.requires_grad_(False)

    def update(self, delta: Tensor, query: Tensor) -> Tensor:
        """(…, m), (…, d) → (…, d), 0 where Δ is."""
        return self.out(F.gelu(self.weight(delta)) * torch.sigmoid(self.gate(query)))

    def prepare(self, windows: Windows) -> Batch:
        """Δ, the query's embedding, the base's latent, and the target."""
        seen = windows.observations
        return Batch(seen["delta"], seen["query"], seen["latent"], windows.future_observations[:, 0])

    def encode_history(self, history: Tensor) -> Tensor:
        """Δ itself."""
        return history

    def encode_current(self, current: Tensor) -> Tensor:
        """The query's embedding itself."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Observations (…, 32) of the base's latent u (…, d) and the update."""
        return self.decoder(u + self.update(z_p, z_s))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of each row, (B,)."""
        return (prediction - y).square().mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The task's."""
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}
