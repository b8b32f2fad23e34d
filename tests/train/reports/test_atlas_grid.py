"""The atlas of several sources and factors."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sprii_train.reports.figures import atlas_grid, png

RNG = np.random.default_rng(0)
COLUMNS = [(f"source {i}", RNG.standard_normal((30, 2)), np.array([0.6, 0.25])) for i in range(3)]
MASS = [np.linspace(0.5, 1.0, 30), np.linspace(0.5, 3.0, 30), np.linspace(1.0, 2.0, 30)]
DRAG = [np.full(30, 1.5)] * 3


def panels(figure: Figure) -> list:
    return [axis for axis in figure.axes if axis.collections and axis.get_label() != "<colorbar>"]


def test_rows_recolour_the_same_points():
    figure = atlas_grid(COLUMNS, [("mass (kg)", MASS), ("drag (1/s)", DRAG)], "Contexts")
    axes = panels(figure)
    assert len(axes) == 6
    for i, axis in enumerate(axes):
        np.testing.assert_array_equal(axis.collections[0].get_offsets(), COLUMNS[i % 3][1])
    assert [axis.get_title() for axis in axes] == ["source 0", "source 1", "source 2", "", "", ""]
    assert axes[3].get_xlabel() == "PC 1 (60%), PC 2 (25%)"
    labels = [axis.get_ylabel() for axis in figure.axes if axis not in axes]
    assert labels == ["mass (kg)", "drag (1/s)"]
    assert png(figure).startswith(b"\x89PNG")


def test_a_colour_means_the_same_value_along_a_row():
    axes = panels(atlas_grid(COLUMNS, [("mass (kg)", MASS)]))
    colours = [axis.collections[0].get_facecolors() for axis in axes]
    np.testing.assert_allclose(colours[0][0], colours[1][0])  # 0.5 kg in both
    np.testing.assert_allclose(colours[0][-1], colours[2][0])  # 1.0 kg in both
    assert np.abs(colours[0][-1] - colours[1][-1]).max() > 0.2


def test_values_for_every_point():
    with pytest.raises(ValueError, match=r"values of 'mass \(kg\)' for every point of 3 columns"):
        atlas_grid(COLUMNS, [("mass (kg)", MASS[:2])])
