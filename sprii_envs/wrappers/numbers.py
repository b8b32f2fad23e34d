"""The numbers an environment holds, by path, to tell what a function has changed.

Followed are attributes, dictionaries, lists and tuples, and of MuJoCo its models; not its `MjData`, which every reset
overwrites, nor generators of random numbers.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

Numbers = dict[str, NDArray[Any]]

_OBJECTS = 10_000
"""At most so many objects are looked into, and items of one list."""
_SIZE = 10**7
"""Larger arrays are left out, such as buffers of frames."""
_OPAQUE = (str, bytes, type, ModuleType, FunctionType, MethodType, EnvSpec, Enum)
_OPAQUE += (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def numbers(of: Any) -> Numbers:
    """Every number and numeric array reachable from an object, copied."""
    found: Numbers = {}
    queue, seen = deque([("", of)]), {id(of): of}  # held, so that no id is given out twice
    for kind in reversed(type(of).__mro__):  # constants of the class, which a function may write too
        _sort(((name, value) for name, value in vars(kind).items() if _is_number(value)), found, deque(), seen)
    while queue and len(seen) < _OBJECTS:
        path, value = queue.popleft()
        _sort(_parts(path, value), found, queue, seen)
    return found


def changed(before: Numbers, after: Numbers) -> list[str]:
    """Paths of what is another number or has another shape; a NaN is one number. Paths of one alone do not count."""
    return [path for path, value in before.items() if path in after and not _same(value, after[path])]


def _sort(
    parts: Iterator[tuple[str, Any]], found: Numbers, queue: deque[tuple[str, Any]], seen: dict[int, Any]
) -> None:
    for path, value in parts:
        if _is_number(value):
            found[path] = np.array(value)
        elif not isinstance(value, _OPAQUE) and value is not None and id(value) not in seen:
            seen[id(value)] = value
            queue.append((path, value))


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc" and value.size <= _SIZE
    return isinstance(value, bool | float | complex | np.number | np.bool_) or (
        isinstance(value, int) and not isinstance(value, Enum) and abs(value) < 2**63
    )


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", part) for key, part in list(value.items())[:_OBJECTS])
    elif isinstance(value, list | tuple | deque):
        yield from ((f"{path}[{i}]", part) for i, part in zip(range(_OBJECTS), value, strict=False))
    elif type(value).__module__.startswith("mujoco.") and type(value).__name__ in _MODEL:
        for name in dir(value):
            if not name.startswith("_"):
                part = getattr(value, name, None)
                if _is_number(part) or type(part).__name__ in _MODEL:
                    yield f"{path}.{name}", part
    elif hasattr(value, "__dict__"):
        yield from ((f"{path}.{name}".lstrip("."), part) for name, part in list(vars(value).items()))


_MODEL = ("MjModel", "MjOption", "MjStatistic")


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
