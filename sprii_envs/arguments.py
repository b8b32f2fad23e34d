"""What an argument or a dataclass field may be: one rule and one sentence for each kind of value.

A number is what `checks` takes for one: a Python or NumPy number, no bool, text, array or tensor. NumPy's become
Python's, so that equal configs are equal in JSON, which identifies runs.

    check(self, integer, "steps", "pairs", least=1)                    # of a dataclass, in __post_init__
    episodes = integer("episodes", episodes, least=1)                  # of a function

Every rule raises ValueError: name, value, what is legal.
"""

import contextlib
import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.checks import is_integer, reals, whole

MOST = 2**31 - 1
WORKERS = 4096
"""At most so many processes, threads or jobs at once."""
MANY = 10**6
"""At most so many of what is held in memory, such as steps of an episode, episodes of a system, or candidates."""
WORD = 2**64 - 1
"""The largest seed and step of the random streams of `relations`, and of what counts as far."""
LARGEST = float(np.finfo(np.float32).max)


def check(config: Any, rule: Callable[..., Any], *names: str, optional: bool = False, **legal: Any) -> None:
    """Apply a rule to fields of a dataclass, frozen or not, and keep what it returns; `optional` ones may be None."""
    for name in names:
        value = getattr(config, name)
        if not (optional and value is None):
            object.__setattr__(config, name, rule(f"{type(config).__name__}.{name}", value, **legal))


def integer(name: str, value: Any, *, least: int = 0, most: int = MOST) -> int:
    """An integer in [least, most]."""
    if is_integer(value) and least <= int(value) <= most:
        return int(value)
    raise _refusal(name, value, f"an integer >= {least}, at most {most}")


def option(*, least: int = 1, most: int = MANY) -> Callable[[str], int]:
    """A `type` of `argparse`: an integer in [least, most], refused as `integer` refuses."""

    def read(text: str) -> int:
        try:
            return integer("it", int(text), least=least, most=most)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


def check_seed(value: Any, name: str = "seed") -> int | None:
    """A seed of an environment or None; NumPy's own, which environments draw where none is given, have 128 bits."""
    return None if value is None else integer(name, value, most=2**128 - 1)


def number(
    name: str,
    value: Any,
    *,
    least: float = -LARGEST,
    most: float = LARGEST,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """A number in [least, most], or (above, …, below); by default one that float32 can hold."""
    plain = int(value) if is_integer(value) else float(value) if isinstance(value, float | np.floating) else np.nan
    if least <= plain <= most and (above is None or plain > above) and (below is None or plain < below):
        return plain
    low = f">= {least:g}" if above is None else f"> {above:g}"
    if below is None and most == LARGEST:
        raise _refusal(name, value, "a finite number" + ("" if low == f">= {-LARGEST:g}" else f" {low}"))
    first, last = ("[", least) if above is None else ("(", above), (most, "]") if below is None else (below, ")")
    raise _refusal(name, value, f"a number in {first[0]}{first[1]:g}, {last[0]:g}{last[1]}")


def integers(name: str, value: Any, *, least: int = 0, most: int = MOST, some: bool = False) -> tuple[int, ...]:
    """A tuple of integers, of a tuple or list; not empty if `some`."""
    return _each(integer, "integers", name, value, some, least=least, most=most)


def numbers(name: str, value: Any, *, some: bool = False, **legal: Any) -> tuple[float, ...]:
    """A tuple of numbers, of a tuple or list; `legal` as of `number`, not empty if `some`."""
    return _each(number, "numbers", name, value, some, **legal)


def real_array(name: str, value: Any, *, least: float = -math.inf) -> NDArray[np.float64]:
    """Finite numbers of any shape."""
    with contextlib.suppress(TypeError):
        found = reals(value)
        if bool((np.isfinite(found) & (found >= least)).all()):
            return found
    raise _refusal(name, value, "finite numbers" + (f" >= {least:g}" if least > -math.inf else ""))


def integer_array(name: str, value: Any, *, least: int = 0) -> NDArray[np.int64]:
    """Integers of any shape."""
    with contextlib.suppress(TypeError):
        found = whole(value)
        if bool((found >= least).all()):
            return found
    raise _refusal(name, value, f"integers >= {least}")


def choice(name: str, value: Any, *, legal: Iterable[str]) -> str:
    """One of some words."""
    if isinstance(value, str) and value in legal:
        return str(value)
    raise _refusal(name, value, ", ".join(legal))


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _refusal(name, value, "True, False")


def instance(name: str, value: Any, *, of: type | tuple[type, ...]) -> Any:
    """A value of one of some types."""
    if isinstance(value, of):
        return value
    raise _refusal(name, value, " or ".join(kind.__name__ for kind in (of if isinstance(of, tuple) else (of,))))


def shown(value: Any) -> str:
    """A value in one line of bounded length."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python prints no integers of thousands of digits
        text = f"an {type(value).__name__} too long to print"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _each(rule: Callable[..., Any], kind: str, name: str, value: Any, some: bool, **legal: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or (some and not value):
        raise _refusal(name, value, f"a tuple of {kind}" + (", at least one" if some else ""))
    return tuple(rule(f"{name}[{i}]", item, **legal) for i, item in enumerate(value))


def _refusal(name: str, value: Any, legal: str) -> ValueError:
    return ValueError(f"{name} is {shown(value)}; legal: {legal}")
