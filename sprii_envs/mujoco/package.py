"""The package `mujoco`, imported when a model is first needed, and the threads that step models with it."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from sprii_envs.dependencies import needed


def mujoco(who: str) -> Any:
    """The package `mujoco`; PackageImportError, saying who needs it, where it is missing or does not import."""
    with needed(f"{who} needs MuJoCo", "mujoco", "mujoco"):
        try:
            import mujoco
        except Exception:  # MUJOCO_GL may name a library of graphics that is not here; physics needs none
            with _no_graphics():
                import mujoco
        import mujoco.rollout

        mujoco.rollout.Rollout  # noqa: B018  (an older MuJoCo lacks flags that are used here)
    return mujoco


@contextmanager
def _no_graphics() -> Iterator[None]:
    chosen = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        if chosen is None:
            del os.environ["MUJOCO_GL"]
        else:
            os.environ["MUJOCO_GL"] = chosen


def threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def workers(process: int, count: int) -> ThreadPoolExecutor:
    """Threads beside the caller's; one pool a process, as a fork leaves its parent's threads behind."""
    return ThreadPoolExecutor(count, thread_name_prefix="sprii-mujoco")
