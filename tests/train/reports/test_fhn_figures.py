"""Figures of fields draw the numbers that they are given."""

from typing import Any

import numpy as np

from sprii_train.reports.fhn_figures import fields_figure, history_curves

SPLITS = {"id": "ID", "extra": "OOD-Extra"}


def test_curves_are_means_over_sources_with_their_sd():
    rng = np.random.default_rng(0)
    errors = {name: {split: rng.uniform(size=(3, 3)) for split in SPLITS} for name in ("NOD", "SPRII")}
    figure = history_curves((1, 2, 4), errors, SPLITS)
    assert [axis.get_title() for axis in figure.axes] == list(SPLITS.values())
    for axis, split in zip(figure.axes, SPLITS, strict=True):
        for own, container in zip(errors.values(), axis.containers, strict=True):
            drawn: Any = container
            line, _, (bars,) = drawn
            np.testing.assert_allclose(line.get_ydata(), own[split].mean(0))
            spans = np.array([segment[1, 1] - segment[0, 1] for segment in bars.get_segments()])
            np.testing.assert_allclose(spans, 2.0 * own[split].std(0, ddof=1))
    alone = history_curves((1, 2, 4), {"NOD": {split: rng.uniform(size=(1, 3)) for split in SPLITS}}, SPLITS)
    assert len(alone.axes) == 2


def test_fields_stand_beside_their_errors_on_shared_scales():
    rng = np.random.default_rng(0)
    fields = {split: rng.normal(size=(4, 8, 8)) for split in SPLITS}
    figure = fields_figure(fields, SPLITS)
    panels: Any = np.array(figure.axes[:12], object).reshape(2, 6)
    for row, (start, truth, matched, wrong) in zip(panels, fields.values(), strict=True):
        expected = (start, truth, matched, matched - truth, wrong, wrong - truth)
        for axis, panel in zip(row, expected, strict=True):
            np.testing.assert_array_equal(axis.images[0].get_array(), panel)
    limits = {axis.images[0].get_clim() for axis in panels[:, [0, 1, 2, 4]].ravel()}
    assert limits == {(-m, m) for m in [max(np.abs(each).max() for each in fields.values())]}
    assert len({axis.images[0].get_clim() for axis in panels[:, [3, 5]].ravel()}) == 1
