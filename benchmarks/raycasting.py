"""Frames a second of our ray caster beside MuJoCo's renderer on the same scenes, and how far the two agree.

    MUJOCO_GL=egl OMP_NUM_THREADS=1 python benchmarks/raycasting.py [--frames 1000] [--objects 4]

Random spheres, cylinders and boxes of any rotation before Blocktower's camera. A second is one of CPU time, of all
threads together, which other programs disturb least; median of --rounds, rows taking turns. MuJoCo's rows need OpenGL:
MUJOCO_GL must name it, as Mesa's egl or osmesa where there is no GPU.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import option
from sprii_envs.cophy.pictures import CAMERAS
from sprii_envs.mujoco.package import mujoco
from sprii_envs.raycasting import BOX, CYLINDER, SPHERE, Camera, Solids, cast, render

GEOMS = {SPHERE: "sphere", CYLINDER: "cylinder", BOX: "box"}
AWAY = 1000.0
"""Below the ground, where what is not in a frame is kept."""


class Arrays(NamedTuple):
    """Solids as arrays of float64, and the kinds as integers."""

    kind: NDArray[np.int64]
    position: NDArray[np.float64]
    rotation: NDArray[np.float64]
    extent: NDArray[np.float64]


def scenes(frames: int, objects: int, seed: int = 0) -> Arrays:
    """Random solids near the middle of Blocktower's picture."""
    rng = np.random.default_rng(seed)
    shape = (frames, objects)
    position = rng.uniform((-2.0, -2.0, 0.4), (2.0, 2.0, 3.0), (*shape, 3))
    kind = rng.integers(0, 3, shape)
    return Arrays(kind, position, rng.normal(size=(*shape, 4)), rng.uniform(0.3, 0.6, (*shape, 3)))


class Reference:
    """The same solids as geoms of one MuJoCo model, drawn by MuJoCo's renderer frame by frame."""

    def __init__(self, objects: int, camera: Camera, size: int, *, slices: int = 28) -> None:
        """A curved geom is a mesh of `slices`; MuJoCo's own number is 28.

        PackageImportError without MuJoCo; what MuJoCo raises without OpenGL.
        """
        mj = mujoco(type(self).__name__)
        eye, target, up = (np.array(part) for part in camera[:3])
        right = np.cross(target - eye, up)
        axes = " ".join(map(str, (*right, *np.cross(right, target - eye))))
        bodies = "".join(
            f'<body mocap="true"><geom type="{name}" size="1 1 1" rgba="{0.2 + 0.2 * (i % 4)} .5 .3 1"/></body>'
            for i, name in itertools.product(range(objects), GEOMS.values())
        )
        self.model = mj.MjModel.from_xml_string(
            f'''<mujoco><statistic extent="1"/><visual><global offwidth="{size}" offheight="{size}"/>
            <map znear="0.05" zfar="500"/>
            <quality numslices="{slices}" numstacks="{slices // 2}" shadowsize="1024" offsamples="0"/></visual>
            <worldbody>
            <light directional="true" dir="0.4 0.5 -1"/><geom type="plane" size="99 99 1"/>
            <camera pos="{" ".join(map(str, eye))}" xyaxes="{axes}" fovy="{camera.fov}"/>{bodies}
            </worldbody></mujoco>'''
        )
        self.data = mj.MjData(self.model)
        self.renderer = mj.Renderer(self.model, size, size)
        self._forward = mj.mj_forward

    def place(self, solids: Arrays, frame: int) -> None:
        """Put one frame's solids there."""
        self.data.mocap_pos[:] = (0.0, 0.0, -AWAY)
        which = np.arange(solids.kind.shape[1]) * len(GEOMS) + solids.kind[frame]
        rotation = solids.rotation[frame] / np.linalg.norm(solids.rotation[frame], axis=-1, keepdims=True)
        self.data.mocap_pos[which], self.data.mocap_quat[which] = solids.position[frame], rotation[:, [3, 0, 1, 2]]
        self.model.geom_size[1 + which] = solids.extent[frame]
        self.model.geom_rbound[1 + which] = np.linalg.norm(solids.extent[frame], axis=-1)
        self._forward(self.model, self.data)
        self.renderer.update_scene(self.data, camera=0)

    def draw(self, solids: Arrays, what: str = "colours") -> NDArray[Any]:
        """Every frame in turn: in "colours" (N, H, W, 3), "segmentation" (N, H, W, 2) or "depth" (N, H, W)."""
        if what != "colours":
            getattr(self.renderer, f"enable_{what}_rendering")()
        frames = []
        for frame in range(len(solids.kind)):
            self.place(solids, frame)
            frames.append(self.renderer.render())
        if what != "colours":
            getattr(self.renderer, f"disable_{what}_rendering")()
        return np.stack(frames)

    def masks(self, solids: Arrays) -> NDArray[np.int64]:
        """Which solid each pixel is of, (N, H, W), −1 for the ground and the sky."""
        geom = self.draw(solids, "segmentation")[..., 0]
        return np.where(geom > 0, (geom - 1) // len(GEOMS), -1)


class Agreement(NamedTuple):
    """Of our ray caster with MuJoCo's renderer."""

    everywhere: float
    """Share of all pixels that are of the same solid, or of none, in both."""
    solids: float
    """The same of the pixels that are of a solid in one of them."""
    depth: float
    """Median difference in depth where both see the same solid."""


def agreement(solids: Arrays, camera: Camera, size: int) -> Agreement:
    """On given scenes; errors as of `Reference`."""
    reference = Reference(solids.kind.shape[1], camera, size, slices=128)
    hits, masks = cast(Solids(*solids), camera, size), reference.masks(solids)
    same, solid = hits.solid == masks, (masks >= 0) | (hits.solid >= 0)
    off = np.abs(hits.depth - reference.draw(solids, "depth"))[same & solid]
    return Agreement(float(same.mean()), float(same[solid].mean()), float(np.median(off)))


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=option(), default=1000)
    parser.add_argument("--objects", type=option(most=100), default=4)
    parser.add_argument("--rounds", type=option(), default=3)
    options = parser.parse_args(arguments)
    camera = CAMERAS["blocktower"]
    solids = scenes(options.frames, options.objects)
    few = scenes(max(1, options.frames // 20), options.objects)
    colour = np.random.default_rng(1).uniform(50.0, 255.0, (options.objects, 3))
    rows: dict[str, tuple[int, Callable[[], Any]]] = {}
    agree: list[str] = []
    for size in (112, 224):
        ours = {"shadows": {}, "shadows, 2 × 2 rays a pixel": {"samples": 2}, "no shadows": {"shadows": False}}
        for name, told in ours.items():
            drawn = partial(render, Solids(*solids), colour, camera, size, **told)
            rows[f"ours, pictures {size}², {name}"] = (options.frames, drawn)
        rows[f"ours, masks {size}²"] = (options.frames, partial(cast, Solids(*solids), camera, size))
        if not os.environ.get("MUJOCO_GL"):
            agree = ["MuJoCo's renderer: left out, as MUJOCO_GL names no OpenGL"]
            continue
        try:
            reference = Reference(options.objects, camera, size)
        except Exception as error:  # whatever a driver that is not there fails with
            agree = [f"MuJoCo's renderer: left out: {type(error).__name__}: {error}"]
            continue
        rows[f"MuJoCo, pictures {size}², shadows"] = (len(few.kind), partial(reference.draw, few))
        rows[f"MuJoCo, masks {size}²"] = (len(few.kind), partial(reference.masks, few))
        found = agreement(few, camera, size)
        agree.append(
            f"{size}²: masks agree on {found.everywhere:.3%} of all pixels, on {found.solids:.2%} of those of solids; "
            f"depth differs by {found.depth:.1e} (median)"
        )
    took: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(options.rounds):
        for name, (frames, run) in rows.items():
            before = time.process_time()
            run()
            took[name].append((time.process_time() - before) / frames)
    print(f"| {options.objects} objects, {options.frames:,} frames | frames a CPU second |\n|---|---:|")
    for name, each in took.items():
        print(f"| {name} | {1.0 / np.median(each):,.0f} |")
    print("", *agree, sep="\n")


if __name__ == "__main__":
    main()
