"""Figures of Swimmer's updates draw the numbers that they are given."""

import numpy as np

from sprii_train.reports.swimmer_figures import gain_histograms, gain_maps


def test_histograms_hold_every_system():
    rng = np.random.default_rng(0)
    gains = {"JEPA": rng.normal(5, 20, 512), "GRU": np.append(rng.normal(5, 20, 511), 1e4)}
    figure = gain_histograms(gains)
    for axis, (name, values) in zip(figure.axes, gains.items(), strict=True):
        assert sum(bar.get_height() for bar in axis.patches) == 512
        assert axis.get_title().startswith(f"{name}: {100 * (values > 0).mean():.1f} %")
        assert axis.lines[1].get_xdata()[0] == values.mean()
        assert axis.patches[0].get_x() > -1000.0  # one far system does not squeeze the others


def test_maps_are_by_query_and_candidate_on_one_scale():
    rng = np.random.default_rng(1)
    gains = {"JEPA": rng.normal(size=(6, 6)), "GRU": rng.normal(size=(6, 6))}
    figure = gain_maps(gains)
    for axis, values in zip(figure.axes[:2], gains.values(), strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), values)
        assert (axis.get_xlabel(), len(axis.get_xticks())) == ("candidate", 6)
        assert axis.texts[6 * 2 + 3].get_text() == f"{values[2, 3]:.1f}"
    assert figure.axes[0].images[0].get_clim() == figure.axes[1].images[0].get_clim()
