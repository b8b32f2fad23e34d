"""Batched rasteriser: N systems straight into one uint8 array.

A shape is rasterised only inside the small window of pixels it can touch (a *patch*), for all N systems at
once; painting scatters the patches into a zeroed canvas. No full-frame distance field, no loop over systems
or pixels. Pixel (row i, column j) covers [j, j+1) × [i, i+1) in pixel coordinates; its centre is (j + ½, i +
½).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    if len(pair) != 2 or not all(isinstance(s, int | np.integer) and 8 <= s <= 4096 for s in pair):
        raise ValueError(f"image_size must be an int or (height, width), each in [8, 4096], got {size!r}")
    return int(pair[0]), int(pair[1])


def to_pixels(xy: NDArray[np.float64], view_width: float, size: Size) -> NDArray[np.float64]:
    """World coordinates (N, 2), metres, y up, origin at the centre → pixel coordinates (N, 2), y down."""
    height, width = size
    scale = width / view_width
    return np.stack((0.5 * width + scale * xy[:, 0], 0.5 * height - scale * xy[:, 1]), axis=1)


def disc(centre: NDArray[np.float64], radius: float, grey: int, size: Size) -> Patch:
    """Antialiased discs: centres (N, 2) and radius in pixels; coverage falls linearly over one pixel."""
    height, width = size
    n = len(centre)
    span = int(2.0 * radius + 1.0) + 1
    rows, columns = min(span, height), min(span, width)
    # Far outside, the exact place does not matter: keep it where integers and float32 are exact enough.
    x = np.clip(centre[:, 0], -span, width + span)
    y = np.clip(centre[:, 1], -span, height + span)
    # A window pushed back inside the image needs no bounds test: what the disc does not reach is black.
    left = np.clip(np.ceil(x - radius - 1.0), 0, width - columns)
    top = np.clip(np.ceil(y - radius - 1.0), 0, height - rows)
    dx = (left + 0.5 - x).astype(np.float32)[:, None] + np.arange(columns, dtype=np.float32)
    dy = (top + 0.5 - y).astype(np.float32)[:, None] + np.arange(rows, dtype=np.float32)
    d = (dx * dx)[:, None, :] + (dy * dy)[:, :, None]
    corner = (np.arange(n) * height + top.astype(np.intp)) * width + left.astype(np.intp)
    offset = (np.arange(rows)[:, None] * width + np.arange(columns)).reshape(-1)
    return Patch(corner[:, None] + offset, _grey(d, radius, grey).reshape(n, -1))


def segment(
    start: NDArray[np.float64], end: NDArray[np.float64], radius: float, grey: int, size: Size
) -> list[Patch]:
    """Antialiased capsules: all points within `radius` of the segment from `start` to `end` (N, 2), in pixels.

    Coverage falls linearly over one pixel, as in `disc`. A capsule is rasterised along its longer axis, only as
    wide as it is thick, so the flat and the steep ones are a patch each.
    """
    start, end = np.clip(start, -_FAR, _FAR), np.clip(end, -_FAR, _FAR)
    extent = np.abs(end - start)
    steep = extent[:, 1] > extent[:, 0]
    patches = []
    for along, rows in ((0, np.flatnonzero(~steep)), (1, np.flatnonzero(steep))):
        if len(rows):
            axes = [along, 1 - along]
            patches.append(_capsules(start[rows][:, axes], end[rows][:, axes], rows, along, radius, grey, size))
    return patches


_FAR = 1e5
"""Pixels; beyond it the exact place of an end does not matter, and float32 is not exact enough."""


def _capsules(
    p: NDArray[np.float64], q: NDArray[np.float64], rows: NDArray[np.intp], along: int, radius: float, grey: int, size: Size
) -> Patch:
    """Capsules whose coordinates (n, 2) come longer axis first; `along` says which image axis that is."""
    height, width = size
    long_pixels, short_pixels = (width, height) if along == 0 else (height, width)
    long_stride, short_stride = (1, width) if along == 0 else (width, 1)
    backward = p[:, 0] > q[:, 0]
    p, q = np.where(backward[:, None], q, p), np.where(backward[:, None], p, q)
    d = q - p
    reach = radius + 0.5
    # The slope is at most 1, so across the longer axis a capsule reaches at most √2 times as far.
    wide = reach * 2.0**0.5
    columns = min(int(min(d[:, 0].max(), long_pixels) + 2.0 * reach) + 2, long_pixels)
    lines = min(int(2.0 * wide) + 2, short_pixels)
    left = np.clip(np.ceil(p[:, 0] - reach - 0.5), 0, long_pixels - columns)
    # Distances from `p`, in float32 once they are small.
    u = ((left + 0.5 - p[:, 0])[:, None] + np.arange(columns)).astype(np.float32)
    du, dv = d[:, 0, None].astype(np.float32), d[:, 1, None].astype(np.float32)
    slope = np.divide(dv, du, out=np.zeros_like(du), where=du != 0.0)
    middle = p[:, 1, None] + slope * np.clip(u, np.float32(0.0), du)
    top = np.clip(np.ceil(middle - wide - 0.5), 0, short_pixels - lines)
    v = ((top + 0.5) - p[:, 1, None]).astype(np.float32)[:, :, None] + np.arange(lines, dtype=np.float32)
    u, du, dv = u[:, :, None], du[:, :, None], dv[:, :, None]
    square = du * du + dv * dv
    t = v * (dv / np.maximum(square, np.float32(1e-12)))
    t += u * (du / np.maximum(square, np.float32(1e-12)))
    np.clip(t, np.float32(0.0), np.float32(1.0), out=t)
    v -= t * dv
    t *= -du
    t += u
    v *= v
    t *= t
    v += t
    value = _grey(v, radius, grey)
    corner = rows[:, None] * (height * width) + (left.astype(np.intp)[:, None] + np.arange(columns)) * long_stride
    corner += top.astype(np.intp) * short_stride
    pixel = corner[:, :, None] + np.arange(lines) * short_stride
    return Patch(pixel.reshape(len(rows), -1), value.reshape(len(rows), -1))


def _grey(square: NDArray[np.float32], radius: float, grey: int) -> Frame:
    """Grey values from squared distances to a shape's spine, which are overwritten."""
    d = np.sqrt(square, out=square)
    np.subtract(np.float32(radius + 0.5), d, out=d)
    np.maximum(d, np.float32(0.0), out=d)
    np.minimum(d, np.float32(1.0), out=d)
    d *= np.float32(grey)
    d += np.float32(0.5)
    return d.astype(np.uint8)


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


class Window:
    """A pygame window, opened on the first frame; pygame is imported here and nowhere else."""

    def __init__(self, title: str, fps: float) -> None:
        """Nothing is opened yet."""
        self.title, self.fps = title, fps
        self._screen = None
        self._clock = None

    def show(self, frame: Frame) -> None:
        """Show one RGB frame (H, W, 3) and wait for the frame rate."""
        try:
            import pygame
        except ImportError as e:
            from gymnasium.error import DependencyNotInstalled

            raise DependencyNotInstalled('render_mode="human" needs pygame: pip install "sprii[human]"') from e
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
