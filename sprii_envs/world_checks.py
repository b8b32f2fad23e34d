"""`check_world`: whether the functions of a world do what the library takes for granted, tried on a few systems."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.arguments import integer, number, shown
from sprii_envs.declarations import FUNCTIONS, check_declarations
from sprii_envs.effects import without_effect
from sprii_envs.slots import check_infos, unbatched
from sprii_envs.world import Array, Ending, Moved, World

_SIZE = (16, 24)
_checked: set[type[World]] = set()


def check_world(world: World, *, seed: int = 0) -> None:
    """Try every function of a world, and every property; ValueError names the first that is not as it must be.

    Of each function, called for some systems at random and at the ends of their ranges: shape and dtype; that it
    changes no argument and returns no view of one; that it gives the same bits when it is called again, for one system
    as for many, and in either memory order. Further that starts are legal states, that observations stay in their
    bounds, that forces are clipped and keep NaN, that signals and endings are those declared, and that every property
    has an effect. Takes well under a second for arithmetic. It is a trial, no proof.
    """
    check_functions(world, seed=seed)
    if silent := without_effect(world, change=None, starts=2, seed=seed):
        silent = without_effect(world, change=None, steps=256, starts=16, seed=seed + 1)  # of a rare contact, say
    if silent:
        raise ValueError(
            f"property {silent[0]!r} of {world.name} changes nothing: no start, and no state or signal of 256 steps "
            "with random actions from 16 starts; legal: a property that prepare or initial reads"
        )


def check_once(world: World) -> None:
    """`check_functions`, the first time in this process that a world of this class is built."""
    if type(world) not in _checked:
        check_functions(world)
        _checked.add(type(world))


def check_functions(world: World, *, systems: int = 5, steps: int = 4, seed: int = 0) -> None:
    """`check_world` without the effects of the properties, in milliseconds."""
    if not isinstance(world, World):
        made = f"; an instance is {world.__name__}()" if isinstance(world, type) else ""
        raise ValueError(f"world is {shown(world)}; legal: an instance of a World{made}")
    check_declarations(type(world))
    number(f"{world.name}.dt", world.dt, least=1e-9)
    systems, steps = integer("systems", systems, least=2), integer("steps", steps, least=1)
    world.load()
    rng, properties = np.random.default_rng(seed), world.properties
    drawn = [p.from_uniform(rng.random(systems)) for p in properties]
    values = np.concatenate([properties.low[None], properties.high[None], np.stack(drawn, axis=1)])
    for query in (None, *world.queries):
        u = rng.random((len(values), world.start_draws))
        u[0], u[1] = 0.0, 1.0 - 2.0**-53
        _Trial(world, values).run(u, query, rng, steps)


class _Trial:
    """Some systems of a world: every function is called for all of them, for each alone, and for more."""

    def __init__(self, world: World, values: Array) -> None:
        self.world, self.values, self.n = world, values, len(values)

    def run(self, u: Array, query: str | None, rng: np.random.Generator, steps: int) -> None:
        world, n = self.world, self.n
        self._prepare()
        shape = (n, len(world.state_names))
        state = self._array("initial", {"u": u, "values": self.values, "query": query}, shape, np.float64)
        try:
            world.check_state(state, n)
        except ValueError as error:
            raise ValueError(f"{world.name}.initial returned no legal start: {error}") from error
        self._reset_info(state)
        self._observe(state)
        self._draw(state)
        for _ in range(steps):
            state = self._step(state, rng)

    def _step(self, state: Array, rng: np.random.Generator) -> Array:
        world, n = self.world, self.n
        force = self._force(rng)
        given = {"state": state, "force": force, "prepared": None}
        after, extras = self._call("step", given, lambda out: self._pair(out, state.shape))
        if not np.isfinite(after).all():
            row, column = np.argwhere(~np.isfinite(after))[0]
            system = world.properties.mapping(self.values[row])
            raise self._error(
                "step", f"{world.state_names[column]} = {after[row, column]} for the system {system}", "finite states"
            )
        given = {"state": state, "force": force, "after": after}
        self._finite("reward", "rewards", self._array("reward", given, (n,), np.float64))
        for name in world.signals:
            if extras[name].dtype.kind == "f":
                self._finite("step", f"the signal {name!r}", extras[name])
        self._end(after, extras)
        self._observe(after)
        self._one(state, rng)
        return after

    def _one(self, state: Array, rng: np.random.Generator) -> None:
        """`step_one` and `observe_one`, where there are any, beside what they stand for."""
        world = self.world
        if not type(world).steps_one():
            return
        action = rng.uniform(-1.5, 1.5, (self.n, world.action_size)).astype(np.float32)
        action[0], action[1] = np.inf, -np.inf
        for row in (slice(i, i + 1) for i in range(self.n)):
            prepared = world.prepare(self.values[row].copy())
            wanted = moved_by_arrays(world, state[row].copy(), action[row], prepared)
            try:
                constants = world.constants_of_one(prepared)
                moved = world.step_one(state[row].tolist()[0], action[row].tolist()[0], constants)
                seen = np.array([world.observe_one(moved[0])], np.float32)
            except Exception as error:
                raise ValueError(f"{world.name}.step_one fails: {type(error).__name__}: {error}") from error
            if (list(moved[0]), *moved[1:]) != wanted:
                raise self._error("step_one", shown(moved), f"what force, step, reward and end give, {shown(wanted)}")
            if not _equal(seen, world.observe(np.array([moved[0]]))):
                raise self._error("observe_one", f"{seen[0]}", "what observe gives")

    def _finite(self, function: str, what: str, numbers: NDArray[Any]) -> None:
        if (broken := ~np.isfinite(numbers)).any():
            row = int(broken.argmax())
            system = self.world.properties.mapping(self.values[row])
            raise self._error(function, f"{what} of {numbers[row]} for the system {system}", "finite numbers")

    def _prepare(self) -> None:
        world = self.world
        made = self._call("prepare", {"values": self.values})
        if type(world).update is not World.update:
            return
        if not isinstance(made, tuple) or not all(isinstance(a, np.ndarray) and a.shape[:1] == (self.n,) for a in made):
            one = "; one array is written (array,)" if isinstance(made, np.ndarray) else ""
            raise self._error("prepare", _told(made), f"a tuple of arrays whose first axis is N = {self.n}{one}")
        if not all(a.flags.writeable for a in made):
            raise self._error("prepare", "an array that cannot be written to", "new arrays: .copy()")
        rows, other = np.array([0, 2]), self.values[::-1].copy()
        mixed = self.values.copy()
        mixed[rows] = other[rows]
        try:
            updated = world.update(world.prepare(self.values.copy()), rows, other[rows])
        except Exception as error:
            raise ValueError(f"{world.name}.update fails: {type(error).__name__}: {error}") from error
        if not _equal(updated, world.prepare(mixed)):
            raise self._error("update", "other constants than prepare gives for the same systems", "the same bits")

    def _force(self, rng: np.random.Generator) -> Array:
        world = self.world
        shape = (self.n, world.action_size)
        action = rng.uniform(-1.5, 1.5, shape).astype(np.float32)
        action[0], action[1] = -1.0, 1.0
        force = self._array("force", {"action": action}, shape, np.float64)
        for beyond in (np.inf, -np.inf):
            if not np.isfinite(world.force(np.full(shape, beyond, np.float32))).all():
                raise self._error("force", f"what is not finite for actions of {beyond}", "actions clipped to ±1")
        poisoned = action.copy()
        poisoned[0, -1] = np.nan
        if not np.isnan(world.force(poisoned)[0]).any():
            raise self._error("force", "a number for an action of NaN", "NaN kept, so that it is refused")
        return force

    def _pair(self, out: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], dict):
            raise self._error("step", _told(out), "a pair: the states after it, and a dict of the signals, {} for none")
        self._shape("step", out[0], shape, np.float64)
        self._signals(out[1])

    def _signals(self, extras: Mapping[str, Any]) -> None:
        for name, dtype in self.world.signals.items():
            found = extras.get(name)
            if (
                not isinstance(found, np.ndarray)
                or found.shape != (self.n,)
                or not np.can_cast(found.dtype, dtype, "same_kind")
            ):
                told = f"no signal {name!r}" if found is None else f"{_told(found)} as the signal {name!r}"
                raise self._error("step", told, f"an array ({self.n},) of {dtype}, as declared in signals")

    def _end(self, after: Array, extras: Mapping[str, Any]) -> None:
        ending = self._call("end", {"after": after, "extras": extras}, self._ending)
        legal = self.world.endings
        for reason in ending.info.get("reason", ()):
            if reason is not None and reason not in legal:
                raise self._error("end", f"the reason {reason!r}", f"a reason that is in endings, {legal}")
        over = np.zeros(self.n, np.bool_)
        for flag in (ending.terminated, ending.truncated):
            over |= False if flag is None else flag
        reasons = ending.info.get("reason", np.full(self.n, None, np.object_))
        for ended, reason in zip(over, reasons, strict=True):
            if reason is not None and not ended:
                raise self._error("end", f"the reason {reason!r} where nothing ended", "None there")
            if ended and reason is None and legal:
                raise self._error("end", "no reason where an episode ended", f'info["reason"] of {legal} there')

    def _ending(self, ending: Any) -> None:
        if not isinstance(ending, Ending):
            raise self._error("end", _told(ending), "an Ending")
        for name in ("terminated", "truncated"):
            if (flag := getattr(ending, name)) is not None:
                self._shape("end", flag, (self.n,), np.bool_, f" as {name}")
        self._infos("end", ending.info)

    def _reset_info(self, state: Array) -> None:
        self._infos("reset_info", self.world.reset_info(state))

    def _infos(self, function: str, infos: Any) -> None:
        if not isinstance(infos, Mapping) or not all(
            isinstance(a, np.ndarray) and a.shape[:1] == (self.n,) for a in infos.values()
        ):
            raise self._error(
                function, f"the info {shown(infos)}", f"a mapping to arrays whose first axis is N = {self.n}"
            )
        check_infos(self.world, function, infos)

    def _observe(self, state: Array) -> None:
        low, high = self.world.observation_bounds
        for bound in (low, high):
            if not isinstance(bound, np.ndarray) or bound.dtype != np.float32 or not np.isfinite(bound).all():
                raise self._error("observation_bounds", _told(bound), "two finite float32 arrays (O,)")
        wanted = (self.n, *low.shape)
        seen = self._array("observe", {"state": state}, wanted, np.float32, ", O as in observation_bounds")
        if not seen.flags.c_contiguous:
            raise self._error("observe", "an array in Fortran's order", "a C-ordered array")
        beyond = ~((seen >= low) & (seen <= high))
        if beyond.any():
            row, i = np.argwhere(beyond)[0]
            raise self._error(
                "observe", f"{seen[row, i]} in component {i}", f"[{low[i]}, {high[i]}], its observation_bounds"
            )

    def _draw(self, state: Array) -> None:
        world = self.world
        if not world.has_pictures:
            return
        patches = self._attempt("patches", state.copy(), _SIZE)
        if not isinstance(patches, list) or not all(isinstance(p, rendering.Patch) for p in patches):
            raise self._error("patches", _told(patches), "a list of what rendering.disc and rendering.segment return")
        frames = world.draw(state, _SIZE)
        for row in range(self.n):
            if not _equal(frames[row], world.draw(state[row : row + 1], _SIZE)[0]):
                raise self._error("patches", "another picture of a state alone than among others", "the same")
        given = {"state": state, "values": self.values, "size": _SIZE}
        self._array("picture", given, (self.n, *_SIZE, 3), np.uint8)

    def _array(
        self, name: str, arguments: dict[str, Any], shape: tuple[int, ...], dtype: Any, more: str = ""
    ) -> NDArray[Any]:
        return self._call(name, arguments, lambda out: self._shape(name, out, shape, dtype, more))

    def _call(self, name: str, arguments: dict[str, Any], check: Callable[[Any], None] = lambda _: None) -> Any:
        """What a function returns for all systems, having been found pure, and independent of N and memory order."""
        every = np.arange(self.n)
        given = self._arguments(arguments, every, np.ascontiguousarray)
        kept = self._arguments(arguments, every, np.ascontiguousarray)
        out = self._attempt(name, *given.values())
        check(out)
        for argument, before in kept.items():
            if argument != "prepared" and not _equal(given[argument], before):
                raise self._error(
                    name, f"with another `{argument}` than it was given", "arguments that stay as they are"
                )
        if isinstance(given.get("prepared"), tuple) and not _equal(given["prepared"], kept["prepared"]):
            raise self._error(name, "with another `prepared` than it was given", "arguments that stay as they are")
        if name != "prepare":
            new, old = (_arrays(x) for x in (out[:1] if isinstance(out, tuple) else out, list(given.values())))
            if any(np.shares_memory(a, b) for a in new for b in old):
                raise self._error(name, "a view of its argument", "a new array: .copy()")
        if name == "prepare" and not isinstance(out, tuple):
            return out  # a simulator's own models, which are compared by what they do
        for order, what in (
            (np.ascontiguousarray, "when it is called again"),
            (np.asfortranarray, "of F-ordered arrays"),
        ):
            again = self._attempt(name, *self._arguments(arguments, every, order).values())
            self._compare(name, out, again, every, what)
        for rows in (*every[:, None], np.tile(every, 7)[3:]):
            some = self._attempt(name, *self._arguments(arguments, rows, np.asfortranarray).values())
            self._compare(name, out, some, rows, f"for N = {len(rows)} than for N = {self.n}")
        return out

    def _compare(self, name: str, out: Any, other: Any, rows: NDArray[np.intp], what: str) -> None:
        if not _equal(_rows(out, rows, self.n), other):
            hint = "; sums over an axis and matrix products depend on N" if "N =" in what else ""
            raise self._error(name, f"something else {what}", f"the same bits, whatever N and memory order{hint}")

    def _arguments(
        self, arguments: dict[str, Any], rows: NDArray[np.intp], order: Callable[..., Any]
    ) -> dict[str, Any]:
        """Copies of the arguments for some of the systems."""
        given = {name: _rows(value, rows, self.n, order) for name, value in arguments.items()}
        if "prepared" in given:
            given["prepared"] = self.world.prepare(self.values[rows])
        return given

    def _attempt(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self.world, name)(*arguments)
        except Exception as error:
            shapes = ", ".join(
                f"{argument} {value.shape}"
                for argument, value in zip(FUNCTIONS[name][0], arguments, strict=True)
                if isinstance(value, np.ndarray)
            )
            raise ValueError(f"{self.world.name}.{name} fails for {shapes}: {type(error).__name__}: {error}") from error

    def _shape(self, name: str, out: Any, shape: tuple[int, ...], dtype: Any, more: str = "") -> None:
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
            raise self._error(name, _told(out) + (more if more.startswith(" as") else ""),
                              f"an array {shape} of {np.dtype(dtype)}{more if more.startswith(',') else ''}: "
                              f"{FUNCTIONS[name][1]}")  # fmt: skip

    def _error(self, name: str, returned: str, legal: str) -> ValueError:
        return ValueError(f"{self.world.name}.{name} returned {returned}; legal: {legal}")


def moved_by_arrays(world: World, state: Array, action: NDArray[np.float32], prepared: Any) -> Moved:
    """What `step_one` is to return of one system: from states (1, S) and actions (1, A), by the functions of many."""
    force = world.force(action)
    after, extras = world.step(state, force, prepared)
    ending = world.end(after, extras)
    terminated, truncated = (flag is not None and bool(flag[0]) for flag in (ending.terminated, ending.truncated))
    reward = float(world.reward(state, force, after)[0])
    return after.tolist()[0], reward, terminated, truncated, unbatched(ending.info)


def _rows(value: Any, rows: NDArray[np.intp], n: int, order: Callable[..., Any] = np.ascontiguousarray) -> Any:
    """The rows of every array of N systems in a value."""
    if isinstance(value, np.ndarray) and value.shape[:1] == (n,):
        return order(value[rows].copy())
    if isinstance(value, Mapping):
        return {key: _rows(each, rows, n, order) for key, each in value.items()}
    if isinstance(value, tuple) and not all(isinstance(each, int) for each in value):
        made = [_rows(each, rows, n, order) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


def _arrays(value: Any) -> list[NDArray[Any]]:
    if isinstance(value, np.ndarray):
        return [value]
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return [array for each in inside for array in _arrays(each)]


def _equal(one: Any, other: Any) -> bool:
    """Whether two values hold the same arrays, bit for bit; the sign of a zero and what is in a NaN aside."""
    a, b = _arrays(one), _arrays(other)
    return len(a) == len(b) and all(
        x.shape == y.shape and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b, strict=True)
    )


def _told(value: Any) -> str:
    """What was returned, in few words."""
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_told, value))})"
    return shown(value)
