"""Classes that a protocol records by the name of their kind, so that whoever reads its JSON can make them again.

Each is a frozen dataclass of JSON values. Who does not know a kind that was registered elsewhere reads its bank all the
same, with a stand-in that keeps what was recorded.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Unregistered:
    """Stands for a behaviour or population of a class that is not registered here: its bank can be read, not built."""

    recorded: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its name in JSON."""
        return self.recorded["kind"]

    @property
    def episode_kinds(self) -> tuple[str, ...]:
        """Of a behaviour."""
        return tuple(self.recorded["episode_kinds"])

    @property
    def count(self) -> int:
        """Of a population."""
        return self.recorded["count"]

    def policy(self, *_: object) -> NoReturn:
        """ValueError saying what is missing."""
        raise ValueError(f"nothing of the kind {self.kind!r} is registered here: {advice(self.kind)}")

    draw = policy


def advice(kind: object) -> str:
    """What to do about a kind that is not known."""
    return f"sprii_envs.banks.register(TheClass) makes a class with `kind = {kind!r}` known"


class Registry(dict[str, type[Any]]):
    """Kind → class.

    Args:
        noun: what they are, for messages.
        classes: those of this package.
        fact: an attribute that is recorded of instances of other classes, for readers without the class.
        method: what instances do.
    """

    def __init__(self, noun: str, classes: Iterable[type[Any]], fact: str, method: str) -> None:
        super().__init__({cls.kind: cls for cls in classes})
        self.noun, self.fact, self.method = noun, fact, method
        self._ours = frozenset(self)

    def register(self, cls: type[Any]) -> None:
        """Add a class; ValueError for one that cannot be recorded, or whose kind is another's."""
        kind = getattr(cls, "kind", None)
        if not (dataclasses.is_dataclass(cls) and isinstance(kind, str) and kind and hasattr(cls, self.fact)):
            raise ValueError(
                f"{cls.__name__} must be a frozen dataclass with `{self.fact}` and a `kind`, its name in JSON; its "
                f"kind is {kind!r}"
            )
        held = self.get(kind, cls)
        # A module or a notebook's cell that runs again defines the same class anew.
        if (held.__module__, held.__qualname__) != (cls.__module__, cls.__qualname__):
            place = f"{held.__module__}.{held.__qualname__}"
            raise ValueError(f"the {self.noun} kind {kind!r} is that of {place} already; choose another name")
        self[kind] = cls

    def check(self, value: object) -> None:
        """ValueError for what is no such thing at all."""
        names = ("kind", self.fact, self.method)
        if isinstance(value, type) or not dataclasses.is_dataclass(value) or not all(hasattr(value, n) for n in names):
            wanted = ", ".join(f"`{name}`" for name in names)
            raise ValueError(f"a {self.noun} must be an instance of a frozen dataclass with {wanted}, got {value!r}")

    def record(self, value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The kind of `value` and its fields, with its fact if a reader may not know its class."""
        fact = {} if value.kind in self._ours else {self.fact: getattr(value, self.fact)}
        return {"kind": value.kind, **fact, **fields}

    def parse(self, data: Mapping[str, Any]) -> tuple[type[Any], dict[str, Any]]:
        """The class of what was recorded, and its fields; ValueError if the class is unknown or has others."""
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind not in self:
            raise ValueError(f"unknown {self.noun} kind {kind!r}; known: {', '.join(sorted(self))}; {advice(kind)}")
        expected = {field.name for field in dataclasses.fields(self[kind])}
        if kind not in self._ours and self.fact not in expected:
            fields.pop(self.fact, None)
        if set(fields) != expected:
            raise ValueError(f"{self.noun} {kind!r} needs exactly {sorted(expected)}, got {sorted(fields)}")
        return self[kind], fields

    def known(self, data: Mapping[str, Any], make: Callable[[], Any], to_dict: Callable[[Any], dict[str, Any]]) -> Any:
        """What `make` gives, or a stand-in where the class that was recorded is not the one registered here, if any."""
        if data.get("kind") in self._ours or self.fact not in data:
            return make()
        with contextlib.suppress(Exception):  # of a class that has changed
            value = make()
            if json.loads(json.dumps(to_dict(value))) == data:
                return value
        return Unregistered(data)
