"""Encoders of histories behind one signature: tokens (B, T, D) → one code (B, out), of the tokens up to `at`.

    transformer   h = causal blocks(Linear(x) + positions)           the last token read, or a summary token behind it
    gru           h_t = GRU(x)_t                                     the last token read
    tcn           h = residual blocks(Linear(x)), dilation 2^i       [mean, max] of the tokens read
    deepsets      h_t = MLP(x_t), in whatever order                  [mean, max] of the tokens read
    code = head(features)

Nothing behind the last token that is read changes a code. The controlled learners have the `transformer`
(`app:implementation`); the supervised references of `tab:spring-complete` have all four.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import choice
from sprii_train.layers import parts, through
from sprii_train.modules import CausalBlock, dropout, perceptron

Kind = Literal["transformer", "gru", "tcn", "deepsets"]
KERNEL = 3
"""Tokens that a convolution of the TCN is of."""


class HistoryEncoder(nn.Module, ABC):
    """What the kinds share; of a subclass is `read`, tokens (B, T, D) and `at` (B,) or None → features.

    Args:
        action: action (…, A) → what tokens have of it; see `led`.
    """

    def __init__(self, action: nn.Module | None = None) -> None:
        super().__init__()
        if action is not None:
            self.action = action

    def forward(self, tokens: Tensor, at: Tensor | None = None) -> Tensor:
        """Tokens (B, T, D) → codes (B, out), of those up to `at` (B,) int64 or of all."""
        return self.head(self.read(tokens, at))

    def led(self, embeddings: Tensor, actions: Tensor) -> Tensor:
        """Embeddings (B, T, E) and the actions between them (B, T − 1, A) → tokens, each with the action that led to
        it; that of the first is zero."""
        return torch.cat([embeddings, self.action(F.pad(actions, (0, 0, 1, 0)))], dim=-1)

    def code(self, embeddings: Tensor, actions: Tensor, at: Tensor | None = None) -> Tensor:
        """The same, as codes (B, out)."""
        return self(self.led(embeddings, actions), at)

    @abstractmethod
    def read(self, tokens: Tensor, at: Tensor | None) -> Tensor:
        """Features of the tokens up to `at`, or of all."""

    def _add_head(self, features: int, hidden: int, out: int) -> None:
        """With a hidden layer; without one, linear, and nothing where there are as many features."""
        if hidden or features != out:
            self.head = perceptron(features, *([hidden] if hidden else []), out)
        else:
            self.head = nn.Identity()


class Transformer(HistoryEncoder):
    """Pre-norm causal blocks over tokens with learned positions."""

    def __init__(
        self, token_dim: int, *, width: int, layers: int, heads: int, dropout: float, length: int, out: int,
        hidden: int = 0, summary: bool = False, action: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(action)
        self.token = nn.Linear(token_dim, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.summary = nn.Parameter(0.02 * torch.randn(width)) if summary else None
        self.blocks = nn.ModuleList(CausalBlock(width, heads, dropout) for _ in range(layers))
        self._add_head(width, hidden, out)

    def read(self, tokens: Tensor, at: Tensor | None) -> Tensor:
        """Features (B, width)."""
        x = through(tokens, [parts(self.token)]) + self.position[: tokens.shape[1]]
        if self.summary is not None:
            x = torch.cat([x, self.summary.to(x.dtype).expand(len(x), 1, -1)], dim=1)
            if at is not None:  # behind the last one that is read: causal blocks show it no other
                at = at + 1
                here = torch.arange(x.shape[1], device=x.device) == at[:, None]
                x = torch.where(here[..., None], self.summary.to(x.dtype), x)
        *deep, top = self.blocks
        for block in deep:
            x = block(x)
        return top(x, "last" if at is None else at)[:, -1]


class GRU(HistoryEncoder):
    """The state of a recurrent network after the last token that is read."""

    def __init__(
        self, token_dim: int, *, width: int, layers: int, dropout: float, out: int, hidden: int = 0,
        action: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(action)
        self.dropout = dropout
        self.recurrent = nn.GRU(token_dim, width, layers, batch_first=True)
        self._add_head(width, hidden, out)

    def read(self, tokens: Tensor, at: Tensor | None) -> Tensor:
        """Features (B, width)."""
        h = recurrent_states(self.recurrent, tokens)
        last = h[:, -1] if at is None else h[torch.arange(len(h), device=h.device), at]
        return dropout(last, self.dropout, self.training)


class TCN(HistoryEncoder):
    """Residual blocks of two causal convolutions, twice as far apart in each block."""

    def __init__(
        self, token_dim: int, *, width: int, layers: int, dropout: float, out: int, hidden: int = 0,
        action: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(action)
        self.dropout = dropout
        self.token = nn.Linear(token_dim, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, KERNEL, dilation=2**i) for _ in range(2)) for i in range(layers)
        )
        self._add_head(2 * width, hidden, out)

    def read(self, tokens: Tensor, at: Tensor | None) -> Tensor:
        """Features (B, 2 · width)."""
        x = self.token(tokens).transpose(1, 2)
        for i, block in enumerate(self.blocks):
            first, second = block.children()
            before = ((KERNEL - 1) * 2**i, 0)
            x = F.gelu(x + second(F.pad(F.gelu(first(F.pad(x, before))), before)))
        return dropout(pooled(x.transpose(1, 2), at), self.dropout, self.training)


class DeepSets(HistoryEncoder):
    """Tokens by themselves, pooled: codes of the set of tokens, not of their order."""

    def __init__(
        self, token_dim: int, *, width: int, layers: int, dropout: float, out: int, hidden: int = 0,
        action: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(action)
        self.dropout = dropout
        self.each = perceptron(token_dim, *[2 * width] * (layers - 1), width)
        self._add_head(2 * width, hidden, out)

    def read(self, tokens: Tensor, at: Tensor | None) -> Tensor:
        """Features (B, 2 · width)."""
        return dropout(pooled(self.each(tokens), at), self.dropout, self.training)


def recurrent_states(network: nn.GRU, tokens: Tensor) -> Tensor:
    """States (B, T, width) of the last layer, in float32 under autocast too."""
    with torch.autocast(tokens.device.type, enabled=False):
        return network(tokens.float())[0]


def pooled(h: Tensor, at: Tensor | None = None) -> Tensor:
    """Tokens (B, T, width) → mean and maximum (B, 2 · width) over those up to `at` (B,), or over all."""
    if at is None:
        return torch.cat([h.mean(1), h.amax(1)], dim=-1)
    unread = (torch.arange(h.shape[1], device=h.device) > at[:, None])[..., None]
    mean = h.masked_fill(unread, 0.0).sum(1) / (at + 1)[:, None]
    return torch.cat([mean, h.masked_fill(unread, float("-inf")).amax(1)], dim=-1)


ENCODERS: Mapping[Kind, Callable[..., HistoryEncoder]] = {
    "transformer": Transformer, "gru": GRU, "tcn": TCN, "deepsets": DeepSets
}  # fmt: skip


def history_encoder(
    kind: Kind,
    token_dim: int,
    *,
    width: int,
    layers: int,
    heads: int,
    dropout: float,
    length: int,
    out: int,
    hidden: int = 0,
    action: nn.Module | None = None,
    **own: Any,
) -> HistoryEncoder:
    """An encoder of a kind.

    Args:
        token_dim: D of its tokens.
        width: of its layers; DeepSets' hidden ones are twice as wide.
        layers: blocks of the Transformer and the TCN, layers of the GRU and of DeepSets' network of tokens.
        heads: of the Transformer, which divide the width.
        dropout: in the Transformer's blocks; of the others' features.
        length: most tokens that the Transformer reads; the others read any number.
        out: size of the code.
        hidden: width of the head's hidden layer; 0 is none.
        action: see `HistoryEncoder`.
        own: of one kind alone, such as the Transformer's `summary`.

    Raises:
        ValueError: for an unknown kind, or a width that the Transformer's heads do not divide.
    """
    choice("kind", kind, legal=tuple(ENCODERS))
    if kind == "transformer" and width % heads:
        raise ValueError(f"width is {width}; legal: a multiple of heads {heads}")
    sizes: dict[str, Any] = {"width": width, "layers": layers, "dropout": dropout, "out": out, "hidden": hidden}
    if kind == "transformer":
        sizes |= {"heads": heads, "length": length}
    return ENCODERS[kind](token_dim, action=action, **sizes, **own)
