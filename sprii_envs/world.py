"""`World`: the pure functions of one environment, and counterfactual rollouts over any of them.

Every function has a leading batch axis of N systems and never loops over it. The single environment, the
vector environment, the bank builder and the counterfactuals all call these functions and nothing else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.arguments import check, integer, number
from sprii_envs.checks import reals
from sprii_envs.properties import PersistentProperties, SystemDistribution

Array = NDArray[np.float64]
Extras = dict[str, NDArray[Any]]
Numbers = Sequence[float]
Moved = tuple[Numbers, float, bool, bool, dict[str, Any]]
"""What one step of one system gives: the state after it, its reward, terminated, truncated, a new dict for the info."""
Policy = Callable[[int, Array], NDArray[np.float32]]
"""Actions (N, A) of step t from the states (N, S) it starts in; a pure function of both."""


class Ending(NamedTuple):
    """How a step ended: flags (N,) bool, or None where no slot can end, and step info as (N, ...) arrays.

    Where an object array holds None, that slot reports nothing under that name.
    """

    terminated: NDArray[np.bool_] | None = None
    truncated: NDArray[np.bool_] | None = None
    info: Extras = {}  # noqa: RUF012 - never written to


class _ClassName:
    """A class's own name, for it and for its instances."""

    def __get__(self, world: object, kind: type) -> str:
        return kind.__name__


class World(ABC):
    """One environment's declarations and pure functions.

    Implement it as a frozen dataclass whose fields are the physical constants. States are float64 of shape
    (N, S), in any memory order (elementwise code on an F-ordered array runs along the batch); floating-point
    results must not depend on N or on memory order, which elementwise arithmetic guarantees and BLAS does
    not. `sprii_envs.register` makes an environment of it, `check_world` tells what is not as said here.
    """

    required: ClassVar[tuple[str, ...]] = ("properties", "state_names", "action_size", "start_draws")
    """Declarations without a default."""
    name: ClassVar[str] = _ClassName()  # type: ignore[assignment]
    """The class's own name, unless it is given another."""
    properties: ClassVar[PersistentProperties]
    state_names: ClassVar[tuple[str, ...]]
    state_limit: ClassVar[float] = 1e6
    """Legal initial states have finite components within ±`state_limit`."""
    action_size: ClassVar[int]
    start_draws: ClassVar[int]
    """Uniforms one initial state consumes."""
    queries: ClassVar[tuple[str, ...]] = ()
    """Names accepted by `options["query"]`: kinds of initial condition."""
    groups: ClassVar[Mapping[str, SystemDistribution]] = {}
    """Named distributions, accepted as `systems="name"`, the first by default; without any, the declared ranges."""
    signals: ClassVar[Mapping[str, str]] = {}
    """What every step reports beside the state: name → dtype of one number per system, the keys of its extras."""
    endings: ClassVar[tuple[str, ...]] = ()
    """Reasons for which `end` ends an episode, as told in its info under "reason"."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages beside NumPy whose versions decide the bits of a trajectory; a bank records them."""
    max_episode_steps: ClassVar[int]
    """Transitions of a registered episode: one fewer than the states in it; or as `register` says."""
    obs_type: ClassVar[str] = "state"
    image_size: ClassVar[int] = 64
    """What the registered environment observes, and the side of its frames, unless its constructor is given others."""
    dt: float = 1.0
    """Control step, seconds; pictures are shown at this rate."""

    def load(self) -> None:  # noqa: B027 - most worlds need NumPy only
        """Import the simulator's package, which environments need when they are built; ImportError that says how."""

    @property
    def sources(self) -> Mapping[str, str]:
        """What else decides the bits of a trajectory, such as a file: name → digest. Banks and snapshots record it."""
        return {}

    @property
    def physical(self) -> int:
        """How many of the state's components, the first ones, are physical; others are the integrator's memory."""
        return len(self.state_names)

    @abstractmethod
    def prepare(self, values: Array) -> Any:
        """Per-system constants of one step from property values (N, F): a tuple of arrays (N, ...)."""

    def update(self, prepared: Any, rows: NDArray[np.intp], values: Array) -> Any:
        """`prepared` with the constants of some slots replaced; worlds that keep no arrays override this."""
        new = self.prepare(values)
        for old_field, new_field in zip(prepared, new, strict=True):
            old_field[rows] = new_field
        return prepared

    @abstractmethod
    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """Initial states (N, S) from uniforms (N, start_draws)."""

    def force(self, action: NDArray[np.float32]) -> Array:
        """Physical force (N, A), float64, of normalised actions (N, A); clips, keeps NaN. By default clipped to ±1."""
        force = action.astype(np.float64, order="F")
        np.maximum(force, -1.0, out=force)
        return np.minimum(force, 1.0, out=force)

    @abstractmethod
    def step(self, state: Array, force: Array, prepared: Any) -> tuple[Array, Extras]:
        """The state one control step later, as a new array, and the `signals`, what only the integrator knows."""

    def trajectory(self, state: Array, forces: Sequence[Array], prepared: Any) -> Array | None:
        """States (N, T+1, S), `state` included, under the forces (N, A) of T steps; None: `step` by `step`.

        For worlds without `signals` whose simulator takes many steps in one call; the same bits as `step`.
        """
        return None

    @abstractmethod
    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """Rewards (N,), float64, of a transition."""

    def end(self, after: Array, extras: Extras) -> Ending:
        """Whether and why the episode ends in `after`; the time limit is not the world's business."""
        return Ending()

    def step_one(self, state: Numbers, action: Numbers, constants: Any) -> Moved:
        """Of one system, in Python's numbers: what `force`, `step`, `reward` and `end` give, bit for bit, and faster.

        Optional, with `constants_of_one`, and `observe_one` where there is an `observe`: the single environment calls
        it with the state (S,), an action (A,) without NaN, and the system's constants.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no step_one; legal: step_one and constants_of_one together, or neither"
        )

    def constants_of_one(self, prepared: Any) -> Any:
        """What `step_one` needs of the constants that `prepare` gave for one system; picklable, never written to."""
        raise NotImplementedError(
            f"{type(self).__name__} has no constants_of_one; legal: step_one and constants_of_one together, or neither"
        )

    def observe_one(self, state: Numbers) -> Numbers:
        """The numbers (O,) that `observe` rounds to float32, of one state."""
        return state

    @classmethod
    @cache
    def steps_one(cls) -> bool:
        """Whether `step_one` holds: nothing that it stands for is replaced in a class below its own."""
        depth = {name: next(i for i, k in enumerate(cls.__mro__) if name in vars(k)) for name in dir(World)}
        stands_for = ("constants_of_one", "prepare", "update", "force", "checked_force", "step", "reward", "end")
        return (
            cls.step_one is not World.step_one
            and all(depth["step_one"] <= depth[name] for name in stands_for)
            and depth["observe_one"] <= depth["observe"]
        )

    def success(self, states: Array) -> NDArray[np.bool_] | None:
        """Whether each whole episode (N, T+1, S) solved the task, (N,); None where the world does not say."""
        return None

    def reset_info(self, state: Array) -> Extras:
        """What a reset reports of the states it begins in, beside the systems: (N, ...) arrays; nothing hidden."""
        return {}

    def observe(self, state: Array) -> NDArray[np.float32]:
        """State observations (N, O), float32, C-ordered and new."""
        return state.astype(np.float32, order="C")

    @property
    def observation_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Bounds (O,) that state observations never leave, finite."""
        high = np.full(len(self.state_names), np.finfo(np.float32).max, np.float32)
        return -high, high

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The grayscale picture of each state, as patches; may depend on nothing but the state.

        A world without it has states only: frames of it are refused.
        """
        raise self.without_pictures("frames")

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """What a person sees, (N, H, W, 3) uint8; overlays that reveal `values` are allowed here only."""
        return rendering.colourise(rendering.draw(self.patches(state, size), len(state), size))

    def draw(self, state: Array, size: int | Sequence[int]) -> rendering.Frame:
        """Grayscale frames (N, H, W) uint8 of states (N, S)."""
        shape = rendering.image_size(size)
        return rendering.draw(self.patches(state, shape), len(state), shape)

    @property
    def has_pictures(self) -> bool:
        """Whether it says how its states look."""
        return type(self).patches is not World.patches

    def without_pictures(self, what: str) -> ValueError:
        """The error for a world that cannot give `what` because it draws nothing."""
        return ValueError(f"{self.name} has no pictures: {what} needs a world with patches(state, size)")

    def check_reached(self, state: ArrayLike, n: int) -> Array:
        """States (n, S) that steps led to, as snapshots hold them: finite, if beyond the limits of a start too."""
        full = np.array(np.broadcast_to(reals(state), (n, len(self.state_names))), order="F")
        if not np.isfinite(full).all():
            raise ValueError(
                f"a state of {self.name} that was reached is not finite: {full[~np.isfinite(full).all(1)][0]}"
            )
        return full

    def check_state(self, state: ArrayLike, n: int) -> Array:
        """States of n slots as a new F-ordered (n, S) array; one state (S,) serves all.

        Raises ValueError naming the component, the value and the legal range.
        """
        try:
            given = reals(state)
        except TypeError as e:
            raise ValueError(f"state must be numbers for {self.state_names}, got {state!r}") from e
        s = len(self.state_names)
        if given.shape not in ((s,), (n, s)):
            wanted = f"({s},)" if n == 1 else f"({n}, {s}) or ({s},)"
            raise ValueError(f"state {self.state_names} must have shape {wanted}, got {given.shape}")
        full = np.array(np.broadcast_to(given, (n, s)), order="F")
        good = np.abs(full) <= self.state_limit
        if not good.all():
            row, column = np.argwhere(~good)[0]
            where = f" of slot {row}" if n > 1 else ""
            raise ValueError(
                f"state component {self.state_names[column]!r}{where} = {float(full[row, column])!r}: "
                f"it must be a finite number in [{-self.state_limit:g}, {self.state_limit:g}]"
            )
        return full

    def check_action(self, action: ArrayLike, n: int | None) -> NDArray[np.float32]:
        """Actions as float32 (n, A), or that of a single environment, (A,), as (1, A) if n is None.

        ValueError for a wrong shape or something that is not numbers.
        """
        what = "action" if n is None else "actions"
        try:
            a = reals(action, np.float32)
        except TypeError as e:
            raise ValueError(f"{what} must be {self.action_size} numbers, got {action!r}") from e
        shape = (self.action_size,) if n is None else (n, self.action_size)
        if a.shape != shape:
            raise ValueError(f"{what} must have shape {shape}, got {a.shape}")
        return a[None] if n is None else a

    def checked_force(self, action: NDArray[np.float32]) -> Array:
        """`force` of (N, A), refusing NaN, which would otherwise poison the state silently."""
        force = self.force(action)
        if np.count_nonzero(force != force):
            row, column = np.argwhere(np.isnan(force))[0]
            where = f" of slot {row}" if len(action) > 1 else ""
            raise ValueError(f"action component {column}{where} is nan: it must be a number in [-1, 1]")
        return force


def check_constants(
    world: World,
    names: Sequence[str],
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Refuse physical constants that are not numbers > `above`, ≥ `least` and ≤ `most`, or absurd ones.

    Absurd is beyond ±1e9, and below 1e-9 what must be positive: arithmetic with it overflows sooner or later.
    """
    low, beyond = (1.0 / _HUGE, None) if above == 0.0 else (-_HUGE, None if above == -math.inf else above)
    check(world, number, *names, least=max(least, low), most=min(most, _HUGE), above=beyond)


_HUGE = 1e9


@dataclass(frozen=True)
class Rollout:
    """The same start and the same actions under N systems."""

    states: Array
    """(N, T+1, S) float64; the start included."""
    actions: NDArray[np.float32]
    """(N, T, A) as given, or as the policy chose them; normalised, before clipping."""
    rewards: Array
    """(N, T) float64."""
    ended: NDArray[np.bool_]
    """(N, T): the world's own ending (not the time limit) was reached at or before this transition."""
    values: Array
    """(N, F) float64: the systems' property values."""
    reasons: NDArray[np.object_]
    """(N,): why the world ended the episode, where it says so ("reason" in the info of `World.end`); else None."""
    signals: Extras = field(default_factory=dict)
    """What the world's steps report: name → (N, T)."""
    frames: rendering.Frame | None = None
    """(N, T+1, H, W) uint8 grayscale, on demand."""


def rollout(
    world: World,
    values: Array,
    state: ArrayLike,
    actions: ArrayLike | Policy,
    *,
    steps: int | None = None,
    frames: int | Sequence[int] | None = None,
    reached: bool = False,
) -> Rollout:
    """Roll N systems (N, F) from one state (S,), or one each (N, S), under actions (T, A) or (N, T, A).

    Instead of an array, `actions` may be a policy, a function of (t, states (N, S)), for `steps` steps. Pure:
    equal arguments, equal result, bit for bit the states an environment would visit. A rollout runs on past a
    world's ending (see `Rollout.ended`). `frames` is the image size of grayscale frames to return. A state that was
    `reached` may lie where no episode may begin.
    """
    if frames is not None and not world.has_pictures:
        raise world.without_pictures("frames")
    values = world.properties.batch(values, None)
    n = len(values)
    given, steps = _checked_actions(world, n, actions, steps)
    if not callable(given):
        given = np.broadcast_to(given, (n, steps, world.action_size))
    now = world.check_reached(state, n) if reached else world.check_state(state, n)
    prepared = world.prepare(values)
    states = np.empty((n, steps + 1, now.shape[1]), np.float64)
    taken = np.empty((n, steps, world.action_size), np.float32)
    rewards = np.empty((n, steps), np.float64)
    ended = np.zeros((n, steps), np.bool_)
    signals = {name: np.zeros((n, steps), dtype) for name, dtype in world.signals.items()}
    states[:, 0] = now
    over = np.zeros(n, np.bool_)
    reasons = np.full(n, None, np.object_)
    forces = [] if callable(given) else [world.force(given[:, t]) for t in range(steps)]
    planned = None if callable(given) else world.trajectory(now, forces, prepared)
    for t in range(steps):
        action = world.check_action(given(t, now), n) if callable(given) else given[:, t]
        taken[:, t] = action
        force = world.checked_force(action) if callable(given) else forces[t]
        after, extras = world.step(now, force, prepared) if planned is None else (planned[:, t + 1], {})
        rewards[:, t] = world.reward(now, force, after)
        for name, signal in signals.items():
            signal[:, t] = extras[name]
        ending = world.end(after, extras)
        running = ~over
        for flag in (ending.terminated, ending.truncated):
            if flag is not None:
                over |= flag
        if "reason" in ending.info:
            first = running & over
            reasons[first] = ending.info["reason"][first]
        ended[:, t] = over
        states[:, t + 1] = now = after
    pictures = None if frames is None else draw_states(world, states, frames)
    return Rollout(states, taken, rewards, ended, values, reasons, signals, pictures)


def draw_states(
    world: World, states: NDArray[np.floating], size: int | Sequence[int], out: rendering.Frame | None = None
) -> rendering.Frame:
    """Grayscale frames (N, T, H, W) uint8 of trajectories (N, T, S), block by block so that memory stays small.

    With `out`, a C-contiguous array of that shape, they are drawn into it.
    """
    shape = rendering.image_size(size)
    if out is None:
        out = np.empty((*states.shape[:2], *shape), np.uint8)
    flat, canvas = states.reshape(-1, states.shape[-1]), out.reshape(-1, *shape)
    for first in range(0, len(flat), _DRAWN):
        block = canvas[first : first + _DRAWN]
        block[:] = 0
        rendering.paint(block, world.patches(flat[first : first + _DRAWN].astype(np.float64, order="F"), shape))
    return out


_DRAWN = 512
"""Frames drawn at once: few enough that their patches stay in the processor's cache."""


def _checked_actions(
    world: World, n: int | None, actions: ArrayLike | Policy, steps: int | None
) -> tuple[NDArray[np.float32] | Policy, int]:
    """Actions (T, A) or (n, T, A), or the policy, and the number of steps; ValueError for a wrong shape."""
    if callable(actions):
        if steps is None:
            raise ValueError("a policy needs steps=, a number of at least 0, got None")
        return actions, integer("steps", steps)
    try:
        given = reals(actions, np.float32)
    except TypeError as e:
        raise ValueError(f"actions must be numbers of shape (T, {world.action_size}), got {actions!r}") from e
    legal = f"(T, {world.action_size})" + ("" if n is None else f" or ({n}, T, {world.action_size})")
    if given.shape[-1:] != (world.action_size,) or not (given.ndim == 2 or (given.ndim == 3 and len(given) == n)):
        raise ValueError(f"actions must have shape {legal}, got {given.shape}")
    if np.isnan(given).any():
        place = ", ".join(map(str, np.argwhere(np.isnan(given))[0]))
        raise ValueError(f"actions[{place}] is nan: it must be a number in [-1, 1]")
    if steps not in (None, given.shape[-2]):
        raise ValueError(f"steps = {steps} but actions are given for {given.shape[-2]} steps")
    return given, given.shape[-2]


def sensitivity(
    world: World,
    values: ArrayLike,
    name: str,
    state: ArrayLike,
    actions: ArrayLike,
    *,
    relative: float = 0.01,
    reached: bool = False,
) -> Array:
    """Derivative of the states (T+1, S) by the log of one property of one system (F,), `app:poke-value`.

    Central difference of the rollouts with the property `relative` (1 %) above and below, or as far as is physical; in
    state units per e-fold of the property.
    """
    relative = number("relative", relative, above=0, below=1)
    # Checked here, so that no message speaks of the two systems that are rolled out.
    _checked_actions(world, None, actions, None)
    state = (world.check_reached if reached else world.check_state)(state, 1)[0]
    rows = np.repeat(world.properties.array(values)[None], 2, axis=0)
    p, column = world.properties[name], world.properties.index(name)
    value, wanted = rows[0, column], rows[:, column] * (1.0 + relative, 1.0 - relative)
    rows[:, column] = np.clip(wanted, p.physical_low, p.physical_high)
    clipped = not np.array_equal(rows[:, column], wanted)
    states = rollout(world, rows, state, actions, reached=reached).states
    return (states[0] - states[1]) / ((rows[0, column] - rows[1, column]) / value if clipped else 2.0 * relative)
