"""How the C library keeps the memory of tensors that are gone."""

import contextlib
import ctypes
import functools
import os
import platform

_TRIM, _MAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's `mallopt`."""


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next step; by default it hands large tensors back and faults them in again.

    For the rest of the process, and without effect where MALLOC_… or GLIBC_TUNABLES says otherwise.
    """
    told = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if platform.libc_ver()[0] == "glibc" and not told:
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MAP, 2**25)  # the most that every version takes
        mallopt(_TRIM, 2**31 - 1)


def hand_back_freed_memory() -> None:
    """Hand what glibc keeps to the system: parts of unlike sizes leave a heap full of holes, 10 MB a part."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
