"""Linear layers with GELU between them as one operation: under autocast to bfloat16, on CPUs that multiply in it.

Narrow layers are bound by the dozens of small operations around their products. `layers.c` takes a block of rows
through all layers, and back, while it is in cache. Elsewhere, and by SPRII_KERNELS=off, torch computes the same.
"""

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sprii_train import kernels

LANES, BLOCK, MOST, WIDEST = kernels.LANES, 96, 8, 1024
"""Floats of a vector and rows of a block in C; layers, and features of one, at most: more leave the cache."""

Layer = tuple[Tensor, Tensor]
"""Weight (out, in) and bias (out,)."""


class Perceptron(nn.Sequential):
    """Linear layers of these widths with GELU between them."""

    def __init__(self, *widths: int) -> None:
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU()]
        super().__init__(*layers[:-1])

    def forward(self, input: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return through(input, [parts(layer) for layer in self if isinstance(layer, nn.Linear)])


def parts(layer: nn.Linear) -> Layer:
    return layer.weight, layer.bias


def through(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """x (…, in) through layers with GELU between them, (…, out)."""
    if _taken(x, layers):
        return _Chain.apply(x, *itertools.chain(*layers))  # type: ignore[return-value]
    for i, (weight, bias) in enumerate(layers):
        x = F.linear(F.gelu(x) if i else x, weight, bias)
    return x


def multiplies() -> bool:
    """Whether products of bfloat16 are compiled."""
    library = kernels.library()
    return library is not None and hasattr(library, "chain")


def _taken(x: Tensor, layers: Sequence[Layer]) -> bool:
    """What does not fit, and inputs of another width, are torch's to compute or to refuse."""
    cast = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
    if cast != torch.bfloat16 or x.dtype not in (torch.float32, torch.bfloat16) or len(layers) > MOST:
        return False
    width = x.shape[-1]
    for weight, bias in layers:
        out, inputs = weight.shape
        if inputs != width or max(inputs, out) > WIDEST or out % LANES or weight.dtype != torch.float32:
            return False
        if not inputs or bias.dtype != torch.float32 or weight.device.type != "cpu":
            return False
        width = out
    return multiplies()


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "dweight", "dbias", "hidden")),
        *((name, ctypes.c_int) for name in ("inputs", "outputs")),
    ]  # fmt: skip


class _Job(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("layers", "x", "y", "dx", "room")),
        *((name, ctypes.c_ssize_t) for name in ("first", "last")),
        *((name, ctypes.c_int) for name in ("count", "half", "full", "backward")),
    ]  # fmt: skip


class _Chain(torch.autograd.Function):
    """Kept are the inputs and what goes into each GELU, in bfloat16."""

    @staticmethod
    def forward(ctx, x: Tensor, *parts: Tensor) -> Tensor:
        x, parts = x.contiguous(), tuple(part.contiguous() for part in parts)
        rows, half = x.numel() // x.shape[-1], torch.bfloat16
        kept = torch.empty(rows * sum(map(len, parts[1:-1:2])), dtype=half)
        y = torch.empty((*x.shape[:-1], len(parts[-1])), dtype=half)
        _run(x, parts, kept, y)
        ctx.save_for_backward(x, kept, *parts)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, kept, *parts = ctx.saved_tensors
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        return dx, *_run(x, parts, kept, grad_outputs[0].contiguous(), dx, backward=True)


def product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """x (rows, in) · weight (out, in)ᵀ of factors rounded to bfloat16, which `multiplies`."""
    y = torch.empty((len(x), len(weight)), dtype=dtype)
    _run(x.contiguous(), [weight.contiguous(), None], torch.empty(0), y)
    return y


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _run(
    x: Tensor, parts: Sequence[Any], kept: Tensor, y: Tensor, dx: Tensor | None = None, backward: bool = False
) -> list[Tensor]:
    """Forward into `kept` and y, or with the slope of y back into dx: slopes of `parts`."""
    weights, biases = parts[::2], parts[1::2]
    rows, count = y.numel() // y.shape[-1], len(weights)
    sizes = [(len(weight), -(-weight.shape[1] // LANES) * LANES) for weight in weights]
    widest = max(map(max, sizes))
    room = sum(o * i for o, i in sizes) // 2 + widest * max(3 * BLOCK, widest // 2)
    ends = [0, *itertools.accumulate(rows * o for o, _ in sizes[:-1]), 0]
    loaded = kernels.loaded()

    def part(first: int, last: int) -> list[Tensor]:
        slopes = [torch.zeros(size) for o, i in sizes for size in ((o, i), (o,))] if backward else []
        layers, held = (_Layer * count)(), torch.empty(room)
        for i, (layer, weight, bias) in enumerate(zip(layers, weights, biases, strict=True)):
            layer.weight, layer.bias, layer.hidden = weight.data_ptr(), _at(bias), kept.data_ptr() + 2 * ends[i]
            layer.outputs, layer.inputs = weight.shape
            if backward:
                layer.dweight, layer.dbias = slopes[2 * i].data_ptr(), slopes[2 * i + 1].data_ptr()
        job = _Job(
            ctypes.addressof(layers), x.data_ptr(), y.data_ptr(), _at(dx),
            held.data_ptr(), first, last, count, x.dtype == torch.bfloat16,
            y.dtype == torch.float32, backward,
        )  # fmt: skip
        loaded.chain(ctypes.byref(job))
        return slopes

    shares = kernels.shared(part, rows, BLOCK)
    slopes = [functools.reduce(torch.add, of_all) for of_all in zip(*shares, strict=True)]
    return [slope[..., : part.shape[-1]] for slope, part in zip(slopes, parts, strict=backward)]
