"""Figures of grasps draw the numbers that they are given."""

from typing import Any

import numpy as np

from sprii_train.reports.tactile_figures import selectivity, sensor_changes


def test_sensors_share_one_symmetric_scale_that_ends_at_the_97th_percentile():
    changes = np.random.default_rng(0).normal(size=(2, 3, 80, 16))
    figure = sensor_changes(changes, ("cube", "cylinder"), ["0", "1", "2"])
    panels: Any = np.array(figure.axes[:6], object).reshape(2, 3)
    limit = np.quantile(np.abs(changes), 0.97)
    for i in range(2):
        for j in range(3):
            (image,) = panels[i, j].images
            np.testing.assert_array_equal(image.get_array(), changes[i, j].T)
            np.testing.assert_allclose(image.get_clim(), (-limit, limit))
    assert [axis.get_title() for axis in panels[0]] == ["0", "1", "2"]
    assert panels[1, 0].get_ylabel().startswith("cylinder")


def test_bars_are_means_with_their_sd_and_chance_is_dashed():
    rng = np.random.default_rng(0)
    scores = {t: [(name, rng.uniform(size=3)) for name in ("R_H", "R_S", "Random")] for t in ("Hardness", "Shape")}
    figure = selectivity(scores, (1 / 3, 0.5))
    for axis, bars, chance in zip(figure.axes, scores.values(), (1 / 3, 0.5), strict=True):
        patches: Any = axis.patches
        np.testing.assert_allclose([bar.get_height() for bar in patches], [found.mean() for _, found in bars])
        (dashed,) = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert set(np.asarray(dashed.get_ydata(), np.float64)) == {chance}
        whiskers: Any = [c for c in axis.containers if hasattr(c, "has_yerr")]
        spans = [whisker.lines[2][0].get_segments()[0] for whisker in whiskers]
        np.testing.assert_allclose([s[1, 1] - s[0, 1] for s in spans], [2.0 * f.std(ddof=1) for _, f in bars])
    alone = selectivity({"Hardness": [("R_H", np.array([0.9]))]}, (1 / 3,))
    assert len(alone.axes) == 1
