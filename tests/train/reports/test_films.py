"""Films side by side: what is drawn is what was given."""

import io

import numpy as np
import pytest
from PIL import Image

from sprii_train.reports.films import film


def test_every_panel_stands_under_its_name_in_every_frame():
    shades = {"left": (10, 200), "right": (90, 40)}
    panels = {name: [np.full((30, 60, 3), each, np.uint8) for each in own] for name, own in shades.items()}
    found = Image.open(io.BytesIO(film(panels, milliseconds=70)))
    assert (found.size, getattr(found, "n_frames", 1), found.info["duration"]) == ((120, 46), 2, 70)
    for t in range(2):
        found.seek(t)
        pixels = np.asarray(found.convert("RGB")).astype(int)
        assert np.abs(pixels[16:, :60] - shades["left"][t]).max() <= 3  # a GIF's palette
        assert np.abs(pixels[16:, 60:] - shades["right"][t]).max() <= 3
        assert all((pixels[:16, half] < 100).any() for half in (slice(0, 60), slice(60, 120)))  # names


@pytest.mark.parametrize(
    "panels", [{}, {"a": [np.zeros((4, 4, 3), np.uint8)] * 2, "b": [np.zeros((4, 4, 3), np.uint8)]}]
)
def test_panels_are_of_one_shape(panels):
    with pytest.raises(ValueError, match="a film needs panels of one shape"):
        film(panels, milliseconds=1)
