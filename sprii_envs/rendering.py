"""Batched rasteriser: N systems straight into one uint8 array.

A shape is rasterised only inside the small window of pixels it can touch (a *patch*), for all N systems at
once; painting scatters the patches into a zeroed canvas. No full-frame distance field, no loop over systems
or pixels. Pixel (row i, column j) covers [j, j+1) × [i, i+1) in pixel coordinates; its centre is (j + ½, i +
½).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.checks import is_integer
from sprii_envs.dependencies import needed

Frame = NDArray[np.uint8]
Size = tuple[int, int]


class Patch(NamedTuple):
    """One shape in some of N frames: flat pixel indices into (N, H, W) and their grey values, both (n ≤ N, P)."""

    pixel: NDArray[np.intp]
    value: Frame


def image_size(size: int | Sequence[int]) -> Size:
    """(height, width) from an int (square) or a pair; ValueError below 8 pixels."""
    try:
        pair = (size, size) if isinstance(size, int | np.integer) else tuple(size)
    except TypeError:
        pair = ()
    if len(pair) != 2 or not all(is_integer(s) and 8 <= s <= 4096 for s in pair):
        raise ValueError(f"image_size must be an int or (height, width), each in [8, 4096], got {size!r}")
    return int(pair[0]), int(pair[1])


def to_pixels(xy: NDArray[np.float64], view_width: float, size: Size) -> NDArray[np.float64]:
    """World coordinates (N, 2), metres, y up, origin at the centre → pixel coordinates (N, 2), y down."""
    height, width = size
    scale = width / view_width
    out = np.empty(xy.shape, np.float64, order="F")
    np.multiply(xy[:, 0], scale, out=out[:, 0])
    np.multiply(xy[:, 1], -scale, out=out[:, 1])
    out += (0.5 * width, 0.5 * height)
    return out


def disc(centre: NDArray[np.float64], radius: float, grey: int, size: Size) -> Patch:
    """Antialiased discs: centres (N, 2) and radius in pixels; coverage falls linearly over one pixel."""
    return discs([centre], radius, [grey], size)[0]


def discs(centres: Sequence[NDArray[np.float64]], radius: float, greys: Sequence[int], size: Size) -> list[Patch]:
    """Several kinds of disc of one radius in each frame, as `disc` would draw each, in one go."""
    height, width = size
    n, kinds = len(centres[0]), len(centres)
    if n == 1:
        return [_disc_of_one(c[0].tolist(), radius, grey, size) for c, grey in zip(centres, greys, strict=True)]
    span = int(2.0 * radius + 1.0) + 1
    rows, columns = min(span, height), min(span, width)
    # (2, kinds, n): x of every disc, then y. Far outside, the exact place does not matter: it is kept where integers
    # and float32 are exact enough. A window pushed back inside the image needs no bounds test: what the disc does not
    # reach is black.
    centre = np.array([[c[:, i] for c in centres] for i in (0, 1)])
    far, last, stride = _disc_bounds(rows, columns, span, size)
    centre = _clamp(centre, -span, far)
    corner = _clamp(np.ceil(centre - (radius + 1.0)), 0.0, last)
    d = _steps(max(rows, columns))[:, None, None] + (corner + (0.5 - centre)).astype(np.float32)[:, None]
    d *= d
    value = _grey(d[1, :rows, None] + d[0, :columns], radius, np.array(greys, np.float32)[:, None])
    corner *= stride
    first = (corner[0] + corner[1]).astype(np.intp)
    first += _steps_of(n, height * width)
    pixel = first[..., None] + _window(rows, columns, width)
    return [Patch(pixel[i], _frames_first(value[:, :, i])) for i in range(kinds)]


def _disc_of_one(centre: Sequence[float], radius: float, grey: int, size: Size) -> Patch:
    """One disc in one frame, as `discs` draws it: where it is in Python's numbers, its pixels in NumPy's."""
    (x, y), (height, width) = centre, size
    span = int(2.0 * radius + 1.0) + 1
    rows, columns = min(span, height), min(span, width)
    x, y = min(max(x, -span), width + span), min(max(y, -span), height + span)
    left = min(max(math.ceil(x - (radius + 1.0)), 0), width - columns)
    top = min(max(math.ceil(y - (radius + 1.0)), 0), height - rows)
    across, down = _steps(columns) + (left + (0.5 - x)), _column(rows) + (top + (0.5 - y))
    across *= across
    down *= down
    value = _grey(down + across, radius, float(grey))
    return Patch(_window(rows, columns, width)[None] + (top * width + left), value.reshape(1, -1))


@lru_cache(maxsize=64)
def _disc_bounds(rows: int, columns: int, span: int, size: Size) -> tuple[NDArray[np.float64], ...]:
    """For x and y: how far out a centre is kept, the last legal corner of a window, and pixels from one to the next."""
    height, width = size
    pairs = (width + span, height + span), (width - columns, height - rows), (1, width)
    return tuple(np.array(pair, np.float64)[:, None, None] for pair in pairs)


def segment(start: NDArray[np.float64], end: NDArray[np.float64], radius: float, grey: int, size: Size) -> list[Patch]:
    """Antialiased capsules: all points within `radius` of the segment from `start` to `end` (N, 2), in pixels.

    Coverage falls linearly over one pixel, as in `disc`. A capsule is rasterised along its longer axis, only as
    wide as it is thick; unless the image is square, the flat and the steep ones are a patch each.
    """
    if len(start) == 1:
        return [_capsule_of_one(start[0].tolist(), end[0].tolist(), radius, grey, size)]
    start, end = _clamp(start.T, -_FAR, _FAR), _clamp(end.T, -_FAR, _FAR)
    half = 0.5 * (end - start)
    middle = start + half
    extent = np.abs(half)
    steep = extent[1] > extent[0]
    frame = _steps_of(len(steep), 1)
    if size[0] == size[1]:
        return [_capsules(half, middle, steep, frame, radius, grey, size)]
    groups = [kind.nonzero()[0] for kind in (~steep, steep)]
    return [_capsules(half[:, g], middle[:, g], steep[g], g, radius, grey, size) for g in groups if len(g)]


_FAR = 1e5
"""Pixels; beyond it the exact place of an end does not matter, and float32 is not exact enough."""


def _capsule_of_one(start: Sequence[float], end: Sequence[float], radius: float, grey: int, size: Size) -> Patch:
    """One capsule in one frame, as `_capsules` draws it; the names are those there."""
    height, width = size
    ax, ay, bx, by = (min(max(p, -_FAR), _FAR) for p in (*start, *end))
    half, half_across = 0.5 * (bx - ax), 0.5 * (by - ay)
    middle, middle_across = ax + half, ay + half_across
    long_pixels, short_pixels, along, across = width, height, 1, width
    if abs(half_across) > abs(half):
        long_pixels, short_pixels, along, across = height, width, width, 1
        half, half_across, middle, middle_across = half_across, half, middle_across, middle
    extent, reach = abs(half), radius + 0.5
    wide = reach * 2.0**0.5
    columns = min(int(min(2.0 * extent, long_pixels) + 2.0 * reach) + 1, long_pixels)
    lines = min(int(2.0 * wide) + 1, short_pixels)
    length = math.sqrt(half * half + half_across * half_across)
    ea, eb = (1.0, 0.0) if length < 1e-9 else (half / length, half_across / length)
    left = min(max(math.ceil(middle - extent - (reach + 0.5)), 0), long_pixels - columns)
    u = _steps_of(columns, 1) + (left + 0.5)
    u -= middle
    top = np.minimum(np.maximum(u, -extent), extent)
    top *= eb / ea
    top += middle_across - (wide + 0.5)
    np.ceil(top, out=top)
    np.maximum(top, 0.0, out=top)
    np.minimum(top, float(short_pixels - lines), out=top)
    corner = top.astype(np.intp)
    top += 0.5 - middle_across
    v = _column(lines) + top.astype(np.float32)
    u = u.astype(np.float32)
    beyond = v * eb
    beyond += u * ea
    np.abs(beyond, out=beyond)
    beyond -= length
    _clamp_into(beyond, 0.0, _FAR)
    beyond *= beyond
    v *= ea
    u *= eb
    v -= u
    v *= v
    v += beyond
    corner *= across
    corner += _steps_of(columns, along)
    corner += left * along
    pixel = corner + _column_of(lines, across)
    return Patch(pixel.reshape(1, -1), _grey(v, radius, float(grey)).reshape(1, -1))


def _capsules(
    half: NDArray[np.float64],
    middle: NDArray[np.float64],
    steep: NDArray[np.bool_],
    frame: NDArray[np.intp],
    radius: float,
    grey: int,
    size: Size,
) -> Patch:
    """Capsules from middle − half to middle + half, both (2, n), in frames (n,).

    `steep` (n,) says which have the vertical as the longer axis; all or none of them unless the image is square.
    """
    height, width = size
    long_pixels, short_pixels = (height, width) if steep[0] else (width, height)
    half, middle = np.where(steep, half[::-1], half), np.where(steep, middle[::-1], middle)
    extent = np.abs(half[0])
    reach = radius + 0.5
    # The slope is at most 1, so across the longer axis a capsule reaches at most √2 times as far.
    wide = reach * 2.0**0.5
    columns = min(int(min(2.0 * float(np.maximum.reduce(extent)), long_pixels) + 2.0 * reach) + 1, long_pixels)
    lines = min(int(2.0 * wide) + 1, short_pixels)
    length = np.sqrt(half[0] * half[0] + half[1] * half[1])
    point = length < 1e-9
    direction = np.where(point, ((1.0,), (0.0,)), half / np.maximum(length, 1e-9))  # a point may have any
    left = _clamp(np.ceil(middle[0] - extent - (reach + 0.5)), 0.0, long_pixels - columns)
    # Distances from the middle, along columns (columns, n); then to every pixel, (lines, columns, n).
    # A pixel's distance is rounded once, so that it does not depend on where the window of its batch begins.
    u = _steps(columns)[:, None] + (left + 0.5)
    u -= middle[0]
    top = np.ceil(_clamp(u, -extent, extent) * (direction[1] / direction[0]) + (middle[1] - (wide + 0.5)))
    top = _clamp(top, 0.0, short_pixels - lines)
    v = _steps(lines)[:, None, None] + (top + (0.5 - middle[1])).astype(np.float32)
    u = u.astype(np.float32)
    ea, eb = direction.astype(np.float32)
    beyond = v * eb
    beyond += u * ea
    np.abs(beyond, out=beyond)
    beyond -= length.astype(np.float32)
    _clamp_into(beyond, 0.0, _FAR)
    beyond *= beyond
    v *= ea
    v -= u * eb
    v *= v
    v += beyond
    along, across = np.where(steep, ((width,), (1,)), ((1,), (width,)))[:, :, None]
    corner = top.T.astype(np.intp, order="C")
    corner *= across
    corner += (left.astype(np.intp) * along[:, 0] + frame * (height * width))[:, None]
    corner += _steps_of(columns, 1) * along
    pixel = corner[:, None] + _steps_of(lines, 1)[:, None] * across[:, None]
    return Patch(pixel.reshape(len(frame), -1), _frames_first(_grey(v, radius, np.float32(grey))))


def _frames_first(value: Frame) -> Frame:
    """(rows, columns, n) → (n, rows × columns): arithmetic runs along frames, painting along a frame's memory."""
    return np.ascontiguousarray(value.reshape(-1, value.shape[-1]).T)


def _grey(square: NDArray[Any], radius: float, grey: Any) -> Frame:
    """Grey values from squared distances to a shape's spine, float32, which are overwritten."""
    d = np.sqrt(square, out=square)
    np.subtract(np.float32(radius + 0.5), d, out=d)
    _clamp_into(d, 0.0, 1.0)
    d *= grey
    d += np.float32(0.5)
    return d.astype(np.uint8)


def _clamp(x: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """`np.clip` without its overhead on small arrays."""
    return np.minimum(np.maximum(x, low), high)


def _clamp_into(x: NDArray[Any], low: float, high: float) -> None:
    """`np.clip(x, low, high, out=x)`, which costs much for a small array; minimum and maximum do for a large one."""
    if x.size > 2048:
        np.clip(x, low, high, out=x)
    else:
        np.maximum(x, low, out=x)
        np.minimum(x, high, out=x)


@lru_cache(maxsize=256)
def _steps(count: int) -> NDArray[np.float32]:
    return np.arange(count, dtype=np.float32)


@lru_cache(maxsize=256)
def _steps_of(count: int, stride: int) -> NDArray[np.intp]:
    return np.arange(count) * stride


@lru_cache(maxsize=256)
def _column(count: int) -> NDArray[np.float32]:
    return _steps(count)[:, None]


@lru_cache(maxsize=256)
def _column_of(count: int, stride: int) -> NDArray[np.intp]:
    return _steps_of(count, stride)[:, None]


@lru_cache(maxsize=256)
def _window(rows: int, columns: int, width: int) -> NDArray[np.intp]:
    return (np.arange(rows)[:, None] * width + np.arange(columns)).reshape(-1)


def paint(canvas: Frame, patches: Sequence[Patch], channel: int | None = None) -> Frame:
    """Paint patches, brighter over darker, into a C-ordered (N, H, W) or one channel of (N, H, W, C)."""
    flat = canvas.reshape(-1)
    if channel is not None:
        flat = flat[channel :: canvas.shape[-1]]
    for i, patch in enumerate(patches):
        value = patch.value if i == 0 else np.maximum(flat[patch.pixel], patch.value)
        flat[patch.pixel] = value
    return canvas


def draw(patches: Sequence[Patch], n: int, size: Size) -> Frame:
    """Grayscale frames (N, H, W) on black."""
    return paint(np.zeros((n, *size), np.uint8), patches)


def draw_pair(present: Sequence[Patch], previous: Sequence[Patch], n: int, size: Size) -> Frame:
    """Pixel observations (N, H, W, 2): channel 0 the present frame, channel 1 the previous one."""
    canvas = np.zeros((n, *size, 2), np.uint8)
    paint(canvas, present, 0)
    return paint(canvas, previous, 1)


def colourise(frames: Frame, dark: ArrayLike = (18, 20, 28), bright: ArrayLike = (250, 200, 90)) -> Frame:
    """Grayscale (..., H, W) → RGB (..., H, W, 3) between two colours, for people."""
    dark, bright = np.asarray(dark, np.float64), np.asarray(bright, np.float64)
    ramp = np.linspace(0.0, 1.0, 256)[:, None]
    return (dark + (bright - dark) * ramp + 0.5).astype(np.uint8)[frames]


def whole(frames: Frame) -> Patch:
    """RGB pictures (N, H, W, 3) in grey, as a patch of all pixels."""
    n, height, width, _ = frames.shape
    grey = frames @ np.array([0.299, 0.587, 0.114])
    return Patch(np.arange(n * height * width).reshape(n, -1), (grey + 0.5).astype(np.uint8).reshape(n, -1))


def compose(
    layers: Sequence[tuple[Sequence[Patch], ArrayLike]], n: int, size: Size, background: ArrayLike = (18, 20, 28)
) -> Frame:
    """RGB pictures (N, H, W, 3) for people: each layer's patches, of grey 255, blended over the last in its colour."""
    canvas = np.empty((n, *size, 3), np.uint8)
    canvas[:] = np.asarray(background, np.uint8)
    flat = canvas.reshape(-1, 3)
    for patches, colour in layers:
        for patch in patches:
            under = flat[patch.pixel].astype(np.float32)
            alpha = patch.value[..., None] * np.float32(1.0 / 255.0)
            flat[patch.pixel] = (under + (np.asarray(colour, np.float32) - under) * alpha + 0.5).astype(np.uint8)
    return canvas


class Window:
    """A pygame window, opened on the first frame; pygame is imported here and nowhere else."""

    def __init__(self, title: str, fps: float) -> None:
        """Nothing is opened yet."""
        self.title, self.fps = title, fps
        self._screen = None
        self._clock = None

    def show(self, frame: Frame) -> None:
        """Show one RGB frame (H, W, 3) and wait for the frame rate."""
        with needed('render_mode="human" needs pygame', "pygame", "pygame"):
            import pygame
        if self._screen is None:
            pygame.display.init()
            self._screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            pygame.display.set_caption(self.title)
            self._clock = pygame.time.Clock()
        pygame.event.pump()
        self._screen.blit(pygame.surfarray.make_surface(frame.transpose(1, 0, 2)), (0, 0))
        pygame.display.flip()
        if self._clock is not None:
            self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window if it is open; safe to call twice."""
        if self._screen is not None:
            import pygame

            pygame.display.quit()
            self._screen = self._clock = None

    def __getstate__(self) -> dict[str, object]:
        """A copy has no window yet."""
        return {**self.__dict__, "_screen": None, "_clock": None}
