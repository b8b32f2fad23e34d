"""Text on the terminal: names from files and from users are printed as they are, whatever brackets they have."""

import contextlib
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import TextIO

from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """A console that reads no markup and no codes of emoji, 120 columns wide where nothing usable says how wide."""
    stream = sys.__stderr__ if stderr else sys.__stdout__
    width, height = size("COLUMNS", stream), size("LINES", stream)
    return Console(stderr=stderr, width=width, height=height, markup=False, emoji=False, highlight=False)


def size(name: str, stream: TextIO | None) -> int:
    """$COLUMNS or $LINES as far as text can be laid out in it; the terminal's own where that is no number above 0."""
    with contextlib.suppress(KeyError, ValueError):
        if (given := int(os.environ[name])) > 0:
            return min(max(given, 20), 1_000)
    with contextlib.suppress(AttributeError, ValueError, OSError):  # no stream, a closed one, or no terminal
        own = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]
        if (found := own.columns if name == "COLUMNS" else own.lines) > 0:
            return found
    return 120 if name == "COLUMNS" else 40


def ends_with_its_reader(command: Callable[[], None]) -> Callable[[], None]:
    """The command, which ends quietly with status 1 when the reader of its stdout has gone, as in `| head`."""

    @wraps(command)
    def run() -> None:
        try:
            command()
        except BrokenPipeError:
            if _is_read("\n"):  # another pipe has broken
                raise
            sys.exit(1)
        finally:
            if not _is_read(""):
                sys.exit(1)

    return run


def _is_read(text: str) -> bool:
    """Whether stdout takes a text and all that was written before; if not, it takes everything from now on."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return False
    return True
