"""The animated pictures of the documentation: one start and one sequence of actions, or one policy, under some systems.

    python examples/gifs.py [--out assets] [ENVIRONMENT ...]

Every picture is a counterfactual rollout: the systems differ in the named properties and in nothing else.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import sprii_envs  # noqa: F401  (registers the environments)
from sprii_envs.fields import burgers, fhn
from sprii_envs.world import Policy, rollout

Actions = NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """What one picture shows: the property that differs, where it starts, and what is done."""

    id: str
    property: str
    values: tuple[float, ...]
    actions: Callable[[int], Actions | Policy]
    steps: int
    state: tuple[float, ...] | None = None
    system: Mapping[str, float] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Of the world, where they are not its own."""
    every: int = 1
    """Show every so many steps."""
    travel: bool = False
    """Whether the caption says how far along x, the first number of a state, each has come."""


def pushes(*pulses: tuple[int, int, float, float]) -> Callable[[int], Actions]:
    """Planar forces from (first step, last step, x, y)."""

    def actions(steps: int) -> Actions:
        out = np.zeros((steps, 2), np.float32)
        for first, last, x, y in pulses:
            out[first:last] = (x, y)
        return out

    return actions


def gait(steps: int) -> Policy:
    """A wave down the swimmer's body, steered by where the body heads."""

    def actions(t: int, states: NDArray[np.float64]) -> Actions:
        phase = 2.0 * math.pi * 0.8 * 0.04 * t - np.array([0.0, 1.2])
        heading = states[:, 2] + (2.0 * states[:, 3] + states[:, 4]) / 3.0
        return (np.sin(phase) + 0.3 * heading[:, None]).astype(np.float32)

    return actions


def gallop(*phases: float) -> Callable[[int], Actions]:
    """Sines of 2 Hz with one phase for each motor, at 20 control steps a second."""

    def actions(steps: int) -> Actions:
        return np.sin(0.2 * math.pi * np.arange(steps)[:, None] + np.array(phases)).astype(np.float32)

    return actions


def stand(size: int) -> Callable[[int], Actions]:
    """Weak slow sines on every motor, all alike."""

    def actions(steps: int) -> Actions:
        wave = 0.25 * np.sin(2.0 * math.pi * np.arange(steps) / 50.0)
        return np.repeat(wave[:, None], size, axis=1).astype(np.float32)

    return actions


def swing(steps: int) -> Actions:
    """A torque that swings the nominal pendulum up and then rests."""
    t = np.arange(steps)[:, None]
    return (np.sign(np.sin(2.0 * math.pi * t / 44.0)) * (t < 90)).astype(np.float32)


def still(size: int) -> Callable[[int], Actions]:
    """Nothing is done."""
    return lambda steps: np.zeros((steps, size), np.float32)


def bodies(*each: tuple[float, ...]) -> tuple[float, ...]:
    """A state of CoPhy's worlds: x, y, z of each body, and its velocity along x and y where it moves."""
    poses = [value for x, y, z, *_ in each for value in (x, y, z, 1.0, 0.0, 0.0, 0.0)]
    return (*poses, *(value for body in each for value in (*(body[3:] or (0.0, 0.0)), 0.0, 0.0, 0.0, 0.0)))


SCENES = {
    "d-clean": Scene(
        "sprii/D-Clean-v0",
        "drag",
        (0.5, 1.5, 4.0),
        pushes((0, 8, 0.6, 0.5), (16, 24, -0.8, 0.1), (32, 40, 0.1, -0.8), (48, 56, 0.7, 0.5)),
        80,
        (-1.5, -1.0, 1.0, 0.5),
    ),
    "spring-world": Scene(
        "sprii/SpringWorld-v0",
        "stiffness",
        (4.0, 12.0, 25.0),
        pushes((8, 12, 0.5, 0.35), (40, 44, -0.6, 0.2), (68, 72, 0.1, -0.6)),
        95,
        (-0.28, -0.05, 0.22, 0.05, 0.0, 0.0, 0.0, 0.0),
        {"mass": 0.6, "drag": 0.25},
    ),
    "poke-world": Scene(
        "sprii/PokeWorld-v0",
        "mass",
        (0.5, 1.2, 3.0),
        pushes((0, 5, 0.5, 0.02), (18, 26, -0.3, 0.0)),
        63,
        (-0.62, -0.03, 0.0, 0.0, -0.15, 0.0, 0.0, 0.0),
        {"drag": 0.8},
    ),
    "swimmer": Scene("sprii/Swimmer-v0", "mass_2", (0.75, 1.25), gait, 300, (0.0,) * 10, every=3, travel=True),
    "half-cheetah": Scene("sprii/HalfCheetah-v0", "motor", (0.5, 1.0, 1.5), gallop(0.0, 1.0, 2.0, 3.0, 4.0, 5.0), 80),
    "hopper": Scene("sprii/Hopper-v0", "torso_mass", (0.5, 1.0, 2.0), stand(3), 120, every=3),
    "walker2d": Scene("sprii/Walker2d-v0", "gravity", (0.4, 1.0, 1.6), stand(6), 120, every=3),
    "ant": Scene("sprii/Ant-v0", "friction", (0.2, 1.0, 3.0), gallop(*(0.8 * i for i in range(8))), 80),
    "pendulum": Scene("sprii/Pendulum-v0", "length", (0.8, 1.0, 1.25), swing, 160, (math.pi, 0.0), every=2),
    "cophy-balls": Scene(
        "sprii/CoPhyBalls-v0",
        "mass_0",
        (1.0, 5.0),
        still(8),
        90,
        bodies((-3.0, -0.4, 0.5, 5.0, 0.6), (-0.5, 0.2, 0.5), (2.0, -1.5, 0.5), (1.5, 2.5, 0.5, -0.5, -2.0)),
        {"restitution_0": 1.0, "restitution_1": 1.0, "restitution_3": 1.0, "friction_0": 0.1, "friction_1": 0.1},
        {"dt": 0.05},
        every=2,
    ),
    "cophy-collision": Scene(
        "sprii/CoPhyCollision-v0",
        "mass_0",
        (1.0, 5.0),
        still(4),
        60,
        bodies((-2.8, -0.6, 0.5, 4.0, 0.65), (0.0, 0.0, 0.5)),
        {"restitution_0": 1.0, "restitution_1": 1.0},
        {"dt": 0.05},
        every=2,
    ),
    "cophy-blocktower": Scene(
        "sprii/CoPhyBlocktower-v0",
        "mass_2",
        (1.0, 10.0),
        still(6),
        30,
        bodies((-0.5, 0.0, 0.5), (-0.2, -0.05, 1.5), (0.1, 0.0, 2.5)),
        constants={"dt": 0.1},
    ),
}


def draw(scene: Scene, size: int = 192) -> list[Image.Image]:
    """The frames of one picture: the systems side by side, each under its value."""
    env: Any = gym.make(scene.id, obs_type="state", **scene.constants).unwrapped
    p = env.persistent_properties[scene.property]
    env.reset(seed=0, options={"system": env.persistent_properties.system(**scene.system)})
    systems = env.vary(scene.property, scene.values)
    start = env.state if scene.state is None else scene.state
    done = rollout(env.world, systems.values, start, scene.actions(scene.steps), steps=scene.steps)
    unit = "" if p.unit == "1" else f" {p.unit}"
    frames = []
    for t in range(0, scene.steps + 1, scene.every):
        titles = [f"{p.name} {value:g}{unit}" for value in scene.values]
        if scene.travel:
            travelled = done.states[:, t, 0] - done.states[:, 0, 0]
            titles = [f"{title}: {way:.1f} m" for title, way in zip(titles, travelled, strict=True)]
        frames.append(
            beside(env.world.picture(np.asfortranarray(done.states[:, t]), systems.values, (size, size)), titles)
        )
    return frames


def beside(pictures: NDArray[np.uint8], titles: Sequence[str]) -> Image.Image:
    """Pictures (N, height, width, 3) side by side, each under its title."""
    font = ImageFont.load_default(13)
    _, height, width, _ = pictures.shape
    sheet = Image.new("RGB", (len(titles) * (width + 4) - 4, height + 22), (245, 245, 245))
    pen = ImageDraw.Draw(sheet)
    for i, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        left = i * (width + 4)
        sheet.paste(Image.fromarray(picture), (left, 22))
        pen.text((left + width / 2, 11), title, (30, 30, 30), font, anchor="mm")
    return sheet


def burgers_frames(size: int = 240) -> list[Image.Image]:
    """u over x at two viscosities: a shock, and a front that diffuses."""
    nu, cells = np.array([1e-3, 5e-2]), 1600
    start = burgers.field(*burgers.modes(0, 1e-3, [2]), burgers.grid(cells))
    solved = burgers.solve(np.repeat(start, 2, axis=0), nu, frames=101, duration=2.0)
    across = np.linspace(0, cells - 1, 2 * size).astype(int)
    frames = []
    for t in range(0, 101, 2):
        pictures = []
        for row in solved[:, t, across]:
            picture = Image.new("RGB", (2 * size, 2 * size), "white")  # drawn twice as large, which smooths the line
            pen = ImageDraw.Draw(picture)
            pen.line((0, size, 2 * size, size), (205, 205, 205), 2)
            pen.line([(x, size - 0.9 * size * u) for x, u in enumerate(row)], (31, 90, 160), 5)
            pictures.append(np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS)))
        frames.append(beside(np.stack(pictures), [f"Burgers, viscosity {each:g}" for each in nu]))
    return frames


def fhn_frames(size: int = 192) -> list[Image.Image]:
    """u of two systems, blue below 0 and red above."""
    told = np.array([(0.01, 0.10), (0.05, 0.30)])
    solved = fhn.solve(np.repeat(fhn.initial(0, [15]), 2, axis=0), told, frames=51)[:, :, 0]
    poles = np.array([[33, 80, 160], [250, 250, 250], [170, 40, 50]])
    levels = np.round(np.clip(solved, -1.0, 1.0) * 24) / 24  # few colours, for small files
    colours = np.stack([np.interp(levels, (-1, 0, 1), pole) for pole in poles.T], axis=-1).astype(np.uint8)
    large = np.linspace(0, 127, size).round().astype(int)
    titles = [f"k {k:g}, beta {beta:g}" for k, beta in told]
    return [beside(colours[:, t][:, large][:, :, large], titles) for t in range(51)]


FIELDS = {"burgers": burgers_frames, "fhn": fhn_frames}


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    legal = [*SCENES, *FIELDS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help=f"of {', '.join(legal)}; default all")
    parser.add_argument("--out", type=Path, default=Path("assets"), help="folder to write to")
    options = parser.parse_args(arguments)
    for name in options.environments or legal:
        if name not in legal:
            parser.error(f"unknown environment {name!r}; legal: {', '.join(legal)}")
        scene = SCENES.get(name)
        first, *rest = draw(scene) if scene else FIELDS[name]()
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{name}.gif"
        step = 40 if name == "swimmer" else 1000 * scene.constants.get("dt", 0.05) if scene else 50
        duration = max(20, round(step * (scene.every if scene else 2)))
        first.save(path, save_all=True, append_images=rest, duration=duration, loop=0, optimize=True)
        print(f"{path}: {len(rest) + 1} frames, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
