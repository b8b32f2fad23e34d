"""The extra that this package needs, and the one line that asks for it."""

import contextlib
import io
import sys
from collections.abc import Iterator

from sprii_envs import dependencies

PACKAGES = ("jax", "jaxmarl", "imageio", "pettingzoo", "safetensors")


def require() -> None:
    """PackageImportError, in one line, for packages of the extra `overcooked` that are missing or do not import."""
    with quiet():
        dependencies.require("Overcooked", "'sprii[overcooked]'", *PACKAGES)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what importing jaxmarl prints, and put back the streams that it replaces by the interpreter's."""
    kept = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # type: ignore[misc]
    try:
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = kept  # type: ignore[misc]
