"""The single environment over any `World`, and what it shares with the vector environment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.arguments import check_seed, number
from sprii_envs.declarations import check_declarations
from sprii_envs.properties import (
    PersistentProperties,
    System,
    SystemDistribution,
    SystemSet,
    unknown_name,
    vary,
)
from sprii_envs.slots import (
    ALL,
    Choice,
    Slots,
    Source,
    check_source,
    query_code,
    resolve,
    system_values,
    unbatched,
)
from sprii_envs.snapshots import load_generator, save_generator
from sprii_envs.world import Array, Rollout, World, rollout, sensitivity

ObsType = Literal["state", "pixels"]
_FLOAT32 = np.dtype(np.float32)


def _source(world: World, systems: Source | str | None) -> Source:
    """Where bare resets draw from: what was given, one of the world's groups by name, or its default."""
    if systems is None:
        return next(iter(world.groups.values()), SystemDistribution(world.properties))
    if isinstance(systems, str):
        if systems not in world.groups:
            raise unknown_name(f"group of systems of {world.name}", systems, world.groups)
        return world.groups[systems]
    if not isinstance(systems, SystemSet | SystemDistribution):
        named = f", or a group: {', '.join(world.groups)}" if world.groups else ""
        raise ValueError(f"systems must be a SystemSet or a SystemDistribution{named}; got {type(systems).__name__}")
    return systems


class Common:
    """What the single and the vector environment share: construction, description, counterfactuals."""

    world: World
    _slots: Slots

    def _build(
        self,
        world: World,
        n: int,
        obs_type: str,
        render_mode: str | None,
        render_modes: Sequence[str],
        system: Any,
        systems: Source | str | None,
        image_size: int | Sequence[int],
    ) -> gym.Space[Any]:
        check_declarations(type(world))
        number(f"{world.name}.dt", world.dt, least=1e-9)
        world.load()
        if obs_type not in ("state", "pixels"):
            raise unknown_name("obs_type", obs_type, ("state", "pixels"))
        drawing = f"obs_type={obs_type!r}" if obs_type == "pixels" else f"render_mode={render_mode!r}"
        if not world.has_pictures and (obs_type == "pixels" or render_mode is not None):
            raise world.without_pictures(drawing)
        if render_mode is not None and render_mode not in render_modes:
            raise unknown_name("render_mode", render_mode, render_modes)
        source = _source(world, systems)
        check_source(source, world.properties, world.name)
        size = rendering.image_size(image_size)
        found = source if isinstance(source, SystemSet) else None
        fixed = None if system is None else resolve(system, None, world.properties, found)
        self.world = world
        self.obs_type: ObsType = obs_type  # type: ignore[assignment]
        self.image_size = size
        self._slots = Slots(world, n, source=source, fixed=fixed, obs_type=self.obs_type, size=size)
        self.running = False
        """Whether there is an episode to step: true from the first reset on."""
        if obs_type == "pixels":
            return gym.spaces.Box(0, 255, (*size, 2), np.uint8)
        low, high = world.observation_bounds
        return gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def persistent_properties(self) -> PersistentProperties:
        """The environment's persistent properties: iterable, printable as a table, `to_space()`."""
        return self.world.properties

    @property
    def systems(self) -> SystemSet | None:
        """The set systems are drawn from, or None if they are drawn from a distribution."""
        return self._slots.source if isinstance(self._slots.source, SystemSet) else None

    @property
    def distribution(self) -> SystemDistribution | None:
        """The distribution systems are drawn from, or None if they are drawn from a set."""
        return self._slots.source if isinstance(self._slots.source, SystemDistribution) else None

    def _needs_reset(self) -> None:
        if not self.running:
            raise ResetNeeded("call reset() first: there is no episode yet")

    def _identity(self) -> dict[str, Any]:
        """What a saved state holds for: the world with its constants, and what is observed of it."""
        constants = dataclasses.asdict(self.world)  # type: ignore[call-overload]
        made = {"environment": self.world.name, **constants, **self.world.sources}
        made["obs_type"] = self.obs_type
        return made | ({"image_size": self.image_size} if self.obs_type == "pixels" else {})

    def _check_identity(self, saved: object) -> None:
        """ValueError unless `saved` is what `get_state` of an environment made alike returned."""
        if not isinstance(saved, Mapping):
            raise ValueError(f"a saved state is what get_state() returned, a mapping; got {saved!r}")
        if "world" not in saved:
            raise ValueError(f"saved state lacks 'world'; it has {', '.join(map(repr, saved)) or 'nothing'}")
        here, there = self._identity(), saved["world"]
        if not isinstance(there, Mapping):
            raise ValueError(f"saved 'world' must be a mapping, got {there!r}")
        differ = [
            f"{name} is {there.get(name)!r} there, {here.get(name)!r} here"
            for name in {**here, **there}
            if here.get(name) != there.get(name)
        ]
        if differ:
            raise ValueError(f"the saved state is of another world: {'; '.join(differ)}")

    def _options(self, options: Mapping[str, Any] | None, legal: Sequence[str]) -> Mapping[str, Any]:
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise ValueError(f"reset options must be a mapping, of {', '.join(map(repr, legal))}, got {options!r}")
        for name in options:
            if name not in legal:
                raise unknown_name("reset option", name, legal)
        return options

    def _choice(self, system: Any, n: int | None) -> Choice | Literal["same"] | None:
        if system is None:
            return None
        if isinstance(system, str) and system == "same":
            if not self.running:
                raise ValueError("system 'same' needs a system: reset once without it")
            return "same"
        return resolve(system, n, self.world.properties, self.systems)

    def _counterfactual(
        self, slot: int, systems: Any, actions: ArrayLike, state: ArrayLike | None, frames: bool
    ) -> Rollout:
        values = system_values(self.world.properties, systems)
        start = self._start(slot, state)
        size = self.image_size if frames else None
        return rollout(self.world, values, start, actions, frames=size, reached=state is None)

    def _start(self, slot: int, state: ArrayLike | None) -> ArrayLike:
        if state is not None:
            return state
        self._needs_reset()
        return self._slots.state[slot]

    def _vary(self, slot: int, name: str, values: ArrayLike) -> SystemSet:
        self._needs_reset()
        return vary(self.world.properties, self._slots.system(slot), name, values)

    def _sensitivity(self, slot: int, name: str, actions: ArrayLike, state: ArrayLike | None, relative: float) -> Array:
        self._needs_reset()
        start = self._start(slot, state)
        values = self._slots.values[slot]
        return sensitivity(self.world, values, name, start, actions, relative=relative, reached=state is None)

    def _render_size(self) -> rendering.Size:
        scale = -(-256 // max(self.image_size))
        return self.image_size[0] * scale, self.image_size[1] * scale

    def _pictures(self) -> rendering.Frame:
        return self.world.picture(self._slots.state, self._slots.values, self._render_size())


class SpriiEnv(Common, gym.Env[NDArray[Any], NDArray[np.float32]]):
    """One system at a time, over any `World`.

    `reset(options=...)` takes `system` (values by name, a `System`, an id of the environment's `systems`, or
    "same" for another episode of the present one), `state` (S,) the exact initial state, and `query`, a named
    kind of start if the world has any; not both of the last. Each holds for that one reset: a bare `reset()` draws a
    new system, or uses the one the constructor was given. The same seed gives the same initial state whatever the
    system.

    While `keep_system` is true, resets without a seed or a system begin another episode of the present one: for vectors
    of single environments, whose autoresets have no options. Snapshots leave it as it is.
    """

    keep_system: bool = False

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012

    def __init__(
        self,
        world: World,
        *,
        obs_type: str = "state",
        render_mode: str | None = None,
        system: Any = None,
        systems: Source | str | None = None,
        image_size: int | Sequence[int] = 64,
    ) -> None:
        """`system` pins one system, `systems` is where bare resets draw from, a source or a group of the world."""
        self.observation_space = self._build(
            world, 1, obs_type, render_mode, self.metadata["render_modes"], system, systems, image_size
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (world.action_size,), np.float32)
        modes = self.metadata["render_modes"] if world.has_pictures else []
        self.metadata = {**self.metadata, "render_modes": modes, "render_fps": max(1, round(1.0 / world.dt))}
        self.render_mode = render_mode
        self._steps_one = type(world).steps_one()
        self._keyed: np.random.Generator | None = None
        self._window: rendering.Window | None = None

    @property
    def system(self) -> System:
        """The system of the present episode."""
        self._needs_reset()
        return self._slots.system(0)

    @property
    def state(self) -> Array:
        """A copy of the present physical state, (S,) float64, named by `world.state_names`."""
        self._needs_reset()
        return self._slots.state[0].copy()

    @property
    def initial_state(self) -> Array:
        """A copy of the state the present episode began in, (S,) float64."""
        self._needs_reset()
        return self._slots.start[0].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode; see the class docstring for `options`. Bad options change nothing."""
        opts = self._options(options, ("system", "state", "query"))
        kept = self.keep_system and self.running and seed is None and opts.get("system") is None
        choice = self._choice("same" if kept else opts.get("system"), None)
        given = opts.get("state")
        state = None if given is None else self.world.check_state(given, 1)
        query = query_code(opts.get("query"), self.world)
        if state is not None and query >= 0:
            raise ValueError(
                f"reset options 'state' and 'query' = {opts['query']!r} both say how this episode starts: give one"
            )
        super().reset(seed=check_seed(seed))
        generator = self.np_random
        if seed is not None or generator is not self._keyed:
            self._slots.reseed(ALL, generator.integers(2**64, size=1, dtype=np.uint64))
            self._keyed = generator
        self._slots.pinned[:] = False
        self._slots.query[:] = query
        self._slots.reset(ALL, choice, state)
        self.running = True
        if self.render_mode == "human":
            self._show()
        return self._slots.observe()[0], unbatched(self._slots.info())

    def step(self, action: ArrayLike) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """One control step; the action (A,) is clipped to the legal range."""
        if not self.running:
            self._needs_reset()
        slots, world = self._slots, self.world
        # What a policy gives needs no more checks; this is the hot path of every program with one environment.
        if type(action) is np.ndarray and action.dtype is _FLOAT32 and action.shape == (world.action_size,):
            a = action
        else:
            a = world.check_action(action, None)[0]
        if self._steps_one:
            after, reward, terminated, truncated, info = slots.step_one(a.tolist())
            if self.render_mode == "human":
                self._show()
            if self.obs_type == "state":
                return np.array(world.observe_one(after), _FLOAT32), reward, terminated, truncated, info
            return slots.observe()[0], reward, terminated, truncated, info
        reward, ending = slots.step(a[None])
        if self.render_mode == "human":
            self._show()
        terminated = ending.terminated is not None and bool(ending.terminated[0])
        truncated = ending.truncated is not None and bool(ending.truncated[0])
        info = unbatched(ending.info) if ending.info else {}
        return self._slots.observe()[0], float(reward[0]), terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """The picture for people, (h, w, 3) uint8; None in `human`, where step and reset show it."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: gym.make(..., render_mode='rgb_array')")
            return None
        self._needs_reset()
        if self.render_mode == "human":
            self._show()
            return None
        return self._pictures()[0]

    def close(self) -> None:
        """Close the window, if any; safe to call twice."""
        if self._window is not None:
            self._window.close()

    def counterfactual(
        self,
        systems: Any,
        actions: ArrayLike,
        *,
        state: ArrayLike | None = None,
        frames: bool = False,
    ) -> Rollout:
        """Re-run one start and one sequence of actions (T, A) under a batch of systems; changes nothing here.

        `systems` is a `SystemSet` (see `vary`), `System`s, a mapping of every name to a number or (N,) array,
        or (N, F) values. The start is `state`, or the present state; `initial_state` is where the episode
        began.
        """
        return self._counterfactual(0, systems, actions, state, frames)

    def vary(self, name: str, values: ArrayLike) -> SystemSet:
        """Systems that differ from the present one in exactly one property."""
        return self._vary(0, name, values)

    def sensitivity(
        self, name: str, actions: ArrayLike, *, state: ArrayLike | None = None, relative: float = 0.01
    ) -> Array:
        """Derivative of the states (T+1, S) by the log of one property; see `world.sensitivity`."""
        return self._sensitivity(0, name, actions, state, relative)

    def get_state(self) -> dict[str, Any]:
        """Everything the rest of the episode and all later ones depend on; a picklable copy.

        `["state"]` is the physical state (S,) in float64. A time limit is not included: see `get_state(env)`.
        """
        self._needs_reset()
        saved = {name: _first(array) for name, array in self._slots.save().items()}
        return {**saved, "world": self._identity(), **save_generator(self)}

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Put back what `get_state` returned, exactly; ValueError, and no change, if it does not fit."""
        self._check_identity(saved)
        checked = self._slots.check_saved(saved, single=True)
        load_generator(self, saved)
        self._keyed = self._np_random
        self._slots.load(checked)
        self.running = True

    def _show(self) -> None:
        if self._window is None:
            self._window = rendering.Window(self.world.name, self.metadata["render_fps"])
        self._window.show(self._pictures()[0])


def _first(array: NDArray[Any]) -> Any:
    return array[0].copy() if array.ndim > 1 else array[0]
