"""Labels of systems that have no id of their own, and the rollouts of a system counted."""

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

_LONGEST = 200
"""Characters of a spelt value; a longer one is told by its digest: all rows of a column are as wide as the widest."""


def system_label(values: Mapping[str, Any]) -> str:
    """Values spelt out, "mass=1.0, drag=0.5": one label for equal values (−0.0 and 0.0 too), and for no others.

    Arrays and lists are spelt to the last bit, long ones as the SHA-256 of that. ValueError naming a value that is or
    holds NaN.
    """
    return ", ".join(f"{key}={spelt(value, repr(key))}" for key, value in values.items())


def spelt(value: Any, name: str) -> str:
    """One value as `system_label` spells it; ValueError with `name` for NaN."""
    text = _exact(value, name)
    return text if len(text) <= _LONGEST else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _exact(value: Any, name: str) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's own repr has 8 digits and leaves some out
    if isinstance(value, float):
        if value != value:
            raise ValueError(f"a system whose {name} is NaN cannot be grouped with others")
        return repr(value + 0.0)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_exact(part, name) for part in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_exact(part, name)}' for key, part in value.items())}}}"
    return repr(value)


def count_rollouts(systems: Iterable[Hashable]) -> list[int]:
    """How many episodes of the same system came before each."""
    seen: dict[Hashable, int] = {}
    numbers = []
    for system in systems:
        numbers.append(seen.get(system, 0))
        seen[system] = numbers[-1] + 1
    return numbers
