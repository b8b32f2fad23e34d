"""Network parts shared by learners."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_train import distributed, kernels
from sprii_train.layers import Perceptron, parts, through


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`F.dropout`, four times faster on CPUs: one 64-bit draw masks four elements (p to within 2⁻¹⁷).

    The rows of x are donors stacked on recipients: in a process group each rank draws for the rows of all ranks and
    keeps its own.
    """
    if not training or p == 0.0:
        return x
    ranks = distributed.world()
    if x.device.type != "cpu":
        return F.dropout(x, p) if ranks == 1 else x * own_rows(F.dropout(x.new_ones(ranks * x.numel()), p), x.shape)
    kept = _bits(x.shape) >= kernels.least_kept(p)
    return x * kept.to(x.dtype).mul_(1.0 / (1.0 - p))


def _bits(shape: torch.Size) -> Tensor:
    """Uniform int16 of the CPU's generator, this rank's rows of those of all ranks."""
    count = distributed.world() * shape.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return own_rows(bits.view(torch.int16)[:count], shape)


def own_rows(drawn: Tensor, shape: torch.Size) -> Tensor:
    """What this rank's rows get of numbers drawn for the rows of all ranks: its share of both halves of the batch."""
    ranks = distributed.world()
    return drawn.view(shape) if ranks == 1 else drawn.view(2, ranks, -1)[:, distributed.rank()].reshape(shape)


class BatchNorm1d(nn.BatchNorm1d):
    """`nn.BatchNorm1d` whose statistics are of the rows of all ranks (`nn.SyncBatchNorm` is of CUDA only)."""

    def __init__(self, features: int, rate: float = 0.1) -> None:
        super().__init__(features, momentum=rate)
        self.rate = rate

    def forward(self, input: Tensor) -> Tensor:
        """(n, features) → (n, features)."""
        if not self.training or distributed.world() == 1:
            return super().forward(input)
        x, rows = input.to(torch.promote_types(input.dtype, torch.float32)), distributed.world() * len(input)
        variance, mean = torch.var_mean(x, dim=0)
        mean, variance = distributed.pooled(mean, variance, len(x))
        with torch.no_grad():
            self.get_buffer("num_batches_tracked").add_(1)
            self.get_buffer("running_mean").lerp_(mean, self.rate)
            self.get_buffer("running_var").lerp_(variance, self.rate)
        scale = self.weight * (variance * ((rows - 1) / rows) + self.eps).rsqrt()
        return ((x - mean) * scale + self.bias).to(input.dtype)


FUSED = 64
"""Tokens above which the fused kernel of attention is the faster one on CPUs."""

Past = tuple[Tensor, Tensor]
"""Keys and values of tokens, (B, heads, T, width / heads) each."""


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
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        if at is None:
            future, keys_values, q = None, None, through(h, [(weight, bias)]).unflatten(-1, (3, self.heads, -1))
        else:
            width = x.shape[-1]
            if isinstance(at, Tensor):
                rows = torch.arange(len(x), device=x.device)
                x, asking = x[rows, at][:, None], h[rows, at][:, None]
                future = (torch.arange(t, device=x.device) > at[:, None])[:, None]
            else:
                x, asking, future = x[:, -1:], h[:, -1:], None
            q = through(asking, [(weight[:width], bias[:width])]).unflatten(-1, (self.heads, -1))
            keys_values = through(h, [(weight[width:], bias[width:])]).unflatten(-1, (2, self.heads, -1))
        attended = self._attend(q, keys_values, future).flatten(2)
        x = x + dropout(through(attended, [parts(self.out)]), self.dropout, self.training)
        forth = through(self.norm2(x), [parts(self.up), parts(self.down)])
        return x + dropout(forth, self.dropout, self.training)

    def extend(self, x: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """Further tokens (B, t, width) after those whose keys and values are `past`: their outputs, and all of them.

        Equal to `forward` on the whole sequence in evaluation mode, without computing the earlier tokens again.
        """
        q, k, v = (self._split(part) for part in self.query_key_value(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        new, total = q.shape[2], k.shape[2]
        future = torch.ones(new, total, dtype=torch.bool, device=x.device).triu_(total - new + 1)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1).to(v.dtype)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)

    def _attend(self, q: Tensor, keys_values: Tensor | None, future: Tensor | None) -> Tensor:
        """Attention (B, T, heads, d) to tokens that are not `future` (B, 1, T): without it causal, the last query to
        all.

        On CPUs in float32 but for one query: casts around a softmax, and torch's fused kernel's backward pass in
        bfloat16, cost more than bfloat16 saves. At few tokens the compiled loop, or plain attention, beats that kernel,
        which knows no dropout there.

        Args:
            q: queries (B, Q, heads, d), or without `keys_values` all three, (B, T, 3, heads, d).
            keys_values: (B, T, 2, heads, d).
        """
        q_, k, v = q.unbind(2) if keys_values is None else (q, *keys_values.unbind(2))
        p = self.dropout if self.training else 0.0
        if future is None and kernels.attends(q_, k):
            b, tokens, heads, _ = q_.shape
            return kernels.attention(
                q, keys_values, _bits(torch.Size((b, heads, tokens, k.shape[1]))) if p else None, p
            )
        q_, k, v = (part.transpose(1, 2) for part in (q_, k, v))
        return self._plain(q_, k, v, future, p).transpose(1, 2)

    def _plain(self, q: Tensor, k: Tensor, v: Tensor, future: Tensor | None, p: float) -> Tensor:
        b, tokens = len(q), q.shape[2]
        if q.device.type == "cpu" and tokens > 1:
            q, k, v = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in (q, k, v))
        with torch.autocast(q.device.type, enabled=False):
            if tokens > FUSED and not p:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
            barred = q.new_zeros(1, tokens, k.shape[1])
            if future is not None:
                barred = barred.masked_fill(future, float("-inf")).repeat_interleave(self.heads, 0)
            elif tokens > 1:
                barred = barred.fill_(float("-inf")).triu_(1)
            scores = torch.baddbmm(barred, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
            weights = dropout(scores.softmax(-1), p, self.training)
            return (weights @ v).unflatten(0, (b, self.heads))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of these widths with GELU between them."""
    return Perceptron(*widths)
