"""Killing a writer at every call of the system that it makes, one after the other, in forked children."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

_CALLS = ("open", "replace", "rename", "mkdir", "fsync", "unlink", "rmdir", "posix_fallocate", "ftruncate")


def kills(prepare: Callable[[Path], None], write: Callable[[Path], None], root: Path, every: int = 1) -> Iterator[Path]:
    """The folders in which a `write` was killed, after a `prepare` that was not; in the last it came to its end."""
    for kill_at in range(1, 10_000, every):
        folder = root / str(kill_at)
        prepare(folder)
        if not (child := os.fork()):
            status = 1  # whatever is raised here must not go on in the parent's program
            try:
                _kill(kill_at)
                write(folder)
                status = 0
            finally:
                os._exit(status)
        ended = os.waitpid(child, 0)[1]
        assert ended in (0, signal.SIGKILL), ended
        yield folder
        if not ended:
            return


def _kill(kill_at: int) -> None:
    left = [kill_at]

    def counted(call):
        def wrapper(*args, **kwargs):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    for name in _CALLS:
        if hasattr(os, name):
            setattr(os, name, counted(getattr(os, name)))
