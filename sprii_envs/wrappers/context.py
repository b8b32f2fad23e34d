"""The persistent context, known or inferred, in the observation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import MANY, flag, integer
from sprii_envs.checks import reals
from sprii_envs.properties import PersistentProperties, unknown_name
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.wrappers.common import Array, VectorInner, final_observations, of_slots, said, sees_resets

Encoder = Callable[[Array, Array], ArrayLike]
Context = str | Sequence[str] | Encoder | Mapping[str, ArrayLike]


class _Values(NamedTuple):
    """Context made of property values."""

    properties: PersistentProperties
    columns: tuple[int, ...]
    normalise: bool

    @property
    def size(self) -> int:
        return len(self.columns)

    def __call__(self, ids: Sequence[str], values: Array) -> NDArray[np.float32]:
        """Contexts (n, C) of systems, from their ids and values (n, F)."""
        huge = float(np.finfo(np.float32).max)
        out = np.empty((len(values), self.size), np.float32)
        for i, column in enumerate(self.columns):
            value = values[:, column]
            if self.normalise:
                value = 2.0 * self.properties[column].to_uniform(value) - 1.0
            out[:, i] = np.clip(value, -huge, huge)
        return out


class _Codes(NamedTuple):
    """Context looked up by system."""

    table: Mapping[str, NDArray[np.float32]]
    size: int

    def __call__(self, ids: Sequence[str], values: Array) -> NDArray[np.float32]:
        """Contexts (n, C) of systems, from their ids and values (n, F); ValueError if one has no code."""
        for id in ids:
            if id not in self.table:
                raise ValueError(f"no code for system {id!r}: codes are given for {len(self.table)} systems")
        return np.stack([self.table[id] for id in ids])


class _Encoded(NamedTuple):
    """Context computed from the running history."""

    encoder: Encoder
    size: int
    history: int | None
    single: bool
    """Whether the encoder takes one history, and not a batch of them."""


def _source(
    context: Context,
    size: int | None,
    history: int | None,
    normalise: bool,
    properties: PersistentProperties,
    single: bool,
) -> _Values | _Codes | _Encoded:
    """What the arguments of `ContextObservation` mean; ValueError if they mean nothing."""
    if not flag("normalise", normalise) and (callable(context) or isinstance(context, Mapping)):
        raise ValueError("normalise = False: it belongs to values of properties, and context is an encoder or codes")
    if callable(context):
        history = None if history is None else integer("an encoder's history", history, least=1, most=MANY)
        return _Encoded(context, integer("an encoder's size", size, least=1, most=MANY), history, single)
    for name, value in (("size", size), ("history", history)):
        if value is not None:
            raise ValueError(f"{name} = {value!r}: it belongs to an encoder, and context is none")
    if isinstance(context, Mapping):
        return _codes(context)
    if context == "all":
        names: Sequence[str] = properties.names
    elif context == "none":
        names = ()
    elif isinstance(context, str):
        if context not in properties:
            raise unknown_name("context", context, ("all", "none", *properties.names))
        names = (context,)
    elif isinstance(context, Iterable):
        names = tuple(context)
    else:
        raise ValueError(f"context must be names of properties, an encoder or a mapping of codes, got {context!r}")
    columns = tuple(properties.index(name) for name in names)
    if len(set(columns)) != len(columns):
        raise ValueError(f"context names a property twice: {names}")
    return _Values(properties, columns, normalise)


def _codes(given: Mapping[str, ArrayLike]) -> _Codes:
    table: dict[str, NDArray[np.float32]] = {}
    size = None
    for id, code in given.items():
        try:
            vector = np.array(reals(code, np.float32))
        except TypeError as e:
            raise ValueError(f"the code of system {id!r} must be numbers, got {code!r}") from e
        size = vector.size if size is None else size
        if vector.shape != (size,) or size == 0 or not np.isfinite(vector).all():
            raise ValueError(
                f"codes must be finite vectors (C,), all of one size ≥ 1: that of system {id!r} is {code!r}"
            )
        table[str(id)] = vector
    if size is None:
        raise ValueError("codes must hold at least one system")
    return _Codes(table, size)


class _History(NamedTuple):
    """What the running episodes of N slots have seen, newest last. Never changed, so that a snapshot can hold it."""

    observations: tuple[Array, ...]
    """(N, …) each; the last one is present."""
    actions: tuple[Array, ...]
    """(N, A) each, the action that led to the observation at the same place; the first is a blank."""
    lengths: NDArray[np.int64]
    """Transitions in each slot's history, (N,)."""

    @classmethod
    def begin(cls, observations: Array, action_shape: tuple[int, ...]) -> "_History":
        """N episodes that have just begun."""
        n = len(observations)
        return cls((observations.copy(),), (np.zeros((n, *action_shape), np.float32),), np.zeros(n, np.int64))

    def then(self, observations: Array, actions: ArrayLike, limit: int | None) -> "_History":
        """One transition later; at most `limit` transitions are kept."""
        lengths = self.lengths + 1 if limit is None else np.minimum(self.lengths + 1, limit)
        keep = int(lengths.max()) + 1
        seen, done = (*self.observations, observations.copy()), (*self.actions, np.array(actions, np.float32))
        return _History(seen[-keep:], done[-keep:], lengths)

    def restart(self, rows: NDArray[np.intp], observations: Array) -> "_History":
        """The same with new episodes in some slots, which begin in their rows of `observations`."""
        lengths, present = self.lengths.copy(), self.observations[-1].copy()
        lengths[rows], present[rows] = 0, observations[rows]
        return _History((*self.observations[:-1], present), self.actions, lengths)

    def encode(self, rows: NDArray[np.intp], source: _Encoded) -> NDArray[np.float32]:
        """Codes (n, C) of some slots: one call of the encoder for each length of history there is."""
        codes = np.empty((len(rows), source.size), np.float32)
        lengths = self.lengths[rows]
        for length in np.unique(lengths).tolist():
            some = lengths == length
            seen, done = (
                np.stack([batch[rows[some]] for batch in batches[-length - 1 :]], axis=1)
                for batches in (self.observations, self.actions)
            )
            code = source.encoder(*((seen[0], done[0, 1:]) if source.single else (seen, done[:, 1:])))
            shape = (source.size,) if source.single else (len(seen), source.size)
            try:
                good = np.shape(vector := reals(code, np.float32)) == shape and bool(np.isfinite(vector).all())
            except TypeError:
                good, vector = False, code
            if not good:
                raise ValueError(
                    f"the encoder must return a finite code of size {source.size} for each history, numbers of shape "
                    f"{shape}; after {length} transitions it gave {vector!r}"
                )
            codes[some] = vector
        return codes


def _context_space(space: spaces.Space[Any], source: _Values | _Codes | _Encoded) -> spaces.Space[Any]:
    if isinstance(source, _Encoded) and not isinstance(space, spaces.Box):
        raise ValueError(f"an encoder needs observations that are one array, got {space}")
    high = np.full(source.size, np.finfo(np.float32).max, np.float32)
    if _flat(space):
        low = np.concatenate((space.low, -high), dtype=space.dtype)
        return spaces.Box(low, np.concatenate((space.high, high), dtype=space.dtype), dtype=space.dtype)  # type: ignore[arg-type]
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
    if "context" in parts:
        raise ValueError(f"the observation has a context already: {space}")
    return spaces.Dict(parts | ({"context": spaces.Box(-high, high, dtype=np.float32)} if source.size else {}))


def _flat(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)


def _merge(space: spaces.Space[Any], observation: Any, context: NDArray[np.float32]) -> Any:
    """An observation (or a batch) of `space` with its context (…, C)."""
    if _flat(space):
        return np.concatenate((observation, context), axis=-1, dtype=space.dtype)
    parts = observation if isinstance(observation, dict) else {"observation": observation}
    return parts | ({"context": context.copy()} if context.shape[-1] else {})


def _properties(env: Any) -> PersistentProperties:
    base = env.unwrapped
    try:
        if isinstance(base, SpriiVectorEnv):
            return base.persistent_properties
        if isinstance(base, VectorEnv):
            return base.get_attr("persistent_properties")[0]  # type: ignore[attr-defined]
        return env.get_wrapper_attr("persistent_properties")
    except AttributeError as e:
        raise ValueError(f"ContextObservation needs an environment with persistent properties, got {env}") from e


def _kind(source: _Values | _Codes | _Encoded) -> str:
    """What the context is made of, as far as it can be compared with that of another process."""
    if isinstance(source, _Values):
        names = ", ".join(source.properties.names[column] for column in source.columns)
        return f"values of {names or 'nothing'}" + ("" if source.normalise else ", as they are")
    if isinstance(source, _Codes):
        return f"codes of size {source.size}"
    return f"an encoder's codes of size {source.size}, of {source.history or 'all'} transitions"


class ContextObservation(gym.Wrapper[Any, Array, Any, Array], RecordConstructorArgs):
    """Puts what persists in the system, known or inferred, into the observation.

    `context` is one of

    - "all", or a list of property names, or one name: their values, `normalise`d so that the declared range is [−1, 1]
      on its scale (extrapolated systems lie beyond);
    - "none": no context, the baseline with the same kind of observation space;
    - an encoder: a function of the running episode's observations (T+1, …) and actions (T, A), which gives a code (C,)
      for `size=C`; it is called at every reset, with T = 0, and after every step. The observations are those of the
      wrapped environment, the actions those given to this wrapper; `history=K` keeps the latest K transitions only;
    - a mapping from system ids to codes (C,).

    | wrapped observation | with a context of size C                              | "none"             |
    |---------------------|-------------------------------------------------------|--------------------|
    | float vector (O,)   | (O+C,), the context last                              | (O,)               |
    | pixels and others   | `{"observation": …, "context": (C,)}`                 | `{"observation"}`  |
    | dict                | the same dict with "context"                          | the same dict      |

    Contexts are float32, of any finite size. ValueError for an unknown property, a system without a code, and a code of
    the wrong shape.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        context: Context = "all",
        *,
        size: int | None = None,
        history: int | None = None,
        normalise: bool = True,
    ) -> None:
        """`size` and `history` belong to an encoder, `normalise` to property values."""
        RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, context=context, size=size, history=history, normalise=normalise
        )
        gym.Wrapper.__init__(self, env)
        sees_resets(env, "ContextObservation")
        self._source = _source(context, size, history, normalise, _properties(env), single=True)
        self.observation_space = _context_space(env.observation_space, self._source)
        self._context: NDArray[np.float32] | None = np.zeros(self._source.size, np.float32)
        self._history: _History | None = None

    @property
    def context_kind(self) -> str:
        """What the context is made of."""
        return _kind(self._source)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with the context of its system; where it has none, steps raise ResetNeeded."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._context, source = None, self._source  # of the system before, until this one's is known
        if isinstance(source, _Encoded):
            self._history = _History.begin(observation[None], self.action_space.shape or ())
            self._context = context = self._history.encode(_FIRST, source)[0]
        else:
            id, values = said(info, "system_id", "ContextObservation"), said(info, "persistent", "ContextObservation")
            self._context = context = source([id], values[None])[0]
        return _merge(self.env.observation_space, observation, context), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, with the context of the present system or of the longer history."""
        if self._context is None:
            raise ResetNeeded(_UNKNOWN)
        observation, reward, terminated, truncated, info = self.env.step(action)
        context, source = self._context, self._source
        if isinstance(source, _Encoded) and self._history is not None:
            self._history = self._history.then(observation[None], np.asarray(action)[None], source.history)
            self._context = context = self._history.encode(_FIRST, source)[0]
        return _merge(self.env.observation_space, observation, context), reward, terminated, truncated, info


_FIRST = np.zeros(1, np.intp)
_UNKNOWN = "the context of the system that runs could not be told: call reset()"


class VectorContextObservation(VectorInner):
    """`ContextObservation` for vector environments, native or of single ones.

    An encoder gets the slots whose histories are equally long at once: observations (n, T+1, …) and actions (n, T, A),
    and gives codes (n, C). Everything else is as in `ContextObservation`, with the slots as leading axis.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        context: Context = "all",
        *,
        size: int | None = None,
        history: int | None = None,
        normalise: bool = True,
    ) -> None:
        """`size` and `history` belong to an encoder, `normalise` to property values."""
        self._source = _source(context, size, history, normalise, _properties(env), single=False)
        super().__init__(env, _context_space(env.single_observation_space, self._source))
        self._over = np.zeros(self.num_envs, np.bool_)  # episodes that ended in the latest step; replaced, as _context
        self._context: NDArray[np.float32] | None = np.zeros((self.num_envs, self._source.size), np.float32)
        self._history: _History | None = None

    @property
    def context_kind(self) -> str:
        """What the context is made of."""
        return _kind(self._source)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes, with the contexts of their systems; where one has none, steps raise ResetNeeded."""
        mask = options.get("reset_mask") if isinstance(options, Mapping) else None  # Gymnasium's vectors pop it
        if mask is not None:
            self._known()
        observations, infos = self.env.reset(seed=seed, options=options)
        fresh = np.ones(self.num_envs, np.bool_) if mask is None else np.array(mask)
        if self._context is None:
            self._context = np.zeros((self.num_envs, self._source.size), np.float32)
        self._over = self._over & ~fresh
        self._begin(np.flatnonzero(fresh), observations, infos)
        return self._merged(observations, self._known()), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every slot; an ended episode's `final_obs` has the context of the system it ran in."""
        self._known()
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        done = terminated | truncated
        rows, last = self._last(done, infos)
        # Flags and mode say where episodes begin, and not the infos: those may name the system in every step.
        waited = self._over if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(done)
        self._over = done
        source = self._source
        if isinstance(source, _Encoded) and self._history is not None:
            seen = observations
            if len(rows):
                seen = observations.copy()
                seen[rows] = last
            self._history = self._history.then(seen, actions, source.history)
            going = np.flatnonzero(~waited)
            self._put(going, self._history.encode(going, source))
        if len(rows):
            infos["final_obs"] = final_observations(self._merged(last, self._known()[rows]), rows, self.num_envs)
        self._begin(rows if len(rows) else np.flatnonzero(waited), observations, infos)
        return self._merged(observations, self._known()), rewards, terminated, truncated, infos

    def _begin(self, rows: NDArray[np.intp], observations: Any, infos: Mapping[str, Any]) -> None:
        """New contexts in the slots whose episodes begin."""
        source = self._source
        if not len(rows):
            return
        before, self._context = self._known(), None  # of the systems before, until these ones' are known
        if isinstance(source, _Encoded):
            if self._history is None:
                self._history = _History.begin(observations, self.single_action_space.shape or ())
            self._history = self._history.restart(rows, observations)
            found = self._history.encode(rows, source)
        else:
            found = source(of_slots(infos, "system_id", rows).tolist(), of_slots(infos, "persistent", rows))
        self._context = before
        self._put(rows, found)

    def _known(self) -> NDArray[np.float32]:
        if self._context is None:
            raise ResetNeeded(f"{_UNKNOWN} of all slots")
        return self._context

    def _put(self, rows: NDArray[np.intp], contexts: NDArray[np.float32]) -> None:
        self._context = self._known().copy()  # a snapshot may hold the old one
        self._context[rows] = contexts

    def _merged(self, observations: Any, contexts: NDArray[np.float32]) -> Any:
        return _merge(self.env.single_observation_space, observations, contexts)
