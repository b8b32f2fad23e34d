"""What a bank records of the world that made it, and in what the world of that name differs by now.

The constants with their defaults and the declarations, and of classes that are not this package's a digest of their
code: as Python has compiled it, with the functions, classes and values of one's own that it names. Comments and
formatting do not count, nor does code of another version of Python, which is compiled otherwise.
"""

import dataclasses
import dis
import hashlib
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from importlib.util import resolve_name
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from sprii_envs.banks import simulate
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.storage import BankError, Manifest
from sprii_envs.properties import PersistentProperties
from sprii_envs.world import World

_OURS = ("sprii_envs", "sprii_train")
_PYTHON = f"of Python {sys.version_info[0]}.{sys.version_info[1]}"
_TOLD = {"properties", "state_names", "action_size", "signals", "endings", "name", "dt"}
_HARMLESS = {"max_episode_steps", "obs_type", "image_size"}


def describe(world: World) -> dict[str, Any]:
    """A world in JSON values. Of this package's, which have versions, the constants and properties only."""
    kind = type(world)
    told = {
        "name": world.name,
        "dt": float(world.dt),
        "constants": {f.name: _plain(getattr(world, f.name)) for f in dataclasses.fields(kind) if f.init},  # type: ignore[arg-type]
        **_declared(world.properties),
    }
    if _top(kind) in _OURS:
        return told
    return told | {
        "state_names": list(world.state_names),
        "action_size": int(world.action_size),
        "start_draws": int(world.start_draws),
        "signals": {name: np.dtype(dtype).str for name, dtype in world.signals.items()},
        "endings": list(world.endings),
        "sources": dict(world.sources),
        "code": {_PYTHON: digest(kind)},
    }


def recipe(protocol: BankProtocol, world: World) -> dict[str, Any]:
    """`describe` with the code of the protocol's own behaviours and populations: what decides the bytes of a bank."""
    kinds = {type(each) for each in protocol.recorded if _top(type(each)) not in _OURS}
    code = {kind.__qualname__: digest(kind) for kind in sorted(kinds, key=lambda kind: kind.__qualname__)}
    return describe(world) | {"behaviour code": {_PYTHON: code}}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Where what was recorded differs from what is: 'constants power: 3.0, now 4.0'; empty if nowhere.

    What was not recorded, and constants that are new, do not count.
    """
    here = dict(_flat({name: now[name] for name in then if name in now}))
    there = dict(_flat(then))
    told = []
    for path in {**there, **here}:
        was, has = there.get(path), here.get(path)
        both = path in there and path in here
        if was == has or (path not in there and path[0] == "constants"):
            continue
        if path[0].endswith("code") or path[0] == "properties":  # whose names are told, other Pythons' code is not
            if both:
                told.append(f"the {path[0]} is another" if path[0].endswith("code") else _one(path, was, has))
        else:
            told.append(_one(path, was, has))
    return "; ".join(told)


def _one(path: tuple[str, ...], was: Any, has: Any) -> str:
    return f"{' '.join(path)}: {was!r}, now {has!r}"


def recorded(manifest: Manifest) -> Mapping[str, Any]:
    """What a bank's manifest tells of its world: of banks that are older than this record, the properties."""
    return _declared(manifest.properties) if manifest.world is None else manifest.world


def remade(manifest: Manifest, path: Any) -> World:
    """The world that made a bank, with the constants that it had; BankError where the class is another by now."""
    then = {name: told for name, told in recorded(manifest).items() if name != "behaviour code"}
    protocol = manifest.protocol
    try:
        constants = {name: _value(value) for name, value in then.get("constants", {}).items()}
        world = simulate.world(protocol.replace(constants={**constants, **protocol.constants}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BankError(f"{path}: the world of this bank cannot be made: {error}") from error
    if differ := differences(then, describe(world)):
        raise BankError(
            f"{path}: {world.name} is not the world that made this bank any more ({differ}); what is recorded can be "
            "read, but nothing can be simulated or drawn: go back to that class, or build the bank anew"
        )
    return world


def digest(kind: type) -> str:
    """SHA-256 of a class's code: its own functions and values, and those of one's own that they name."""
    return _Code(kind).digest()


def _declared(properties: PersistentProperties) -> dict[str, Any]:
    numbers = ("low", "high", "nominal", "scale", "physical_low", "physical_high")
    return {
        "property names": list(properties.names),
        "properties": {p.name: {name: _plain(getattr(p, name)) for name in numbers} for p in properties},
    }


def _plain(value: Any) -> Any:
    """A constant in JSON values; JSON has no infinity."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    value = value.item() if isinstance(value, np.generic) else value
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return float(value["float"])
    return tuple(map(_value, value)) if isinstance(value, list) else value


def _flat(told: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in told.items():
        if isinstance(value, Mapping) and set(value) != {"float"}:
            yield from _flat(value, (*path, name))
        else:
            yield (*path, name), _value(value)


def _top(kind: type) -> str:
    return kind.__module__.partition(".")[0]


class _Code:
    """A walk through the code that a class runs; functions and classes are told once, in the order they are met."""

    def __init__(self, kind: type) -> None:
        self._own = _top(kind)
        self._numbers: dict[int, int] = {}
        self._waiting: list[Any] = []
        self._kept: list[Any] = []  # so that no other object gets the id of one that was met
        self._text = [self._of(kind)]

    def digest(self) -> str:
        for value in self._waiting:  # grows meanwhile
            self._text.append(self._class(value) if isinstance(value, type) else self._function(value))
        return hashlib.sha256("\n".join(self._text).encode()).hexdigest()

    def _of(self, value: Any) -> str:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"{value.dtype.str}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, CodeType):
            consts = ", ".join(map(self._of, value.co_consts))
            parts = value.co_flags, value.co_argcount, value.co_names, value.co_freevars, value.co_cellvars
            return f"{parts} {value.co_code.hex()} {value.co_exceptiontable.hex()} ({consts})"
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, tuple | list):
            return f"{type(value).__name__}({', '.join(map(self._of, value))})"
        if isinstance(value, set | frozenset):
            return f"set({', '.join(sorted(map(self._of, value)))})"
        if isinstance(value, Mapping):
            return f"({', '.join(f'{self._of(k)}: {self._of(v)}' for k, v in value.items())})"
        if isinstance(value, staticmethod | classmethod | MethodType):
            return self._of(value.__func__)
        if isinstance(value, property):
            return self._of((value.fget, value.fset))
        if isinstance(value, cached_property):
            return self._of(value.func)
        if isinstance(value, partial):
            return self._of((value.func, value.args, value.keywords))
        return self._object(value)

    def _object(self, value: Any) -> str:
        """A function, a class or any other object, by a number and, when it is met first, by what it is."""
        if (number := self._numbers.get(id(value))) is not None:
            return f"#{number}"
        of = value if isinstance(value, FunctionType | type) else type(value)
        if of is value and self._foreign(of.__module__):
            return f"{of.__module__}.{of.__qualname__}"
        label = of.__qualname__  # a module that runs as a script has another name
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        if of is value:
            self._waiting.append(value)
            return label
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # of a cache, of a compiler
            return f"{label} {self._of(wrapped)}"
        told = f"{self._of(of)} {getattr(value, '__name__', '')}"
        if self._foreign(of.__module__) and not dataclasses.is_dataclass(of):
            return told  # others hold what is no code
        return f"{told} {self._of(getattr(value, '__dict__', {}))}"

    def _class(self, kind: type) -> str:
        bases = ", ".join(map(self._of, kind.__bases__))
        constants = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
        skipped = constants | _HARMLESS | (_TOLD if issubclass(kind, World) else set())
        parts = [
            f"{name} {self._of(member)}"
            for name, member in sorted(vars(kind).items())
            if name not in skipped and name != "_abc_impl" and (not name.startswith("__") or _is_written(member))
        ]
        return "\n".join([bases, *parts])

    def _function(self, function: FunctionType) -> str:
        code, outer = function.__code__, function.__globals__
        if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        parts = [self._of(code), self._of(function.__defaults__), self._of(function.__kwdefaults__ or {})]
        for cell in function.__closure__ or ():
            try:
                parts.append(self._of(cell.cell_contents))
            except ValueError:  # not assigned yet
                parts.append("empty")
        names = dict.fromkeys(_names(function.__code__))
        for name in names:
            found = outer.get(name)
            if isinstance(found, ModuleType) and not self._foreign(found.__name__):
                parts += self._of_module(name, found, names, [])
            elif name in outer:
                parts.append(f"{name} {self._of(found)}")
        for name in _imported(function.__code__, outer):
            if not self._foreign(name):
                with suppress(Exception):  # told when it is run
                    parts += self._of_module(name, import_module(name), names, [])
        return "\n".join(parts)

    def _of_module(self, label: str, module: ModuleType, names: Mapping[str, None], met: list[ModuleType]) -> list[str]:
        """What code that names these takes of a module of one's own, and of the modules in it."""
        met.append(module)
        parts = []
        for each in (name for name in names if name in vars(module)):
            found = vars(module)[each]
            if isinstance(found, ModuleType) and not self._foreign(found.__name__):
                if found not in met:
                    parts += self._of_module(f"{label}.{each}", found, names, met)
            else:
                parts.append(f"{label}.{each} {self._of(found)}")
        return parts

    def _foreign(self, module: str) -> bool:
        """Whether code counts by its name: of this package, the standard library and other installed packages."""
        top = module.partition(".")[0]
        if top == self._own or top == "__main__":
            return False
        file = getattr(sys.modules.get(top), "__file__", None) or ""
        return top in _OURS or top in sys.stdlib_module_names or "site-packages" in file or "dist-packages" in file


def _is_written(member: Any) -> bool:
    """Whether a special method was written by hand: what a dataclass makes follows from its fields."""
    made = ("__repr__", "__annotate__", "__annotate_func__")
    return isinstance(member, FunctionType) and member.__name__ not in made and (
        member.__code__.co_filename != "<string>"
    )  # fmt: skip


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _imported(code: CodeType, outer: Mapping[str, Any]) -> list[str]:
    """Modules that code and the code in it import when they run."""
    found = dict[str, None]()
    before: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            with suppress(ImportError, TypeError, IndexError):  # the level and the names stand before it
                found[resolve_name("." * before[-2] + instruction.argval, outer.get("__package__"))] = None
        before.append(instruction.argval)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found |= dict.fromkeys(_imported(const, outer))
    return list(found)
