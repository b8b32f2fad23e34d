"""The vector environment over any `World`: N systems as one array program."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import check_seed, instance, integer
from sprii_envs.core import Common, SpriiEnv
from sprii_envs.properties import System, SystemSet, unknown_name
from sprii_envs.slots import ALL, Choice, Rows, Source, query_code, saved_array
from sprii_envs.snapshots import load_generator, save_generator
from sprii_envs.world import Array, Rollout, World


class SpriiVectorEnv(Common, VectorEnv[NDArray[Any], NDArray[np.float32], NDArray[Any]]):
    """N systems at a time, over any `World`; slot i of seed s runs as the single environment of seed s + i.

    `reset(seed=int | list | None, options=...)` takes `system` (a mapping of names to numbers or (N,) arrays,
    an (N, F) array, a list of N ids or `System`s, one id or `System`, or "same"), `state` (N, S), `query`,
    and `reset_mask` (N,) bool. Per-slot arrays always have N legal rows; those outside the mask are not used. What is
    chosen here stays with the slot through autoresets until the next `reset` of it, except `state`, which is
    used once; a `query` beside it is of the episodes after that one.
    """

    metadata: dict[str, Any]

    def __init__(
        self,
        world: World,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        obs_type: str = "state",
        render_mode: str | None = None,
        system: Any = None,
        systems: Source | str | None = None,
        image_size: int | Sequence[int] = 64,
    ) -> None:
        """`max_episode_steps=None` means no time limit; `system` pins one system in every slot."""
        num_envs = integer("num_envs", num_envs, least=1, most=10**7)
        if max_episode_steps is not None:
            max_episode_steps = integer("max_episode_steps", max_episode_steps, least=1, most=2**62)
        modes = [mode.value for mode in AutoresetMode]
        if autoreset_mode not in (*AutoresetMode, *modes):
            raise unknown_name("autoreset_mode", autoreset_mode, modes)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.num_envs = num_envs
        self.single_observation_space = self._build(
            world, self.num_envs, obs_type, render_mode, ["rgb_array"], system, systems, image_size
        )
        self.metadata = {
            "render_modes": ["rgb_array"] if world.has_pictures else [],
            "render_fps": max(1, round(1.0 / world.dt)),
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (world.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = render_mode
        self.max_episode_steps = max_episode_steps
        self._tick = 0
        # Steps taken are `_tick − _began`, so that a step without an ending costs no array operation.
        self._began = np.zeros(self.num_envs, np.int64)
        self._next_limit: int | None = None
        self._done = np.zeros(self.num_envs, np.bool_)
        self._any_done = False
        self._seeded: list[int | None] = [None] * self.num_envs  # what each slot's random stream comes from, if known
        self._attributes: dict[str, list[Any]] = {}
        self.final_state: Array | None = None
        """States (N, S) at the latest autoreset of mode SAME_STEP, just before it: what `final_obs` show."""

    def system(self, slot: int) -> System:
        """The system running in one slot."""
        self._needs_reset()
        return self._slots.system(self._slot(slot))

    @property
    def system_ids(self) -> list[str]:
        """The id of the system running in each slot."""
        self._needs_reset()
        return self._slots.ids.tolist()

    @property
    def values(self) -> Array:
        """A copy of the property values running in each slot, (N, F) float64."""
        self._needs_reset()
        return self._slots.values.copy()

    @property
    def state(self) -> Array:
        """A copy of the present physical states, (N, S) float64."""
        self._needs_reset()
        return self._slots.state.copy(order="C")

    @property
    def initial_state(self) -> Array:
        """A copy of the states the present episodes began in, (N, S) float64."""
        self._needs_reset()
        return self._slots.start.copy(order="C")

    @property
    def elapsed_steps(self) -> NDArray[np.int64]:
        """Transitions taken in each slot's present episode, (N,)."""
        return self._tick - self._began

    def keep_systems(self, mask: NDArray[np.bool_]) -> None:
        """Which slots (N,) begin another episode of their system when they autoreset; the others draw one.

        Holds until a slot's next `reset`. ValueError for another shape or type.
        """
        self._needs_reset()
        if type(mask) is not np.ndarray or mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"mask must be a bool array of shape ({self.num_envs},), got {mask!r}")
        self._slots.pinned[:] = mask

    def reset(  # type: ignore[override]
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin episodes in all slots or in `reset_mask`; see the class. Bad options change nothing."""
        opts = self._options(options, ("system", "state", "query", "reset_mask"))
        rows = self._mask(opts.get("reset_mask"))
        choice = self._choice(opts.get("system"), self.num_envs)
        given = opts.get("state")
        state = None if given is None else self.world.check_state(given, self.num_envs)[rows]
        query = query_code(opts.get("query"), self.world)
        seeds = self._seeds(seed)
        keys = None if seeds is None else self._keys(seeds)
        super().reset(seed=None if seeds is None or isinstance(seed, Sequence | np.ndarray) else seeds[0])
        if seeds is not None and keys is not None:
            chosen = np.zeros(self.num_envs, np.bool_)
            chosen[rows] = True
            fresh = np.flatnonzero(chosen & keys[1])
            self._slots.reseed(fresh, keys[0][fresh])
            for row in fresh.tolist():
                self._seeded[row] = seeds[row]
        elif not self.running:
            self._slots.reseed(ALL, self.np_random.integers(2**64, size=self.num_envs, dtype=np.uint64))
        if isinstance(choice, Choice):
            choice = choice.take(rows)
        self._slots.pinned[rows] = False
        self._slots.query[rows] = query
        self._done[rows] = False
        self._any_done = bool(self._done.any())
        self._begin(rows, choice, state)
        self.running = True
        return self._slots.observe(), self._reset_info(rows)

    def step(  # type: ignore[override]
        self, actions: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One control step of every slot; actions (N, A) are clipped. Autoresets as the mode says."""
        self._needs_reset()
        a = self.world.check_action(actions, self.num_envs)
        if not self._any_done:
            return self._advance(a)
        if self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise ResetNeeded(
                f"slots {np.flatnonzero(self._done).tolist()} have ended: reset them with "
                "options={'reset_mask': terminated | truncated}"
            )
        n, done = self.num_envs, self._done
        if done.all():
            self._none_done()
            self._tick += 1
            self._begin(ALL)
            flags = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
            return self._slots.observe(), np.zeros(n), *flags, self._reset_info(ALL)
        rows = np.flatnonzero(done)
        a = a.copy()
        a[rows] = 0.0
        return self._advance(a, rows)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:  # type: ignore[override]
        """The pictures for people, N times (h, w, 3) uint8, in `rgb_array`."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: gym.make_vec(..., render_mode='rgb_array')")
            return None
        self._needs_reset()
        return tuple(self._pictures())

    def counterfactual(
        self,
        slot: int,
        systems: Any,
        actions: ArrayLike,
        *,
        state: ArrayLike | None = None,
        frames: bool = False,
    ) -> Rollout:
        """`SpriiEnv.counterfactual` from the present state of one slot."""
        return self._counterfactual(self._slot(slot), systems, actions, state, frames)

    def vary(self, slot: int, name: str, values: ArrayLike) -> SystemSet:
        """Systems that differ from the one in a slot in exactly one property."""
        return self._vary(self._slot(slot), name, values)

    def sensitivity(
        self,
        slot: int,
        name: str,
        actions: ArrayLike,
        *,
        state: ArrayLike | None = None,
        relative: float = 0.01,
    ) -> Array:
        """`SpriiEnv.sensitivity` for the system in one slot."""
        return self._sensitivity(self._slot(slot), name, actions, state, relative)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a method of each slot's single environment returns, or its attribute, as Gymnasium's vectors tell.

        A copy of the slot is asked. ValueError for methods that change an environment, AttributeError for an unknown
        name.
        """
        if name in CHANGES:
            raise ValueError(f"call({name!r}) cannot change slots one by one: use the vector's own {CHANGES[name]}")
        found = [env.get_wrapper_attr(name) for env in self._singles()]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each slot's single environment, such as its `system`; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Give each slot a label of one's own, for `get_attr`: one value for all, or a list or tuple of one per slot.

        AttributeError for what environments have already, ValueError for another number of values or no name.
        """
        instance("name", name, of=str)
        if name.startswith("_") or name in vars(self) or hasattr(type(self), name) or hasattr(SpriiEnv, name):
            raise AttributeError(
                f"{name!r} cannot be set slot by slot: reset(options=...) chooses systems and states, the constructor "
                "all else"
            )
        values = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"{name!r} needs one value or one for each of {self.num_envs} slots, got {len(values)}")
        self._attributes[name] = values

    def _singles(self) -> Iterator[SpriiEnv]:
        """Copies of the slots as single environments; they can be asked, not stepped."""
        kind = SpriiEnv(
            self.world,
            obs_type=self.obs_type,
            render_mode=self.render_mode,
            systems=self._slots.source,
            image_size=self.image_size,
        )
        kind.spec, kind.running = self.spec, self.running
        for slot, seed in enumerate(self._seeded):
            env = copy.copy(kind)
            env._slots = self._slots.copy_of(slot)
            if seed is not None:
                env._np_random, env._np_random_seed = seeded(seed)[0], seed
            else:  # a stream of its own, whose seed nobody knows
                env.np_random = np.random.default_rng(int(self._slots.key[slot]))
            for name, values in self._attributes.items():
                setattr(env, name, values[slot])
            yield env

    def get_state(self) -> dict[str, Any]:
        """Everything later steps and resets of all slots depend on; picklable, independent of this object."""
        self._needs_reset()
        return {
            **self._slots.save(),
            "elapsed_steps": self.elapsed_steps,
            "done": self._done.copy(),
            "world": self._identity(),
            **save_generator(self),
        }

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Put back what `get_state` returned, exactly; ValueError, and no change, if it does not fit."""
        self._check_identity(saved)
        checked = self._slots.check_saved(saved)
        for name in ("elapsed_steps", "done"):
            if name not in saved:
                raise ValueError(f"saved state lacks {name!r}")
        elapsed = saved_array(saved["elapsed_steps"], "elapsed_steps", (self.num_envs,), np.dtype(np.int64))
        done = saved_array(saved["done"], "done", (self.num_envs,), np.dtype(np.bool_)).copy()
        load_generator(self, saved)
        self._slots.load(checked)
        self._seeded = [None] * self.num_envs
        self._began = self._tick - elapsed
        self._done, self._any_done = done, bool(done.any())
        self._set_limit()
        self.running = True

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {
            "autoreset_mode": self.autoreset_mode,
            "max_episode_steps": self.max_episode_steps,
        }

    def _advance(self, action: NDArray[np.float32], resetting: NDArray[np.intp] | None = None) -> Any:
        n = self.num_envs
        reward, ending = self._slots.step(action)
        if resetting is not None:  # only now: a refused action changes nothing
            self._none_done()
        self._tick += 1
        terminated = np.zeros(n, np.bool_) if ending.terminated is None else ending.terminated
        truncated = np.zeros(n, np.bool_) if ending.truncated is None else ending.truncated
        limit = self._next_limit is not None and self._tick >= self._next_limit
        info: dict[str, Any] = {}
        if limit and self.max_episode_steps is not None:
            truncated = truncated | (self.elapsed_steps >= self.max_episode_steps)
        if ending.info:
            running = np.ones(n, np.bool_)
            if resetting is not None:
                running[resetting] = False
            for name, value in ending.info.items():
                told = running.copy() if value.dtype != object else running & (value != None)  # noqa: E711 - elementwise
                if told.any():
                    info[name], info[f"_{name}"] = _masked(value, told), told
        if resetting is not None:
            self._begin(resetting)
            reward[resetting] = 0.0
            terminated[resetting] = truncated[resetting] = False
            _merge(info, self._reset_info(resetting))
        if limit or ending.terminated is not None or ending.truncated is not None:
            done = terminated | truncated
            if done.any():
                if self.autoreset_mode is AutoresetMode.SAME_STEP:
                    return self._same_step(reward, terminated, truncated, done, info)
                self._done, self._any_done = done, True
            if limit:
                self._set_limit()
        return self._slots.observe(), reward, terminated, truncated, info

    def _none_done(self) -> None:
        self._done, self._any_done = np.zeros(self.num_envs, np.bool_), False

    def _same_step(self, reward: Any, terminated: Any, truncated: Any, done: Any, info: dict[str, Any]) -> Any:
        rows = np.flatnonzero(done)
        last = self._slots.observe()
        self.final_state = self._slots.state.copy()
        final = np.empty(self.num_envs, object)
        for row in rows:
            final[row] = last[row].copy()
        final_info: dict[str, Any] = {}
        for name in [name for name in info if not name.startswith("_")]:
            value, told = info.pop(name), info.pop(f"_{name}")
            for holder, mask in ((final_info, told & done), (info, told & ~done)):
                if mask.any():
                    holder[name], holder[f"_{name}"] = _masked(value, mask), mask
        self._begin(ALL if len(rows) == self.num_envs else rows)
        self._set_limit()
        info |= {
            "final_obs": final,
            "_final_obs": done.copy(),
            "final_info": final_info,
            "_final_info": done.copy(),
        }
        _merge(info, self._reset_info(rows))
        return self._slots.observe(), reward, terminated, truncated, info

    def _begin(self, rows: Rows, choice: Choice | Literal["same"] | None = None, state: Array | None = None) -> None:
        self._slots.reset(rows, choice, state)
        self._began[rows] = self._tick
        self._set_limit()

    def _set_limit(self) -> None:
        """The tick at which the next slot can reach the time limit; slots already done await a reset."""
        if self.max_episode_steps is None:
            return
        running = self._began if not self._any_done else self._began[~self._done]
        self._next_limit = int(running.min()) + self.max_episode_steps if len(running) else None

    def _slot(self, slot: int) -> int:
        return integer("slot", slot, least=-self.num_envs, most=self.num_envs - 1)

    def _mask(self, mask: Any) -> Rows:
        if mask is None:
            return ALL
        if type(mask) is not np.ndarray or mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"reset_mask must be a bool array of shape ({self.num_envs},), got {mask!r}")
        if not mask.any():
            raise ValueError("reset_mask must name at least one slot, got no True")
        if mask.all():
            return ALL
        if not self.running:
            raise ValueError("the first reset must reset every slot: call reset() without reset_mask once")
        return np.flatnonzero(mask)

    def _seeds(self, seed: Any) -> list[int | None] | None:
        """The seed of each slot; ValueError for anything but None, an int, or a list with one per slot."""
        if seed is None:
            return None
        single = isinstance(seed, str | bytes | bytearray) or (isinstance(seed, np.ndarray) and not seed.ndim)
        if single or not isinstance(seed, Sequence | np.ndarray):
            first: Any = check_seed(seed)
            return [first + slot for slot in range(self.num_envs)]
        seeds = [check_seed(each, f"seed[{slot}]") for slot, each in enumerate(seed)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be an int or one int (or None) per slot: {self.num_envs}, got {len(seeds)}")
        return seeds

    def _keys(self, seeds: list[int | None]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        n = self.num_envs
        keys = np.zeros(n, np.uint64)
        given = np.array([s is not None for s in seeds], np.bool_)
        if not self.running and not given.all():
            keys[:] = self.np_random.integers(2**64, size=n, dtype=np.uint64)
        for i, s in enumerate(seeds):
            if s is not None:
                keys[i] = seeded(s)[1][0]
        return keys, given | (not self.running)

    def _reset_info(self, rows: Rows) -> dict[str, Any]:
        if rows is ALL or len(np.arange(self.num_envs)[rows]) == self.num_envs:
            full = self._slots.info()
            return full | {f"_{name}": np.ones(self.num_envs, np.bool_) for name in full}
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        info: dict[str, Any] = {}
        for name, part in self._slots.info(rows).items():
            whole = (
                np.full(self.num_envs, None, object)
                if part.dtype == object
                else np.zeros((self.num_envs, *part.shape[1:]), part.dtype)
            )
            whole[rows] = part
            info[name], info[f"_{name}"] = whole, mask.copy()
        return info


CHANGES = {
    "reset": "reset(options={'reset_mask': ...})",
    "step": "step(actions)",
    "set_state": "set_state(saved)",
    "set_wrapper_attr": "set_attr(name, values)",
    "close": "close()",
}
"""Methods of a single environment that change it, and what does so for a vector."""


def seeded(seed: int) -> tuple[np.random.Generator, NDArray[np.uint64]]:
    """What a single environment has of a seed after its reset: its generator, and the key (1,) drawn from it."""
    generator, _ = seeding.np_random(seed)
    return generator, generator.integers(2**64, size=1, dtype=np.uint64)


def _masked(value: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """A copy with zeros (None for objects) outside the mask, as Gymnasium batches infos."""
    out = np.full_like(value, None if value.dtype == object else 0)
    out[mask] = value[mask]
    return out


def _merge(info: dict[str, Any], other: dict[str, Any]) -> None:
    """Add reset infos to step infos; slots never have both, so arrays of the same name interleave by mask."""
    for name in [name for name in other if not name.startswith("_")]:
        mask = other[f"_{name}"]
        if name in info:
            info[name][mask] = other[name][mask]
            info[f"_{name}"] |= mask
        else:
            info[name], info[f"_{name}"] = other[name], mask
