"""Loops of training in C (`kernels.c`), compiled for this machine when first asked for and kept in the user's cache.

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

from sprii_envs.files import FileError, written_file

T = TypeVar("T")

SOURCE = (Path(__file__).parent / "kernels.c").read_text("utf-8")
LANES = 16
"""Floats of a vector in C."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they cannot be had."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if os.environ.get("SPRII_KERNELS") == "off" or compiler is None or os.name != "posix":
        return None
    processor = _processor()
    command = ["-O3", "-std=gnu11", "-shared", "-fPIC", *(["-march=native"] if processor else [])]
    key = hashlib.sha256("\n".join((SOURCE, compiler, *command, processor, platform.platform())).encode()).hexdigest()
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sprii"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = home / f"kernels-{key[:16]}.so"
        if not path.exists():
            with written_file(path) as part:
                run = [compiler, *command, "-x", "c", "-", "-o", str(part)]
                subprocess.run(run, input=SOURCE, text=True, capture_output=True, check=True, timeout=60)
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
        failed = _loaded().sigreg(
            _at(y), size(slices), size(n), size(columns), size(first), size(last), len(weight), ctypes.c_float(h),
            _at(weight), _at(phi), int(sloped), _at(held), ctypes.byref(statistic),
        )  # fmt: skip
        return None if failed else statistic.value

    parts = list(_shared(part, columns, LANES))
    return None if None in parts else sum(value for value in parts if value is not None)


def _loaded() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "callers ask `fits` first"
    return loaded


def _at(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def _shared(work: Callable[[int, int], T], count: int, multiple: int) -> Iterator[T]:
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
