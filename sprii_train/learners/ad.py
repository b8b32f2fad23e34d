"""AD, the action learner of Overcooked: a causal Transformer over a partner's episodes (`app:overcooked-profile`).

A token is one step: the previous action, the previous reward and the observation. The shared backbone reads each
support episode on its own; its last token gives a slot of 32 numbers, and attention pools the slots into the persistent
context. The query is three further episodes: an MLP fuses its causal representation with the context and predicts the
ego's actions. Written from the paper's description; Algorithm Distillation is of Laskin et al. 2023.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, number
from sprii_train.devices import moved, on_host
from sprii_train.modules import CausalBlock, Past
from sprii_train.protocol import Batch, Codes

SUPPORT, QUERY = 2, 3
"""Episodes of a context and of a query."""


class PlayWindows(NamedTuple):
    """Consecutive episodes of B histories, SUPPORT + QUERY of them: what `fit` calls windows."""

    observations: Tensor  # (B, 5, T, *observation) uint8
    actions: Tensor  # (B, 5, T) uint8
    rewards: Tensor  # (B, 5, T) float32

    def to(self, device: torch.device | str) -> "PlayWindows":
        """The same windows on a device."""
        return PlayWindows(*(moved(field, device) for field in self))


class Play(NamedTuple):
    """Episodes of B histories, as tokens read them: (B, E, T, …)."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor


@dataclass(frozen=True)
class ADConfig:
    """Sizes.

    Attributes:
        inputs: numbers in an observation.
        steps: of an episode.
        actions: number of actions.
        scale: rewards are divided by it.
    """

    inputs: int = 1000
    steps: int = 100
    actions: int = 6
    width: int = 96
    layers: int = 3
    heads: int = 4
    slot: int = 32
    dropout: float = 0.0
    scale: float = 20.0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "inputs", "steps", "actions", "width", "layers", "heads", "slot", least=1)
        check(self, number, "dropout", least=0, below=1)
        check(self, number, "scale", above=0)
        if self.width % self.heads:
            raise ValueError(f"ADConfig.width is {self.width}; legal: a multiple of heads, {self.heads}")


class AD(nn.Module):
    """The learner; its operations are those of `protocol.Learner`, with whole episodes as windows."""

    native_by_window = True

    def __init__(self, config: ADConfig) -> None:
        super().__init__()
        self.config = instance("config", config, of=ADConfig)
        width = config.width
        self.observation = nn.Linear(config.inputs, width)
        self.action = nn.Embedding(config.actions + 1, width)  # the last one: no action yet
        self.token = nn.Linear(2 * width + 1, width)
        self.position = nn.Embedding(QUERY * config.steps, width)
        self.blocks = nn.ModuleList(CausalBlock(width, config.heads, config.dropout) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.slot = nn.Linear(width, config.slot)
        self.pool = nn.Linear(config.slot, 1)
        self.fuse = nn.Linear(width + config.slot, width)
        self.head = nn.Linear(width, config.actions)

    # The five operations

    def prepare(self, windows: PlayWindows) -> Batch:
        """Support episodes, query episodes and the actions to predict."""
        support, query = (
            Play(*(field[:, part] for field in windows)) for part in (slice(SUPPORT), slice(SUPPORT, None))
        )
        return Batch(history=support, current=query, u=None, y=query.actions.flatten(1).long())

    def encode_history(self, history: Play) -> Tensor:
        """Support episodes (B, E, T, …) → the pooled slot (B, slot)."""
        batch, episodes = history.actions.shape[:2]
        tokens = self.tokens(Play(*(field.flatten(0, 1)[:, None] for field in history)))
        slots = self.slot(self.backbone(tokens, at="last")[:, 0]).view(batch, episodes, -1)
        return (self.pool(slots).softmax(dim=1) * slots).sum(1)

    def encode_current(self, current: Play) -> Tensor:
        """Query episodes (B, E, T, …) → their causal representation (B, E·T·width), one step after another."""
        return self.backbone(self.tokens(current)).flatten(1)

    def predict(self, z_s: Tensor, z_p: Tensor, u: None) -> Tensor:
        """Representation and slots → logits (B, E·T, actions)."""
        found = z_s.view(len(z_s), -1, self.config.width)
        return self.logits(found, z_p[:, None].expand(-1, found.shape[1], -1))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy of the ego's actions, (B,)."""
        loss = F.cross_entropy(prediction.float().flatten(0, 1), y.flatten(), reduction="none")
        return loss.view(y.shape).mean(1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The action objective with each history's own slot."""
        loss = self.task_loss(self.predict(codes.z_s, codes.z_p, batch.u), batch.y).mean()
        return loss, {"cross_entropy": loss}

    # Parts

    def tokens(self, play: Play) -> Tensor:
        """Episodes (B, E, T, …) → tokens (B, E·T, width); what precedes an episode's first step is nothing."""
        none = torch.full_like(play.actions[..., :1], self.config.actions).long()
        before = torch.cat([none, play.actions[..., :-1].long()], dim=-1)
        paid = torch.cat([torch.zeros_like(play.rewards[..., :1]), play.rewards[..., :-1]], dim=-1) / self.config.scale
        rows, place = distinct(play.observations.flatten(3).flatten(0, 2))
        seen = F.relu(self.observation(rows.to(self.observation.weight.dtype)))
        seen = F.embedding(place, seen).unflatten(0, play.actions.shape)
        made = self.token(torch.cat([self.action(before), seen, paid[..., None]], dim=-1)).flatten(1, 2)
        return made + self.position.weight[: made.shape[1]]

    def token_at(self, play: Play, step: int, position: int) -> Tensor:
        """The token of one step of a running episode, the last of `play`, (B, 1, width).

        Args:
            step: within the episode; what follows it is not read.
            position: of the token in the query.
        """
        from_before = slice(max(0, step - 1), step + 1)
        part = Play(*(field[:, -1:, from_before] for field in play))
        made = self.tokens(part)[:, -1:]
        # `tokens` counts positions from its own beginning.
        return made + self.position.weight[position] - self.position.weight[part.actions.shape[2] - 1]

    def backbone(self, tokens: Tensor, at: Literal["last"] | None = None) -> Tensor:
        """Causal, (B, T, width) → (B, T, width), or (B, 1, width) of the last token."""
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, at if i == len(self.blocks) - 1 else None)
        return self.norm(tokens)

    def logits(self, found: Tensor, slot: Tensor) -> Tensor:
        """Representation (…, width) fused with slots (…, slot) → (…, actions)."""
        return self.head(F.gelu(self.fuse(torch.cat([found, slot], dim=-1))))

    def act(self, tokens: Tensor, slot: Tensor, past: list[Past] | None) -> tuple[Tensor, list[Past]]:
        """Logits (B, actions) after further tokens (B, t, width) of a query, and what the next ones attend to.

        Args:
            slot: (B, slot).
            past: of the query's tokens before these; None at its beginning.
        """
        x, kept = tokens, []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, CausalBlock)
            x, own = block.extend(x, None if past is None else past[i])
            kept.append(own)
        return self.logits(self.norm(x[:, -1]), slot), kept


def distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (N, D) uint8 → the K different ones (K, D), and which of them each is, (N,).

    A kitchen looks alike most of the time, so that what is computed of an observation is computed seldom. Rows are told
    apart by a hash; where two share one that differ, all N are returned; so they are on a device, which the host would
    wait for to know K.
    """
    everyone = torch.arange(len(rows), device=rows.device)
    if not on_host(rows):
        return rows, everyone
    words = F.pad(rows, (0, -rows.shape[1] % 8)).view(torch.int64)
    odd = torch.randint(-(2**62), 2**62, words.shape[1:], generator=torch.Generator().manual_seed(0)) * 2 + 1
    mixed = words ^ (words >> 29)  # products alone would lose the upper bytes of a word
    _, place = torch.unique((mixed * odd).sum(1), return_inverse=True)
    first = everyone.new_empty(int(place.max()) + 1).scatter_(0, place, everyone)
    if not torch.equal(words[first].index_select(0, place), words):
        return rows, everyone
    return rows[first], place
