"""Curves over a design variable."""

import math

import pytest

from sprii_train.analysis.formation import curve

ROWS = [
    {"alpha": 1.0, "seed": 0, "ratio": 4.0, "gap": None},
    {"alpha": 0.0, "seed": 0, "ratio": 0.25, "gap": 1.0},
    {"alpha": 1.0, "seed": 1, "ratio": 5.0, "gap": 1.0},
]


def test_sources_count_equally_at_each_point():
    got = curve(ROWS, "alpha", "ratio")
    assert got.x == (0.0, 1.0)
    assert [(s.mean, s.n) for s in got.spreads] == [(0.25, 1), (4.5, 2)]
    assert math.isnan(got.spreads[0].sd)
    assert got.spreads[1].sd == pytest.approx(math.sqrt(0.5))


def test_history_counts():
    got = curve([{"rollouts": r, "ratio": 1.0 / r} for r in (8, 2, 4)], "rollouts", "ratio")
    assert got.x == (2.0, 4.0, 8.0)
    assert [s.mean for s in got.spreads] == [0.5, 0.25, 0.125]


@pytest.mark.parametrize(("over", "column"), [("alpha", "gap"), ("alpha", "rho"), ("beta", "ratio")])
def test_rows_need_both_columns(over: str, column: str):
    with pytest.raises(ValueError, match=f"a curve of '{column}' over '{over}': a row has no '"):
        curve(ROWS, over, column)


def test_no_rows():
    with pytest.raises(ValueError, match="needs rows, got none"):
        curve([], "alpha", "ratio")
