"""Videos that hold many episodes after one another: frames written as they come, and read from wherever; needs PyAV."""

import io
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.store import StoreError
from sprii_envs.dependencies import require

Frames = NDArray[np.uint8]
"""(T, height, width, 3), 0 … 255 in the order red, green, blue."""

OPEN = 16
"""Files that stay open for the next window."""

GROUP = 8
"""Frames from one that is whole to the next: what reading one frame decodes at most. LeRobot's own videos have 2."""


class FilmReader:
    """Runs of frames of video files, decoded from the last whole frame before them.

    Args:
        fps: frame i of a file is shown at i / fps seconds.

    Raises:
        PackageImportError: without PyAV.
    """

    def __init__(self, fps: float) -> None:
        require("reading videos of many episodes", "'sprii[lerobot]'", "av")
        self.fps = fps
        self._open: OrderedDict[Path, Any] = OrderedDict()
        self._process = os.getpid()

    def frames(self, file: Path, first: int, count: int) -> Frames:
        """Frames first…first+count−1 of a file.

        Raises:
            StoreError: naming the file, if it is missing or damaged, or has no frame at one of these times.
        """
        found: list[Frames] = []
        with _naming(file):
            container = self._container(file)
            stream = container.streams.video[0]
            container.seek(round(max(0.0, first / self.fps) / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                number = round(float(frame.pts * stream.time_base) * self.fps)
                if number < first:
                    continue
                if number != first + len(found):
                    break
                found.append(frame.to_ndarray(format="rgb24"))
                if len(found) == count:
                    return np.stack(found)
        at = (first + len(found)) / self.fps
        raise StoreError(f"{file} has no frame at {at:g} s; expected one every {1 / self.fps:g} s")

    def _container(self, file: Path) -> Any:
        import av

        if self._process != os.getpid():  # a fork shares the positions of open files with its parent
            self._open, self._process = OrderedDict(), os.getpid()
        if file not in self._open:
            self._open[file] = container = av.open(os.fspath(file))
            container.streams.video[0].thread_count = 1
            if len(self._open) > OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(file)
        return self._open[file]

    def __getstate__(self) -> dict[str, Any]:
        return {"fps": self.fps, "_open": OrderedDict(), "_process": os.getpid()}


def picture(data: bytes, what: str) -> Frames:
    """An encoded picture (height, width, 3); StoreError for what is none."""
    import av

    with _naming(what), av.open(io.BytesIO(data), "r") as container:
        return np.asarray(next(container.decode(video=0)).to_ndarray(format="rgb24"), np.uint8)


@contextmanager
def _naming(what: object) -> Iterator[None]:
    """What FFmpeg says as a StoreError that names the file."""
    from av.error import FFmpegError

    try:
        yield
    except FileNotFoundError:
        raise StoreError(f"{what} is missing") from None
    except (FFmpegError, OSError, ValueError, StopIteration, IndexError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{what} cannot be decoded: {type(error).__name__}: {error}") from error


class FilmWriter:
    """One video file, H.264 in MP4; frames of several episodes are appended.

    Args:
        file: that is written; its folder is there.
        size: height and width, even unless `exact`.
        fps: frames a second.
        exact: keep every pixel, in a larger file; else smooth pictures differ by a few levels, and colours are kept at
            half the resolution.

    Attributes:
        count: frames that were appended; bytes: that the encoder has given so far.

    Raises:
        PackageImportError: without PyAV.
        StoreError: for odd sides that are not written exactly.
    """

    def __init__(self, file: Path, size: tuple[int, int], fps: int, *, exact: bool) -> None:
        require("writing videos of many episodes", "'sprii[lerobot]'", "av")
        import av

        if not exact and (size[0] % 2 or size[1] % 2):
            raise StoreError(f"{file}: pictures are {size[1]}×{size[0]}; legal: even sides, or exact=True")
        self.file, self.count, self.bytes = file, 0, 0
        self._container = av.open(os.fspath(file), "w", options={"fflags": "+bitexact"})
        codec, pixels, quality = ("libx264rgb", "rgb24", "0") if exact else ("libx264", "yuv420p", "18")
        options = {"crf": quality, "g": str(GROUP), "bf": "0", "threads": "1", "flags": "+bitexact"}
        self._stream: Any = self._container.add_stream(codec, rate=Fraction(fps), options=options)
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = pixels

    def append(self, frames: Frames) -> None:
        """Encode frames (T, height, width, 3)."""
        import av

        for each in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(each), format="rgb24")
            frame.pts, frame.time_base = self.count, 1 / Fraction(self._stream.codec_context.rate)
            self._mux(self._stream.encode(frame))
            self.count += 1

    def close(self) -> None:
        """Write what the encoder holds, and end the file."""
        if self.count:
            self._mux(self._stream.encode(None))
        self._container.close()

    def _mux(self, packets: Any) -> None:
        for packet in packets:
            self.bytes += packet.size
            self._container.mux(packet)
