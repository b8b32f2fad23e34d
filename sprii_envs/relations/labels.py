"""Labels of systems that have no id of their own, and the rollouts of a system counted."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any


def system_label(values: Mapping[str, Any]) -> str:
    """Values spelt out, "mass=1.0, drag=0.5": equal values give equal labels, −0.0 and 0.0 too."""
    return ", ".join(f"{key}={value + 0.0 if isinstance(value, float) else value!r}" for key, value in values.items())


def count_rollouts(systems: Iterable[Hashable]) -> list[int]:
    """How many episodes of the same system came before each."""
    seen: dict[Hashable, int] = {}
    numbers = []
    for system in systems:
        numbers.append(seen.get(system, 0))
        seen[system] = numbers[-1] + 1
    return numbers
