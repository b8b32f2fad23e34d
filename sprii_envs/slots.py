"""The one engine behind the single and the vector environment: N slots over a `World`.

A slot is one running episode: its system, its state, and its random stream (a key and an episode number).
Every method is an array program over slots; the single environment is this engine at N = 1.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.checks import is_integer, reals, whole
from sprii_envs.properties import (
    PersistentProperties,
    System,
    SystemDistribution,
    SystemSet,
    by_name,
    content_ids,
    unknown_name,
)
from sprii_envs.randomness import STATE, SYSTEM, streams
from sprii_envs.world import Array, Ending, Moved, World

Rows = slice | NDArray[np.intp]
Source = SystemSet | SystemDistribution
ALL = slice(None)


class Choice(NamedTuple):
    """Systems chosen by hand for n slots: values (n, F), ids (n,) and the `System` each came from, if any."""

    values: Array
    ids: NDArray[np.object_]
    origin: NDArray[np.object_]

    def take(self, rows: Rows) -> "Choice":
        """The choice for some of the slots."""
        return Choice(self.values[rows], self.ids[rows], self.origin[rows])


def objects(items: Sequence[Any]) -> NDArray[np.object_]:
    """A one-dimensional object array, whatever the items are."""
    out = np.empty(len(items), object)
    out[:] = items
    return out


def resolve(system: Any, n: int | None, properties: PersistentProperties, systems: SystemSet | None) -> Choice:
    """Turn what a user may write for `system` into a checked choice for n slots, or for the one where n is None.

    Accepts a `System`, an id of `systems`, a mapping of names to numbers or (n,) arrays, one row (F,), an (n,
    F) array, a `SystemSet` of n systems, or a list of n ids or `System`s. ValueError otherwise.
    """
    slots = 1 if n is None else n
    if isinstance(system, str):
        if systems is None:
            raise ValueError(f"system {system!r} is an id, but the environment has no `systems=SystemSet(...)`")
        system = systems[system]
    if isinstance(system, System):
        row = properties.array(system)
        named = System(properties.mapping(row), id=system.id, split=system.split, levels=system.levels)
        return Choice(np.repeat(row[None], slots, axis=0), objects([system.id] * slots), objects([named] * slots))
    if isinstance(system, SystemSet):
        system = list(system)
    if isinstance(system, np.ndarray) and system.dtype.kind in "UT":
        system = system.tolist()
    whole_numbers = isinstance(system, list | tuple) and bool(system) and all(map(is_integer, system))
    if whole_numbers and systems is not None and all(str(each) in systems for each in system):
        raise ValueError(f"systems {list(system)} may be ids or values; ids are text: {[str(s) for s in system]}")
    if isinstance(system, list | tuple) and any(isinstance(s, System | str) for s in system):
        if len(system) != slots:
            wanted = "one episode" if n is None else f"{n} slots"
            raise ValueError(f"{len(system)} systems were given for {wanted}")
        parts = [resolve(s, None, properties, systems) for s in system]
        return Choice(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    system = by_name(system)
    if isinstance(system, Mapping) and n is None:
        values = properties.array(system)[None]
    else:
        values = properties.batch(system, slots)
    return Choice(values, content_ids(properties.names, values).astype(object), np.empty(slots, object))


def system_values(properties: PersistentProperties, systems: Any) -> Array:
    """Values (N, F) of a batch of systems: a `SystemSet`, `System`s, a mapping of every name, or values (N, F)."""
    if isinstance(systems, SystemSet):
        return properties.batch({name: systems.column(name) for name in systems.names}, len(systems))
    if isinstance(systems, System):
        return properties.array(systems)[None]
    systems = by_name(systems)
    if isinstance(systems, Mapping):
        return properties.batch(systems, None)
    try:
        items = list(systems)
    except TypeError:
        raise ValueError(f"systems must be systems or (N, {len(properties)}) values, got {systems!r}") from None
    return np.array([properties.array(s) for s in items]).reshape(len(items), len(properties))


def check_source(source: Source, properties: PersistentProperties, name: str) -> None:
    """ValueError unless systems of these properties, and one at least, can be drawn from the source."""
    if source.properties.names != properties.names:
        raise ValueError(f"systems have properties {source.properties.names}, {name} has {properties.names}")
    if isinstance(source, SystemSet):
        properties.validate(source.values)
        if len(source) == 0:
            raise ValueError("systems must hold at least one system")


def drawn(source: Source, u: Array) -> tuple[Array, NDArray[np.object_], NDArray[np.int64]]:
    """Systems for uniforms (n, F): values (n, F), ids (n,), and their rows in the `SystemSet`, −1 of a distribution."""
    if isinstance(source, SystemSet):
        index = np.minimum((u[:, 0] * len(source)).astype(np.int64), len(source) - 1)
        return source.values[index], source.ids[index].astype(object), index
    values = source.from_uniforms(u)
    ids = content_ids(source.properties.names, values).astype(object)
    return values, ids, np.full(len(u), -1, np.int64)


RESERVED = frozenset({"system_id", "persistent", "extrapolated", "rollout", "final_obs", "final_info", "episode"})
"""What infos report of their own: of the system, its episodes, of autoresets, and of Gymnasium's recorder."""


def check_infos(world: World, function: str, infos: Mapping[str, Any]) -> None:
    """ValueError for names in a world's infos that infos have already."""
    for name in infos:
        if name in RESERVED or name.startswith("_"):
            raise ValueError(
                f"{world.name}.{function} reports {name!r}; legal: names without a leading underscore but "
                f"{', '.join(sorted(RESERVED))}, which infos use themselves"
            )


class Slots:
    """N running episodes. All arrays have the slots as leading axis; none of them is ever handed out."""

    def __init__(
        self,
        world: World,
        n: int,
        *,
        source: Source,
        fixed: Choice | None,
        obs_type: Literal["state", "pixels"],
        size: rendering.Size,
    ) -> None:
        """Nothing runs before `reset`; `fixed`, a choice for one slot, is what bare resets use, if given."""
        self.world, self.n, self.source, self.fixed = world, n, source, fixed
        self.obs_type, self.size = obs_type, size
        self.key = np.zeros(n, np.uint64)
        self.episode = np.zeros(n, np.uint64)
        self.values = np.zeros((n, len(world.properties)), np.float64)
        self.ids = np.empty(n, object)
        self.origin = np.empty(n, object)
        self.drawn = np.full(n, -1, np.int64)
        """Row in the `SystemSet` each system was drawn from, −1 if it was not."""
        self.pinned = np.zeros(n, np.bool_)
        """Slots whose system was chosen by hand and outlives autoresets."""
        self.query = np.full(n, -1, np.int64)
        """Index into `world.queries` of each slot's kind of start, −1 for the default."""
        self.state = self.previous = self.start = np.zeros((n, len(world.state_names)), np.float64, order="F")
        self.prepared: Any = None
        self._of_one: Any = None
        # Patches of the present and the previous states, once they have been drawn; and the slots reset since the last
        # step, whose previous frame is the present one.
        self._present: list[rendering.Patch] | None = None
        self._before: list[rendering.Patch] | None = None
        self._fresh: NDArray[np.intp] | None = None

    def reseed(self, rows: Rows, keys: NDArray[np.uint64]) -> None:
        """Give slots new random streams, at their first episode."""
        self.key[rows] = keys
        self.episode[rows] = 0

    def reset(
        self,
        rows: Rows,
        choice: Choice | Literal["same"] | None = None,
        state: Array | None = None,
    ) -> None:
        """Begin the next episode in some slots.

        Without a choice (n_rows systems, or "same") pinned slots keep their system and the others draw one;
        without a state (n_rows, S) each slot draws one from its own stream.
        """
        wanted = (len(self.world.properties), SYSTEM), (self.world.start_draws, STATE)
        for_system, for_state = streams(self.key[rows], self.episode[rows], wanted)
        self._reset_systems(rows, choice, for_system)
        if state is None:
            state = self._start_states(rows, for_state)
        if rows is ALL:
            self.state = self.previous = np.asfortranarray(state)
            self.start = self.state.copy(order="K")
            self._present = self._before = self._fresh = None
        else:
            self.state[rows] = self.previous[rows] = self.start[rows] = state
            fresh = np.arange(self.n)[rows]
            self._present = None
            self._fresh = fresh if self._fresh is None else np.union1d(self._fresh, fresh)
        self.episode[rows] += np.uint64(1)

    def step(self, action: NDArray[np.float32]) -> tuple[Array, Ending]:
        """Advance every slot; rewards (N,) and endings. ValueError, and no change, for a NaN action."""
        world = self.world
        force = world.checked_force(action)
        after, extras = world.step(self.state, force, self.prepared)
        reward = world.reward(self.state, force, after)
        ending = world.end(after, extras)
        self.previous, self.state = self.state, after
        self._before, self._present, self._fresh = self._present, None, None
        return reward, ending

    def step_one(self, action: list[float]) -> Moved:
        """`step` of the one slot there is, in Python's numbers, for a world that `steps_one`."""
        world = self.world
        if self._of_one is None:
            self._of_one = world.constants_of_one(self.prepared)
        for component in action:
            if component != component:
                world.checked_force(np.array([action], np.float32))
        moved = world.step_one(self.state.tolist()[0], action, self._of_one)
        self.previous, self.state = self.state, np.array((moved[0],))
        self._before, self._present, self._fresh = self._present, None, None
        return moved

    def observe(self) -> NDArray[Any]:
        """Observations of every slot, a new array: (N, O) float32 or (N, H, W, 2) uint8."""
        if self.obs_type == "state":
            return self.world.observe(self.state)
        if self._present is None:
            self._present = self.world.patches(self.state, self.size)
        if self.previous is self.state:
            self._before = self._present
        elif self._before is None:
            self._before = self.world.patches(self.previous, self.size)
        frames = rendering.draw_pair(self._present, self._before, self.n, self.size)
        if self._fresh is not None:
            frames[self._fresh, :, :, 1] = frames[self._fresh, :, :, 0]
        return frames

    def system(self, slot: int) -> System:
        """The system running in a slot."""
        if self.origin[slot] is not None:
            return self.origin[slot]
        if self.drawn[slot] >= 0 and isinstance(self.source, SystemSet):
            return self.source[int(self.drawn[slot])]
        return System(self.world.properties.mapping(self.values[slot]), id=self.ids[slot])

    def info(self, rows: Rows = ALL) -> dict[str, NDArray[Any]]:
        """What a reset reports, for some slots: fresh arrays."""
        values = self.values[rows]
        told = self.world.reset_info(self.state[rows])
        check_infos(self.world, "reset_info", told)
        return {
            "system_id": self.ids[rows].copy(),
            "persistent": values.copy(),
            "extrapolated": self.world.properties.extrapolated(values),
            **told,
        }

    _SAVED = (
        "state",
        "previous",
        "start",
        "values",
        "ids",
        "origin",
        "drawn",
        "pinned",
        "query",
        "key",
        "episode",
    )

    def copy_of(self, slot: int) -> "Slots":
        """A copy of one slot, to be read."""
        one = copy.copy(self)
        one.n, one.prepared, one._of_one = 1, None, None
        one._present = one._before = one._fresh = None
        for name in self._SAVED:
            setattr(one, name, getattr(self, name)[slot : slot + 1].copy())
        return one

    def save(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes while episodes run."""
        return {name: getattr(self, name).copy(order="K") for name in self._SAVED}

    def check_saved(self, saved: Mapping[str, Any], *, single: bool = False) -> dict[str, NDArray[Any]]:
        """The arrays of `save` out of a mapping, checked, so that `load` cannot fail half-way.

        With `single` they are those of one slot, without the axis of slots.
        """
        out: dict[str, NDArray[Any]] = {}
        for name in self._SAVED:
            if name not in saved:
                raise ValueError(f"saved state lacks {name!r}")
            here = getattr(self, name)
            array = saved_array(saved[name], name, here.shape[1:] if single else here.shape, here.dtype)
            out[name] = np.array(array[None] if single else array, order="F")
        self.world.properties.validate(out["values"])
        kinds, query = len(self.world.queries), out["query"]
        if ((query < -1) | (query >= kinds)).any():
            given = query.tolist()
            raise ValueError(f"saved 'query' must be in −1 … {kinds - 1}, got {given[0] if single else given}")
        for name, legal in (("ids", str), ("origin", System | None)):
            for each in out[name]:
                if not isinstance(each, legal):
                    raise ValueError(
                        f"saved {name!r} must hold {legal.__name__ if legal is str else legal}, got {each!r}"
                    )
        # A row number means nothing in another set; the values and the id still hold.
        drawn, known = out["drawn"], self.source.ids if isinstance(self.source, SystemSet) else ()
        for slot in np.flatnonzero(drawn >= 0):
            if drawn[slot] >= len(known) or known[drawn[slot]] != out["ids"][slot]:
                drawn[slot] = -1
        for name in ("state", "previous", "start"):
            self.world.check_reached(out[name], self.n)
        return out

    def load(self, checked: Mapping[str, NDArray[Any]]) -> None:
        """Put back what `check_saved` returned."""
        for name in self._SAVED:
            setattr(self, name, checked[name])
        self._prepare(ALL)
        self._present = self._before = self._fresh = None

    def _reset_systems(self, rows: Rows, choice: Choice | Literal["same"] | None, u: Array) -> None:
        if choice == "same":
            self.pinned[rows] = True
            return
        if isinstance(choice, Choice):
            self.pinned[rows] = True
            self._put(rows, choice.values, choice.ids, choice.origin, -1)
            return
        if self.pinned.any():
            free = ~self.pinned[rows]
            rows, u = np.arange(self.n)[rows][free], u[free]
            if len(rows) == 0:
                return
        if self.fixed is not None:
            one = self.fixed.take(np.zeros(len(u), np.intp))
            self._put(rows, one.values, one.ids, one.origin, -1)
            return
        values, ids, index = drawn(self.source, u)
        self._put(rows, values, ids, None, index)

    def _put(self, rows: Rows, values: Array, ids: Any, origin: Any, drawn: Any) -> None:
        self.values[rows], self.ids[rows], self.origin[rows], self.drawn[rows] = values, ids, origin, drawn
        self._prepare(rows)

    def _prepare(self, rows: Rows) -> None:
        """Make the constants of some slots those of their present values, in what there already is."""
        self._of_one = None
        if self.prepared is None:
            self.prepared = self.world.prepare(self.values)
        else:
            self.prepared = self.world.update(self.prepared, np.arange(self.n)[rows], self.values[rows])

    def _start_states(self, rows: Rows, u: Array) -> Array:
        world = self.world
        kinds = self.query[rows]
        if not world.queries or (kinds == kinds[0]).all():
            return world.initial(u, self.values[rows], self._query_name(kinds[0]))
        out = np.empty((len(u), len(world.state_names)), np.float64, order="F")
        for kind in np.unique(kinds):
            some = kinds == kind
            out[some] = world.initial(u[some], self.values[rows][some], self._query_name(kind))
        return out

    def _query_name(self, kind: np.int64) -> str | None:
        return None if kind < 0 else self.world.queries[int(kind)]


def saved_array(value: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What was saved under a name, in the shape and type that it must have; ValueError for anything else."""
    try:
        if dtype.kind == "O":
            array = objects(list(value)) if shape else objects([value]).reshape(())
        elif dtype.kind == "b":
            array = np.asarray(value)
        else:
            array = (reals if dtype.kind == "f" else whole)(value, dtype)
    except TypeError as e:
        raise ValueError(f"saved {name!r} must be {dtype} of shape {shape}, got {value!r}") from e
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"saved {name!r} must be {dtype} of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def query_code(query: Any, world: World) -> int:
    """Index of a named kind of start, −1 for None; ValueError with the nearest name if unknown."""
    if query is None:
        return -1
    if not isinstance(query, str) or query not in world.queries:
        raise unknown_name(f"query of {world.name}", query, world.queries)
    return world.queries.index(query)


def unbatched(info: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Slot 0 of batched infos, scalars as Python ones, which vector environments batch by type."""
    first = {name: value[0] for name, value in info.items()}
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in first.items() if v is not None}
