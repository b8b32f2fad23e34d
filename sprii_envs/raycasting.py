"""Batched analytic ray caster: spheres, capped cylinders and boxes on a ground plane, many frames in one array program.

A ray through each pixel's centre is met with each solid inside the rectangle of pixels that the solid's bounding box
projects to, for many frames at once; the nearest entry wins. Lambert shading with an ambient term and one directional
light, whose shadows fall on the ground only, not on solids. No antialiasing of solids: a pixel is of one of them. A ray
meets a solid where it enters it, so a camera inside one does not see it. Every frame depends on its own row alone.

Lengths are in any one unit, angles in degrees. The loop is over solids, never over pixels or frames.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer, number, numbers, shown
from sprii_envs.checks import reals
from sprii_envs.rendering import Frame, Size, image_size

Array = NDArray[np.float32]
Triple = tuple[float, float, float]

NOTHING, SPHERE, CYLINDER, BOX = -1, 0, 1, 2
"""Kinds of solids."""


class Camera(NamedTuple):
    """A pinhole camera: where it is, what is in the middle of the picture, what is up, the vertical field of view."""

    eye: Triple
    target: Triple
    up: Triple = (0.0, 0.0, 1.0)
    fov: float = 60.0


class Light(NamedTuple):
    """A directional light: the direction towards it, above the ground, and the share of light that comes from all."""

    direction: Triple = (-0.4, -0.5, 1.0)
    ambient: float = 0.5


class Ground(NamedTuple):
    """The plane z = height, tiled in two colours, and the colour of the sky, RGB in [0, 255]."""

    height: float = 0.0
    colours: tuple[Triple, Triple] = ((176.0, 176.0, 170.0), (160.0, 160.0, 156.0))
    sky: Triple = (205.0, 215.0, 225.0)
    tile: float = 1.0


class Solids(NamedTuple):
    """O solids in each of N frames."""

    kind: ArrayLike
    """(N, O) integers: NOTHING, SPHERE, CYLINDER, BOX; of nothing the rest is not read."""
    position: ArrayLike
    """(N, O, 3), of the centre."""
    rotation: ArrayLike
    """(N, O, 4): quaternions x, y, z, w of any length but 0."""
    extent: ArrayLike
    """(N, O, 3) or what broadcasts to it, as MuJoCo's: radius; radius and half height, along z; three half sides."""


class Hits(NamedTuple):
    """What the ray of each pixel meets first."""

    solid: NDArray[np.int8]
    """(N, H, W): which of the O solids, −1 for the ground or the sky."""
    depth: Array
    """(N, H, W): distance along the optical axis; infinite for the sky."""


def cast(
    solids: Solids,
    camera: Camera,
    size: int | Sequence[int],
    *,
    ground: Ground | None = Ground(),  # noqa: B008
) -> Hits:
    """The solid that each pixel sees and how far it is; ValueError for what `render` refuses."""
    view = _View(camera, image_size(size), ground, Light())
    bodies = _bodies(solids, view)
    shape = (len(bodies.kind), *view.size)
    found = Hits(np.full(shape, NOTHING, np.int8), np.empty(shape, np.float32))
    for rows in _chunks(view, len(bodies.kind)):
        _paint(view, bodies.of(rows), found.depth[rows].reshape(-1), found.solid[rows].reshape(-1))
    return found


def render(
    solids: Solids,
    colour: ArrayLike,
    camera: Camera,
    size: int | Sequence[int],
    *,
    light: Light = Light(),  # noqa: B008
    ground: Ground | None = Ground(),  # noqa: B008
    shadows: bool = True,
    samples: int = 1,
) -> Frame:
    """Pictures (N, H, W, 3) uint8; `colour` is RGB in [0, 255], (O, 3) or (N, O, 3); without ground all is sky.

    Each pixel is the mean of `samples` × `samples` rays, which smooths edges.

    ValueError, naming it, for a number that is not finite, a shape that does not fit, more than 127 solids, an unknown
    kind, a size that is not positive, a rotation of length 0, a camera at its target or looking along its `up`, a field
    of view outside (0, 180), a light that is not above the ground, a tile of no size, a side outside [8, 4096], or
    `samples` outside [1, 4].
    """
    height, width = image_size(size)
    samples = integer("samples", samples, least=1, most=4)
    view = _View(camera, (height * samples, width * samples), ground, light)
    bodies = _bodies(solids, view)
    n, o = bodies.kind.shape
    tint = _reals("colour", colour, (n, o, 3))
    if not ((tint >= 0.0) & (tint <= 255.0)).all():
        raise ValueError("colour is outside [0, 255]")
    out = np.empty((n, height, width, 3), np.uint8)
    for rows in _chunks(view, n):
        of = bodies.of(rows)
        canvas = np.empty((len(of.kind), *view.size, 3), np.uint8)
        canvas.reshape(len(canvas), -1, 3)[:] = view.backdrop.lit
        flat = canvas.reshape(-1, 3)
        if shadows and view.ground is not None:
            _darken(view, of, view.ground.height, flat)
        depth = np.empty(len(flat), np.float32)
        _paint(view, of, depth, drawn=(flat, tint[rows].astype(np.float32)))
        if samples > 1:
            total = np.zeros((len(canvas), height, width, 3), np.uint16)
            for i in range(samples**2):
                total += canvas[:, i // samples :: samples, i % samples :: samples]
            canvas = (total + samples**2 // 2) // samples**2
        out[rows] = canvas
    return out


_PIXELS = 2_000_000
"""Of the frames that are cast at once."""
_RAYS = 1 << 16
"""Rays that are met with solids at once: few enough that a dozen arrays of them stay in the processor's cache."""


def _together(view: "_View") -> int:
    return max(1, _PIXELS // (view.size[0] * view.size[1]))


def _chunks(view: "_View", n: int) -> Iterator[slice]:
    step = _together(view)
    return (slice(first, min(first + step, n)) for first in range(0, n, step))


class _Backdrop(NamedTuple):
    """What is behind all solids, of every pixel (H·W, …), and the ground that its centre sees."""

    lit: Frame
    dark: Frame
    depth: Array
    x: Array
    y: Array


class _View:
    """A checked camera and what is the same for all frames it takes."""

    def __init__(self, camera: Camera, size: Size, ground: Ground | None, light: Light) -> None:
        eye, target, up = (np.array(_triple(f"camera.{name}", getattr(camera, name))) for name in camera._fields[:3])
        fov = number("camera.fov", camera.fov, above=0.0, below=180.0)
        forward, towards = target - eye, np.array(_triple("light.direction", light.direction))
        right = np.cross(forward, up)
        if not forward.any() or np.linalg.norm(right) < 1e-9 * np.linalg.norm(forward) * np.linalg.norm(up):
            raise ValueError(
                f"camera looks from {camera.eye} at {camera.target} with {camera.up} up; "
                "legal: a target other than the eye, not straight along up"
            )
        if towards[2] <= 0.0:
            raise ValueError(f"light.direction is {light.direction}; legal: a direction above the ground, z > 0")
        self.size, self.eye = size, eye
        self.axes = np.stack([right, np.cross(right, forward), forward])
        """Rows: what is right, up and forward in the picture."""
        self.axes /= np.linalg.norm(self.axes, axis=1, keepdims=True)
        self.pixel = 2.0 * math.tan(math.radians(fov) / 2.0) / size[0]
        """The side of a pixel at depth 1."""
        self.light = towards / np.linalg.norm(towards)
        self.ambient = number("light.ambient", light.ambient, least=0.0, most=1.0)
        self.ground = None if ground is None else _checked(ground)

    @property
    def backdrop(self) -> _Backdrop:
        """Of a camera, kept, for it is the same for all frames."""
        eye, axes = tuple(self.eye.tolist()), tuple(self.axes.ravel().tolist())
        return _backdrop(eye, axes, self.pixel, self.size, self.ground, float(self.light[2]), self.ambient)

    def rays(self) -> tuple[Array, Array]:
        """How far right (W,) and up (H,) the rays go by depth 1."""
        height, width = self.size
        right, down = np.arange(width) + (0.5 - 0.5 * width), np.arange(height) + (0.5 - 0.5 * height)
        return _single(self.pixel * right), _single(-self.pixel * down)


@lru_cache(maxsize=16)
def _backdrop(
    eye: Triple,
    axes: tuple[float, ...],
    pixel: float,
    size: Size,
    ground: Ground | None,
    lambert: float,
    ambient: float,
) -> _Backdrop:
    basis, lamp, middle = np.array(axes).reshape(3, 3), ambient + (1.0 - ambient) * lambert, np.array(size) / 2.0

    def seen(rows: NDArray[np.floating], columns: NDArray[np.floating]) -> tuple[NDArray[Any], ...]:
        """Depth, x and y of the ground at places in pixels; the depth of the sky is infinite."""
        u, v = (columns - middle[1])[None] * pixel, (middle[0] - rows)[:, None] * pixel
        way = [u * basis[0, k] + v * basis[1, k] + basis[2, k] for k in range(3)]
        if ground is None:
            depth = np.full(way[2].shape, np.inf)
        else:
            depth = (ground.height - eye[2]) / way[2]
            depth[~(depth > 0.0)] = np.inf
        return depth, eye[0] + depth * way[0], eye[1] + depth * way[1]

    def drawn(row: int) -> list[Frame]:
        """One row of pixels, lit and dark."""
        depth, x, y = seen(row + within, across)
        lit = dark = np.broadcast_to(np.array(Ground().sky), (*depth.shape, 3))
        if ground is not None:
            odd = (np.floor(x / ground.tile) + np.floor(y / ground.tile)) % 2.0 == 1.0
            tiles = np.where(odd[..., None], ground.colours[1], ground.colours[0])
            lit, dark = (
                np.where(np.isfinite(depth)[..., None], tiles * level, ground.sky) for level in (lamp, ambient)
            )
        smooth = (part.reshape(len(within), size[1], len(within), 3).mean(axis=(0, 2)) for part in (lit, dark))
        return [(np.clip(part, 0.0, 255.0) + 0.5).astype(np.uint8) for part in smooth]

    # The ground is drawn once for all frames, so smoothing it costs nothing.
    within = np.arange(0.125, 1.0, 0.25)
    across = (np.arange(size[1])[:, None] + within).reshape(-1)
    with np.errstate(all="ignore"):
        lit, dark = (np.concatenate(part) for part in zip(*map(drawn, range(size[0])), strict=True))
        centres = seen(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
    return _Backdrop(lit, dark, *(part.astype(np.float32).reshape(-1) for part in centres))


class _Bodies(NamedTuple):
    """Solids, checked: float64, in the world; the rotation of a sphere is the camera's, as none is seen."""

    kind: NDArray[np.int8]
    position: NDArray[np.float64]
    axes: NDArray[np.float64]
    """(N, O, 3, 3): columns are the solid's own axes."""
    extent: NDArray[np.float64]

    def of(self, at: Any) -> "_Bodies":
        """Some of them."""
        return _Bodies(self.kind[at], self.position[at], self.axes[at], self.extent[at])


def _bodies(solids: Solids, view: _View) -> _Bodies:
    kind = np.asarray(solids.kind)
    if kind.ndim != 2 or kind.dtype.kind not in "iu" or not np.isin(kind, (NOTHING, SPHERE, CYLINDER, BOX)).all():
        raise ValueError(f"kind is {kind.dtype} of shape {kind.shape}; legal: (N, O) integers of −1, 0, 1, 2")
    n, o = kind.shape
    if o > np.iinfo(np.int8).max:
        raise ValueError(f"kind is of {o} solids a frame; legal: at most 127")
    there = kind != NOTHING
    parts = []
    for name, width in (("position", 3), ("rotation", 4), ("extent", 3)):
        part = _reals(name, getattr(solids, name), (n, o, width))
        if not np.isfinite(part[there]).all():
            raise ValueError(f"{name} is not finite at (frame, solid) {_first(there & ~np.isfinite(part).all(-1))}")
        parts.append(part)
    position, rotation, extent = parts
    flat = (extent[..., 0] <= 0.0) | (extent[..., 1] <= 0.0) & (kind != SPHERE)
    flat = there & (flat | (extent[..., 2] <= 0.0) & (kind == BOX))
    if flat.any():
        raise ValueError(f"extent is not positive at (frame, solid) {_first(flat)}")
    length = np.linalg.norm(rotation, axis=-1)
    if (there & (length == 0.0)).any():
        raise ValueError(f"rotation is of length 0 at (frame, solid) {_first(there & (length == 0.0))}")
    round_ = kind == SPHERE
    extent = np.where(round_[..., None], extent[..., :1], extent)
    extent = np.where((kind == CYLINDER)[..., None], extent[..., [0, 0, 1]], extent)
    axes = _matrices(rotation / np.where(length == 0.0, 1.0, length)[..., None])
    axes[round_] = view.axes.T
    return _Bodies(kind.astype(np.int8), position, axes, extent)


def _matrices(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrices (…, 3, 3) of unit quaternions x, y, z, w (…, 4)."""
    x, y, z, w = np.moveaxis(q, -1, 0)
    rows = [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


_SIGNS = np.array([[(-1.0) ** (i >> k & 1) for i in range(8)] for k in range(3)])
"""(3, 8): the corners of a box."""


class _Batch(NamedTuple):
    """Some frames' windows of one size around one solid of each: R rows, C columns, B frames."""

    frame: NDArray[np.intp]
    """(B,)"""
    body: _Bodies
    """(B, …)"""
    corner: NDArray[np.intp]
    """(2, B): the first row and column."""
    shape: tuple[int, int]

    def pixel(self, width: int) -> NDArray[np.intp]:
        """(R·C, B), in its own frame."""
        rows, columns = self.shape
        window = np.arange(rows)[:, None] * width + np.arange(columns)
        return window.reshape(-1, 1) + (self.corner[0] * width + self.corner[1])


def _batches(view: _View, bodies: _Bodies, points: Callable[[Any], Any]) -> Iterator[tuple[int, int, _Batch]]:
    """(solid, kind, batch): windows around what `points` makes of the corners (B, 3, 8) of bounding boxes."""
    for solid in range(bodies.kind.shape[1]):
        for kind in (SPHERE, CYLINDER, BOX):
            frame = (bodies.kind[:, solid] == kind).nonzero()[0]
            if not len(frame):
                continue
            body = bodies.of((frame, solid))
            corners = body.position[..., None] + body.axes @ (body.extent[..., None] * _SIGNS)
            low, high = _window(view, points(corners))
            sides = high - low
            legal = (sides > 0).all(axis=0)
            longest = np.where(legal, sides.max(axis=0), 0)
            order = np.argsort(-longest, kind="stable")[: int(legal.sum())]
            first = 0
            while first < len(order):  # sorted by size, so that a large window does not widen many small ones
                some = order[first : first + max(1, _RAYS // int(longest[order[first]]) ** 2)]
                first += len(some)
                shape = sides[:, some].max(axis=1)
                corner = np.minimum(low[:, some], np.array(view.size)[:, None] - shape[:, None])
                yield solid, kind, _Batch(frame[some], body.of(some), corner, (int(shape[0]), int(shape[1])))


def _window(view: _View, points: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last-plus-one row and column (2, B) of the pixels whose centres are among the points (B, 3, 8)."""
    seen = view.axes @ (points - view.eye[:, None])
    height, width = view.size
    depth = seen[:, 2]
    with np.errstate(all="ignore"):
        across = seen[:, 0] / depth / view.pixel + (0.5 * width - 0.5)
        down = (0.5 * height - 0.5) - seen[:, 1] / depth / view.pixel
        found = np.stack([down, across])
        low, high = np.ceil(found.min(axis=-1) - 0.01), np.floor(found.max(axis=-1) + 0.01) + 1.0
    near, behind = (depth <= 1e-6).any(axis=-1), (depth <= 1e-6).all(axis=-1)
    most = np.array([[height], [width]], np.float64)
    low, high = np.where(near, 0.0, np.clip(low, 0.0, most)), np.where(near, most, np.clip(high, 0.0, most))
    return low.astype(np.intp), np.where(behind, 0.0, high).astype(np.intp)


def _scan(kind: int, o: list[Any], d: list[Any], extent: Array) -> tuple[list[Array], Array]:
    """Where the rays o + t d enter each face (a sphere's one, a cylinder's side and caps, a box's pairs) and leave all.

    Coordinates are along the solid's own axes, in arrays that broadcast; extent (3, B). A ray meets the solid if it has
    entered all faces before it leaves; what misses a curved face altogether is NaN.
    """
    entries, exits = [], []
    if kind != BOX:
        curved = (0, 2, 1) if kind == SPHERE else (0, 1)
        a, b, c = (_sum([x[k] * y[k] for k in curved]) for x, y in ((d, d), (o, d), (o, o)))
        if kind == CYLINDER:
            a = np.maximum(a, np.float32(1e-12))  # of a ray along the axis
        root = np.sqrt(b * b - a * (c - extent[0] * extent[0]))
        entries.append((-b - root) / a)
        exits.append((root - b) / a)
    for k in {SPHERE: (), CYLINDER: (2,), BOX: (0, 1, 2)}[kind]:
        per = np.float32(1.0) / d[k]
        one, other = (-extent[k] - o[k]) * per, (extent[k] - o[k]) * per
        entries.append(np.minimum(one, other))
        exits.append(np.maximum(one, other))
    leave = exits[0]
    for other in exits[1:]:
        leave = np.minimum(leave, other)
    return entries, leave


def _sum(terms: list[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _dot(x: Any, y: Any) -> Any:
    """Of three components each; elementwise, so that its bits do not depend on how many there are."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def _paint(
    view: _View,
    bodies: _Bodies,
    depth: Array,
    solids: NDArray[np.int8] | None = None,
    drawn: tuple[Frame, Array] | None = None,
) -> None:
    """Fill `depth` (n·H·W,), number the nearest solids in `solids` (…,), and draw them: a canvas (…, 3) and colours."""
    pixels, width = view.size[0] * view.size[1], view.size[1]
    depth.reshape(-1, pixels)[:] = view.backdrop.depth
    u, v = view.rays()
    for solid, kind, batch in _batches(view, bodies, lambda corners: corners):
        (rows, columns), (top, left) = batch.shape, batch.corner
        axes = batch.body.axes
        eye = (view.eye - batch.body.position).T
        o = [_single(_dot(eye, axes[:, :, k].T)) for k in range(3)]
        d: list[Any] = [u[left + np.arange(columns)[:, None]][None], v[top + np.arange(rows)[:, None]][:, None], 1.0]
        if kind != SPHERE:  # whose axes are the camera's
            turned = _single(view.axes @ axes)
            d = [(d[0] * turned[:, 0, k] + turned[:, 2, k]) + d[1] * turned[:, 1, k] for k in range(3)]
        with np.errstate(all="ignore"):
            entries, leave = _scan(kind, o, d, _single(batch.body.extent.T))
            enter = entries[0]
            for other in entries[1:]:
                enter = np.maximum(enter, other)
            hit = ((enter <= leave) & (enter > 0.0)).reshape(rows * columns, -1)
        place, which = hit.nonzero()
        pixel = (top * width + left)[which] + (place // columns * width + place % columns)
        at, ray = batch.frame[which] * pixels + pixel, place * len(batch.frame) + which
        t = enter.reshape(-1)[ray]
        nearer = (t < depth[at]).nonzero()[0]
        at, ray, which, t = at[nearer], ray[nearer], which[nearer], t[nearer]
        depth[at] = t
        if solids is not None:
            solids[at] = solid
        if drawn is not None:
            canvas, colour = drawn
            hits = _Rays(ray, which, t, [np.broadcast_to(way, enter.shape).reshape(-1)[ray] for way in d])
            level = _lambert(view, kind, batch.body, o, hits, entries)
            shade = colour[batch.frame, solid][which] * (view.ambient + (1.0 - view.ambient) * level)[:, None]
            canvas[at] = (shade + np.float32(0.5)).astype(np.uint8)


class _Rays(NamedTuple):
    """Those of a batch that hit: their number, whose they are, how far they go, and their way along its own axes."""

    number: NDArray[np.intp]
    body: NDArray[np.intp]
    t: Array
    way: list[Array]


def _lambert(view: _View, kind: int, body: _Bodies, o: list[Array], hits: _Rays, entries: list[Array]) -> Array:
    """The cosine between light and surface, in [0, 1]."""
    lamp = _single(_dot(view.light, np.moveaxis(body.axes, 1, 0)).T)
    flat = np.sign(np.stack(o)) * lamp  # of the faces that the eye may see
    if kind == BOX:
        face = np.argmax(np.stack([enter.reshape(-1)[hits.number] for enter in entries]), axis=0)
        cosine = flat[face, hits.body]
    else:
        curved = range(3 if kind == SPHERE else 2)
        cosine = _sum([(o[k][hits.body] + hits.t * hits.way[k]) * lamp[k][hits.body] for k in curved])
        cosine /= _single(body.extent[:, 0])[hits.body]
    if kind == CYLINDER:
        side, cap = (enter.reshape(-1)[hits.number] for enter in entries)
        cosine = np.where(cap > side, flat[2][hits.body], cosine)
    return np.clip(cosine, np.float32(0.0), np.float32(1.0))


def _darken(view: _View, bodies: _Bodies, height: float, canvas: Frame) -> None:
    """The shadows of solids on the ground, before the solids are drawn over them."""
    pixels, back = view.size[0] * view.size[1], view.backdrop
    slope = (view.light / view.light[2])[:, None]

    def fallen(corners: NDArray[np.float64]) -> NDArray[np.float64]:
        return corners - slope * (corners[:, 2:] - height)

    for _, kind, batch in _batches(view, bodies, fallen):
        pixel = batch.pixel(view.size[1])
        axes = batch.body.axes
        start = (np.array([0.0, 0.0, height]) - batch.body.position).T
        x, y = back.x[pixel], back.y[pixel]
        o = [
            x * _single(axes[:, 0, k]) + y * _single(axes[:, 1, k]) + _single(_dot(start, axes[:, :, k].T))
            for k in range(3)
        ]
        d = [_single(_dot(view.light, axes[:, :, k].T)) for k in range(3)]
        with np.errstate(all="ignore"):
            entries, leave = _scan(kind, o, d, _single(batch.body.extent.T))
            hit = leave > 0.0
            for enter in entries:
                hit &= enter <= leave
        place, which = hit.nonzero()
        at = pixel[place, which]
        canvas[batch.frame[which] * pixels + at] = back.dark[at]


def _single(x: NDArray[np.floating]) -> Array:
    return np.ascontiguousarray(x, np.float32)


def _triple(name: str, value: Any, **legal: Any) -> Triple:
    found = numbers(name, value, **legal)
    if len(found) != 3:
        raise ValueError(f"{name} is {value}; legal: three numbers")
    return found[0], found[1], found[2]


def _checked(ground: Ground) -> Ground:
    low, high = (_triple("ground.colours", colour, least=0.0, most=255.0) for colour in ground.colours)
    return Ground(
        number("ground.height", ground.height),
        (low, high),
        _triple("ground.sky", ground.sky, least=0.0, most=255.0),
        number("ground.tile", ground.tile, above=0.0),
    )


def _first(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _reals(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Real numbers of a shape, or what broadcasts to it."""
    try:
        return np.broadcast_to(reals(value).astype(np.float64), shape)
    except TypeError:
        raise ValueError(f"{name} is {shown(value)}; legal: real numbers") from None
    except ValueError:
        raise ValueError(f"{name} is of shape {np.shape(value)}; legal: {shape} or what broadcasts to it") from None
