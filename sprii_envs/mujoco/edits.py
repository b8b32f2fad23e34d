"""What a persistent property does to a MuJoCo model: which field of which objects it scales or sets.

    scale("body_mass", "torso")            # × value, and the body's inertia with it
    scale("geom_friction", column=0)       # × value, of every geom
    scale("geom_size", "foot", power=1/3)  # × value^(1/3)
    assign("opt.gravity", column=2)        # the value itself

Fields have MuJoCo's names: those of `MjModel` that belong to bodies, joints, degrees of freedom, geoms, sites, tendons,
actuators, equality constraints or contact pairs, and those of its options, as `opt.density`. Every edit starts from the
compiled model's own numbers, so that nothing compounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, instance, integer, number, shown
from sprii_envs.properties import PersistentProperties, PersistentProperty, unknown_name

Array = NDArray[np.float64]
Computed = Mapping[str, Callable[[Array], Array]]
"""Field of a model → a function from all property values (n, F) to the whole field of n systems, (n, *its shape)."""


@dataclass(frozen=True)
class Edit:
    """One field of some objects as a function of a property's value; see `scale` and `assign`."""

    field: str
    objects: tuple[str | int, ...] = ()
    """By name, or by number where the model gives none; all of their kind, the world's body excepted, if empty."""
    column: int | None = None
    """The one column that changes, of a field with several numbers an object."""
    power: float = 1.0
    """The nominal number is multiplied by value^power; not used if `absolute`."""
    absolute: bool = False
    """Whether the value replaces the number."""

    def __post_init__(self) -> None:
        """Refuse what no model could have."""
        check(self, instance, "field", of=str)
        check(self, integer, "column", optional=True, most=99)
        check(self, number, "power", least=-10.0, most=10.0)
        if self.power == 0.0 and not self.absolute:
            raise ValueError(f"scale({self.field!r}, power=0) multiplies by 1, whatever the property's value")
        check(self, instance, "objects", of=(tuple, list))
        for each in self.objects:
            instance("Edit.objects", each, of=(str, int))


def scale(field: str, *objects: str | int, column: int | None = None, power: float = 1.0) -> Edit:
    """Multiply a field of some objects, or of all, by value^power. `body_mass` takes the inertia along."""
    return Edit(field, objects, column, power)


def assign(field: str, *objects: str | int, column: int | None = None) -> Edit:
    """Set a field of some objects, or of all, to the value. `body_mass` scales the inertia along."""
    return Edit(field, objects, column, absolute=True)


def multiple(
    name: str,
    low: float,
    high: float,
    *,
    symbol: str = "",
    physical_low: float = 0.1,
    physical_high: float = 10.0,
    description: str = "",
) -> PersistentProperty:
    """A property that multiplies what a model has: nominal 1, drawn from [low, high], legal in [0.1, 10]."""
    return PersistentProperty(
        name=name,
        symbol=symbol or name,
        unit="1",
        low=low,
        high=high,
        nominal=1.0,
        physical_low=physical_low,
        physical_high=physical_high,
        description=description,
    )


class Target(NamedTuple):
    """An edit found in a model."""

    field: str
    property: int
    """Column of the property in values (N, F)."""
    where: tuple[Any, ...]
    """Index into the field's array."""
    power: float
    absolute: bool
    factor: float = 1.0
    """Of the value, before the power."""


_KINDS = {
    "body": ("mjOBJ_BODY", "nbody", "body"),
    "jnt": ("mjOBJ_JOINT", "njnt", "joint"),
    "dof": ("mjOBJ_JOINT", "njnt", "joint"),
    "geom": ("mjOBJ_GEOM", "ngeom", "geom"),
    "site": ("mjOBJ_SITE", "nsite", "site"),
    "tendon": ("mjOBJ_TENDON", "ntendon", "tendon"),
    "actuator": ("mjOBJ_ACTUATOR", "nu", "actuator"),
    "eq": ("mjOBJ_EQUALITY", "neq", "equality constraint"),
    "pair": ("mjOBJ_PAIR", "npair", "pair"),
}
"""What a field's name begins with → MuJoCo's type of object, its number, its name in messages."""
_DERIVED = ("invweight0", "subtreemass", "rbound", "aabb", "M0", "acc0", "length0", "user", "mat0")
"""Ends of names of what MuJoCo computes from the rest, which an edit would not survive."""
_OPTIONS = ("gravity", "wind", "magnetic", "density", "viscosity", "impratio")
_POSITIVE = ("body_mass", "body_inertia", "geom_size")
_NOT_NEGATIVE = (
    *("dof_damping", "dof_armature", "dof_frictionloss", "jnt_stiffness"),
    *("geom_friction", "pair_friction", "tendon_damping"),
)
_PLAIN = (
    "dof_damping",
    "dof_frictionloss",
    "jnt_stiffness",
    "geom_friction",
    "geom_solref",
    "geom_solimp",
    "pair_",
    "opt.",
)
"""Fields that no other number of a model is computed from."""


def legal_fields(model: Any) -> list[str]:
    """The fields of a model that an edit may name."""
    fields = [f for f in dir(model) if f.partition("_")[0] in _KINDS and not f.endswith(_DERIVED)]
    fields = [f for f in fields if getattr(getattr(model, f), "dtype", None) == np.float64]
    return fields + [f"opt.{name}" for name in _OPTIONS]


def read(model: Any, field: str) -> Array:
    """A copy of a field, as an array."""
    owner, name = (model.opt, field[4:]) if field.startswith("opt.") else (model, field)
    return np.array(getattr(owner, name), np.float64)


def write(model: Any, field: str, value: Array) -> None:
    """Overwrite a field."""
    if not field.startswith("opt."):
        getattr(model, field)[:] = value
    elif value.ndim:
        getattr(model.opt, field[4:])[:] = value
    else:
        setattr(model.opt, field[4:], float(value))


def resolve(
    mj: Any, world: str, model: Any, properties: PersistentProperties, edits: Mapping[str, Sequence[Edit]]
) -> list[Target]:
    """The edits of each property found in the model; ValueError that says what the model has instead."""
    targets: list[Target] = []
    by: list[Edit] = []
    for name, several in edits.items():
        p, f = properties[name], properties.index(name)
        for edit in several:
            target = _find(mj, world, model, p, f, edit)
            targets.append(target)
            if edit.field == "body_mass":
                nominal = read(model, "body_mass")
                _check_domain(world, p, edit)
                if edit.absolute and len({*nominal[target.where]}) > 1:
                    raise ValueError(
                        f"property {name!r} of {world} sets the mass of several bodies that differ: "
                        "scale them, or name one"
                    )
                rows = target.where[0]
                if edit.absolute:  # inertia follows: value / nominal of it
                    targets.append(Target("body_inertia", f, (rows,), 1.0, False, 1.0 / float(nominal[rows][0])))
                else:
                    targets.append(Target("body_inertia", f, (rows,), edit.power, False))
            by += [edit] * (len(targets) - len(by))
    _check_apart(mj, world, model, properties, targets, by)
    return targets


def check_computed(
    world: str, model: Any, properties: PersistentProperties, targets: Sequence[Target], computed: Computed
) -> None:
    """ValueError for a computed field that the model has not, that is edited too, or that is of another shape."""
    nominal, legal = properties.nominal[None], legal_fields(model)
    for field, function in computed.items():
        if field not in legal:
            raise unknown_name(f"computed field of {world}", field, legal)
        if any(target.field == field for target in targets):
            raise ValueError(f"{field} of {world} is computed and edited: the one would undo the other")
        shape = (1, *read(model, field).shape)
        if np.shape(given := function(nominal)) != shape or np.asarray(given).dtype != np.float64:
            made = f"{np.asarray(given).dtype} {np.shape(given)}"
            raise ValueError(f"{field} of {world} is computed as {made} for one system; legal: float64 {shape}")


def values_of(
    base: Mapping[str, Array], targets: Sequence[Target], values: Array, computed: Computed | None = None
) -> dict[str, Array]:
    """Each edited or computed field of n systems, (n, *its shape), from property values (n, F)."""
    n = len(values)
    out = {field: np.repeat(nominal[None], n, axis=0) for field, nominal in base.items()}
    for target in targets:
        array, value = out[target.field], values[:, target.property]
        where = (slice(None), *target.where)
        part = array[where]
        value = value.reshape(n, *(1,) * (part.ndim - 1))
        if target.absolute:
            array[where] = value
        else:
            value = value if target.factor == 1.0 else value * target.factor
            array[where] = part * (value if target.power == 1.0 else value**target.power)
    return out | {field: function(values) for field, function in (computed or {}).items()}


def derives(fields: Iterable[str]) -> bool:
    """Whether other numbers of the model follow from what is edited or computed."""
    return not all(field.startswith(_PLAIN) for field in fields)


def names_of(mj: Any, model: Any, kind: str, count: str) -> list[str]:
    """Names of the objects of one kind, "" where the model gives none."""
    code = int(getattr(mj.mjtObj, kind))
    return [mj.mj_id2name(model, code, i) or "" for i in range(getattr(model, count))]


def declared(
    world: str, properties: PersistentProperties, given: Any, computed: Computed
) -> dict[str, tuple[Edit, ...]]:
    """The edits of every property, several or one; ValueError for what is none.

    A property without any is refused unless something is computed, of any of them.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"edits of {world} are {shown(given)}; legal: property → scale(…) or assign(…)")
    found: dict[str, tuple[Edit, ...]] = {}
    for name, of in given.items():
        properties.index(name)
        several = tuple(of) if isinstance(of, list | tuple) else (of,)
        for edit in several:
            if not isinstance(edit, Edit):
                raise ValueError(
                    f"edits of property {name!r} of {world} are {shown(of)}; legal: scale(…), assign(…), "
                    "or a tuple of them"
                )
        found[name] = several
    if (missing := [name for name in properties.names if not found.get(name)]) and not computed:
        raise ValueError(f"property {missing[0]!r} of {world} acts on nothing: edits= maps it to scale(…) or assign(…)")
    return found


def _check_apart(
    mj: Any,
    world: str,
    model: Any,
    properties: PersistentProperties,
    targets: Sequence[Target],
    by: Sequence[Edit],
) -> None:
    """Refuse two edits of one number, but for two that multiply it: the later one would undo the other."""
    masks = [np.zeros(read(model, target.field).shape, np.bool_) for target in targets]
    for mask, target in zip(masks, targets, strict=True):
        mask[target.where] = True
    for i, a in enumerate(targets):
        for j, b in enumerate(targets[:i]):
            both = masks[i] & masks[j] if a.field == b.field and (a.absolute or b.absolute) else np.False_
            if not both.any():
                continue
            kind = _KINDS.get(a.field.partition("_")[0])
            row = int(np.argwhere(both)[0][0]) if kind else 0
            if kind and a.field.startswith("dof_"):
                row = int(model.dof_jntid[row])
            of = "" if kind is None else f" of {kind[2]} {names_of(mj, model, *kind[:2])[row] or row!r}"
            first, last = (
                f"{'assign' if e.absolute else 'scale'}({e.field!r}) of property {properties.names[t.property]!r}"
                for e, t in ((by[j], b), (by[i], a))
            )
            follows = ", as an edit of body_mass takes the inertia along" if by[i].field != by[j].field else ""
            raise ValueError(
                f"{first} and {last} of {world} both change {a.field}{of}{follows}: the last would undo the first. "
                "Only scales may share a number; they multiply it"
            )


def _find(mj: Any, world: str, model: Any, p: PersistentProperty, f: int, edit: Edit) -> Target:
    legal = legal_fields(model)
    if edit.field not in legal:
        raise unknown_name(f"model field of property {p.name!r} of {world}", edit.field, legal)
    nominal = read(model, edit.field)
    if edit.field.startswith("opt."):
        if edit.objects:
            raise ValueError(f"property {p.name!r} of {world}: {edit.field} belongs to no object, got {edit.objects}")
        where: tuple[Any, ...] = ()
    else:
        where = (_rows(mj, world, model, p, edit),)
    width = nominal.shape[len(where) :]
    if edit.column is not None:
        if not width or edit.column >= width[0]:
            raise ValueError(
                f"property {p.name!r} of {world}: {edit.field} has {width[0] if width else 1} column(s), "
                f"got column {edit.column}"
            )
        where = (*where, edit.column)
    _check_domain(world, p, edit)
    if not edit.absolute:
        chosen = nominal[where] if where else nominal
        rows = np.atleast_1d(chosen).reshape(len(np.atleast_1d(chosen)), -1)
        silent = ~rows.any(axis=1) if where and edit.objects else np.array([not chosen.any()])
        if silent.any():
            of = f" of {edit.objects[min(int(silent.argmax()), len(edit.objects) - 1)]!r}" if edit.objects else ""
            raise ValueError(
                f"property {p.name!r} of {world} scales {edit.field}{of}, which is 0 in the model, so that nothing "
                "changes: set it with assign(), or give the model another number"
            )
    return Target(edit.field, f, where, edit.power, edit.absolute)


def _rows(mj: Any, world: str, model: Any, p: PersistentProperty, edit: Edit) -> NDArray[np.intp]:
    prefix = edit.field.partition("_")[0]
    kind, count, called = _KINDS[prefix]
    n = getattr(model, count)
    if n == 0:
        raise ValueError(f"property {p.name!r} of {world} edits {edit.field}, but the model has no {called}s")
    names = names_of(mj, model, kind, count)
    chosen: list[int] = []
    for each in edit.objects:
        if isinstance(each, str):
            if each not in names:
                known = [name for name in names if name]
                raise unknown_name(f"{called} of property {p.name!r} of {world}", each, known)
            chosen.append(names.index(each))
        else:
            chosen.append(integer(f"{called} of property {p.name!r} of {world}", each, most=n - 1))
    if not edit.objects:
        chosen = list(range(1 if prefix == "body" else 0, n))
    if prefix == "dof":
        owner = np.asarray(model.dof_jntid)
        return np.concatenate([np.flatnonzero(owner == joint) for joint in chosen]).astype(np.intp)
    return np.array(chosen, np.intp)


def _check_domain(world: str, p: PersistentProperty, edit: Edit) -> None:
    """Refuse properties whose legal values make a model that is not physical."""
    zero = p.physical_low < 0.0 or (p.physical_low == 0.0 and not p.physical_low_open)
    if zero and (edit.field in _POSITIVE or edit.power < 0.0):
        raise ValueError(
            f"property {p.name!r} of {world} may be {p.domain}, but {edit.field} must stay > 0: "
            "give it a physical_low > 0, or physical_low_open=True"
        )
    if p.physical_low < 0.0 and edit.field in _NOT_NEGATIVE:
        raise ValueError(
            f"property {p.name!r} of {world} may be {p.domain}, but {edit.field} must not be negative: "
            "give it a physical_low >= 0"
        )
