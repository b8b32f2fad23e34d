"""The extra that this package needs, and the one line that asks for it."""

import contextlib
import importlib.util
import io
import sys
from collections.abc import Iterator

PACKAGES = ("jax", "jaxmarl", "pettingzoo", "safetensors")


def require() -> None:
    """ImportError, in one line, for packages of the extra `overcooked` that are missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"Overcooked needs {', '.join(missing)}: pip install 'sprii[overcooked]'")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what importing jaxmarl prints, and put back the streams that it replaces by the interpreter's."""
    kept = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # type: ignore[misc]
    try:
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = kept  # type: ignore[misc]
