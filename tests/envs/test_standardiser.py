"""The one standardisation against NumPy, and what it makes of columns that do not vary."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from sprii_envs.standardiser import Standardiser, constant


def test_varying_columns_are_numpys_to_the_last_bit():
    values = np.random.default_rng(0).normal(3.0, (1e-9, 1.0, 1e9), (50, 3))
    np.testing.assert_array_equal(Standardiser.fit(values)(values), (values - values.mean(0)) / values.std(0))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 0.1, -3e-9, 7e18])
@pytest.mark.parametrize("rows", [1, 3, 100_000])
def test_statistics_of_a_constant_column(value: float, rows: int):
    """Sums of 100,000 tenths are rounded by more than the last place: their SD is not 0."""
    column = np.full((rows, 1), value)
    found = Standardiser.fit(column)
    assert found.scale.tolist() == StandardScaler().fit(column).scale_.tolist() == [1.0]  # type: ignore[union-attr]
    assert not found(column).any()
    assert found([[value + 2.0]]) == pytest.approx((value + 2.0) - value)


def test_rounding_noise_is_no_variation():
    drawn = np.random.default_rng(1).uniform(1.0, 2.0, 40)
    noise: NDArray[np.float64] = (0.3 + drawn) - drawn  # 0.3, but for the last places
    assert noise.std() > 0.0
    assert constant(np.stack([noise, drawn], axis=1)).tolist() == [True, False]
    assert constant(np.stack([1e-15 * drawn, drawn], axis=1), floor=1e-12).tolist() == [True, False]
    assert Standardiser.fit(np.array([[0.0], [1e-200]])).scale.tolist() == [1.0]  # whose square is 0
