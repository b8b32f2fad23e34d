"""Figures of Formation: what they say, on planted numbers."""

import math

import numpy as np

from sprii_train.analysis.formation import Curve
from sprii_train.analysis.statistics import Spread
from sprii_train.reports.figures import png
from sprii_train.reports.formation_figures import changes, design_curves, heat_maps


def line(*means: float, sd: float = 0.1) -> Curve:
    return Curve((0.0, 0.5, 1.0)[: len(means)], tuple(Spread(mean, sd, 3) for mean in means))


def test_curves_with_whiskers_beside_the_papers():
    ours = {"Ratio": {"validation": line(0.1, 0.5, 2.0)}, "ρ": {"validation": line(0.0, 0.2, sd=math.nan)}}
    figure = design_curves(ours, {"Ratio": {"the paper": line(0.3, 1.0, 3.7)}}, "α")
    ratio, rho = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["Ratio", "ρ"]
    drawn = {container.get_label(): container for container in ratio.containers}
    assert list(drawn) == ["the paper", "validation"]
    assert drawn["the paper"].lines[0].get_linestyle() == "--"
    assert drawn["validation"].lines[0].get_ydata().tolist() == [0.1, 0.5, 2.0]
    whiskers = drawn["validation"].lines[2][0].get_segments()
    np.testing.assert_allclose([(w[0, 1], w[1, 1]) for w in whiskers], [(0.0, 0.2), (0.4, 0.6), (1.9, 2.1)])
    assert rho.get_xticks().tolist() == [0.0, 0.5]
    assert png(figure)[:4] == b"\x89PNG"


def test_bars_are_means_dots_sources_and_diamonds_the_papers():
    panels = {"ρ": {"A": {"mass": [0.1, 0.3], "drag": [-0.2, -0.4]}, "B": {"mass": [0.0, 0.0], "drag": [0.5, 0.5]}}}
    figure = changes(panels, {"ρ": {"A": {"drag": -0.35}}})
    (axis,) = figure.axes
    bars = axis.patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], [0.2, -0.3, 0.0, 0.5])
    assert len({round(bar.get_x(), 6) for bar in bars}) == 4  # none hides another
    dots = [list(found.get_ydata()) for found in axis.lines if found.get_marker() == "o"]
    assert dots == [[0.1, 0.3], [-0.2, -0.4], [0.0, 0.0], [0.5, 0.5]]
    (diamond,) = [found for found in axis.lines if found.get_marker() == "D"]
    assert list(diamond.get_ydata()) == [-0.35]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A", "B"]
    assert png(figure)[:4] == b"\x89PNG"


def test_maps_share_a_colour_scale_and_print_the_papers_in_brackets():
    blocks = {
        "a": {"G₁": {"mass": 0.4, "drag": -0.02}, "G₂": {"mass": 0.0, "drag": 0.7}},
        "b": {"Align": {"mass": 0.1, "drag": 0.8}},
    }
    figure = heat_maps(blocks, {"a": {"G₂": {"drag": 0.732}}})
    first, second, bar = figure.axes
    maps = [axis.images[0] for axis in (first, second)]
    np.testing.assert_allclose(np.asarray(maps[0].get_array()), [[0.4, -0.02], [0.0, 0.7]])
    assert [image.get_clim() for image in maps] == [(0.0, 0.8), (0.0, 0.8)]
    assert bar.get_ylabel() == "partial geometry ρ"
    assert [text.get_text() for text in first.texts] == ["0.400", "−0.020", "0.000", "0.700\n(0.732)"]
    assert [text.get_text() for text in second.texts] == ["0.100", "0.800"]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["G₁", "G₂"]
    assert png(figure)[:4] == b"\x89PNG"
