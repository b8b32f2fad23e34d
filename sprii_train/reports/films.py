"""Films of episodes side by side, each under its name."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

_STRIP = 16  # pixels above the pictures, of their names


def film(panels: Mapping[str, Sequence[NDArray[np.uint8]]], *, milliseconds: int) -> bytes:
    """A GIF that loops: name → pictures (T, H, W, 3), as many and as large for every name.

    Raises:
        ValueError: for no panel, or panels of other lengths or sizes.
    """
    if len({np.shape(pictures) for pictures in panels.values()}) != 1:
        raise ValueError(f"a film needs panels of one shape, has {[np.shape(each) for each in panels.values()]}")
    frames, width = [], np.shape(next(iter(panels.values())))[2]
    font = ImageFont.load_default(11)
    for row in zip(*panels.values(), strict=True):
        pictures = np.concatenate(row, axis=1)
        frame = Image.new("RGB", (pictures.shape[1], pictures.shape[0] + _STRIP), "white")
        frame.paste(Image.fromarray(pictures), (0, _STRIP))
        pen = ImageDraw.Draw(frame)
        for i, name in enumerate(panels):
            pen.text(((i + 0.5) * width, _STRIP / 2), name, fill="black", font=font, anchor="mm")
        frames.append(frame)
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0)
    return data.getvalue()
