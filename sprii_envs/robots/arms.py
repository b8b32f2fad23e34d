"""A stand-in for RH20T: an arm that presses, wipes, grasps and carries, simulated; its tasks persist.

What persists in a task is its reference motion (places, turns, durations, strokes of wiping), and its contact laws
(height, stiffness and friction of the two places that are touched, size and mass of what is carried). Users differ in
speed, tremor and pressure, whatever the task; an episode has delays, shifted places, bias and noise of its own.
An episode is a pure function of (seed, task, episode). Nothing here was fitted to recordings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import MANY, check, integer
from sprii_envs.banks import StreamSpec
from sprii_envs.banks.generated import Arrays, GeneratedProtocol, Labels
from sprii_envs.randomness import uniforms
from sprii_envs.rendering import disc, draw, segment
from sprii_envs.robots.alignment import continuous
from sprii_envs.robots.scenes import streams
from sprii_envs.robots.splits import split_tasks

Floats = NDArray[np.float64]

HERTZ = 10.0
GRAVITY = 9.81
_TASK, _USER, _EPISODE, _NOISE = 20, 21, 22, 23
"""Streams of random numbers, apart from those of environments."""
_HOME, _UP = np.array([0.4, 0.0, 0.38]), np.array([0.0, 0.0, 1.0])
_OPEN = 80.0
"""Width of the open gripper, mm."""
_ARM = 1500.0
"""Stiffness with which the arm holds its course, N/m."""
_TOOL = 0.15
"""From the force sensor to the tip, m."""
_OVER = 0.12
"""Of the motion above the surfaces, m."""
_CLOSES, _OPENS = 4, 7
"""Knots of the motion: between the one and the other the object is held."""


class Laws(NamedTuple):
    """What persists in tasks (N,)."""

    places: Floats  # (N, 3, 2) x, y of press, grasp and drop, m
    heights: Floats  # (N, 2) of the surfaces there, m
    turns: Floats  # (N, 9) yaw at the knots, rad
    shares: Floats  # (N, 8) of the motion's time, between knots
    duration: Floats  # (N,) of the motion, as a part of the episode
    strokes: NDArray[np.int64]  # (N,) of wiping
    width: Floats  # (N,) of the strokes, m
    depth: Floats  # (N, 2) that the course leads into the surfaces, m
    stiffness: Floats  # (N, 2) of the surfaces, N/m
    friction: Floats  # (N, 2)
    size: Floats  # (N,) of the object, mm
    mass: Floats  # (N,) kg


class Motions(NamedTuple):
    """Episodes (N, T, …)."""

    force: Floats  # (N, T, 6) N, N·m
    tcp: Floats  # (N, T, 7) m; w, x, y, z
    gripper: Floats  # (N, T, 1) mm
    action: Floats  # (N, T, 1) mm
    object: Floats  # (N, T, 3) m
    heights: Floats  # (N, 2) m


def laws(seed: int, tasks: ArrayLike) -> Laws:
    """What persists in tasks (N,), each a pure function of (seed, task)."""
    u = _Drawn(seed, np.asarray(tasks), _TASK, 48)
    x, y = u(3, 0.35, 0.7), u(3, -0.25, 0.25)
    shares = u(8, 0.4, 1.6)
    return Laws(
        places=np.stack([x, y], axis=-1),
        heights=u(2, 0.02, 0.15),
        turns=np.cumsum(u(9, -0.5, 0.5), axis=1),
        shares=shares / shares.sum(axis=1, keepdims=True),
        duration=u(1, 0.75, 0.95)[:, 0],
        strokes=np.floor(u(1, 0.0, 4.0)[:, 0]).astype(np.int64),
        width=u(1, 0.02, 0.08)[:, 0],
        depth=u(2, 0.005, 0.03),
        stiffness=np.exp(u(2, np.log(200.0), np.log(5000.0))),
        friction=u(2, 0.1, 0.9),
        size=u(1, 10.0, 60.0)[:, 0],
        mass=u(1, 0.1, 1.0)[:, 0],
    )


def users(seed: int, tasks: ArrayLike, episodes: ArrayLike, count: int) -> NDArray[np.int64]:
    """Who acts in episodes (N,)."""
    return np.floor(_Drawn(seed, _key(tasks, episodes), _EPISODE, 12)(1, 0.0, count)[:, 0]).astype(np.int64)


def motions(seed: int, tasks: ArrayLike, episodes: ArrayLike, *, frames: int = 96, people: int = 8) -> Motions:
    """Episodes of tasks (N,) at 10 Hz, without pictures; each a pure function of (seed, task, episode)."""
    law, n = laws(seed, tasks), len(np.asarray(tasks))
    who = _Drawn(seed, users(seed, tasks, episodes, people), _USER, 4)
    speed, tremor, pressure, rate = who(1, 0.9, 1.1), who(1, 0.5, 2.5)[:, 0], who(1, 0.8, 1.2), who(1, 6.0, 11.0)
    own = _Drawn(seed, _key(tasks, episodes), _EPISODE, 12)
    own(1, 0.0, 1.0)  # who acts
    delay, pace = own(1, 0.0, 6.0), own(1, 0.96, 1.04)
    shift, lift = own(2, -0.02, 0.02), own(1, -0.005, 0.005)
    bias, phase = own(3, -1.0, 1.0), own(3, 0.0, 2.0 * np.pi)
    noise = _noise(seed, _key(tasks, episodes), frames, 10)

    steps = np.arange(frames, dtype=np.float64)
    knots = np.concatenate([np.zeros((n, 1)), np.cumsum(law.shares, axis=1)], axis=1)
    knots = delay + knots * (law.duration[:, None] * frames * pace / speed)
    at, part = _progress(knots, steps)
    heights = law.heights + lift
    press, grasp, drop = (law.places[:, i] + shift for i in range(3))
    first, second = (law.depth * pressure).T
    ground, other = heights.T
    ways = np.stack(
        [
            np.broadcast_to(_HOME, (n, 3)),
            _point(press, ground + _OVER),
            _point(press, ground - first),
            _point(grasp, ground - first),
            _point(grasp, ground - 0.3 * first),
            _point(drop, other + _OVER),
            _point(drop, other - second),
            _point(drop, other),
            np.broadcast_to(_HOME, (n, 3)),
        ],
        axis=1,
    )
    course = _between(ways, at, part)
    # Strokes lie across the way from press to grasp.
    along = grasp - press
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(np.linalg.norm(along, axis=1), 1e-3)[:, None]
    stroke = law.width[:, None] * np.sin(2.0 * np.pi * law.strokes[:, None] * part) * (at == 2)
    course[..., :2] += stroke[..., None] * across[:, None]
    wave = np.sin(rate[:, :, None] * steps[:, None] / HERTZ + phase[:, None])
    course += 1e-3 * tremor[:, None, None] * wave

    below = (at > _CLOSES).astype(np.int64)  # which surface
    height, stiffness, friction = (
        np.take_along_axis(each, below, axis=1) for each in (heights, law.stiffness, law.friction)
    )
    depth = np.maximum(height - course[..., 2], 0.0)
    normal = depth * stiffness * _ARM / (stiffness + _ARM)  # two springs in a row
    course[..., 2] += depth - normal / stiffness
    velocity = np.gradient(course, axis=1) * HERTZ
    acceleration = np.gradient(velocity, axis=1) * HERTZ
    sideways = velocity[..., :2]
    drag = -(friction * normal)[..., None] * sideways / (np.linalg.norm(sideways, axis=-1, keepdims=True) + 0.01)
    held = (steps >= knots[:, _CLOSES, None]) & (steps < knots[:, _OPENS, None])
    lifted = held & (depth == 0.0)
    weight = -(law.mass[:, None] * lifted)[..., None] * (acceleration + _UP * GRAVITY)
    force = weight
    force[..., :2] += drag
    force[..., 2] += normal
    turn = _between(law.turns[..., None], at, part)[..., 0]
    spin = np.gradient(turn, axis=1) * HERTZ
    # The tool points down: its lever turns sideways forces into torques; a turning tip rubs about the vertical.
    rub = -0.02 * friction * normal * spin / (np.abs(spin) + 0.1)
    torque = np.stack([_TOOL * force[..., 1], -_TOOL * force[..., 0], rub], axis=-1)
    sensed = np.concatenate(
        [force + bias[:, None] * 0.5 + 0.4 * noise[..., :3], torque + 0.03 * noise[..., 3:6]], axis=-1
    )

    wanted = np.where(held, law.size[:, None] - 5.0, _OPEN)
    width = np.empty((n, frames))
    width[:, 0] = wanted[:, 0]
    for t in range(1, frames):
        width[:, t] = width[:, t - 1] + 0.5 * (wanted[:, t - 1] - width[:, t - 1])
        width[:, t] = np.where(held[:, t] | held[:, t - 1], np.maximum(width[:, t], law.size), width[:, t])
    half = 0.5 * turn
    turned = np.stack([np.zeros_like(half), np.cos(half), np.sin(half), np.zeros_like(half)], axis=-1)
    turned = np.stack([continuous(each) for each in turned])
    tip = course + 5e-4 * noise[..., 6:9]
    thing = np.where(held[..., None], course, _point(grasp, heights[:, 0])[:, None])
    thing = np.where((steps >= knots[:, _OPENS, None])[..., None], _point(drop, heights[:, 1])[:, None], thing)
    return Motions(
        sensed,
        np.concatenate([tip, turned], axis=-1),
        (width + 0.3 * noise[..., 9])[..., None],
        wanted[..., None],
        thing,
        heights,
    )


def pictures(found: Motions, places: Floats, size: int) -> NDArray[np.uint8]:
    """Grey frames (N, T, size, size) from the side: arm, gripper, object, and the surfaces at `places` (N, 3, 2)."""
    n, t = found.tcp.shape[:2]
    tip = _seen(found.tcp[..., :3], size).reshape(-1, 2)
    thing = _seen(found.object, size).reshape(-1, 2)
    scale = size / 96.0
    half = np.array([10.0 * scale, 0.0])
    patches = []
    for surface, i in ((0, 0), (0, 1), (1, 2)):
        ground = np.repeat(_seen(_point(places[:, i], found.heights[:, surface]), size), t, axis=0)
        patches += segment(ground - half, ground + half, 1.2 * scale, 90, (size, size))
    patches.append(disc(thing, 4.0 * scale, 170, (size, size)))
    shoulder = np.broadcast_to([8.0 * scale, 8.0 * scale], tip.shape)
    hand = tip - half[::-1]
    patches += segment(shoulder, hand, 2.0 * scale, 120, (size, size))
    apart = np.zeros_like(tip)
    apart[:, 0] = (0.06 * scale * found.gripper).reshape(-1)
    for side in (-1.0, 1.0):
        patches += segment(hand + side * apart, tip + side * apart, 1.2 * scale, 255, (size, size))
    return draw(patches, n * t, (size, size)).reshape(n, t, size, size)


def _seen(points: Floats, size: int) -> Floats:
    """Pixels (…, 2) of points (…, 3): from the side, and a little from above, so that depth shows."""
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    return size * np.stack([0.15 + 1.1 * (x - 0.3) + 0.5 * y, 0.85 - 1.7 * z - 0.25 * y], axis=-1)


@dataclass(frozen=True)
class ArmsProtocol(GeneratedProtocol):
    """Which tasks of the stand-in, and how many episodes of each.

    Attributes:
        seed: of all that is drawn, and of the permutation of tasks into splits.
        tasks: of the bank; each: episodes of a task, four at least.
        frames: of an episode, at 10 Hz.
        size: of the pictures, pixels along a side.
        people: users, who differ.

    Raises:
        ValueError: for a value that no bank has, naming it.
    """

    tasks: int = 124
    each: int = 8
    frames: int = 96
    size: int = 96
    people: int = 8

    name: ClassVar[str] = "rh20t"
    together: ClassVar[int] = 8

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, integer, "seed", most=2**63 - 1)
        check(self, integer, "tasks", least=1, most=9999)
        check(self, integer, "each", least=4, most=9999)
        check(self, integer, "frames", least=64, most=MANY)
        check(self, integer, "size", least=16, most=360)
        check(self, integer, "people", least=1, most=9999)

    @property
    def length(self) -> int:
        """As many as frames."""
        return self.frames

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """Those of RH20T."""
        return streams(self.size)

    def plan(self) -> list[Labels]:
        """Labels of every episode, task by task."""
        splits = split_tasks((_named(task) for task in range(self.tasks)), self.seed)
        numbered = [(task, episode) for task in range(self.tasks) for episode in range(self.each)]
        tasks, episodes = np.transpose(numbered)
        law, who = laws(self.seed, np.arange(self.tasks)), users(self.seed, tasks, episodes, self.people)
        return [
            {
                "system": _named(task),
                "example": f"{_named(task)}_user_{user:04d}_scene_{episode:04d}",
                "task": task,
                "user": int(user),
                "place": episode,
                "calib": str(user),
                "split": splits[_named(task)],
                **{f"stiffness_{i}": float(law.stiffness[task, i]) for i in range(2)},
                **{f"friction_{i}": float(law.friction[task, i]) for i in range(2)},
                "mass": float(law.mass[task]),
            }
            for (task, episode), user in zip(numbered, who, strict=True)
        ]

    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Rows as they are, and their arrays."""
        tasks, episodes = (np.array([row[name] for row in rows]) for name in ("task", "place"))
        found = motions(self.seed, tasks, episodes, frames=self.frames, people=self.people)
        arrays = {name: getattr(found, name).astype(np.float32) for name in self.streams if name != "frames"}
        return list(rows), {"frames": pictures(found, laws(self.seed, tasks).places, self.size), **arrays}

    @property
    def origin(self) -> dict[str, Any]:
        """Told in the manifest."""
        return {
            "kind": "stand-in",
            "benchmark": "rh20t",
            "protocol": asdict(self),
            "ours": ["motions", "contact laws", "users", "noise", "pictures"],
        }


PROTOCOLS: dict[str, ArmsProtocol] = {"rh20t": ArmsProtocol(), "rh20t-quick": ArmsProtocol(tasks=25, each=4)}
"""By the name of `sprii bank build`."""


def _named(task: int) -> str:
    return f"task_{task:04d}"


def _key(tasks: ArrayLike, episodes: ArrayLike) -> NDArray[np.int64]:
    """One number of (task, episode)."""
    return np.asarray(tasks, np.int64) * 10_000 + np.asarray(episodes, np.int64)


class _Drawn:
    """Uniforms of (seed, number, stream) that are handed out one after another."""

    def __init__(self, seed: int, numbers: NDArray[Any], stream: int, most: int) -> None:
        key = np.full(len(numbers), seed, np.uint64)
        self._left = uniforms(key, numbers.astype(np.uint64), most, stream)

    def __call__(self, count: int, low: float, high: float) -> Floats:
        """(N, count) in [low, high)."""
        some, self._left = self._left[:, :count], self._left[:, count:]
        assert some.shape[1] == count
        return low + (high - low) * some


def _noise(seed: int, numbers: NDArray[np.int64], frames: int, width: int) -> Floats:
    """Noise (N, frames, width) of mean 0 and variance 1: four uniforms added are nearly normal, and bounded."""
    key = np.full(len(numbers), seed, np.uint64)
    u = uniforms(key, numbers.astype(np.uint64), frames * width * 4, _NOISE).reshape(-1, frames, width, 4)
    return (u.sum(axis=-1) - 2.0) * 3.0**0.5


def _point(xy: Floats, z: Floats) -> Floats:
    return np.concatenate([xy, z[:, None]], axis=1)


def _progress(knots: Floats, steps: Floats) -> tuple[NDArray[np.intp], Floats]:
    """For steps (T,) the part of the motion (N, T) between knots (N, K), and how far through it, smooth, in [0, 1]."""
    at = np.clip((steps[None, :, None] >= knots[:, None, :]).sum(axis=-1) - 1, 0, knots.shape[1] - 2)
    before, after = np.take_along_axis(knots, at, axis=1), np.take_along_axis(knots, at + 1, axis=1)
    s = np.clip((steps - before) / (after - before), 0.0, 1.0)
    return at, s**3 * (10.0 - 15.0 * s + 6.0 * s * s)  # least jerk


def _between(values: Floats, at: NDArray[np.intp], part: Floats) -> Floats:
    """Values (N, T, D) between those at knots (N, K, D)."""
    before = np.take_along_axis(values, at[..., None], axis=1)
    return before + part[..., None] * (np.take_along_axis(values, at[..., None] + 1, axis=1) - before)
