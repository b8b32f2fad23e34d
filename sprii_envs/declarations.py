"""What the class of a world must declare, told in one sentence before anything is made of it; no physics runs here."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from sprii_envs import rendering
from sprii_envs.arguments import MANY, choice, integer, number, shown
from sprii_envs.checks import is_real
from sprii_envs.properties import PersistentProperties, SystemDistribution
from sprii_envs.world import World

FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "prepare": (("values",), "a tuple of arrays (N, ...) from property values (N, F)"),
        "update": (("prepared", "rows", "values"), "`prepared` with the constants of some rows replaced"),
        "initial": (("u", "values", "query"), "states (N, S) float64 from uniforms (N, start_draws)"),
        "force": (("action",), "forces (N, A) float64 of actions (N, A) float32"),
        "step": (("state", "force", "prepared"), "(states one step later (N, S) float64, a dict of the signals)"),
        "reward": (("state", "force", "after"), "rewards (N,) float64"),
        "end": (("after", "extras"), "an Ending"),
        "observe": (("state",), "observations (N, O) float32"),
        "constants_of_one": (("prepared",), "what step_one needs of the constants of one system"),
        "step_one": (("state", "action", "constants"), "(state (S,), reward, terminated, truncated, info) in numbers"),
        "observe_one": (("state",), "the numbers (O,) that observe rounds"),
        "patches": (("state", "size"), "a list of Patch"),
        "picture": (("state", "values", "size"), "(N, H, W, 3) uint8"),
    }
)
"""Functions of a world: how they are called, beside self, and what they return."""
ARGUMENTS = (
    *("id", "world", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "max_episode_steps"),
    *("disable_env_checker", "autoreset_mode", "obs_type", "render_mode", "system", "systems", "image_size"),
)
"""What gym.make, gym.make_vec and the constructors take: no constant may have such a name."""
_DECLARED = {*dir(World), *inspect.get_annotations(World)} - {"dt"}
_COLUMNS = ("states", "actions", "rewards", "frames", "outcome")
_OUTCOMES = ("", "ended")
_KINDS = {"b": "bool", "i": "int64", "u": "uint8", "f": "float64"}


def check_declarations(kind: type[World]) -> None:
    """ValueError naming the first declaration or function that `kind` lacks or that is not legal, and what is."""
    if not (isinstance(kind, type) and issubclass(kind, World)):
        of = f"; pass the class, {type(kind).__name__}" if isinstance(kind, World) else ""
        raise ValueError(f"world is {shown(kind)}; legal: a class derived from sprii_envs.world.World{of}")
    _check(kind)


@cache  # so that every environment after the first costs nothing
def _check(kind: type[World]) -> None:
    _check_dataclass(kind)
    if missing := [name for name in kind.required if inspect.getattr_static(kind, name, None) is None]:
        wanted = "; ".join(f"{name}: {_WANTED.get(name, 'see its page')}" for name in missing)
        raise ValueError(f"{kind.__name__} lacks {', '.join(missing)} ({wanted})")
    if missing := sorted(kind.__abstractmethods__):
        wanted = "; ".join(f"{_called(name)} returns {FUNCTIONS[name][1]}" for name in missing if name in FUNCTIONS)
        raise ValueError(f"{kind.__name__} lacks {', '.join(missing)}: {wanted}")
    for name, (arguments, _) in FUNCTIONS.items():
        _check_signature(kind, name, arguments)
    for name, rule in _RULES.items():
        found = inspect.getattr_static(kind, name, None)
        if found is not None and not hasattr(type(found), "__get__"):  # what a model declares waits for the model
            rule(f"{kind.__name__}.{name}", found)
    _check_together(kind)


def _check_dataclass(kind: type[World]) -> None:
    name = kind.__name__
    parameters = getattr(kind, "__dataclass_params__", None)
    if not dataclasses.is_dataclass(kind) or not getattr(parameters, "frozen", False):
        what = "a dataclass that can be changed" if parameters else "no dataclass"
        raise ValueError(f"{name} is {what}; legal: @dataclass(frozen=True, kw_only=True) above its class")
    if "__dataclass_fields__" not in vars(kind):
        own = [n for n, a in inspect.get_annotations(kind).items() if "ClassVar" not in str(a)]
        if own:
            raise ValueError(f"{name} annotates {own[0]!r} without @dataclass(frozen=True, kw_only=True) of its own")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in _DECLARED:
            raise ValueError(
                f"{name}.{field.name} is a field, which callers could change; legal: `{field.name}: ClassVar = …`, or "
                f"`{field.name} = …` without a type"
            )
        if field.name in ARGUMENTS:
            raise ValueError(f"{name}.{field.name}: gym.make has an argument of this name; call the constant otherwise")
        if field.init:
            if field.default is dataclasses.MISSING:
                raise ValueError(
                    f"{name}.{field.name} has no default; legal: a constant with one, as gym.make(id) takes"
                )
            _check_constant(f"{name}.{field.name}", field.default)


def _check_constant(name: str, value: Any) -> None:
    each = value if isinstance(value, tuple) else (value,)
    if not all(v is None or is_real(v) or isinstance(v, bool | str) for v in each):
        raise ValueError(f"{name} is {shown(value)}; legal: a number, a text, or a tuple of them, as snapshots record")


def _check_signature(kind: type[World], name: str, arguments: tuple[str, ...]) -> None:
    function = inspect.getattr_static(kind, name)
    if function is inspect.getattr_static(World, name):
        return
    function = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    own = arguments if isinstance(inspect.getattr_static(kind, name), staticmethod) else ("self", *arguments)
    try:
        inspect.signature(function).bind(*own)
    except (TypeError, ValueError):
        taken = inspect.signature(function) if callable(function) else shown(function)
        raise ValueError(f"{kind.__name__}.{name} is {name}{taken}; it is called as {_called(name)}") from None


def _called(name: str) -> str:
    return f"{name}({', '.join(FUNCTIONS[name][0])})"


def _check_together(kind: type[World]) -> None:
    name, properties = kind.__name__, kind.properties
    for group, of in kind.groups.items():
        if of.properties.names != properties.names:
            raise ValueError(
                f"{name}.groups[{group!r}] has the properties {of.properties.names}, {name} has {properties.names}"
            )
    if kind.obs_type == "pixels" and kind.patches is World.patches:
        raise ValueError(
            f"{name}.obs_type is 'pixels', and {name} has no {_called('patches')} to draw them; legal: state"
        )


def _words(name: str, value: Any, *, some: bool = False, but: tuple[str, ...] = ()) -> None:
    """A tuple of distinct, non-empty names."""
    if not isinstance(value, tuple) or (some and not value) or not all(isinstance(v, str) and v for v in value):
        one = "; one name is written (name,)" if isinstance(value, str) else ""
        raise ValueError(f"{name} is {shown(value)}; legal: a tuple of names{', at least one' * some}{one}")
    _distinct(name, value, but)


def _distinct(name: str, words: Iterable[str], but: tuple[str, ...]) -> None:
    words = list(words)
    if twice := [word for word in words if words.count(word) > 1]:
        raise ValueError(f"{name} has {twice[0]!r} {words.count(twice[0])} times; legal: distinct names")
    if taken := [word for word in words if word in but]:
        raise ValueError(f"{name} has {taken[0]!r}, which banks use themselves; legal: another name")


def _properties(name: str, value: Any) -> None:
    if not isinstance(value, PersistentProperties) or not len(value):
        raise ValueError(
            f"{name} is {shown(value)}; legal: PersistentProperties([PersistentProperty(…), …]) of at least one"
        )


def _groups(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and isinstance(of, SystemDistribution) for key, of in value.items()
    ):
        raise ValueError(f"{name} is {shown(value)}; legal: a mapping from names to SystemDistribution")


def _signals(name: str, value: Any) -> None:
    try:
        good = isinstance(value, Mapping) and all(
            isinstance(k, str) and np.dtype(d).kind in _KINDS for k, d in value.items()
        )
    except TypeError:
        good = False
    if not good:
        raise ValueError(f"{name} is {shown(value)}; legal: a mapping from names to {', '.join(_KINDS.values())}, …")
    _distinct(name, value, _COLUMNS)


_WANTED = {
    "properties": "PersistentProperties([PersistentProperty(…), …])",
    "state_names": 'a tuple of names, ("x", "y")',
    "action_size": "the number of components of an action",
    "start_draws": "how many uniforms `initial` reads",
    "model": "MJCF text, the path of a file, or GymnasiumModel(…)",
    "edits": "a mapping from properties to scale(…) or assign(…)",
}
_RULES: dict[str, Callable[[str, Any], Any]] = {
    "name": lambda name, value: _words(name, (value,) if isinstance(value, str) else value),
    "properties": _properties,
    "state_names": lambda name, value: _words(name, value, some=True),
    "state_limit": lambda name, value: number(name, value, above=0.0, most=1e300),
    "action_size": lambda name, value: integer(name, value, least=1, most=MANY),
    "start_draws": lambda name, value: integer(name, value, most=MANY),
    "queries": _words,
    "groups": _groups,
    "signals": _signals,
    "endings": lambda name, value: _words(name, value, but=_OUTCOMES),
    "packages": _words,
    "max_episode_steps": lambda name, value: integer(name, value, least=1),
    "obs_type": lambda name, value: choice(name, value, legal=("state", "pixels")),
    "image_size": lambda name, value: rendering.image_size(value),
    "dt": lambda name, value: number(name, value, above=0.0),
}
"""Declarations: what each may be. `dt` may be a field."""
