"""What stays fixed in a system: its persistent properties, where they are drawn from, and sets of systems.

A *persistent property* is a named physical quantity that is drawn once per *system* and stays fixed in every
episode of it. Values are float64 throughout; arrays of them have shape (N, F): N systems, F properties in
declaration order.
"""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import choice, integer
from sprii_envs.checks import is_integer, is_real, reals, whole

Array = NDArray[np.float64]


def unknown_name(kind: str, name: object, legal: Iterable[str]) -> ValueError:
    """The error for a misspelt name: says what was given, the nearest legal name, and all legal names."""
    legal = list(legal)
    folded = {each.lower(): each for each in legal}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {folded[near[0]]!r}?" if near else ";"
    listed = f"legal names: {', '.join(legal)}" if legal else "there are none"
    return ValueError(f"unknown {kind} {name!r}{hint} {listed}")


class UnknownKey(ValueError, KeyError):
    """`unknown_name` where a mapping is asked: a ValueError, and the KeyError that every user of a mapping expects."""

    __str__ = Exception.__str__  # a KeyError's is the message's repr


@dataclass(frozen=True, slots=True)
class PersistentProperty:
    """One named physical quantity that stays fixed in every episode of a system.

    `low` and `high` bound the range systems are drawn from; values beyond it are legal (extrapolation) as
    long as they are physical, that is in [`physical_low`, `physical_high`], where `physical_low_open`
    excludes the lower end. `unit` is "1" for a pure number.
    """

    name: str
    symbol: str
    unit: str
    low: float
    high: float
    nominal: float
    scale: Literal["linear", "log"] = "linear"
    physical_low: float = 0.0
    physical_high: float = math.inf
    physical_low_open: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse a declaration that contradicts itself."""
        choice(f"scale of property {self.name!r}", self.scale, legal=("linear", "log"))
        for label in ("low", "high", "nominal", "physical_low", "physical_high"):
            if not is_real(value := getattr(self, label)):
                raise ValueError(f"property {self.name!r}: {label} must be a number, got {value!r}")
            if isinstance(value, np.generic):  # JSON has Python's numbers
                object.__setattr__(self, label, value.item())
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"property {self.name!r}: need finite low < high, got [{self.low}, {self.high}]")
        if self.scale == "log" and self.low <= 0.0:
            raise ValueError(f"property {self.name!r}: a log scale needs low > 0, got {self.low}")
        for label, value in (("low", self.low), ("high", self.high), ("nominal", self.nominal)):
            if not self.is_physical(value):
                raise ValueError(f"property {self.name!r}: {label} = {value} is not {self.domain}")

    @property
    def domain(self) -> str:
        """The physical domain in words, for messages and tables."""
        low = f"{'>' if self.physical_low_open else '≥'} {self.physical_low:g}"
        if math.isfinite(self.physical_high):
            low += f" and ≤ {self.physical_high:g}"
        return f"a finite number {low}"

    def is_physical(self, value: ArrayLike) -> Any:
        """Whether each value lies in the physical domain; bool for a scalar, a bool array otherwise."""
        v = reals(value)
        above = v > self.physical_low if self.physical_low_open else v >= self.physical_low
        result = np.isfinite(v) & above & (v <= self.physical_high)
        return bool(result) if result.ndim == 0 else result

    def from_uniform(self, u: ArrayLike) -> Array:
        """Map uniforms in [0, 1) to the range, on the property's scale (linear or logarithmic)."""
        u = reals(u)
        if self.scale == "log":
            return np.minimum(self.low * (self.high / self.low) ** u, self.high)
        return self.low + (self.high - self.low) * u

    def to_uniform(self, value: ArrayLike) -> Array:
        """The inverse of `from_uniform`: 0 at `low`, 1 at `high`, outside [0, 1] beyond the range."""
        value = reals(value)
        if self.scale == "log":
            with np.errstate(divide="ignore"):
                return np.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class PersistentProperties(Sequence[PersistentProperty]):
    """The persistent properties of one environment, in a fixed order. Printable as a table; immutable."""

    __slots__ = ("_all", "_index", "names")

    names: tuple[str, ...]

    def __init__(self, properties: Iterable[PersistentProperty]) -> None:
        """Collect properties; names must be unique."""
        self._all = tuple(properties)
        for p in self._all:
            if not isinstance(p, PersistentProperty):
                raise ValueError(f"properties must be PersistentProperty declarations, got {p!r}")
        self.names = tuple(p.name for p in self._all)
        self._index = {name: i for i, name in enumerate(self.names)}
        if len(self._index) != len(self._all):
            raise ValueError(f"property names must be unique, got {self.names}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value."""
        return PersistentProperties, (self._all,)

    def __len__(self) -> int:
        """Number of properties, F."""
        return len(self._all)

    @overload
    def __getitem__(self, key: int | str) -> PersistentProperty: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[PersistentProperty]: ...
    def __getitem__(self, key: int | str | slice) -> PersistentProperty | Sequence[PersistentProperty]:
        """A property by position or by name; an unknown name is a ValueError with the nearest legal one."""
        return self._all[self.index(key) if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[PersistentProperty]:
        """Properties in declaration order."""
        return iter(self._all)

    def __contains__(self, item: object) -> bool:
        """Membership by name or by property."""
        return item in self._index if isinstance(item, str) else item in self._all

    def __eq__(self, other: object) -> bool:
        """Equal declarations in equal order."""
        return isinstance(other, PersistentProperties) and self._all == other._all

    def __hash__(self) -> int:
        """Hash of the declarations."""
        return hash(self._all)

    def __repr__(self) -> str:
        """Constructor form."""
        return f"PersistentProperties({list(self._all)!r})"

    def __str__(self) -> str:
        """A table, one property a row."""
        rows = [("name", "symbol", "unit", "range", "scale", "nominal", "physical domain")]
        rows += [
            (p.name, p.symbol, p.unit, f"[{p.low:g}, {p.high:g}]", p.scale, f"{p.nominal:g}", p.domain)
            for p in self._all
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Column of a property, by name or by property; ValueError with the nearest legal name if unknown."""
        name = value.name if isinstance(value, PersistentProperty) else value
        column = self._index.get(name) if isinstance(name, str) else None
        if column is None or not start <= column < (len(self) if stop is None else stop):
            raise unknown_name("property", name, self.names)
        return column

    @property
    def low(self) -> Array:
        """Lower ends of the ranges, (F,) float64."""
        return np.array([p.low for p in self._all], np.float64)

    @property
    def high(self) -> Array:
        """Upper ends of the ranges, (F,) float64."""
        return np.array([p.high for p in self._all], np.float64)

    @property
    def nominal(self) -> Array:
        """Nominal values, (F,) float64."""
        return np.array([p.nominal for p in self._all], np.float64)

    def system(self, *, id: str | None = None, **values: float) -> "System":
        """The nominal system with the named values changed: `properties.system(drag=2.0)`."""
        full = dict(zip(self.names, self.nominal.tolist(), strict=True))
        for name, value in values.items():
            self.index(name)
            full[name] = value
        return System(self.mapping(self.array(full)), id=id)

    def mapping(self, vector: ArrayLike) -> dict[str, float]:
        """Name → value, from one row (F,)."""
        return dict(zip(self.names, reals(vector).tolist(), strict=True))

    def array(self, values: "ArrayLike | Mapping[str, float] | System") -> Array:
        """One system's values as a new float64 row (F,), checked.

        Accepts a `System`, a mapping that names every property, or a row. Raises ValueError naming the
        property, the value and the legal range for unknown or missing names, wrong shapes, unphysical values.
        """
        values = by_name(values)
        if isinstance(values, Mapping):
            self._check_names(values)
            row = np.empty(len(self), np.float64)
            for i, p in enumerate(self._all):
                row[i] = self._number(p.name, values[p.name], ())
        else:
            row = self._floats(values)
            if row.shape != (len(self),):
                raise self._not_one(row.shape)
        return self.validate(row[None])[0]

    def batch(self, values: ArrayLike | Mapping[str, ArrayLike], n: int | None) -> Array:
        """Values of n systems as a new float64 array (n, F), checked as in `array`.

        Accepts a mapping of every name to a scalar or an (n,) array, one row (F,) for all, or an (n, F)
        array. Without n, a mapping is of as many systems as its longest array has. A data frame is a mapping.
        """
        values = by_name(values)
        if isinstance(values, Mapping):
            self._check_names(values)
            if n is None:
                n = max(self._floats(value, f"property {name!r}").size for name, value in values.items())
            out = np.empty((n, len(self)), np.float64)
            for i, p in enumerate(self._all):
                out[:, i] = self._number(p.name, values[p.name], (n,))
        else:
            given = self._floats(values)
            n = len(given) if n is None and given.ndim == 2 else n or 1
            if given.shape not in ((len(self),), (n, len(self))):
                if n == 1:
                    raise self._not_one(given.shape)
                raise ValueError(
                    f"systems for {n} slots with properties {self.names} have shape ({n}, {len(self)}) "
                    f"or ({len(self)},), got {given.shape}"
                )
            out = np.broadcast_to(given, (n, len(self))).copy()
        return self.validate(out)

    def validate(self, values: Array) -> Array:
        """Return `values` (N, F) unchanged, or raise ValueError naming the first unphysical one."""
        for i, p in enumerate(self._all):
            good = np.atleast_1d(p.is_physical(values[:, i]))
            if not good.all():
                row = int(np.argmin(good))
                where = f" (system {row})" if len(values) > 1 else ""
                raise ValueError(
                    f"property {p.name!r} = {float(values[row, i])!r}{where} is not physical: it must be "
                    f"{p.domain}, in {p.unit} (training range [{p.low:g}, {p.high:g}])"
                )
        return values

    def extrapolated(self, values: Array) -> NDArray[np.bool_]:
        """Whether any property of each system (N, F) lies outside its declared range; (N,) bool.

        A billionth of the range is tolerated: a level computed as 0.1·3 is at 0.3, not beyond it.
        """
        slack = 1e-9 * (self.high - self.low)
        return np.any((values < self.low - slack) | (values > self.high + slack), axis=1)

    def to_space(self, kind: Literal["box", "dict"] = "box") -> spaces.Box | spaces.Dict:
        """The declared ranges as a `gymnasium.spaces.Box` of shape (F,) or a `Dict` of scalars, float64."""
        if kind == "box":
            return spaces.Box(self.low, self.high, dtype=np.float64)
        if kind == "dict":
            return spaces.Dict({p.name: spaces.Box(p.low, p.high, (), np.float64) for p in self._all})
        raise ValueError(f"kind must be 'box' or 'dict', got {kind!r}")

    def _check_names(self, values: Mapping[str, Any]) -> None:
        for name in values:
            self.index(name)
        missing = [name for name in self.names if name not in values]
        if missing:
            raise ValueError(
                f"property {missing[0]!r} is missing: a system names every property of {self.names}; "
                f"`persistent_properties.system(...)` fills in nominal values"
            )

    def _not_one(self, shape: tuple[int, ...]) -> ValueError:
        return ValueError(f"a system is one value for each of {self.names}: shape ({len(self)},), got {shape}")

    @classmethod
    def _levels(cls, values: ArrayLike, what: str) -> tuple[float, ...]:
        """Levels of a property."""
        found = cls._floats(values, what)
        if found.ndim != 1:
            raise ValueError(f"{what}: levels have shape {found.shape}; legal: a list of numbers")
        return tuple(found.tolist())

    @staticmethod
    def _floats(values: ArrayLike, what: str = "a system") -> Array:
        """A new array."""
        try:
            return np.array(reals(values))
        except TypeError as e:
            raise ValueError(f"{what} is given by numbers, got {values!r}") from e

    @staticmethod
    def _number(name: str, value: Any, shape: tuple[int, ...]) -> Array:
        expected = f"a number or shape {shape}" if shape else "one number"
        try:
            number = reals(value)
        except TypeError as e:
            raise ValueError(f"property {name!r} must be {expected}, got {value!r}") from e
        if number.shape not in ((), shape):
            raise ValueError(f"property {name!r} must be {expected}, got shape {number.shape}")
        return number


class _Values(Mapping[str, float]):
    """What `values` of a system is: `system.values["mass"]`, and `system.values()` as of every mapping. Read-only."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def __call__(self) -> ValuesView[float]:
        return self._values.values()

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class System(Mapping[str, float]):
    """One system: an id and a mapping of its persistent properties to values. Immutable, hashable, picklable.

    A system without a given id is named by its content: equal values have equal ids, everywhere. Systems are equal if
    ids, values, splits and levels are. `split` and `levels` (index of each value in the bank's list of levels) are set
    when it comes from a bank.
    """

    __slots__ = ("id", "levels", "split", "values")  # pyright: ignore[reportIncompatibleMethodOverride]

    id: str
    values: _Values
    split: str | None
    levels: tuple[int, ...] | None

    def __init__(
        self,
        values: Mapping[str, float],
        *,
        id: str | None = None,
        split: str | None = None,
        levels: Iterable[int] | None = None,
    ) -> None:
        """Keep a read-only copy of the values."""
        if not isinstance(values, Mapping):
            raise ValueError(f"a system is a mapping of property names to numbers, got {values!r}")
        copied: dict[str, float] = {}
        for name, value in values.items():
            number = PersistentProperties._number(name, value, ())
            copied[str(name)] = float(number)
        if id is None:
            row = np.array([list(copied.values())], np.float64)
            id = str(content_ids(tuple(copied), row)[0])
        object.__setattr__(self, "id", str(id))
        object.__setattr__(self, "values", _Values(copied))
        object.__setattr__(self, "split", split)
        object.__setattr__(self, "levels", None if levels is None else tuple(_levels(list(levels)).tolist()))

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a system never changes."""
        raise AttributeError(f"a System is immutable; use replace({name}=...) for a changed copy")

    def __delattr__(self, name: str) -> None:
        """Refuse: a system never changes."""
        raise AttributeError("a System is immutable")

    def __getitem__(self, name: str) -> float:
        """The value of a property; an error that is a ValueError and a KeyError, with the nearest name, if unknown."""
        if name not in self.values:
            raise UnknownKey(unknown_name("property", name, self.values))
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        """Property names in declaration order."""
        return iter(self.values)

    def __len__(self) -> int:
        """Number of properties, F."""
        return len(self.values)

    def __contains__(self, name: object) -> bool:
        """Whether there is a property of this name."""
        return name in self.values

    def replace(self, **values: float) -> "System":
        """A system that differs in the named values only, named by its content."""
        for name in values:
            self[name]
        return System({**self.values, **values})

    def vector(self) -> Array:
        """Values in declaration order, new (F,) float64."""
        return np.array(list(self.values.values()), np.float64)

    def _state(self) -> tuple[Any, ...]:
        return dict(self.values), self.id, self.split, self.levels

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value."""
        return _make_system, self._state()

    def __eq__(self, other: object) -> bool:
        """Same id, values, split and levels."""
        return isinstance(other, System) and self._state() == other._state()

    def __hash__(self) -> int:
        """Hash of id and values."""
        return hash((self.id, tuple(self.values.items())))

    def __repr__(self) -> str:
        """Id and values."""
        extra = "" if self.split is None else f", split={self.split!r}"
        extra += "" if self.levels is None else f", levels={self.levels!r}"
        return f"System({dict(self.values)!r}, id={self.id!r}{extra})"


def by_name(values: Any) -> Any:
    """What holds values under names, such as a row or columns of a data frame, as a mapping; all else as it is."""
    if isinstance(values, Mapping | np.ndarray | System | SystemSet) or not hasattr(values, "__getitem__"):
        return values
    names = values.columns if hasattr(values, "columns") else values.keys() if hasattr(values, "keys") else None
    return values if names is None else {str(name): values[name] for name in names}


def _levels(levels: ArrayLike) -> NDArray[np.int64]:
    """Indices of levels as a new array."""
    try:
        return whole(levels)
    except TypeError as e:
        raise ValueError(f"levels must be integers, got {levels!r}") from e


def _labels(labels: Any, name: str) -> NDArray[np.str_]:
    """Names as a new array; ValueError for what is neither text nor integers."""
    if isinstance(labels, list | tuple):  # of which NumPy makes "nan" of a missing one, and "1" of 1
        kinds = {str if isinstance(each, str) else int if is_integer(each) else type(each) for each in labels}
        if not kinds <= {str} and not kinds <= {int}:
            raise ValueError(f"{name} must be text, all of it, got {labels!r}")
    given = np.asarray(labels)
    mixed = given.dtype.kind == "O" and all(isinstance(each, str) for each in given.flat)
    if not (given.dtype.kind in "UTiu" or given.size == 0 or mixed) or isinstance(labels, np.ma.MaskedArray):
        raise ValueError(f"{name} must be text, got {labels!r}")
    return given.astype(np.str_)


def _make_system(values: dict[str, float], id: str, split: str | None, levels: tuple[int, ...] | None) -> System:
    return System(values, id=id, split=split, levels=levels)


class SystemSet(Sequence[System]):
    """N systems as arrays: `ids` (N,) str, `values` (N, F) float64, optional `split` (N,), `levels` (N, F).

    Ids are unique; the arrays are read-only. Index by position or id for a `System`, by slice, boolean mask
    or index array for a smaller set.
    """

    __slots__ = ("_rows", "ids", "levels", "properties", "split", "values")

    properties: PersistentProperties
    ids: NDArray[np.str_]
    values: Array
    split: NDArray[np.str_] | None
    levels: NDArray[np.int64] | None

    def __init__(
        self,
        properties: PersistentProperties | Iterable[PersistentProperty],
        values: ArrayLike,
        *,
        ids: Sequence[str] | NDArray[np.str_] | None = None,
        split: Sequence[str] | NDArray[np.str_] | str | None = None,
        levels: ArrayLike | None = None,
    ) -> None:
        """Check and copy; ids default to content ids, so equal values twice need explicit ids."""
        if not isinstance(properties, PersistentProperties):
            properties = PersistentProperties(properties)
        self.properties = properties
        values = by_name(values)
        given = properties.batch(values, None) if isinstance(values, Mapping) else properties._floats(values)
        if given.ndim != 2 or given.shape[1] != len(properties):
            raise ValueError(
                f"SystemSet values for properties {properties.names} have shape (N, {len(properties)}), "
                f"got {given.shape}"
            )
        self.values = properties.validate(given)
        n = len(given)
        self.ids = content_ids(properties.names, given) if ids is None else _labels(ids, "ids")
        if isinstance(split, str):
            split = [split] * n
        self.split = None if split is None else _labels(split, "split")
        self.levels = None if levels is None else _levels(levels)
        for name, array, shape in (
            ("ids", self.ids, (n,)),
            ("split", self.split, (n,)),
            ("levels", self.levels, given.shape),
        ):
            if array is not None and array.shape != shape:
                raise ValueError(f"SystemSet {name} must have shape {shape}, got {array.shape}")
            if array is not None:
                array.flags.writeable = False
        self.values.flags.writeable = False
        self._rows = {id: row for row, id in enumerate(self.ids.tolist())}
        if len(self._rows) != n:
            unique, counts = np.unique(self.ids, return_counts=True)
            raise ValueError(
                f"system ids must be unique, {str(unique[counts.argmax()])!r} occurs {counts.max()} times "
                "(ids default to a hash of the values: give `ids=` for systems with equal values)"
            )

    @classmethod
    def from_values(
        cls,
        properties: PersistentProperties | Iterable[PersistentProperty],
        values: Mapping[str, ArrayLike],
        **kwargs: Any,
    ) -> "SystemSet":
        """A set from one array per property: `SystemSet.from_values(properties, {"drag": [0.5, 1.0]})`."""
        if not isinstance(properties, PersistentProperties):
            properties = PersistentProperties(properties)
        return cls(properties, properties.batch(values, None), **kwargs)

    @classmethod
    def from_systems(cls, properties: PersistentProperties, systems: Iterable[System]) -> "SystemSet":
        """A set from single systems; split and levels are kept when every system has them."""
        systems = list(systems)
        splits = [s.split for s in systems]
        levels = [s.levels for s in systems]
        rows = [properties.array(s) for s in systems]
        return cls(
            properties,
            np.array(rows, np.float64).reshape(len(rows), len(properties)),
            ids=[s.id for s in systems],
            split=None if None in splits else [str(s) for s in splits],
            levels=None if None in levels else np.array(levels).reshape(len(rows), len(properties)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Property names, the columns of `values`."""
        return self.properties.names

    def column(self, name: str) -> Array:
        """All values of one property, (N,), read-only."""
        return self.values[:, self.properties.index(name)]

    def row(self, id: str) -> int:
        """Position of the system with this id; ValueError with the nearest id if there is none."""
        row = self._rows.get(id)
        if row is None:
            near = difflib.get_close_matches(str(id), self._rows, n=1, cutoff=0.0) if len(self) <= 5000 else []
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown system id {id!r} in a set of {len(self)} systems{hint}")
        return row

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Position of a system, or of an id; ValueError if it is not there."""
        row = self.row(value.id if isinstance(value, System) else value)
        if row not in range(len(self))[start:stop] or (isinstance(value, System) and self[row] != value):
            raise ValueError(f"{value!r} is not in the set")
        return row

    def rows(self, ids: Iterable[str]) -> NDArray[np.int64]:
        """Positions of several ids, (n,) int64."""
        return np.array([self.row(str(id)) for id in ids], np.int64)

    def subset(self, split: str) -> "SystemSet":
        """The systems of one split; ValueError with the nearest name if the split does not exist."""
        if self.split is None or split not in self.split:
            raise unknown_name("split", split, [] if self.split is None else np.unique(self.split).tolist())
        return self[self.split == split]

    def take(self, selection: Any) -> "SystemSet":
        """A smaller set, by any NumPy index along the first axis."""
        return SystemSet(
            self.properties,
            self.values[selection],
            ids=self.ids[selection],
            split=None if self.split is None else self.split[selection],
            levels=None if self.levels is None else self.levels[selection],
        )

    def __len__(self) -> int:
        """Number of systems, N."""
        return len(self.ids)

    @overload
    def __getitem__(self, key: int | np.integer | str) -> System: ...
    @overload
    def __getitem__(self, key: slice | NDArray[Any] | list[int]) -> "SystemSet": ...
    def __getitem__(self, key: Any) -> "System | SystemSet":
        """One `System` by position or id, or a smaller set by slice, mask or index array."""
        if isinstance(key, bool | np.bool_):
            raise TypeError(f"a set is indexed by position, id, slice, mask or positions, got {key!r}")
        if not isinstance(key, int | np.integer | str):
            return self.take(key)
        row = self.row(key) if isinstance(key, str) else int(key)
        return System(
            self.properties.mapping(self.values[row]),
            id=str(self.ids[row]),
            split=None if self.split is None else str(self.split[row]),
            levels=None if self.levels is None else self.levels[row].tolist(),
        )

    def __iter__(self) -> Iterator[System]:
        """Systems in order."""
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: object) -> bool:
        """Membership by id or by system."""
        if isinstance(item, str):
            return item in self._rows
        return isinstance(item, System) and item.id in self._rows and self[item.id] == item

    def __eq__(self, other: object) -> bool:
        """Equal properties, ids, values, splits and levels."""
        return (
            isinstance(other, SystemSet)
            and self.properties == other.properties
            and np.array_equal(self.ids, other.ids)
            and np.array_equal(self.values, other.values)
            and _same(self.split, other.split)
            and _same(self.levels, other.levels)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value."""
        return _make_set, (self.properties, self.values, self.ids, self.split, self.levels)

    def __repr__(self) -> str:
        """Size, names and splits."""
        splits = "" if self.split is None else f", splits={np.unique(self.split).tolist()}"
        return f"SystemSet({len(self)} systems of {self.names}{splits})"


def _same(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def _make_set(properties: Any, values: Any, ids: Any, split: Any, levels: Any) -> SystemSet:
    return SystemSet(properties, values, ids=ids, split=split, levels=levels)


@dataclass(frozen=True)
class SystemDistribution:
    """Where new systems are drawn from: each property independently, over its range or a list of levels.

    `levels` replaces the continuous range of the named properties by a uniform choice from a list.
    """

    properties: PersistentProperties
    levels: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __init__(
        self,
        properties: PersistentProperties | Iterable[PersistentProperty],
        levels: Mapping[str, Sequence[float]] | Iterable[tuple[str, Sequence[float]]] = (),
    ) -> None:
        """Check that every level is physical."""
        if not isinstance(properties, PersistentProperties):
            properties = PersistentProperties(properties)
        listed_by_name: dict[str, Sequence[float]] = dict(levels)
        frozen = tuple(
            (name, properties._levels(listed, f"property {name!r}")) for name, listed in listed_by_name.items()
        )
        for name, listed in frozen:
            p = properties[name]
            if not listed:
                raise ValueError(f"property {name!r}: the list of levels is empty")
            for value in listed:
                if not p.is_physical(value):
                    raise ValueError(f"property {name!r}: level {value!r} must be {p.domain}")
        object.__setattr__(self, "properties", properties)
        object.__setattr__(self, "levels", frozen)

    def from_uniforms(self, u: Array) -> Array:
        """Pure map from uniforms in [0, 1), (N, F), to property values, (N, F) float64."""
        levels = dict(self.levels)
        out = np.empty(u.shape, np.float64)
        for i, p in enumerate(self.properties):
            if p.name in levels:
                choices = np.array(levels[p.name], np.float64)
                out[:, i] = choices[np.minimum((u[:, i] * len(choices)).astype(np.int64), len(choices) - 1)]
            else:
                out[:, i] = p.from_uniform(u[:, i])
        return out

    def combinations(self) -> "SystemSet":
        """Every combination of the levels, the last property fastest; ValueError if a property has a range instead."""
        levels = dict(self.levels)
        without = [name for name in self.properties.names if name not in levels]
        if without:
            raise ValueError(f"property {without[0]!r} is drawn from a range, of which there are no combinations")
        grid = np.meshgrid(*(levels[name] for name in self.properties.names), indexing="ij")
        return SystemSet(self.properties, np.stack([axis.reshape(-1) for axis in grid], axis=1))

    def sample(
        self, n: int, rng: np.random.Generator, *, ids: Sequence[str] | None = None, split: str | None = None
    ) -> SystemSet:
        """Draw n systems; the same generator state gives the same set."""
        n = integer("n", n)
        values = self.from_uniforms(rng.random((n, len(self.properties))))
        return SystemSet(self.properties, values, ids=ids, split=split)


def vary(properties: PersistentProperties, system: System, name: str, values: ArrayLike) -> SystemSet:
    """Systems that differ from `system` in exactly one property, one for each of `values` (N,), all different."""
    column = properties.index(name)
    given = np.atleast_1d(properties._floats(values, f"property {name!r}"))
    if given.ndim != 1:
        raise ValueError(f"values of property {name!r} must have shape (N,), got {given.shape}")
    rows = np.repeat(properties.array(system)[None], len(given), axis=0)
    rows[:, column] = given
    distinct, counts = np.unique(properties.validate(rows)[:, column], return_counts=True)
    if len(distinct) != len(given):
        repeated = float(distinct[counts.argmax()])
        raise ValueError(
            f"values of property {name!r} must all be different, as each names one system: "
            f"{repeated!r} occurs {counts.max()} times"
        )
    return SystemSet(properties, rows)


_HEX = np.array([f"{byte:02x}" for byte in range(256)], "<U2")


def content_ids(names: Sequence[str], values: Array) -> NDArray[np.str_]:
    """Names by content: a 64-bit hash of names and float64 values (N, F) as (N,) strings of 16 hex digits.

    The order of the properties does not matter.
    """
    order = sorted(range(len(names)), key=names.__getitem__)
    h = np.full(len(values), 0x9E3779B97F4A7C15, np.uint64)
    seed = 0xCBF29CE484222325
    for byte in "\0".join(sorted(names)).encode():  # FNV-1a of the names, so that mass = 1 and drag = 1 differ
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    h ^= np.uint64(seed)
    # Adding 0.0 turns −0.0 into 0.0, which is the same system.
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)
    for column in order:
        h = (h ^ bits[:, column]) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        h ^= h >> np.uint64(29)
    raw = h.astype(">u8").view(np.uint8).reshape(len(values), 8)
    return np.ascontiguousarray(_HEX[raw]).view("<U16").reshape(len(values))
