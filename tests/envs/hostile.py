"""What no caller means, for each argument of a callable: one clear error, or it is legal."""

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 0.5, float("nan"), float("inf"), -1e308, 1j),
    *("", "no such", "\0", "x" * 5000, b"bytes", "\ud800"),
    *((), [], {}, {1: 2}, [[]], {"a": float("nan")}, object(), int, lambda: None),
    *(np.array([]), np.array([np.nan]), np.array("x"), np.zeros((2, 0)), np.array([1], object), np.float32("nan")),
)


def modules(package: ModuleType) -> list[str]:
    """Importable by name, without those that start programs."""
    found = [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in (package.__name__, *found) if not name.rsplit(".", 1)[-1].startswith("_")]


def constructors(package: ModuleType) -> dict[str, type]:
    """Classes of ours that anything can be made of without arguments: their defaults are what is varied."""
    found = {}
    for name in modules(package):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for attribute, kind in vars(module).items():
            ours = inspect.isclass(kind) and kind.__module__ == name and not attribute.startswith("_")
            if not ours or inspect.isabstract(kind) or issubclass(kind, BaseException):
                continue
            try:
                kind()
            except Exception:
                continue
            found[f"{name}.{attribute}"] = kind
    return found


def told(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:
        return "?"


def attempts(
    make: Callable[..., Any], names: Iterable[str], counts: Counter[str], values: Iterable[Any] = HOSTILE
) -> list[str]:
    """What is not one clear line of a ValueError, or of a TypeError that names the argument."""
    wrong = []
    for name in names:
        for value in values:
            counts["tried"] += 1
            try:
                make(**{name: value})
            except (ValueError, TypeError, OSError) as error:  # the last of names that no file can have
                if isinstance(error, TypeError) and not str(error).startswith(name):  # Python's own
                    wrong.append(f"{name}={told(value)}: TypeError: {error!s:.160}")
                counts["refused"] += 1
                if "\n" in str(error) or not str(error):
                    wrong.append(f"{name}={told(value)}: not one line: {str(error)!r:.200}")
            except Exception as error:
                wrong.append(f"{name}={told(value)}: {type(error).__name__}: {error!s:.160}")
            else:
                counts["legal"] += 1
    return wrong


def parameters(function: Any) -> list[str]:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.name != "self"]
