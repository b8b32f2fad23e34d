"""A layer of a network without gradients, its activation fused into the product, by oneDNN where torch has it.

On CPUs with AVX-512 that are not Intel's, the products of torch's own path (MKL) reach about half of what oneDNN's do
in float32. Without AVX-512 oneDNN's activations cost more than that saves, and layers are torch's own.
`torch.backends.mkldnn.flags(enabled=False)` keeps to torch's own.
"""

from typing import Any

import torch
from torch import Tensor

_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # no public name; what a compiled layer calls

BLOCK = 1024
"""Rows at once: more leave a core's second cache, with layers 200 units wide, and fewer leave oneDNN waiting."""


def fusible(x: Tensor) -> bool:
    """Whether `fused_layer` takes this input: float32 on a CPU, with no gradient recorded."""
    return (
        _LINEAR is not None
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
    )


def fused_layer(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    """activation(x·weight + bias) for (B, in), (in, out), (out,), up to rounding as torch's own.

    Args:
        x: which `fusible` takes.
        activation: `none`, `relu`, or `swish`, which is SiLU.
    """
    return _LINEAR(x, weight.T, bias, activation, [], "")
