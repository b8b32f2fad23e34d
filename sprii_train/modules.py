"""Network parts shared by learners."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`F.dropout`, four times faster on CPUs: one 64-bit draw masks four elements (p to within 2⁻¹⁷)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    count = x.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[:count].view(x.shape) >= round(p * 65536) - 32768
    return x * kept.to(x.dtype).mul_(1.0 / (1.0 - p))


class CausalBlock(nn.Module):
    """Pre-norm causal Transformer block; given `at`, it computes the output of one token a row alone."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, at: Tensor | Literal["last"] | None = None) -> Tensor:
        """(B, T, width) → (B, T, width), or (B, 1, width) of the tokens `at` (B,) or of the last ones."""
        h, t = self.norm1(x), x.shape[1]
        if at is None:
            q, k, v = self.query_key_value(h).chunk(3, dim=-1)
            future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu_(1)
        else:
            width = x.shape[-1]
            weight, bias = self.query_key_value.weight, self.query_key_value.bias
            if isinstance(at, Tensor):
                rows = torch.arange(len(x), device=x.device)
                x, asking = x[rows, at][:, None], h[rows, at][:, None]
                future = (torch.arange(t, device=x.device) > at[:, None])[:, None, None]
            else:
                x, asking, future = x[:, -1:], h[:, -1:], None
            q = F.linear(asking, weight[:width], bias[:width])
            k, v = F.linear(h, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = self._split(q), self._split(k), self._split(v)
        # At 24 tokens a plain softmax beats the fused kernel, whose bfloat16 backward pass is slow on CPUs.
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if future is not None:
            scores = scores.masked_fill(future, float("-inf"))
        weights = dropout(scores.softmax(-1).to(v.dtype), self.dropout, self.training)
        attended = (weights @ v).transpose(1, 2).flatten(2)
        x = x + dropout(self.out(attended), self.dropout, self.training)
        return x + dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
