"""For every test: one thread a process, compiled kitchens that are kept, a heap that is not looked through again."""

import gc
import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # also of processes that tests start
    os.environ.setdefault(_name, "1")

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sprii-tests"
for _name, _value in (
    ("JAX_COMPILATION_CACHE_DIR", str(_CACHE / "jax")),
    ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05"),
    ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
    ("JAX_DISABLE_MOST_OPTIMIZATIONS", "1"),  # kitchens of a few steps take longer to compile than to run
):  # a compiled function is looked up by its program, flags, version and machine
    os.environ.setdefault(_name, _value)


gc.disable()  # a collection makes no garbage, and looking for it is a third of its time


def pytest_collection_finish() -> None:
    """What the collection made stays: no garbage to look through, and fewer pages for a forked process to copy."""
    gc.collect()
    gc.freeze()
    gc.enable()
