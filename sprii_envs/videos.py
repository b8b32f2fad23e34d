"""Videos in files, through FFmpeg, which `imageio-ffmpeg` brings along; and pictures made smaller."""

import re
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sprii_envs.dependencies import require
from sprii_envs.files import FileError

Frames = NDArray[np.uint8]
"""(…, height, width, 3), 0 … 255 in the order red, green, blue."""

_PIP = "'sprii[cophy]'"
_ADDRESS = re.compile(r"\[[^\]]*@ 0x[0-9a-f]+\]\s*")
"""What FFmpeg's messages begin with, which is different every time."""


def read_video(path: Path, count: int) -> Frames:
    """The frames (count, height, width, 3) of a video, as they are: no normalisation.

    Raises:
        FileError: naming the file, if it is missing, cannot be decoded, or has more or fewer frames.
        PackageImportError: without imageio-ffmpeg.
    """
    return np.stack(list(_decoded(path, count, "rgb24", 3)))


def read_grey(path: Path, count: int, size: int, kept: slice = slice(None)) -> NDArray[np.uint8]:
    """Some of the frames of a video in grey (luma), each made (size, size) by averaging areas, (kept, size, size).

    One frame at a time is held in full. The whole picture is kept: one that is wider than high is squeezed.

    Raises:
        FileError, PackageImportError: as `read_video`.
        ValueError: for a size beyond a side of the pictures.
    """
    wanted = range(*kept.indices(count))
    frames = np.empty((len(wanted), size, size), np.uint8)
    with closing(_decoded(path, count, "gray", 1)) as decoded:
        for i, frame in enumerate(decoded):
            height, width = _legal_size(frame.shape[:2], size)
            if i in wanted:
                grey = frame[..., 0].astype(np.float32)
                frames[wanted.index(i)] = np.rint(_covered(height, size) @ grey @ _covered(width, size).T)
    return frames


def count_frames(path: Path) -> int:
    """Frames of a video, of which nothing is decoded; FileError naming the file if it is missing or no video."""
    require("reading videos", _PIP, "imageio_ffmpeg")
    import imageio_ffmpeg

    if not path.is_file():
        raise FileError(f"{path} does not exist")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path)]
    command += ["-map", "0:v:0", "-c", "copy", "-f", "framecrc", "-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith(b"#")]
    if done.returncode or not lines:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no frames"]
        raise FileError(f"{path} cannot be decoded as a video: {said[-1]}")
    return len(lines)


def _decoded(path: Path, count: int, pixels: str, channels: int) -> Generator[Frames]:
    """Frames (height, width, channels), one after another; FileError when there are more or fewer than `count`.

    FFmpeg conceals what it cannot decode unless it is told to stop; then it tells of damage only when it ends. Frames
    come as PPM or PGM, which say how large they are.
    """
    require("reading videos", _PIP, "imageio_ffmpeg")
    import imageio_ffmpeg

    if not path.is_file():
        raise FileError(f"{path} does not exist")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-xerror", "-err_detect", "explode", "-threads", "1"]
    command += ["-i", str(path), "-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", pixels]
    command += ["-c:v", "ppm" if channels > 1 else "pgm", "-f", "image2pipe", "-"]
    found, ended = 0, False
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            while found <= count and not ended:
                _, size, _ = (process.stdout.readline() for _ in range(3))  # P5 or P6; width and height; 255
                width, height = map(int, size.split() or (0, 0))
                data = process.stdout.read(height * width * channels)
                ended = not data or len(data) < height * width * channels
                if not ended and (found := found + 1) <= count:
                    yield np.frombuffer(data, np.uint8).reshape(height, width, channels)
        finally:
            if not ended:
                process.kill()
            process.wait()
        errors.seek(0)
        said = _ADDRESS.sub("", errors.read().decode(errors="replace")).strip().splitlines()
    if ended and (process.returncode or said):
        raise FileError(f"{path} cannot be decoded as a video: {said[0] if said else f'FFmpeg {process.returncode}'}")
    if found != count:
        told = f"{found} frames" if found < count else "more frames"
        raise FileError(f"{path} is damaged: it has {told}, expected {count}")


def write_video(path: Path, frames: Frames, fps: int, *, exact: bool = False) -> None:
    """Write frames (T, height, width, 3) as MP4, H.264; `exact` keeps every pixel as it is, in a larger file.

    Sides are even. OSError if it cannot be written; PackageImportError without imageio-ffmpeg.
    """
    require("writing videos", _PIP, "imageio_ffmpeg")
    import imageio_ffmpeg

    codec, pixels, quality = ("libx264rgb", "rgb24", "0") if exact else ("libx264", "yuv420p", "12")
    output = ["-crf", quality, "-threads", "1", "-fflags", "+bitexact", "-flags:v", "+bitexact"]
    size, how = (frames.shape[2], frames.shape[1]), {"codec": codec, "pix_fmt_out": pixels, "quality": None}
    with closing(
        imageio_ffmpeg.write_frames(path, size, fps=fps, macro_block_size=2, output_params=output, **how)
    ) as stream:
        stream.send(None)
        for frame in frames:
            stream.send(np.ascontiguousarray(frame))


def smaller(frames: Frames, size: int) -> Frames:
    """Pictures (…, height, width, 3) as (…, size, size, 3): each pixel the mean of the area that it covers.

    ValueError for a size beyond a side of the pictures.
    """
    height, width = _legal_size(frames.shape[-3:-1], size)
    if (height, width) == (size, size):
        return frames
    if height % size == width % size == 0:  # whole blocks
        blocks = frames.reshape(*frames.shape[:-3], size, height // size, size, width // size, 3)
        mean = blocks.mean(axis=(-4, -2), dtype=np.float32)
    else:
        mean = np.einsum("ih,...hwc,jw->...ijc", _covered(height, size), frames, _covered(width, size), optimize=True)
    return np.rint(mean).astype(np.uint8)


def _legal_size(picture: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Height and width of a picture; ValueError for a size beyond one of them."""
    height, width = picture
    if not 1 <= size <= min(height, width):
        raise ValueError(f"size is {size}; legal: 1 to {min(height, width)}, for the pictures are {width}×{height}")
    return picture


@lru_cache(maxsize=8)
def _covered(side: int, size: int) -> NDArray[np.float32]:
    """(size, side): the part of each new pixel that an old one covers."""
    edges = np.linspace(0, side, size + 1)
    low, high = np.maximum.outer(edges[:-1], np.arange(side)), np.minimum.outer(edges[1:], np.arange(side) + 1)
    return ((high - low).clip(0) * (size / side)).astype(np.float32)
