"""Figures of Value: what they say, on planted numbers."""

import numpy as np
import pytest

from sprii_train.analysis.statistics import Interval
from sprii_train.reports.figures import png
from sprii_train.reports.value_figures import (
    contrast_intervals,
    paired_contrasts,
    prefix_curves,
    reader_horizons,
    reductions,
    source_horizons,
)

HORIZONS = (1, 4, 16)


def interval(value: float, half: float = 0.1) -> Interval:
    return Interval(value, value - half, value + 2 * half, 0.95, 64, "system")


def test_readers_by_horizon():
    errors = {"Null": np.array([0.1, 0.2, 0.4]), "Persistent": np.array([0.01, 0.02, 0.03])}
    figure = reader_horizons(HORIZONS, errors, [interval(v) for v in (-0.3, 0.2, 0.5)], "Decode − Persistent")
    left, right = figure.axes
    assert {line.get_label(): line.get_ydata().tolist() for line in left.lines} == {
        name: curve.tolist() for name, curve in errors.items()
    }
    assert left.get_yscale() == "log"
    assert [label.get_text() for label in left.get_legend().get_texts()] == ["Null", "Persistent"]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["1", "4", "16"]
    segments = right.collections[0].get_segments()
    np.testing.assert_allclose([(s[0, 1], s[1, 1]) for s in segments], [(-0.4, -0.1), (0.1, 0.4), (0.4, 0.7)])
    assert right.get_ylabel() == "Decode − Persistent"
    assert png(figure)[:4] == b"\x89PNG"


def test_a_line_a_learner_with_its_intervals():
    curves = {
        name: [interval(v, 0.01) for v in (level, 2 * level, 4 * level)] for name, level in (("A", 0.1), ("B", 0.2))
    }
    figure = source_horizons(HORIZONS, curves, {"no code": (0.5, 0.6, 0.7)})
    (axis,) = figure.axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    lines = {line.get_ydata()[0]: line for line in axis.lines if line.get_linestyle() in ("-", "--")}
    assert lines[0.1].get_ydata().tolist() == [0.1, 0.2, 0.4]
    assert lines[0.5].get_ydata().tolist() == [0.5, 0.6, 0.7]
    assert lines[0.5].get_linestyle() == "--"
    segments = axis.collections[1].get_segments()
    np.testing.assert_allclose([(s[0, 1], s[1, 1]) for s in segments], [(0.19, 0.22), (0.39, 0.42), (0.79, 0.82)])
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"A", "B", "no code"}
    assert png(figure)[:4] == b"\x89PNG"


@pytest.mark.parametrize("count", [1, 4])
def test_contrasts_from_top_to_bottom(count: int):
    found = {f"component {i}": interval(0.1 * i) for i in range(count)}
    (axis,) = contrast_intervals(found, "Null − Persistent").axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == list(found)
    bars = [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2]
    np.testing.assert_allclose([bar.get_xdata() for bar in bars], [(f.low, f.high) for f in found.values()])
    assert axis.yaxis_inverted()
    assert axis.get_xlabel() == "Null − Persistent"


def test_errors_by_prefix():
    curves = {name: [interval(v + r) for r in (0.0, 0.1, 0.2)] for name, v in (("Null", 0.5), ("Oracle", 0.2))}
    (axis,) = prefix_curves((0, 1, 8), curves).axes
    shown = [container[0].get_ydata().tolist() for container in axis.containers]
    assert shown == [[found.estimate for found in curve] for curve in curves.values()]
    assert axis.containers[0][0].get_xdata().tolist() == [0, 1, 8]
    assert axis.get_ylim()[0] == 0.0
    assert [text.get_text() for text in axis.get_legend().get_texts()] == list(curves)


def test_paired_contrasts_have_a_line_a_kind():
    kinds = ("systems", "sources")
    first = {
        "A − B": {kind: interval(0.001 * i) for i, kind in enumerate(kinds, 1)},
        "A − C": {"systems": interval(0.1)},
    }
    second = {name: {"systems": interval(-0.2)} for name in first}
    figure = paired_contrasts({"full": first, "cold": second}, kinds)
    left, right = figure.axes
    bars = [line.get_xdata() for line in left.lines if line.get_linewidth() == 2]
    ends = [(f.low * 1e3, f.high * 1e3) for found in first.values() for f in found.values()]
    np.testing.assert_allclose(bars, ends)
    assert [tick.get_text() for tick in left.get_yticklabels()] == list(first)
    assert left.yaxis_inverted()
    assert (left.get_title(), right.get_title()) == ("full", "cold")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["over systems", "over sources"]
    assert png(figure)[:4] == b"\x89PNG"


def test_reductions_are_means_over_sources():
    (axis,) = reductions({"Structure": [-1.0, 2.0], "G₁, poke": [4.0]}).axes
    assert [bar.get_height() for bar in axis.patches] == [0.5, 4.0]
    dots = [np.asarray(line.get_ydata()).tolist() for line in axis.lines if line.get_marker() == "o"]
    assert dots == [[-1.0, 2.0], [4.0]]
    assert np.asarray(axis.lines[1].get_xdata()).tolist() == [1.0]  # a single source lies in the middle of its bar
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["Structure", "G₁\npoke"]
