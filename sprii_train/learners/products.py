"""A perceptron without gradients, its activations computed where a product is written, in C where that is compiled.

Planning with a learned model spends its time in products of layers some hundred units wide; `products.c` takes a block
of rows through all of them while it is in cache. Elsewhere, and by SPRII_KERNELS=off, torch computes the same, up to
rounding.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from sprii_train import kernels

BLOCK = 1024
"""Rows at once: with more a planner's own arrays leave the cache, with fewer the calls cost as much as the work."""

ACTIVATIONS = {"none": 0, "relu": 1, "silu": 2}

_LANES, _ROWS = 16, 96
"""Floats of a register at most, and rows of a block in C."""


def fusible(x: Tensor) -> bool:
    """Whether `perceptron` takes this input: float32 on a CPU, with no gradient recorded, and compiled."""
    return not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and kernels.fits(x)


def perceptron(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], activation: str) -> Tensor:
    """x (B, in) through layers of weight (in, out) and bias (out,), with the activation between them: (B, out).

    Args:
        x: which `fusible` takes.
        activation: of `ACTIVATIONS`.
    """
    x, parts = x.contiguous(), [(weight.contiguous(), bias.contiguous()) for weight, bias in layers]
    y = x.new_empty(len(x), parts[-1][0].shape[1])
    padded = [-(-weight.shape[1] // _LANES) * _LANES for weight, _ in parts]
    sizes = sum((len(weight) + 1) * width for (weight, _), width in zip(parts, padded, strict=True))
    room = sizes + 2 * _ROWS * max(padded)
    held = (_Linear * len(parts))(*(_Linear(w.data_ptr(), b.data_ptr(), *w.shape) for w, b in parts))

    def part(first: int, last: int) -> None:
        scratch = torch.empty(room)
        job = _Perceptron(held, x.data_ptr(), y.data_ptr(), scratch.data_ptr(), first, last)
        job.count, job.hidden = len(parts), ACTIVATIONS[activation]
        kernels.loaded().perceptron(ctypes.byref(job))

    list(kernels.shared(part, len(x), _ROWS))
    return y


class _Linear(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        *((name, ctypes.c_int) for name in ("inputs", "outputs")),
    ]  # fmt: skip


class _Perceptron(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.POINTER(_Linear)),
        *((name, ctypes.c_void_p) for name in ("x", "y", "room")),
        *((name, ctypes.c_ssize_t) for name in ("first", "last")),
        *((name, ctypes.c_int) for name in ("count", "hidden")),
    ]  # fmt: skip
