"""FCRL, contrastive learning of functions (Gondal et al., ICML 2021; `app:dclean-official`): its encoder of sets.

    z_p = mean over the history's transitions of MLP([x, u, x'])            (50)
    ℓ_i = −log exp(cos(π(z_i), π(z_i⁺))/τ) / Σ_j exp(cos(π(z_i), π(z_j⁺))/τ),   τ = 0.07
    L   = mean ℓ over both halves: a window looks for its system among the windows of the other half

Each system is a function and each history a sample of it; π, the projector, is dropped after training. Left out: the
image decoders that the paper fits on frozen codes. Nothing is predicted, so Cross has no term of its own here, and λx
is refused. Not told, and ours: z-scored inputs, cosine similarity, and that the projector's batch norm
is of both halves at once.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.distributed import gather, rank
from sprii_train.learners.scaling import Scales, check_fitted
from sprii_train.modules import BatchNorm1d
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class FCRLConfig:
    """Sizes; the defaults are the source's on D-Clean, 10,850 parameters, 5,650 of them of the encoder.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        history: states in a history.
        encoder: `set`, whatever the order of transitions.
        persistent: d of z_p.
        width: of the encoder's two hidden layers.
        projection: width and output of the projector.
        temperature: τ.
    """

    observation_dim: int = 4
    action_dim: int = 2
    history: int = 24
    encoder: Literal["set"] = "set"
    persistent: int = 50
    width: int = 50
    projection: int = 50
    temperature: float = 0.07

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "observation_dim", "action_dim", "persistent", "width", "projection", least=1)
        check(self, integer, "history", least=2)
        check(self, choice, "encoder", legal=("set",))
        check(self, number, "temperature", above=0)

    @property
    def horizons(self) -> tuple[int, ...]:
        """The least that a window may have; no future is read."""
        return (1,)


class Related(NamedTuple):
    """What a window's code has to be told from."""

    history: Tensor  # (B, T, …), of the pair's other window
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


class FCRL(nn.Module):
    """The learner; its operations are those of `protocol.Learner`."""

    without_cross = "predicts nothing, and contrasts both histories of a pair already"

    def __init__(self, config: FCRLConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=FCRLConfig)
        self.scales = Scales(c.observation_dim, c.action_dim)
        self.encoder = SetEncoder(2 * c.observation_dim + c.action_dim, c.width, c.persistent)
        self.projector = nn.Sequential(
            nn.Linear(c.persistent, c.projection), BatchNorm1d(c.projection), nn.ReLU(),
            nn.Linear(c.projection, c.projection),
        )  # fmt: skip

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
        transitions, rows = torch.cat([x[:, :-1], u, x[:, 1:]], dim=-1), len(x)
        second = torch.arange(rows, device=x.device) >= rows // 2
        related = Related(transitions.roll(rows // 2, 0), second)
        return Batch(transitions, x[:, -1], windows.future_actions, related, windows.labels)

    def encode_history(self, history: Tensor) -> Tensor:
        """Transitions (B, T − 1, 2S + A) → z_p (B, 50)."""
        return self.encoder(history)

    def encode_current(self, current: Tensor) -> Tensor:
        """Standardised states (B, S), as they are."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """Projected codes (B, 50); states and actions say nothing."""
        return self.projector(z_p)

    def task_loss(self, prediction: Tensor, y: Related) -> Tensor:
        """InfoNCE of every window (B,): its pair's other window against all of that half."""
        keys = self.projector(self.encoder(y.history))
        return info_nce(prediction, keys, y.second, self.config.temperature)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss: symmetric InfoNCE, of both halves."""
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}

    def present(self, observations: Tensor) -> Tensor:
        """States (B, S) → standardised ones."""
        return self.scales.states(observations)


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
