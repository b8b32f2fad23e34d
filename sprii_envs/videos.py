"""Videos in files, through FFmpeg, which `imageio-ffmpeg` brings along; and pictures made smaller."""

from contextlib import closing
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sprii_envs.dependencies import require
from sprii_envs.files import FileError

Frames = NDArray[np.uint8]
"""(…, height, width, 3), 0 … 255 in the order red, green, blue."""


def read_video(path: Path, count: int) -> Frames:
    """The frames (count, height, width, 3) of a video, as they are: no normalisation.

    Raises:
        FileError: naming the file, if it is missing, cannot be decoded, or has more or fewer frames.
        PackageImportError: without imageio-ffmpeg.
    """
    require("reading videos", "'sprii[cophy]'", "imageio_ffmpeg")
    import imageio_ffmpeg

    if not path.is_file():
        raise FileError(f"{path} does not exist")
    frames: list[Frames] = []
    try:
        with closing(imageio_ffmpeg.read_frames(path, input_params=["-threads", "1"])) as stream:
            width, height = next(stream)["size"]  # type: ignore[index]  # first a dict about the video, then bytes
            for data in stream:
                frames.append(np.frombuffer(data, np.uint8).reshape(height, width, 3))  # type: ignore[arg-type]
                if len(frames) > count:
                    break
    except (OSError, RuntimeError, ValueError, KeyError, StopIteration) as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise FileError(f"{path} cannot be decoded as a video: {said[-1]}") from error
    if len(frames) != count:
        found = f"{len(frames)} frames" if len(frames) < count else "more frames"
        raise FileError(f"{path} is damaged: it has {found}, expected {count}")
    return np.stack(frames)


def write_video(path: Path, frames: Frames, fps: int, *, exact: bool = False) -> None:
    """Write frames (T, height, width, 3) as MP4, H.264; `exact` keeps every pixel as it is, in a larger file.

    Sides are even. OSError if it cannot be written; PackageImportError without imageio-ffmpeg.
    """
    require("writing videos", "'sprii[cophy]'", "imageio_ffmpeg")
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
    height, width = frames.shape[-3:-1]
    if not 1 <= size <= min(height, width):
        raise ValueError(f"size is {size}; legal: 1 to {min(height, width)}, for the pictures are {width}×{height}")
    if (height, width) == (size, size):
        return frames
    if height % size == width % size == 0:  # whole blocks
        blocks = frames.reshape(*frames.shape[:-3], size, height // size, size, width // size, 3)
        mean = blocks.mean(axis=(-4, -2), dtype=np.float32)
    else:
        mean = np.einsum("ih,...hwc,jw->...ijc", _covered(height, size), frames, _covered(width, size), optimize=True)
    return np.rint(mean).astype(np.uint8)


@lru_cache(maxsize=8)
def _covered(side: int, size: int) -> NDArray[np.float32]:
    """(size, side): the part of each new pixel that an old one covers."""
    edges = np.linspace(0, side, size + 1)
    low, high = np.maximum.outer(edges[:-1], np.arange(side)), np.minimum.outer(edges[1:], np.arange(side) + 1)
    return ((high - low).clip(0) * (size / side)).astype(np.float32)
