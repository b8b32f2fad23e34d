"""Loops of training in C (`kernels.c`, and `layers.c` behind it), compiled for this machine when first asked for.

Where there is no C compiler, or SPRII_KERNELS=off is set, callers compute the same by torch, up to rounding.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sprii_envs.files import FileError, written_file

T = TypeVar("T")

SOURCE = "".join((Path(__file__).parent / name).read_text("utf-8") for name in ("kernels.c", "layers.c"))
LANES = 16
"""Floats of a vector in C."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they cannot be had."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if os.environ.get("SPRII_KERNELS") == "off" or compiler is None or os.name != "posix":
        return None
    processor = _processor()
    # GCSE takes three quarters of the time of compilation without AVX-512.
    command = ["-O2", "-fno-gcse", "-std=gnu11", "-shared", "-fPIC", *(["-march=native"] if processor else [])]
    key = hashlib.sha256("\n".join((SOURCE, compiler, *command, processor, platform.platform())).encode()).hexdigest()
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sprii"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = home / f"kernels-{key[:16]}.so"
        if not path.exists():
            with written_file(path) as part:
                run = [compiler, *command, "-x", "c", "-", "-o", str(part)]
                subprocess.run(run, input=SOURCE, text=True, capture_output=True, check=True, timeout=300)
        return ctypes.CDLL(str(path))
    except (OSError, RuntimeError, FileError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    """What `-march=native` compiles for; empty where that is not known, and the compiler's default is kept."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except (OSError, UnicodeError):
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def fits(x: Tensor) -> bool:
    """Whether the loops take this tensor: float32 on a CPU, and compiled."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and library() is not None


def sigreg(y: Tensor, h: float, weight: Tensor, phi: Tensor, sloped: bool) -> float | None:
    """SIGReg's statistic of projections, summed over slices and columns; y becomes half of its slope if `sloped`.

    Args:
        y: (slices, n, columns) contiguous, which `fits`.
        h: distance of the knots.
        weight, phi: w_j·φ_j / n and n·φ_j of the knots j, float32.

    Returns:
        None, with y spoilt, where a projection is too large (|h·y| > 1000).
    """
    slices, n, columns = y.shape
    room = 2 * n + 4 * len(weight)

    def part(first: int, last: int) -> float | None:
        statistic, held = ctypes.c_double(), torch.empty(room * LANES)
        size = ctypes.c_ssize_t
        failed = loaded().sigreg(
            _at(y), size(slices), size(n), size(columns), size(first), size(last), len(weight), ctypes.c_float(h),
            _at(weight), _at(phi), int(sloped), _at(held), ctypes.byref(statistic),
        )  # fmt: skip
        return None if failed else statistic.value

    parts = list(shared(part, columns, LANES))
    return None if None in parts else sum(value for value in parts if value is not None)


MOST = 96
"""Tokens, and features of a head, that `attention` takes at most."""


class _Rows(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), *((name, ctypes.c_ssize_t) for name in ("batch", "row", "head"))]


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, _Rows) for name in ("q", "k", "v", "out", "dq", "dk", "dv")),
        ("bits", ctypes.c_void_p),
        *((name, ctypes.c_ssize_t) for name in ("heads", "first", "last")),
        *((name, ctypes.c_int) for name in ("queries", "keys", "d", "half", "least", "backward")),
        ("scale", ctypes.c_float),
    ]  # fmt: skip


def attends(q: Tensor, k: Tensor) -> bool:
    """Whether `attention` takes queries and keys (B, T, heads, d): few tokens, float32 or bfloat16, on a CPU."""
    kinds = torch.float32, torch.bfloat16
    small = max(k.shape[1], q.shape[-1]) <= MOST and q.shape[1] <= k.shape[1]
    return small and q.device.type == "cpu" and q.dtype == k.dtype and q.dtype in kinds and library() is not None


def attention(
    q: Tensor,
    keys_values: Tensor | None,
    bits: Tensor | None,
    p: float,
) -> Tensor:
    """Causal attention, the last query to all keys, with dropout of the weights; computed in float32.

    Args:
        q: queries (B, Q, heads, d), or without `keys_values` all three, (B, T, 3, heads, d).
        keys_values: (B, T, 2, heads, d), T ≥ Q.
        bits: int16 (B, heads, Q, T), uniform: a weight is kept where they are at or above (p − ½)·2¹⁶.
        p: share of weights that is dropped.

    Returns:
        (B, Q, heads, d), of q's dtype.
    """
    return _Attend.apply(q, keys_values, bits, p)  # type: ignore[return-value]


class _Attend(torch.autograd.Function):
    """Weights are computed again in the backward pass: that is cheaper than to keep them."""

    @staticmethod
    def forward(ctx, q: Tensor, keys_values: Tensor | None, bits: Tensor | None, p: float) -> Tensor:
        q = q.contiguous()
        keys_values = None if keys_values is None else keys_values.contiguous()
        ctx.save_for_backward(q, keys_values, bits)
        ctx.p = p
        out = q.new_empty(q[:, :, 0].shape if keys_values is None else q.shape)
        _attend(_parts(q, keys_values), out, None, bits, p)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, keys_values, bits = ctx.saved_tensors
        slopes = torch.empty_like(q), None if keys_values is None else torch.empty_like(keys_values)
        _attend(_parts(q, keys_values), grad_outputs[0].contiguous(), _parts(*slopes), bits, ctx.p)
        return *slopes, None, None


def _parts(q: Tensor, keys_values: Tensor | None) -> tuple[Tensor, ...]:
    return q.unbind(2) if keys_values is None else (q, *keys_values.unbind(2))


def _attend(
    parts: tuple[Tensor, ...], out: Tensor, slopes: tuple[Tensor, ...] | None, bits: Tensor | None, p: float
) -> None:
    """Forward into `out`, or with the slope of that backward into `slopes`."""
    b, queries, heads, d = parts[0].shape
    where = [_Rows(x.data_ptr(), *x.stride()[:3]) for x in (*parts, out, *(slopes or ()))]
    drawn = None if bits is None else bits.data_ptr()

    def part(first: int, last: int) -> None:
        job = _Attention(*where, *[_Rows()] * (7 - len(where)), drawn, heads, first, last)
        job.queries, job.keys, job.d, job.half = queries, parts[1].shape[1], d, parts[0].dtype == torch.bfloat16
        job.least, job.scale, job.backward = least_kept(p), 1.0 / (1.0 - p), slopes is not None
        loaded().attention(ctypes.byref(job))

    list(shared(part, b * heads, 1))


def least_kept(p: float) -> int:
    """Of uniform int16, from which on an element is kept when a share p is dropped."""
    return round(p * 65536) - 32768


def loaded() -> ctypes.CDLL:
    found = library()
    assert found is not None, "callers ask first"
    return found


def _at(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def shared(work: Callable[[int, int], T], count: int, multiple: int) -> Iterator[T]:
    """`work` of consecutive shares of range(count), on as many threads as torch has; C lets go of Python's lock."""
    threads = torch.get_num_threads()
    if threads == 1 or count <= multiple:
        yield work(0, count)
        return
    each = -(-count // (threads * multiple)) * multiple
    bounds = [(first, min(first + each, count)) for first in range(0, count, each)]
    yield from _pool(threads).map(lambda bound: work(*bound), bounds)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="sprii-kernels")


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
