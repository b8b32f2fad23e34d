"""Populations: which systems a split of a bank holds, as pure functions of (properties, generator).

A population is a frozen dataclass of JSON values with a `count` of systems and `draw`. Levels of a property are
given by their values, or by their number, evenly spaced over its range on its own scale, both ends included.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import MANY, check, integer, integers, numbers
from sprii_envs.banks.kinds import Registry, Unregistered
from sprii_envs.properties import Array, PersistentProperties, SystemDistribution

Levels = Mapping[str, int | Sequence[float]]
"""Property → number of levels or their values; every property is named."""


class Drawn(NamedTuple):
    """n systems."""

    values: Array
    """(n, F) float64."""
    levels: NDArray[np.int64]
    """(n, F): index of each value among the levels of its property, −1 off them."""
    group: NDArray[np.str_]
    """(n,): the name of its part of a `Union`, otherwise ""."""


class Population(Protocol):
    """What a protocol asks of a population."""

    kind: ClassVar[str]
    """Its name in JSON."""

    @property
    def count(self) -> int:
        """Number of systems."""
        ...

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """The systems, distinct; the same generator state gives the same ones."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Systems drawn independently from the declared ranges, each property uniform on its scale."""

    kind: ClassVar[str] = "uniform"
    count: int

    def __post_init__(self) -> None:
        check(self, integer, "count", least=1, most=MANY)

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`."""
        values = SystemDistribution(properties).from_uniforms(rng.random((self.count, len(properties))))
        return _drawn(values, np.full(values.shape, -1))


@dataclass(frozen=True)
class Combinations:
    """Every combination of levels (i, j, …) with (i + j + …) mod `modulus` among `residues`, in that order."""

    kind: ClassVar[str] = "combinations"
    levels: Levels
    modulus: int = 1
    residues: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _frozen(self.levels))
        check(self, integers, "residues")
        check(self, integer, "modulus", least=1)
        if not self.residues or not set(self.residues) <= set(range(self.modulus)):
            raise ValueError(f"residues must be among 0…{self.modulus - 1}, got {self.residues}")
        integer("number of combinations", self.count, least=1)

    @property
    def count(self) -> int:
        """Number of systems."""
        return len(self._chosen(tuple(self.levels)))

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`; draws no random numbers."""
        return _at_levels(_values(self.levels, properties), self._chosen(properties.names))

    def _chosen(self, names: Sequence[str]) -> NDArray[np.int64]:
        every = _grid([_number(self.levels[name]) for name in names])
        return every[np.isin(every.sum(axis=1) % self.modulus, self.residues)]


@dataclass(frozen=True)
class Interpolated:
    """One property midway (on its scale) between two neighbouring levels, the others at levels drawn at random.

    `each` distinct systems for every property and every interval between its levels.
    """

    kind: ClassVar[str] = "interpolated"
    levels: Levels
    each: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _frozen(self.levels))
        check(self, integer, "each", least=1)
        _check_each(self.each, self.levels)
        if self.count < 1:
            raise ValueError("interpolated systems need a property with at least 2 levels")
        for name, levels in self.levels.items():
            if not isinstance(levels, int) and list(levels) not in (sorted(levels), sorted(levels, reverse=True)):
                raise ValueError(f"levels of {name!r} are {levels}; legal: in order, so that neighbours are neighbours")

    @property
    def count(self) -> int:
        """Number of systems."""
        return self.each * sum(_number(levels) - 1 for levels in self.levels.values())

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`."""
        values = _values(self.levels, properties)
        parts = []
        for column, p in enumerate(properties):
            low, high = values[column][:-1], values[column][1:]
            for middle in np.sqrt(low * high) if p.scale == "log" else (low + high) / 2.0:
                parts.append(_off_level(values, column, float(middle), self.each, rng))
        return concatenate(parts)


@dataclass(frozen=True)
class Extrapolated:
    """One property at a given value beyond its range, the others at levels drawn at random.

    `each` distinct systems for every one of `beyond`: property → values.
    """

    kind: ClassVar[str] = "extrapolated"
    levels: Levels
    beyond: Mapping[str, Sequence[float]]
    each: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _frozen(self.levels))
        beyond = {name: tuple(map(float, numbers(f"beyond {name!r}", v))) for name, v in self.beyond.items()}
        object.__setattr__(self, "beyond", beyond)
        check(self, integer, "each", least=1)
        if not set(self.beyond) <= set(self.levels):
            raise ValueError(f"beyond names {sorted(set(self.beyond) - set(self.levels))}, which have no levels")
        _check_each(self.each, self.levels, self.beyond)
        integer("number of values beyond the ranges", self.count, least=1)
        if any(len(set(values)) != len(values) for values in self.beyond.values()):
            raise ValueError(f"beyond names a value twice: {self.beyond}")

    @property
    def count(self) -> int:
        """Number of systems."""
        return self.each * sum(map(len, self.beyond.values()))

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`; ValueError for a value that is not beyond the range."""
        values = _values(self.levels, properties)
        parts = []
        for column, p in enumerate(properties):
            for value in self.beyond.get(p.name, ()):
                if p.low <= value <= p.high:
                    raise ValueError(f"property {p.name!r}: {value} is not beyond the range [{p.low:g}, {p.high:g}]")
                parts.append(_off_level(values, column, value, self.each, rng))
        return concatenate(parts)


@dataclass(frozen=True)
class FactorialBlocks:
    """A share of a full factorial design: some levels of the last property in each block of the others.

    In the block (i, j, …) of the earlier properties the levels l of the last one, of which there are L, are turned
    by a frozen offset, p = (l − offset) mod L, and those with p in `first`…`last` − 1 belong. The offset is
    ⌊i·L/I⌋ + ⌊j·L/J⌋ + …, for I, J, … levels, which spreads every level of the last property as evenly as whole
    numbers allow over the levels of each other one (`app:poke-profile`).
    """

    kind: ClassVar[str] = "factorial_blocks"
    levels: Levels
    first: int
    last: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _frozen(self.levels))
        check(self, integer, "first", "last")
        numbers = [_number(levels) for levels in self.levels.values()]
        if len(numbers) < 2 or not 0 <= self.first < self.last <= numbers[-1]:
            raise ValueError(
                f"factorial blocks need two properties or more and 0 ≤ first < last ≤ levels of the last one, got "
                f"{dict(self.levels)}, {self.first} and {self.last}"
            )

    @property
    def count(self) -> int:
        """Number of systems."""
        blocks = math.prod(_number(levels) for levels in self.levels.values()) // _number([*self.levels.values()][-1])
        return blocks * (self.last - self.first)

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`; draws no random numbers. ValueError if `levels` is in another order."""
        if tuple(self.levels) != properties.names:
            raise ValueError(f"factorial blocks need levels in the order of {properties.names}, got {self.levels}")
        values = _values(self.levels, properties)
        *earlier, turned = [len(v) for v in values]
        every = _grid([*earlier, turned])
        offset = sum(every[:, column] * turned // number for column, number in enumerate(earlier))
        position = (every[:, -1] - offset) % turned
        return _at_levels(values, every[(position >= self.first) & (position < self.last)])


@dataclass(frozen=True)
class Union:
    """Named groups of systems, one after the other; the name is kept with every system."""

    kind: ClassVar[str] = "union"
    groups: Mapping[str, Population]

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", dict(self.groups))
        if not self.groups or not all(isinstance(name, str) and name for name in self.groups):
            raise ValueError(f"a union needs named groups, got {list(self.groups)}")
        if any(isinstance(group, Union) for group in self.groups.values()):
            raise ValueError("a group of a union cannot be a union")

    @property
    def count(self) -> int:
        """Number of systems."""
        return sum(group.count for group in self.groups.values())

    def draw(self, properties: PersistentProperties, rng: np.random.Generator) -> Drawn:
        """See `Population.draw`; the groups draw from the generator in their order."""
        parts = [group.draw(properties, rng) for group in self.groups.values()]
        names = np.repeat(list(self.groups), [len(part.values) for part in parts])
        return concatenate(parts)._replace(group=names)


KINDS = Registry(
    "population",
    (Uniform, Combinations, Interpolated, Extrapolated, FactorialBlocks, Union),
    fact="count",
    method="draw",
)


def to_dict(population: Population | Unregistered) -> dict[str, Any]:
    """`population` as JSON values, with its `kind`."""
    if isinstance(population, Unregistered):
        return dict(population.recorded)
    data: dict[str, Any] = {}
    for field in dataclasses.fields(population):  # pyright: ignore[reportArgumentType]
        value = getattr(population, field.name)
        if field.name == "groups":
            value = {name: to_dict(group) for name, group in value.items()}
        if isinstance(value, Mapping):  # a list, because the order can count
            value = [[name, list(v) if isinstance(v, tuple) else v] for name, v in value.items()]
        data[field.name] = list(value) if isinstance(value, tuple) else value
    return KINDS.record(population, data)


def from_dict(data: Mapping[str, Any], *, unknown: bool = False) -> Population:
    """The population that `to_dict` wrote; ValueError for another kind or other fields.

    With `unknown`, a stand-in for a population of a class that is not registered here.
    """
    if unknown:
        return KINDS.known(data, lambda: _from_dict(data, unknown), to_dict)
    return _from_dict(data, unknown)


def _from_dict(data: Mapping[str, Any], unknown: bool) -> Population:
    cls, fields = KINDS.parse(data)
    for name in ("levels", "beyond", "groups"):
        if name in fields:
            fields[name] = dict(fields[name])
    if "groups" in fields:
        fields["groups"] = {name: from_dict(group, unknown=unknown) for name, group in fields["groups"].items()}
    return cls(**fields)


def concatenate(parts: Sequence[Drawn]) -> Drawn:
    """The systems of all parts, in order."""
    return Drawn(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _frozen(levels: Levels) -> dict[str, Any]:
    """Levels with plain Python numbers; ValueError for none or for one twice."""
    frozen: dict[str, Any] = {}
    for name, given in levels.items():
        if not isinstance(given, tuple | list):
            frozen[name] = integer(f"number of levels of {name!r}", given, least=1)
        else:
            frozen[name] = tuple(map(float, numbers(f"levels of {name!r}", given)))
            if not frozen[name] or len(set(frozen[name])) != len(frozen[name]):
                raise ValueError(f"levels of {name!r} must be distinct numbers, at least one, got {given}")
    if not frozen:
        raise ValueError("levels must name every property, got none")
    return frozen


def _number(levels: int | Sequence[float]) -> int:
    return levels if isinstance(levels, int) else len(levels)


def _values(levels: Levels, properties: PersistentProperties) -> list[Array]:
    """The values of the levels of each property; ValueError unless every property is named."""
    if set(levels) != set(properties.names):
        raise ValueError(f"levels must name exactly the properties {properties.names}, got {tuple(levels)}")
    values = []
    for p in properties:
        given = levels[p.name]
        if isinstance(given, int):
            spaced = p.from_uniform(np.linspace(0.0, 1.0, given))
            spaced[1:][-1:] = p.high  # not one rounding error off it
            values.append(spaced)
        else:
            values.append(np.array(given, np.float64))
    return values


def _grid(numbers: Sequence[int]) -> NDArray[np.int64]:
    """Every tuple of indices below `numbers`, the last one fastest: (product, F)."""
    return np.indices(numbers).reshape(len(numbers), -1).T


def _at_levels(values: Sequence[Array], levels: NDArray[np.int64]) -> Drawn:
    return _drawn(np.stack([v[i] for v, i in zip(values, levels.T, strict=True)], axis=1), levels)


def _off_level(values: Sequence[Array], column: int, value: float, each: int, rng: np.random.Generator) -> Drawn:
    """`each` distinct systems with one property at `value` and the others at random levels."""
    numbers = [1 if i == column else len(v) for i, v in enumerate(values)]
    chosen = rng.choice(math.prod(numbers), each, replace=False)
    at = _at_levels(values, np.stack(np.unravel_index(chosen, numbers), axis=1))
    at.values[:, column], at.levels[:, column] = value, -1
    return at


def _drawn(values: Array, levels: ArrayLike) -> Drawn:
    return Drawn(values, np.array(levels, np.int64), np.full(len(values), ""))


def _check_each(each: int, levels: Levels, of: Iterable[str] | None = None) -> None:
    """`each` systems must exist: beside each of some properties, by default of all, the others need as many levels."""
    count = {name: _number(value) for name, value in levels.items()}
    for name in count if of is None else of:
        if each > (most := math.prod(count.values()) // count[name]):
            raise ValueError(f"each = {each}, but beside {name!r} there are only {most} combinations of levels")
