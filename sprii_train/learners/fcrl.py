"""FCRL, contrastive learning of functions (Gondal et al., ICML 2021), of sets and of sequences.

    z_p = mean over the history's transitions of MLP([x, u, x'])            (50)  `FCRL`, `app:dclean-official`
    z_p = causal Transformer([e_t, action feature_{t−1}])_last              (64)  `TemporalFCRL`, `app:fcrl-spring`
    ℓ_i = −log exp(cos(π(z_i), π(z_i⁺))/τ) / Σ_j exp(cos(π(z_i), π(z_j⁺))/τ),   τ = 0.07
    L   = mean ℓ over both halves: a window looks for its system among the windows of the other half

Each system is a function and each history a sample of it; π, the projector, is dropped after training. Left out: the
image decoders that the paper fits on frozen codes. Nothing is predicted, so Cross has no term of its own here, and λx
is refused. Not told, and ours: z-scored inputs of sets, cosine similarity, and that the projector's batch norm is of
both halves at once.

The temporal one has the controlled JEPA's stem, norm and history encoder, and neither its predictor nor z_s, and no
SIGReg; the query of task readers is the stem's embedding.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.distributed import gather, rank
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.learners.scaling import Scales, check_fitted
from sprii_train.modules import BatchNorm1d
from sprii_train.protocol import Batch, Codes, Windows


@dataclass(frozen=True)
class FCRLConfig:
    """Sizes; the defaults are the source's on D-Clean, 10,850 parameters, 5,650 of them of the encoder.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        history: states in a history.
        persistent: d of z_p.
        width: of the encoder's two hidden layers.
        projection: width and output of the projector.
        temperature: τ.
    """

    observation_dim: int = 4
    action_dim: int = 2
    history: int = 24
    persistent: int = 50
    width: int = 50
    projection: int = 50
    temperature: float = 0.07

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "observation_dim", "action_dim", "persistent", "width", "projection", least=1)
        check(self, integer, "history", least=2)
        check(self, number, "temperature", above=0)

    @property
    def horizons(self) -> tuple[int, ...]:
        """The least that a window may have; no future is read."""
        return (1,)


class Related(NamedTuple):
    """What a window's code has to be told from."""

    history: tuple[Tensor, ...]  # (B, …) each, of the pair's other window
    second: Tensor  # (B,) bool, whether a window is of the second half of its batch


class SetEncoder(nn.Module):
    """Transitions (B, T, inputs) → the mean (B, out) of a network of each."""

    def __init__(self, inputs: int, width: int, out: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out)
        )

    def forward(self, transitions: Tensor) -> Tensor:
        return self.network(transitions).mean(1)


class Contrastive(nn.Module):
    """What both share: a projector of codes, and InfoNCE in place of a prediction."""

    config: Any
    projector: nn.Module
    native_of_pairs = True
    without_cross = "predicts nothing, and contrasts both histories of a pair already"
    without_errors = "contrasts the histories of a batch, so that a window alone has no error"

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Projected codes; states and actions say nothing."""
        return self.projector(z_p)

    def task_loss(self, prediction: Tensor, y: Any) -> Tensor:
        """InfoNCE of every window (B,): its pair's other window, of `Related`, against all of that half."""
        learner: Any = self
        keys = self.projector(learner.encode_history(y.history if len(y.history) > 1 else y.history[0]))
        return info_nce(prediction, keys, y.second, self.config.temperature)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss: symmetric InfoNCE, of both halves. Each window is encoded once."""
        projected = self.projector(codes.z_p)
        keys = projected.roll(len(projected) // 2, 0)
        loss = info_nce(projected, keys, batch.y.second, self.config.temperature).mean()
        return loss, {"self": loss}


def related(*history: Tensor) -> Related:
    """The other history of every window's pair, of the parts that a learner encodes."""
    rows, device = len(history[0]), history[0].device
    other = tuple(part.roll(rows // 2, 0) for part in history)
    return Related(other, torch.arange(rows, device=device) >= rows // 2)


class FCRL(Contrastive):
    """That of sets, as a `Learner`."""

    def __init__(self, config: FCRLConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=FCRLConfig)
        self.scales = Scales(c.observation_dim, c.action_dim)
        self.encoder = SetEncoder(2 * c.observation_dim + c.action_dim, c.width, c.persistent)
        self.projector = projector(c.persistent, c.projection, c.projection)

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise states and actions by these windows."""
        self.scales.fit(windows)

    def prepare(self, windows: Windows) -> Batch:
        """Transitions (B, T − 1, 2S + A) of every window and, as its target, of the other one of its pair.

        Raises:
            ValueError: in training without statistics.
        """
        check_fitted(self, self.scales.observation, self.scales.action)
        x, u = self.scales.states(windows.observations), self.scales.actions(windows.actions)
        transitions = torch.cat([x[:, :-1], u, x[:, 1:]], dim=-1)
        return Batch(transitions, x[:, -1], windows.future_actions, related(transitions), windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """Transitions (B, T − 1, 2S + A) → z_p (B, 50)."""
        return self.encoder(history)

    def encode_current(self, current: Tensor) -> Tensor:
        """Standardised states (B, S), as they are."""
        return current

    def present(self, observations: Tensor) -> Tensor:
        """States (B, S) → standardised ones."""
        return self.scales.states(observations)


@dataclass(frozen=True)
class TemporalFCRLConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA whose stem and history encoder it has. Horizons are read by nothing.

    Attributes:
        projection: hidden width of the projector, whose output is as wide as the code.
        temperature: τ.
    """

    projection: int = 128
    temperature: float = 0.07

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "persistent", "projection", least=1)
        check(self, number, "temperature", above=0)
        check(self, choice, "context", legal=("split",))

    @classmethod
    def like(cls, jepa: JEPAConfig) -> "TemporalFCRLConfig":
        """The temporal FCRL with the networks of a JEPA."""
        return cls(**asdict(jepa))


class TemporalFCRL(Contrastive, JEPA):
    """That of sequences of frames or states, as a `Learner`."""

    horizon_losses: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]  (nothing is predicted)
    target: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, config: TemporalFCRLConfig) -> None:
        JEPA.__init__(self, instance("config", config, of=TemporalFCRLConfig))
        del self.predictor, self.horizon, self.mask
        self.current = nn.Identity()
        self.projector = projector(config.persistent, config.projection, config.persistent)

    def prepare(self, windows: Windows) -> Batch:
        """Histories embedded, and as a window's target those of the other one of its pair."""
        e = self.embed(windows.observations, windows.future_observations[:, :0])
        history = e, windows.actions
        return Batch(history, e[:, -1], windows.future_actions, related(*history), windows.labels)

    def present(self, observations: Tensor) -> Tensor:
        """Presents, as the JEPA takes them → their embeddings (B, embedding)."""
        return super().target(observations)


def projector(code: int, hidden: int, out: int) -> nn.Sequential:
    """Of codes, and dropped after training."""
    return nn.Sequential(nn.Linear(code, hidden), BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, out))


def info_nce(asked: Tensor, keys: Tensor, group: Tensor, temperature: float) -> Tensor:
    """−log softmax of row i's own key among the keys of its group (B,), float32 at least; cosine similarities.

    Args:
        asked, keys: (B, d); row i of one belongs to row i of the other.
        group: (B,), of the keys that a row is compared with. In a process group keys of all ranks are.
    """
    kind = torch.promote_types(asked.dtype, torch.float32)
    a, b = F.normalize(asked.to(kind), dim=-1), F.normalize(gather(keys.to(kind)), dim=-1)
    scores = a @ b.T / temperature
    scores = scores.masked_fill(group[:, None] != gather(group.float()).to(group.dtype), float("-inf"))
    own = rank() * len(a) + torch.arange(len(a), device=a.device)
    return F.cross_entropy(scores, own, reduction="none")
