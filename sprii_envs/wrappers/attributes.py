"""Numbers inside an object, by paths such as "length", "model.opt.gravity[2]" or "model.geom_friction[0, 1]"."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sprii_envs.arguments import shown
from sprii_envs.checks import is_integer, is_real

_STEP = re.compile(r"([A-Za-z_]\w*)(?:\[(\s*-?\d+\s*(?:,\s*-?\d+\s*)*)\])?")


@dataclass(frozen=True)
class Attribute:
    """One number of an object: names joined by dots, each with an index if it is an array.

    ValueError for what is no such path.
    """

    path: str

    def __post_init__(self) -> None:
        """Read the path."""
        if not isinstance(self.path, str) or not all(_STEP.fullmatch(step) for step in self.path.split(".")):
            raise ValueError(
                f"the path of an attribute is {self.path!r}; legal: names joined by dots, with an index where there is "
                'an array, as "length", "model.opt.gravity[2]"; anything else is for a function'
            )

    @cached_property
    def _steps(self) -> list[Any]:
        """Names and indices, in order."""
        steps: list[Any] = []
        for name, index in _STEP.findall(self.path):
            steps.append(name)
            if index:
                steps.append(tuple(int(i) for i in index.split(",")))
        return steps

    def get(self, of: Any) -> float:
        """The number; ValueError if there is no such attribute, or it is no number."""
        value = self._follow(of, self._steps)
        if isinstance(value, bool | np.bool_) or not is_real(value):
            raise ValueError(f"the attribute {self.path!r} of {_kind(of)} is {value!r}, and no number")
        return float(value)

    def whole(self, of: Any) -> bool:
        """Whether it is an integer now."""
        return is_integer(self._follow(of, self._steps))

    def put(self, of: Any, value: float) -> float:
        """Write a number; what the attribute keeps of it, which may be rounded to float32.

        ValueError if it cannot be written, or is kept as another number.
        """
        *before, last = self._steps
        holder = self._follow(of, before)
        try:
            if isinstance(last, str):
                setattr(holder, last, value)
            else:
                holder[last if len(last) > 1 else last[0]] = value
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            said = "it is an integer" if self.whole(of) else _said(error)
            raise ValueError(
                f"the attribute {self.path!r} of {_kind(of)} cannot be set to {value!r}: {said}"
            ) from error
        kept = self.get(of)
        if kept not in (value, float(np.float32(value))):
            raise ValueError(f"the attribute {self.path!r} of {_kind(of)} keeps {kept!r} where {value!r} was written")
        return kept

    def _follow(self, of: Any, steps: list[Any]) -> Any:
        found = of
        try:
            for step in steps:
                found = getattr(found, step) if isinstance(step, str) else found[step if len(step) > 1 else step[0]]
        except (AttributeError, TypeError, IndexError, KeyError) as error:
            raise ValueError(f"{_kind(of)} has no attribute {self.path!r}: {error}") from error
        return found


def _kind(of: Any) -> str:
    return type(of).__name__


def _said(error: Exception) -> str:
    """The first line of an error: pybind's go on for pages."""
    return shown(str(error).partition("\n")[0])[1:-1]
