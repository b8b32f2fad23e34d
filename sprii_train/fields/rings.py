"""A convolutional network on a ring whose weights differ from row to row of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

DAMPING = 1.1
"""That Swish is divided by, as in the published networks."""


class RingWeights(NamedTuple):
    """Weights of B networks of L layers."""

    kernels: Sequence[Tensor]  # L of (B, out, in, k), k odd
    biases: Sequence[Tensor]  # L of (B, out)
    slopes: Tensor  # (B, L − 1), of Swish before Softplus


def ring_network(weights: RingWeights, fields: Tensor) -> Tensor:
    """Fields (B, S, X) on a ring of X points → as many: row b goes through network b.

    Products over shifted copies: at one field a row they take a fourteenth of a grouped convolution's time on a CPU,
    and as long at many.
    """
    x, last = fields.unsqueeze(1), len(weights.kernels) - 1
    # Swish of slope s is SiLU(s·x) / s: its factors go into the kernels, which are smaller than what they act on.
    slopes = F.softplus(weights.slopes).split(1, dim=1)
    for i, (kernel, bias) in enumerate(zip(weights.kernels, weights.biases, strict=True)):
        rows, out, channels, width = kernel.shape
        product = kernel.transpose(2, 3).reshape(rows, out, width * channels)
        if i:
            product = product / (DAMPING * slopes[i - 1].unsqueeze(-1))
        if i < last:
            product, bias = product * slopes[i].unsqueeze(-1), bias * slopes[i]
        if width > 1:
            side, points = width // 2, x.shape[-1]
            ring = torch.cat([x[..., -side:], x, x[..., :side]], -1)
            x = torch.cat([ring[..., j : j + points] for j in range(width)], 1)
        x = torch.baddbmm(bias.unsqueeze(-1), product, x.flatten(2)).view(rows, out, *fields.shape[1:])
        if i < last:
            x = F.silu(x)
    return x.squeeze(1)
