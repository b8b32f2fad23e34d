"""The JAX device that games and networks are computed on, and where its programs are kept."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from sprii_envs.arguments import integer


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Compute on the device of that name in the block: `cpu`, `cuda`, or one of several, `cuda:1`.

    Raises:
        ValueError: at once, for one that JAX does not know or this machine lacks.
    """
    kind, _, number = name.partition(":")
    try:
        device = jax.devices(kind or "none")[integer("device", int(number or 0))]
    except (RuntimeError, IndexError, ValueError):
        there = dict.fromkeys(("cpu", *(f"{_KINDS.get(d.platform, d.platform)}:{d.id}" for d in jax.devices())))
        legal = ", ".join(each for each in there if each != "cpu:0")
        raise ValueError(f"device is {name!r}, which cannot be used here; legal: {legal}") from None
    with jax.default_device(device):
        yield


def keep_programs(folder: Path) -> None:
    """Compiled programs of this process lie under the folder, where the next process finds them.

    Every source is measured in a process of its own, which would spend more on compiling than on playing. Machines
    differ in what their programs may use, so that each has its own.
    """
    for name, value in {
        "jax_compilation_cache_dir": str(folder / platform.node()),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }.items():
        jax.config.update(name, value)


_KINDS = {"gpu": "cuda"}
