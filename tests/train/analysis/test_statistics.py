import math
import statistics

import numpy as np
import pytest

from sprii_train.analysis.statistics import over_sources


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.25], [1e6, 1e6 + 1], [3.0] * 5, list(np.linspace(-1, 2, 7))])
def test_over_sources_equals_the_standard_library(values: list[float]):
    got = over_sources(values)
    assert got.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert got.sd == pytest.approx(statistics.stdev(values), rel=1e-9)
    assert got.n == len(values)


def test_one_source_has_no_spread():
    got = over_sources([0.5])
    assert got.mean == 0.5
    assert math.isnan(got.sd)
    assert got.n == 1


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_over_sources_refuses(values: list):
    with pytest.raises(ValueError, match="non-empty list"):
        over_sources(values)
