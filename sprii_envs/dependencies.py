"""Packages that only parts of the library need: an absent one is told apart from one that does not import."""

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.error import DependencyNotInstalled

_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "lance": "pylance"}
"""Import name → name that pip knows, where they differ."""


class PackageImportError(DependencyNotInstalled, ImportError):
    """A package is absent, or is installed and fails to import; says which, why, and what to install."""


@contextmanager
def needed(what: str, pip: str, *packages: str) -> Iterator[None]:
    """Import packages in the block, whatever they fail with.

    Args:
        what: who needs what, as in `Swimmer needs MuJoCo`.
        pip: arguments of `pip install`.
        packages: top-level names that are imported.

    Raises:
        PackageImportError: from the original exception.
    """
    try:
        yield
    except PackageImportError:
        raise
    except Exception as error:  # a broken binary fails with OSError, mismatched versions with AttributeError, …
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if missing in packages and is_absent(missing):
            raise PackageImportError(f"{what}: pip install {pip}") from error
        # pip adds what an installed package lacks, and replaces what does not work only when it is forced to
        mend = "pip install" if missing and missing not in packages else "pip install --force-reinstall"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PackageImportError(
            f"{what}, which is installed but fails to import ({mend} {pip} may mend it): {reason}"
        ) from error


def require(who: str, pip: str, *packages: str) -> None:
    """Import the packages by their top-level names.

    Raises:
        PackageImportError: naming every one that is absent, or the first that fails to import.
    """
    if absent := [package for package in packages if is_absent(package)]:
        names = ", ".join(_DISTRIBUTIONS.get(package, package) for package in absent)
        raise PackageImportError(f"{who} needs {names}: pip install {pip}")
    for package in packages:
        with needed(f"{who} needs {package}", pip, package):
            importlib.import_module(package)


def is_absent(package: str) -> bool:
    """Whether there is no such top-level package; one that does not import is there."""
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:
        return True
    except (ImportError, ValueError):  # refused by a finder, or already imported without a spec
        return False
