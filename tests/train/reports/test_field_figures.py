"""Figures of fields: what is drawn are the fields and their errors, on shared scales, under names."""

import numpy as np

from sprii_train.reports.field_figures import field_panels
from sprii_train.reports.figures import png


def test_panels_are_truth_prediction_and_error():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(9, 17))
    predicted = {m: {d: rng.normal(size=(9, 17)) for d in ("matched donor", "wrong donor")} for m in ("NOD", "SPRII")}
    figure = field_panels(truth, predicted)
    panels = [axis for axis in figure.axes if axis.images]
    assert len(panels) == 2 * 5
    titles = ["truth", "matched donor", "matched donor: error", "wrong donor", "wrong donor: error"]
    assert [axis.get_title() for axis in panels] == [*titles, *[""] * 5]
    assert [axis.get_ylabel() for axis in panels[::5]] == ["NOD\nx", "SPRII\nx"]
    assert [axis.get_xlabel() for axis in panels] == [*[""] * 5, *["t / T"] * 5]
    for number, own in enumerate(predicted.values()):
        matched, wrong = own.values()
        fields = (truth, matched, matched - truth, wrong, wrong - truth)
        for axis, field in zip(panels[5 * number :], fields, strict=False):
            np.testing.assert_array_equal(axis.images[0].get_array(), field.T)
    limits = {axis.images[0].get_clim() for axis in panels}
    assert len(limits) == 2  # fields, errors
    assert png(figure)[:4] == b"\x89PNG"
