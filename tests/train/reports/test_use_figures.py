"""Figures of Use: what they say and on which scale, on planted numbers."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sprii_train.analysis.statistics import Interval
from sprii_train.analysis.use.landscape import grid_errors, valley
from sprii_train.reports.figures import png
from sprii_train.reports.use_figures import (
    Amplitudes,
    Case,
    Panel,
    amplitude_curves,
    landscapes,
    trajectories,
    valley_depths,
)

LABELS = {"align": "Align", "structure": "Structure", "mass": "mass (kg)", "drag": "drag (1/s)"}
LEVELS = {"mass": np.linspace(0.5, 2, 5), "drag": np.linspace(0.25, 1.5, 5)}


def interval(value: float) -> Interval:
    return Interval(value, value - 0.1, value + 0.1, 0.95, 64, "system")


def heatmaps(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.axes if axis.images]


def test_landscapes_share_a_scale_by_factor():
    truth = np.arange(5.0)[None, :, None]
    panels = {
        recipe: {factor: Panel(valley(grid_errors(gain * truth, truth)), interval(gain)) for factor in ("mass", "drag")}
        for recipe, gain in (("structure", 0.1), ("align", 1.0))
    }
    figure = landscapes(panels, LEVELS, LABELS)
    assert png(figure).startswith(b"\x89PNG")
    axes = heatmaps(figure)
    assert len(axes) == 4
    for column in ("mass (kg)", "drag (1/s)"):
        limits = {axis.images[0].get_clim() for axis in axes if column in axis.get_title()}
        grids = [panels[recipe][column.split()[0]].valley.grid for recipe in panels]
        assert limits == {(min(g.min() for g in grids), max(g.max() for g in grids))}
    for axis in axes:
        squares = [p for p in axis.patches if isinstance(p, Rectangle)]
        np.testing.assert_allclose([(p.get_x() + 0.47, p.get_y() + 0.47) for p in squares], [(i, i) for i in range(5)])
        assert axis.get_xlabel().startswith("target's")
        assert axis.get_ylabel().startswith("donor's")
    title = next(axis.get_title() for axis in axes if axis.get_title().startswith("Align · mass (kg)"))
    assert "depth 1 [0.9, 1.1]\nρ = 1.00" in title
    # Donors are rows: row 4 of the picture holds the errors of the highest donor level.
    shown = np.asarray(axes[0].images[0].get_array())
    assert (shown == panels["structure"]["mass"].valley.grid).all()


def test_bars_have_the_depths_and_intervals():
    depths = {r: {f: interval(v) for f in ("mass", "drag")} for r, v in (("structure", 0.01), ("align", 0.5))}
    figure = valley_depths(depths, LABELS, {"align": {"mass": [0.4, 0.5, 0.6]}})
    assert png(figure).startswith(b"\x89PNG")
    first = figure.axes[0]
    assert [p.get_height() for p in first.patches] == [0.01, 0.5]
    segments = [c.get_segments()[0][:, 1].tolist() for c in first.collections]
    assert segments == [pytest.approx([-0.09, 0.11]), pytest.approx([0.4, 0.6])]
    assert [0.4, 0.5, 0.6] in [np.asarray(line.get_ydata()).tolist() for line in first.lines]
    assert "95%" in figure.get_suptitle()


def test_trajectories_and_amplitudes_are_drawn():
    truth = np.outer(np.arange(1.0, 6.0), np.arange(17.0))
    case = Case(LEVELS["mass"], np.arange(17), truth, np.array([1, 4, 16]), truth[:, [1, 4, 16]], "shift (cm)")
    figure = trajectories({"mass": case}, LABELS)
    assert png(figure).startswith(b"\x89PNG")
    lines = figure.axes[0].lines
    assert len(lines) == 10
    assert np.asarray(lines[3].get_ydata()).tolist() == truth[1, [1, 4, 16]].tolist()
    assert lines[2].get_color() is not None
    assert np.allclose(lines[2].get_color(), lines[3].get_color())
    s = np.array([0.0, 0.5, 1.0])
    figure = amplitude_curves({"align": Amplitudes(s, 1 - 0.1 * s, 1 + 0.1 * s)}, LABELS)
    assert png(figure).startswith(b"\x89PNG")
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["Align: own system", "Align: another system"]
