"""Systems for any Gymnasium environment: persistent properties over its attributes, or over a function of yours."""

import contextlib
import copy
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import check_seed, shown
from sprii_envs.checks import is_real
from sprii_envs.collection.spaces import in_space, legal_action
from sprii_envs.properties import (
    PersistentProperties,
    PersistentProperty,
    System,
    SystemDistribution,
    SystemSet,
    unknown_name,
    vary,
)
from sprii_envs.randomness import STATE, SYSTEM, uniforms
from sprii_envs.slots import Source, check_source, drawn, resolve, system_values
from sprii_envs.vector import seeded
from sprii_envs.wrappers.attributes import Attribute
from sprii_envs.wrappers.common import sees_resets
from sprii_envs.wrappers.numbers import Numbers, changed, numbers

Properties = PersistentProperties | Iterable[PersistentProperty] | Mapping[str, PersistentProperty | Sequence[float]]
Setter = Callable[[Any, dict[str, float]], Any]


class Trajectories(NamedTuple):
    """One state and one sequence of actions under N systems. What follows the end of an episode is zero."""

    observations: NDArray[Any]
    """(N, T+1, *item): the first is the one before the actions, as the environment last showed it."""
    rewards: NDArray[np.float64]
    """(N, T)."""
    lengths: NDArray[np.int64]
    """(N,): transitions until the episode ended, or T."""
    terminated: NDArray[np.bool_]
    """(N,): whether it ended in a terminal state."""
    values: NDArray[np.float64]
    """(N, F): the systems' property values."""


class PersistentEnv(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Any single Gymnasium environment, with persistent properties.

    `properties` are a `PersistentProperties`, or name → (low, high) in short; `set` says how the environment gets them:

    - nothing: each name is an attribute of `env.unwrapped`;
    - name → path of an attribute of it, as {"mass": "model.body_mass[1]"}; a name that is left out is an attribute;
    - a function `set(env, values)` of `env.unwrapped` and a dict of every value by name. It must set all that depends
      on them: an environment may have computed other attributes from these, once, when it was made. What it sets must
      follow from the values alone, and it must write to the `env` it is given, which may be a copy.

    The values are set before every reset; the function is also called some times when the wrapper is made, with the
    nominal ones and the ends of the ranges in turn, and the nominal ones last. Nothing is put back when the wrapper is
    dropped. Where values cannot be set, the present system is set again; if not even that can be, or the environment's
    own reset fails, steps raise ResetNeeded until a reset succeeds.

    An attribute that is an integer keeps whole values as integers.

    A deep copy goes on as the original would. So does an unpickled one, but of an environment that is pickled as its
    arguments (`EzPickle`, as Gymnasium's robots): that is made anew, and needs a reset.

    `reset(options=...)` takes `system` (values by name, a `System`, an id of `systems`, or "same" for another episode
    of the present one), for that one reset; other options go to the environment. A bare reset draws a system from
    `systems` (by default each property over its range), or takes the one that the constructor was given. The info of a
    reset has `system_id`, `persistent` (F,) float64 and `extrapolated`, as the environments of sprii_envs tell them.

    Episode e of seed s is a pure function of (s, e): the environment itself is seeded at every reset, with s at the
    first one, whatever the system.

    While `keep_system` is true, resets without a seed or a system begin another episode of the present system.
    """

    keep_system: bool = False

    def __init__(
        self,
        env: gym.Env[Any, Any],
        properties: Properties,
        set: Mapping[str, str] | Setter | None = None,
        *,
        system: Any = None,
        systems: Source | None = None,
    ) -> None:
        """`system` pins one system, `systems` is where bare resets draw from.

        ValueError for an attribute that does not exist, is no number or cannot be written, or is an integer of which
        the environment's steps take no fraction, where `systems` have some; for a function that raises, or whose
        numbers depend on the system before; and for an environment that has persistent properties or resets within its
        steps.
        """
        if not isinstance(env, gym.Env):
            inside = "wrap the environments inside it" if isinstance(env, VectorEnv) else "pass gym.make(...)"
            raise ValueError(f"PersistentEnv needs a single environment, got {env!r}: {inside}")
        sees_resets(env, "PersistentEnv")
        if env.has_wrapper_attr("persistent_properties"):
            raise ValueError(f"{env} has persistent properties already")
        if not isinstance(properties, PersistentProperties | Mapping):
            properties = _listed(properties)
        RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, properties=properties, set=set, system=system, systems=systems
        )
        gym.Wrapper.__init__(self, env)
        self._set: Setter | None = set if callable(set) else None
        self._attributes = {} if callable(set) else _attributes(properties, set)
        self._whole = frozenset(name for name, of in self._attributes.items() if of.whole(env.unwrapped))
        self._broken: str | None = None  # why the environment is not in the present system, if it is not
        present = {name: attribute.get(env.unwrapped) for name, attribute in self._attributes.items()}
        self.persistent_properties = declared(properties, present)
        if systems is not None and not isinstance(systems, SystemSet | SystemDistribution):
            raise ValueError(f"systems must be a SystemSet or a SystemDistribution, got {type(systems).__name__}")
        self._source = SystemDistribution(self.persistent_properties) if systems is None else systems
        check_source(self._source, self.persistent_properties, str(env))
        self._fixed = None if system is None else resolve(system, None, self.persistent_properties, self.systems)
        for name, attribute in self._attributes.items():  # what cannot be set is refused now
            attribute.put(env.unwrapped, self._kept_as(name, self.persistent_properties[name].low))
            attribute.put(env.unwrapped, self._kept_as(name, present[name]))
        self._check_fractions()
        if self._set is not None:
            self._put(env.unwrapped, self.persistent_properties.nominal)
            self._check_set()
        self._key: NDArray[np.uint64] | None = None  # what the episodes since the last seed are drawn from
        self._episode = 0
        self._system: System | None = None
        self._shown: Any = None  # the latest observation of a running episode

    @property
    def systems(self) -> SystemSet | None:
        """The set systems are drawn from, or None if they are drawn from a distribution."""
        return self._source if isinstance(self._source, SystemSet) else None

    @property
    def distribution(self) -> SystemDistribution | None:
        """The distribution systems are drawn from, or None if they are drawn from a set."""
        return self._source if isinstance(self._source, SystemDistribution) else None

    @property
    def system(self) -> System:
        """The system of the present episode."""
        if self._broken is not None:
            raise ResetNeeded(self._broken)
        if self._system is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._system

    def vary(self, name: str, values: ArrayLike) -> SystemSet:
        """Systems that differ from the present one in exactly one property."""
        return vary(self.persistent_properties, self.system, name, values)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; see the class for `options`."""
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"reset options must be a mapping, got {options!r}")
        rest = dict(options or {})
        wanted, seed = rest.pop("system", None), check_seed(seed)
        if near := difflib.get_close_matches("system", map(str, rest), n=1, cutoff=0.8):
            raise ValueError(f"unknown reset option {near[0]!r}; did you mean 'system'?")
        if seed is None and wanted is None and self.keep_system and self._system is not None:
            wanted = "same"
        key, episode = (self._key, self._episode) if seed is None else (seeded(seed)[1], 0)
        if key is None:
            key = np.random.default_rng().integers(2**64, size=1, dtype=np.uint64)
        at = np.array([episode], np.uint64)
        system = self._chosen(wanted, uniforms(key, at, len(self.persistent_properties), SYSTEM))
        values = self.persistent_properties.array(system)
        try:
            kept = self._put(self.unwrapped, values)
        except BaseException:
            self._restore()
            raise
        self._break("the last reset failed after it had set another system: call reset()")
        own = int(uniforms(key, at, 1, STATE)[0, 0] * 2**31) if seed is None else seed
        observation, info = self.env.reset(seed=own, options=rest or None)
        for name, value in kept.items():
            if (now := self._attributes[name].get(self.unwrapped)) != value:
                raise ValueError(
                    f"the reset of {self.env} changed {self._attributes[name].path!r} from {value!r} to {now!r}: what "
                    "it sets by itself cannot persist"
                )
        self._key, self._episode, self._system, self._shown = key, episode + 1, system, observation
        self._broken = None
        extrapolated = bool(self.persistent_properties.extrapolated(values[None])[0])
        return observation, {**info, "system_id": system.id, "persistent": values, "extrapolated": extrapolated}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The environment's step."""
        if self._broken is not None:
            raise ResetNeeded(self._broken)
        found = self.env.step(action)
        self._shown = None if found[2] or found[3] else found[0]
        return found

    def counterfactual(self, systems: Any, actions: ArrayLike) -> Trajectories:
        """The present state and one sequence of actions (T, …) under a batch of systems; changes nothing here.

        `systems` is a `SystemSet` (see `vary`), `System`s, a mapping of every name to a number or (N,) array, or (N, F)
        values. Each runs in a copy, with the same random numbers to come and the same time limit. ResetNeeded where no
        episode runs; ValueError for an environment that cannot be deep-copied, such as one with an open window, and
        for observations that are no arrays, and a `set` that writes elsewhere than to the environment it is given.
        """
        if self._broken is not None:
            raise ResetNeeded(self._broken)
        if self._shown is None:
            raise ResetNeeded("call reset() first: there is no running episode")
        values = system_values(self.persistent_properties, systems)
        space, n = self.observation_space, len(values)
        if space.shape is None or space.dtype is None:
            raise ValueError(f"counterfactual needs observations that are one array, got {space}")
        actions = [legal_action(action, self.action_space, whose="the action") for action in actions]  # type: ignore[union-attr]
        observations = np.zeros((n, len(actions) + 1, *space.shape), space.dtype)  # type: ignore[arg-type]
        observations[:, 0] = in_space(self._shown, space, "observations")
        rewards, lengths = np.zeros((n, len(actions))), np.full(n, len(actions), np.int64)
        terminal = np.zeros(n, np.bool_)
        present = self.persistent_properties.array(self.system)
        before: Numbers | None = numbers(self.unwrapped)
        for row, of in enumerate(values):
            try:
                env = _copied(self.env)
            except Exception as error:  # whatever an environment holds
                raise ValueError(f"{self.env} cannot be copied, which counterfactual needs: {error}") from error
            self._put(env.unwrapped, of)
            if before is not None and not np.array_equal(of, present):
                self._check_untouched(before)
                before = None  # where a function writes, it writes for all
            for t, action in enumerate(actions):
                observation, rewards[row, t], terminated, truncated, _ = env.step(action)
                observations[row, t + 1] = in_space(observation, space, "observations")
                if terminated or truncated:
                    lengths[row], terminal[row] = t + 1, terminated
                    break
        return Trajectories(observations, rewards, lengths, terminal, values)

    def _chosen(self, wanted: Any, u: NDArray[np.float64]) -> System:
        """The system of the next episode: the wanted, the present, the pinned, or one drawn with uniforms (1, F)."""
        properties = self.persistent_properties
        if isinstance(wanted, str) and wanted == "same":
            if self._system is None:
                raise ValueError("system 'same' needs a system: reset once without it")
            return self._system
        choice = self._fixed if wanted is None else resolve(wanted, None, properties, self.systems)
        if choice is not None:
            (values,), (id,), (origin,) = choice
            return System(properties.mapping(values), id=id) if origin is None else origin
        (values,), (id,), (row,) = drawn(self._source, u)
        return System(properties.mapping(values), id=id) if self.systems is None else self.systems[int(row)]

    def __deepcopy__(self, memo: dict[int, Any]) -> "PersistentEnv":
        """Of the environment as it stands: `EzPickle` would make a new one."""
        memo[id(self.env)] = _copied(self.env, memo)
        memo[id(self)] = new = object.__new__(type(self))
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; what was made anew out of its arguments is in no episode."""
        vars(self).update(state)
        if self._system is not None and any(map(_made_anew, _layers(self.env))):
            self._break(f"a pickle of {self.env} keeps its arguments and not its state: call reset()")

    def _break(self, why: str) -> None:
        """No steps until a reset succeeds."""
        self._broken, self._shown = why, None

    def _restore(self) -> None:
        """Set the present system again, after another could not be set."""
        if self._system is None:
            self._break("no system could be set yet: call reset()")
        elif self._broken is None:
            try:
                self._put(self.unwrapped, self.persistent_properties.array(self._system))
            except ValueError as error:
                self._break(f"the system of this episode could not be set again: call reset(); {error}")

    def _check_untouched(self, before: Numbers) -> None:
        """Refuse a `set` that has written to this environment when it was given a copy."""
        if paths := changed(before, numbers(self.unwrapped)):
            self._restore()
            if changed(before, numbers(self.unwrapped)):
                self._break("counterfactual changed this environment: call reset()")
            raise ValueError(
                f"set(env, values) wrote {paths[0]!r} of the wrapped environment when it was given a copy of it: write "
                "to its argument env, and to no variable from outside"
            )

    def _check_fractions(self) -> None:
        """Refuse integers of which no fraction can be set or stepped, where systems have some; tried on a copy."""
        u = uniforms(np.zeros(16, np.uint64), np.arange(16, dtype=np.uint64), len(self.persistent_properties), SYSTEM)
        rows = drawn(self._source, u)[0] if self._fixed is None else self._fixed[0]
        for name in self._whole:
            column = rows[:, self.persistent_properties.index(name)]
            fractions = column[column % 1 != 0]
            if not len(fractions):
                continue
            attribute, value = self._attributes[name], float(fractions[0])
            try:
                env = _copied(self.unwrapped)
            except Exception:  # whatever it holds; its steps will tell
                continue
            try:
                attribute.put(env, value)
                env.reset(seed=0)
                env.step(env.action_space.sample())
            except (TypeError, ValueError) as error:
                why = "it keeps none" if isinstance(error, ValueError) else shown(str(error).partition("\n")[0])
                raise ValueError(
                    f"the attribute {attribute.path!r} of {type(env).__name__} is the integer "
                    f"{attribute.get(self.unwrapped):.0f}, and takes no fraction such as {value!r}: {why}; draw whole "
                    "values, as systems=SystemDistribution(properties, {name: [1, 2, 4]}) does, or round in a function "
                    "set"
                ) from error

    def _check_set(self) -> None:
        """Refuse a `set` after which numbers of the environment depend on the systems set before."""
        left = self._left_over()
        if left:  # what the environment's own resets draw or set again does no harm
            with contextlib.suppress(Exception):  # of one that cannot be reset so, the finding stands
                stages = [numbers(self.unwrapped)]
                for seed in (0, 1):
                    self.unwrapped.reset(seed=seed)
                    stages.append(numbers(self.unwrapped))
                own = {path for now, then in pairwise(stages) for path in changed(now, then)}
                left = {path: said for path, said in left.items() if path not in own}
        for path, said in left.items():
            raise ValueError(
                f"set(env, values) is no function of the values alone: {path!r} was {said}. Start from numbers "
                "stored once, as mass = env.unwrapped.model.body_mass[1] before the wrapper is made and "
                'env.model.body_mass[1] = mass * values["mass"] in the function, and set the same things for all values'
            )

    def _left_over(self) -> dict[str, str]:
        """Paths of what differs after a system according to the one before, and how."""
        properties, env = self.persistent_properties, self.unwrapped
        ends = properties.nominal, np.array([p.low for p in properties]), np.array([p.high for p in properties])
        seen: dict[int, tuple[Numbers, Any]] = {}
        left: dict[str, str] = {}
        for which in (0, 1, 0, 2, 1, 2, 0):  # each after each other one
            try:
                self._put(env, ends[which])
            except ValueError:
                if which == 0:
                    raise
                continue  # corners of the ranges need not be legal together
            found, names = numbers(env), vars(env).keys()
            before, had = seen.setdefault(which, (found, frozenset(names)))
            values = properties.mapping(ends[which])
            for path in changed(before, found):
                old, new = _first(before[path], found[path])
                left.setdefault(path, f"{old} once and {new} another time after {values}")
            for name in had ^ names:
                left.setdefault(name, f"there once and missing another time after {values}")
        return left

    def _kept_as(self, name: str, value: float) -> float:
        """A whole value of an attribute that is an integer as one, which `range` and the like need."""
        return int(value) if name in self._whole and value % 1 == 0 else value

    def _put(self, env: Any, values: NDArray[np.float64]) -> dict[str, float]:
        """Give the environment a system; what its attributes keep of the values."""
        named = self.persistent_properties.mapping(values)
        if self._set is None:
            return {name: of.put(env, self._kept_as(name, named[name])) for name, of in self._attributes.items()}
        try:
            self._set(env, dict(named))
        except Exception as error:  # of the user's function, whatever it is
            raise ValueError(f"set(env, {named}) raised {type(error).__name__}: {error}") from error
        return {}


def _copied(env: gym.Env[Any, Any], memo: dict[int, Any] | None = None) -> Any:
    """A deep copy of an environment and its wrappers as they stand.

    Of each its attributes: `EzPickle`, of Gymnasium's robots, would make a new environment out of its arguments.
    """
    memo = {} if memo is None else memo
    for layer in reversed(_layers(env)):
        if hasattr(layer, "__deepcopy__"):
            copy.deepcopy(layer, memo)
        else:
            memo[id(layer)] = new = object.__new__(type(layer))
            vars(new).update(copy.deepcopy(vars(layer), memo))
    return memo[id(env)]


def _layers(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    """An environment, and what it wraps."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _made_anew(env: gym.Env[Any, Any]) -> bool:
    """Whether an environment has its own way to be pickled, which need not keep its state."""
    ways = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
    return any(getattr(type(env), way, None) is not getattr(object, way, None) for way in ways)


def _first(a: NDArray[Any], b: NDArray[Any]) -> tuple[Any, Any]:
    """The first entries that differ, or the shapes."""
    if a.shape != b.shape:
        return a.shape, b.shape
    at = tuple(np.argwhere(np.atleast_1d((a != b) & ~((a != a) & (b != b))))[0])
    return np.atleast_1d(a)[at], np.atleast_1d(b)[at]


def declared(properties: Properties, present: Mapping[str, float]) -> PersistentProperties:
    """Properties as declared; the nominal value of one in short, (low, high), is the present one, else the middle.

    A range in short is linear, and its values are at least 0 if the range is. ValueError for anything else.
    """
    if not isinstance(properties, Mapping):
        made = properties if isinstance(properties, PersistentProperties) else PersistentProperties(properties)
    else:
        made = PersistentProperties(_property(str(name), of, present) for name, of in properties.items())
    if len(made) == 0:
        raise ValueError("properties must name one at least")
    return made


def _listed(properties: Any) -> tuple[PersistentProperty, ...]:
    """Declarations out of an iterable; ValueError for anything else."""
    given: tuple[Any, ...] = (
        tuple(properties) if isinstance(properties, Iterable) and not isinstance(properties, str) else (properties,)
    )
    if all(isinstance(p, PersistentProperty) for p in given):
        return given
    raise ValueError(
        f"properties are {properties!r}; legal: name → (low, high), as {{'length': (0.25, 1.0)}}, or a "
        "PersistentProperties"
    )


def _property(name: str, of: Any, attributes: Mapping[str, float]) -> PersistentProperty:
    if isinstance(of, PersistentProperty):
        if of.name != name:
            raise ValueError(f"property {name!r} is declared under the name {of.name!r}")
        return of
    if isinstance(of, str) or not isinstance(of, Sequence) or len(of) != 2 or not all(map(is_real, of)):
        raise ValueError(f"property {name!r} is {of!r}; legal: (low, high), or a PersistentProperty")
    low, high = float(of[0]), float(of[1])
    physical = 0.0 if low >= 0.0 else -np.inf
    usual = attributes.get(name, -np.inf)
    usual = (low + high) / 2 if usual == -np.inf or usual < physical else usual
    return PersistentProperty(name, name, "1", low, high, float(usual), physical_low=physical)


def _attributes(properties: Any, given: Mapping[str, str] | None) -> dict[str, Attribute]:
    """The attribute of each property; ValueError for names that are none and attributes of two properties."""
    names = [p.name if isinstance(p, PersistentProperty) else p for p in properties]
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"set is {given!r}; legal: name → path of an attribute, or a function set(env, values)")
    paths = dict(given or {})
    for name in paths:
        if name not in names:
            raise unknown_name("property", name, names)
    found = {name: Attribute(paths.get(name, name)) for name in names}
    if len({attribute.path for attribute in found.values()}) != len(found):
        raise ValueError(f"two properties set one attribute: {', '.join(a.path for a in found.values())}")
    return found
