"""Pictures of a MuJoCo model's geoms: flat ones by our rasteriser, and those of MuJoCo's renderer where OpenGL is.

A flat picture is the geoms of the compiled model projected along one axis, capsules and boxes as round bars, so that it
depends on the pose alone and on no system.
"""

import copy
import itertools
import os
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.dependencies import PackageImportError
from sprii_envs.mujoco.models import Compiled

Array = NDArray[np.float64]

_PLANE, _SPHERE, _CAPSULE, _CYLINDER = 0, 2, 3, 5
_GREYS = (144, 184, 224)
_GROUND = 72


class View(NamedTuple):
    """Where a flat picture looks from."""

    axes: tuple[int, int]
    """Which of x, y, z run to the right and up."""
    width: float
    """m across the picture."""
    follow: int
    """The number of the body at its centre."""
    centre: float | None
    """The height at its centre, m, where it follows along the first axis only."""


def shapes(of: Compiled, view: View, state: Array, size: rendering.Size, greys: tuple[int, ...] = _GREYS) -> list[Any]:
    """The geoms but planes, in the order of the model: a list of patches for each; states (N, S)."""
    place, axes, bodies = of.poses(state)
    eye = _eye(view, bodies)
    model, right = of.model, list(view.axes)
    scale = size[1] / view.width
    found: list[list[rendering.Patch]] = []
    for geom in range(model.ngeom):
        kind, extent = int(model.geom_type[geom]), model.geom_size[geom]
        if kind == _PLANE or kind == 1:
            continue
        grey = greys[int(model.geom_bodyid[geom]) % len(greys)]
        middle = place[:, geom, right] - eye
        axis, half, radius = _bar(kind, extent, float(model.geom_rbound[geom]))
        if half == 0.0:
            disc = rendering.disc(rendering.to_pixels(middle, view.width, size), radius * scale, grey, size)
            found.append([disc])
            continue
        reach = half * axes[:, geom][:, right, axis]
        back, front = (rendering.to_pixels(middle + side * reach, view.width, size) for side in (-1.0, 1.0))
        found.append(rendering.segment(back, front, radius * scale, grey, size))
    return found


def ground(of: Compiled, view: View, state: Array, size: rendering.Size, grey: int = _GROUND) -> list[rendering.Patch]:
    """A line at height 0 with a mark every metre, or seen from above a dot every metre, which pass as a body moves."""
    n, scale = len(state), size[1] / view.width
    eye = _eye(view, of.poses(state)[2])
    reach = 0.5 * view.width * max(1.0, size[0] / size[1])
    steps = np.arange(-int(reach) - 1, int(reach) + 2)
    offset = np.round(eye) - eye
    found: list[rendering.Patch] = []

    def bar(start: Array, end: Array) -> None:
        a, b = (rendering.to_pixels(point, view.width, size) for point in (start, end))
        found.extend(rendering.segment(a, b, 0.03 * scale, grey, size))

    if view.axes[1] == 2:
        low = -eye[:, 1] - 0.03
        bar(np.stack([np.full(n, -2.0 * reach), low], axis=1), np.stack([np.full(n, 2.0 * reach), low], axis=1))
        for k in steps:
            x = offset[:, 0] + k
            bar(np.stack([x, low], axis=1), np.stack([x, low - 0.15], axis=1))
        return found
    for k, j in itertools.product(steps, steps):
        dot = offset + np.array([k, j])
        found.append(rendering.disc(rendering.to_pixels(dot, view.width, size), 0.05 * scale, grey, size))
    return found


def rendered(of: Compiled, state: Array, size: rendering.Size, camera: str | int) -> rendering.Frame:
    """Pictures (N, H, W, 3) uint8 of MuJoCo's renderer; PackageImportError where there is no OpenGL."""
    renderer, data = _renderer(of, size, os.getpid())
    model = of.model
    out = np.empty((len(state), *size, 3), np.uint8)
    for row in range(len(state)):
        data.qpos[:], data.qvel[:] = state[row, : model.nq], state[row, model.nq : model.nq + model.nv]
        of.mj.mj_forward(model, data)
        renderer.update_scene(data, camera=camera)
        out[row] = renderer.render()
    return out


@cache
def _renderer(of: Compiled, size: rendering.Size, process: int) -> tuple[Any, Any]:
    model = copy.copy(of.model)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, size[1])
    model.vis.global_.offheight = max(model.vis.global_.offheight, size[0])
    try:
        with warnings.catch_warnings(action="ignore"):  # of GLFW, which the error below repeats
            return of.mj.Renderer(model, *size), of.mj.MjData(model)
    except Exception as error:  # whatever a driver that is not there fails with
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PackageImportError(
            f"{of.world} with renderer='mujoco' needs OpenGL (MUJOCO_GL=egl or osmesa without a screen), which fails "
            f"here; renderer='shapes' needs none: {reason}"
        ) from error


def _eye(view: View, bodies: Array) -> Array:
    eye = bodies[:, view.follow][:, list(view.axes)]
    if view.centre is not None:
        eye[:, 1] = view.centre
    return eye


def _bar(kind: int, extent: Array, bound: float) -> tuple[int, float, float]:
    """A geom as a round bar: its own axis, half the length of its spine (0 for a disc), its radius; in m."""
    if kind == _SPHERE:
        return 2, 0.0, float(extent[0])
    if kind in (_CAPSULE, _CYLINDER):
        return 2, float(extent[1]), float(extent[0])
    if not extent.any():
        return 2, 0.0, bound
    axis = int(np.argmax(extent))
    radius = float(np.delete(extent, axis).mean())
    return axis, max(float(extent[axis]) - radius, 0.0), radius
