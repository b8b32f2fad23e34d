"""A stand-in for Baxter's tactile recordings: a gripper with two pads closes on a cube or a cylinder, and opens again.

A finger's pad has two rows of four taxels of 5 × 5 mm, 16 in all; x runs across it, from −10 to 10 mm. Objects are
of foam, a bed of springs (Winkler): the pressure is what a point is pressed in by, times κ = 0.001·hardness in N/mm³.
Where the middle is pressed in by d,

    cube       p(x) = κ·d                  for |x| < 10 mm, F = 200·κ·d
    cylinder   p(x) = κ·(d − x²/(2R))      where it is positive, R = 40 mm, F = (4/3)·L·κ·d·√(2Rd), L = 10 mm

so a hard cylinder resists like a softer cube, and what tells them apart is where the load lies and how it spreads as
the gripper closes. It closes at a constant speed until the force reaches 2 N, holds, and opens at the same speed. Foam
relaxes by a quarter (time constant 15 samples). Each grasp has its own pose, tilt, speed, hold and gains of taxels;
readings have white noise. A recording begins when the force passes 0.1 N: nothing is seen before contact.

These are not the published recordings, and numbers of theirs are not to be expected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import check, choice, integer, integers, number
from sprii_envs.banks import StreamSpec
from sprii_envs.banks.generated import Arrays, GeneratedProtocol, Labels
from sprii_envs.robots.baxter import (
    CONFIGURATIONS,
    COUNTS,
    HARDNESS,
    SAMPLES,
    SPLITS,
    TACTILE,
    TAXELS,
    grasp_labels,
    split_grasps,
    streams,
)

Array = NDArray[np.float64]

COLUMNS, ROWS, PITCH = 4, 2, 5.0
EDGES = PITCH * (np.arange(COLUMNS + 1) - COLUMNS / 2)
"""Of the taxels across a pad, mm."""
HALF_WIDTH, RADIUS, LENGTH = 10.0, 40.0, 10.0
"""Of the cube's face; of the cylinder; of the contact along the pad, which its rows share; mm."""
FOUNDATION = 0.001
"""κ a unit of hardness, N/mm³."""
LIMIT, TRIGGER = 2.0, 0.1
"""Force at which the gripper stops, and at which a recording begins; N."""
RELAXED, RELAXATION = 0.25, 15.0
"""Share of the force that is lost while the gripper holds, and its time constant in samples."""
LONGEST = 120
"""Samples that closing may take."""


class Nuisance(NamedTuple):
    """What differs between grasps of one object, N grasps.

    Attributes:
        offset: of the object across each pad, mm (N, 2).
        tilt: share by which the load grows from the middle to the edge, across each pad (N, 2).
        speed: mm a sample and finger (N,).
        phase: share of a sample at which contact begins (N,).
        hold: samples between closing and opening (N,).
        gain: of each taxel (N, 16).
    """

    offset: Array
    tilt: Array
    speed: Array
    phase: Array
    hold: NDArray[np.int64]
    gain: Array


def pressed(shape: str, depth: ArrayLike, left: ArrayLike, right: ArrayLike) -> Array:
    """Integral from left to right of what an object is pressed in by, mm², where its middle is by `depth`, mm."""
    choice("shape", shape, legal=HARDNESS)
    depth = np.maximum(np.asarray(depth, np.float64), 0.0)
    half = np.full_like(depth, HALF_WIDTH) if shape == "cube" else np.sqrt(2.0 * RADIUS * depth)
    a, b = np.clip(left, -half, half), np.clip(right, -half, half)
    whole = depth * (b - a)
    return whole if shape == "cube" else whole - (b**3 - a**3) / (6.0 * RADIUS)


def force(shape: str, hardness: float, depth: ArrayLike) -> Array:
    """N against one pad, of foam that has not relaxed."""
    return FOUNDATION * hardness * LENGTH * pressed(shape, depth, -np.inf, np.inf)


def closing(shape: str, hardness: float, nuisance: Nuisance) -> tuple[Array, Array]:
    """Of N grasps from the trigger on, (N, 80) each: indentation in mm, and the share of the force that is left."""
    n = len(nuisance.speed)
    depth, lag = nuisance.speed * nuisance.phase, np.zeros(n)  # lag: what a Maxwell element has relaxed of the force
    hold, closed = nuisance.hold.astype(np.float64), np.zeros(n, bool)
    depths, left, total = np.zeros((3, n, LONGEST + SAMPLES))
    for t in range(LONGEST + SAMPLES):
        elastic = force(shape, hardness, depth)
        lag += (RELAXED * elastic - lag) * (1.0 - np.exp(-1.0 / RELAXATION))
        total[:, t] = np.maximum(elastic - lag, 0.0)
        depths[:, t], left[:, t] = depth, total[:, t] / np.maximum(elastic, 1e-12)
        closed |= total[:, t] >= LIMIT
        hold -= closed
        step = np.where(~closed, nuisance.speed, np.where(hold < 0.0, -nuisance.speed, 0.0))
        depth = np.maximum(depth + step, 0.0)
    first = np.minimum(np.argmax(total >= TRIGGER, axis=1), LONGEST)
    rows, at = np.arange(n)[:, None], first[:, None] + np.arange(SAMPLES)
    return depths[rows, at], left[rows, at]


def readings(shape: str, hardness: float, nuisance: Nuisance) -> Array:
    """Taxels (N, 80, 16) of N grasps without noise, N: finger by finger, row by row, across."""
    depth, left = closing(shape, hardness, nuisance)
    middle = 0.5 * (EDGES[1:] + EDGES[:-1]) / HALF_WIDTH
    pads = []
    for finger in range(2):
        edges = EDGES - nuisance.offset[:, finger, None, None]
        column = pressed(shape, depth[..., None], edges[..., :-1], edges[..., 1:])
        tilted = np.maximum(1.0 + nuisance.tilt[:, finger, None, None] * middle, 0.0)
        row = FOUNDATION * hardness * LENGTH / ROWS * column * tilted * left[..., None]
        pads += [row] * ROWS
    return np.concatenate(pads, axis=-1) * nuisance.gain[:, None]


@dataclass(frozen=True)
class TactileProtocol(GeneratedProtocol):
    """A bank of grasps, of the sizes that were published by default.

    Attributes:
        counts: grasps of training, validation and confirmation, of each of the six configurations.
        offset, tilt, speed_spread, gain_spread, taxel_spread: SDs, of pose in mm and share, and of the logarithms of
            speed, of the gain of all taxels and of each.
        speed: mean, mm a sample and finger.
        hold: least and most samples between closing and opening.
        noise: SD of a reading, N.
    """

    counts: tuple[int, ...] = COUNTS
    offset: float = 1.0
    tilt: float = 0.15
    speed: float = 0.06
    speed_spread: float = 0.03
    gain_spread: float = 0.2
    taxel_spread: float = 0.2
    hold: tuple[int, int] = (10, 25)
    noise: float = 0.08

    name: ClassVar[str] = "baxter"
    together: ClassVar[int] = 85

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "seed")
        check(self, integers, "counts", least=1)
        if len(self.counts) != len(SPLITS):
            raise ValueError(f"TactileProtocol.counts is {self.counts}; legal: grasps of {', '.join(SPLITS)}")
        check(self, number, "offset", "tilt", "noise", least=0)
        check(self, number, "speed_spread", "gain_spread", "taxel_spread", least=0, most=0.5)
        check(self, number, "speed", least=0.05, most=0.5)  # slower ones never close, faster ones at once
        check(self, integers, "hold", most=SAMPLES)
        if len(self.hold) != 2 or self.hold[0] > self.hold[1]:
            raise ValueError(f"TactileProtocol.hold is {self.hold}; legal: the least and the most samples")

    @property
    def length(self) -> int:
        """Samples of a grasp."""
        return SAMPLES

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """The columns, those of the published grasps."""
        return streams()

    def plan(self) -> list[Labels]:
        """Grasps 1 … n of every configuration."""
        ids = list(range(1, sum(self.counts) + 1))
        split = split_grasps(ids, self.counts)
        return [grasp_labels(shape, level, i, split[i]) for shape, level in CONFIGURATIONS for i in ids]

    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Grasps of rows of the plan; each is a function of the protocol, its configuration and its number."""
        samples = np.empty((len(rows), SAMPLES, TAXELS), np.float32)
        for shape, level in CONFIGURATIONS:
            own = [i for i, row in enumerate(rows) if (row["shape"], row["level"]) == (shape, level)]
            if own:
                samples[own] = self.samples(shape, level, [rows[i]["grasp"] for i in own])
        return list(rows), {TACTILE: samples}

    def samples(self, shape: str, level: int, grasps: Sequence[int]) -> NDArray[np.float32]:
        """Readings (N, 80, 16) of grasps of one configuration, N."""
        streams = [np.random.default_rng([self.seed, CONFIGURATIONS.index((shape, level)), i]) for i in grasps]
        drawn = [self.nuisance(rng) for rng in streams]
        clean = readings(shape, HARDNESS[shape][level], Nuisance(*map(np.stack, zip(*drawn, strict=True))))
        noise = np.stack([rng.standard_normal((SAMPLES, TAXELS)) for rng in streams])
        return (clean + self.noise * noise).astype(np.float32)

    def nuisance(self, rng: np.random.Generator) -> Nuisance:
        """Of one grasp, without the axis of grasps."""
        return Nuisance(
            offset=self.offset * rng.standard_normal(2),
            tilt=self.tilt * rng.standard_normal(2),
            speed=self.speed * np.exp(self.speed_spread * rng.standard_normal()),
            phase=np.asarray(rng.random()),
            hold=np.asarray(rng.integers(self.hold[0], self.hold[1] + 1)),
            gain=np.exp(self.gain_spread * rng.standard_normal() + self.taxel_spread * rng.standard_normal(TAXELS)),
        )

    @property
    def origin(self) -> dict[str, Any]:
        """What a bank tells of where it came from."""
        return {"kind": "stand-in", "benchmark": "baxter", "protocol": asdict(self)}


PROTOCOLS: dict[str, TactileProtocol] = {"baxter": TactileProtocol()}
"""Name → protocol of `sprii bank build`."""
