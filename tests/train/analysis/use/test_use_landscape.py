"""Valley depth and rank correlation of planted readers, against closed forms, loops and scipy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from sprii_envs.banks import Bank, build
from sprii_train.analysis.use.landscape import grid_errors, rank_correlation, summary, valley, valley_depth
from sprii_train.analysis.use.queries import pulse_queries
from sprii_train.analysis.use.simulated import increments, query_targets, training_levels

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


@pytest.mark.parametrize("count", [2, 5, 7])
def test_a_reader_that_follows_its_donor(count: int):
    """Truth a·l, prediction a·l of the donor: error ‖a‖²(i − j)²/D, whose off-diagonal mean is ‖a‖²·L(L + 1)/(6D)."""
    rng = np.random.default_rng(0)
    a = rng.integers(1, 9, size=(6, 1, 4)).astype(float)  # whole numbers: cells of equal distance tie exactly
    truth = a * np.arange(count)[:, None] + rng.integers(-9, 9, size=(6, 1, 4))
    found = valley(grid_errors(truth, truth))
    expected = (a**2).mean((1, 2)) * count * (count + 1) / 6
    np.testing.assert_allclose(found.depths, expected, rtol=1e-10)
    assert found.depth == pytest.approx(expected.mean())
    np.testing.assert_allclose(np.diag(found.grid), 0, atol=1e-12)
    assert found.rho == pytest.approx(1.0)
    np.testing.assert_allclose(found.rhos, 1.0)


@given(arrays(float, (4, 1, 3), elements=NUMBERS), arrays(float, (4, 5, 3), elements=NUMBERS))
@settings(max_examples=50, deadline=None)
def test_a_reader_blind_to_its_donor_has_depth_exactly_zero(prediction: np.ndarray, truth: np.ndarray):
    found = valley(grid_errors(np.repeat(prediction, 5, axis=1), truth))
    assert found.depth == 0.0
    assert (found.depths == 0.0).all()


def test_a_reader_that_reverses_its_donor_has_a_ridge():
    truth = np.arange(5.0)[None, :, None]
    assert valley(grid_errors(truth[:, ::-1], truth)).depth < 0
    # 20 cells off the diagonal sum to 80, the diagonal of |4 − 2j|² to 40.
    assert valley(grid_errors(truth[:, ::-1], truth)).depth == pytest.approx((100 - 40) / 20 - 40 / 5)


@given(arrays(float, (3, 4, 4), elements=NUMBERS))
@settings(max_examples=50, deadline=None)
def test_depth_is_off_diagonal_minus_diagonal(grids: np.ndarray):
    for grid, depth in zip(grids, valley_depth(grids), strict=True):
        off = [grid[i, j] for i in range(4) for j in range(4) if i != j]
        assert depth == pytest.approx(np.mean(off) - np.mean([grid[i, i] for i in range(4)]), abs=1e-9)


def test_errors_are_donors_by_targets():
    rng = np.random.default_rng(1)
    p, y = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 5, 2))
    errors = grid_errors(p, y)
    assert errors.shape == (3, 4, 5)
    assert errors[2, 1, 3] == pytest.approx(((p[2, 1] - y[2, 3]) ** 2).mean())


def test_rank_correlation_is_scipys_with_ties():
    rng = np.random.default_rng(2)
    grids = rng.integers(0, 6, size=(20, 5, 5)).astype(float)
    distance = [abs(i - j) for i in range(5) for j in range(5)]
    expected = [spearmanr(distance, grid.ravel()).statistic for grid in grids]
    np.testing.assert_allclose(rank_correlation(grids), expected, atol=1e-12)
    assert np.isnan(rank_correlation(np.ones((5, 5))))


def test_rho_is_of_the_mean_grid():
    """Two systems, one with large errors and a perfect order, one with small ones in reverse."""
    distance = np.abs(np.arange(5)[:, None] - np.arange(5))
    found = valley(np.stack([10.0 * distance, -1.0 * distance]))
    assert found.rho == pytest.approx(1.0)
    np.testing.assert_allclose(found.rhos, [1.0, -1.0])
    assert found.depths.mean() == pytest.approx(found.depth)


def test_summary_pools_systems_then_sources():
    rng = np.random.default_rng(3)
    errors = {"mass": rng.random((3, 6, 5, 5)), "drag": rng.random((2, 6, 5, 5))}
    found = summary(errors)
    assert [list(sources) for sources in found.values()] == [["pooled", "0", "1", "2"], ["pooled", "0", "1"]]
    for factor, grids in errors.items():
        singles = [found[factor][str(s)] for s in range(len(grids))]
        pooled = found[factor]["pooled"]
        assert pooled.depth == pytest.approx(np.mean([one.depth for one in singles]))
        np.testing.assert_allclose(pooled.depths, np.mean([one.depths for one in singles], axis=0))
        np.testing.assert_allclose(pooled.grid, grids.mean((0, 1)))
        assert pooled.rho == pytest.approx(float(rank_correlation(grids.mean((0, 1)))))


@pytest.mark.parametrize("factor", ["mass", "drag", "stiffness"])
def test_through_the_simulator(spring: Bank, factor: str):
    """A reader that knows the physics has no diagonal error and a valley; half of its response halves the depth.

    Depth is linear in the gain g of a prediction p = m + g(t − m): the mean of ‖p_i‖² is the same on and off the
    diagonal, so that only the products ⟨p_i, t_j⟩ are left.
    """
    queries = pulse_queries(spring, spring.split("validation"))
    found = query_targets(spring, queries, factor, training_levels(spring.properties[factor]))
    truth = increments(found)[:, :, -1]
    whole = valley(grid_errors(truth, truth))
    assert (np.diag(whole.grid) == 0).all()
    assert (whole.depths > 0).all()
    mean = truth.mean(1, keepdims=True)
    half = valley(grid_errors(mean + 0.5 * (truth - mean), truth))
    np.testing.assert_allclose(half.depths, 0.5 * whole.depths, rtol=1e-9)


def test_refuses_other_shapes():
    with pytest.raises(ValueError, match="of equal n and D"):
        grid_errors(np.zeros((2, 5, 3)), np.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match="L >= 2 levels"):
        valley_depth(np.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match="n >= 1 systems"):
        valley(np.zeros((5, 5)))
    with pytest.raises(ValueError, match=r"errors\['mass'\] must be \(S, n, L, L\)"):
        summary({"mass": np.zeros((4, 5, 5))})


def test_the_simulators_own_valley_and_what_no_donor_leaves_grow_with_the_pulse(spring: Bank, tmp_path: Path):
    """Whatever the reader: depths of banks whose queries have pulses of other lengths do not compare.

    Of five levels, the depth of the simulator itself is 5/2 of the error that a reader blind to the factor must leave.
    """
    depths = []
    for length in (2, 4, 8):
        behaviour = replace(spring.protocol.behaviour, query_length=length)
        bank = build(spring.protocol.replace(behaviour=behaviour), tmp_path / str(length))
        table = bank.split("train")
        forced = bank.windows("states", table.select(table["kind"] == "forced")["episode"], 0, 17).astype(np.float64)
        queries = pulse_queries(bank, bank.split("validation"))
        found = query_targets(bank, queries, "mass", training_levels(bank.properties["mass"]))
        truth = increments(found)[:, :, -1] / (forced[:, 16] - forced[:, 0]).std(0)
        depths.append(float(valley_depth(grid_errors(truth, truth)).mean()))
        left = np.square(truth - truth.mean(1, keepdims=True)).mean()
        assert depths[-1] == pytest.approx(2.5 * left)
    assert depths[1] > 1.5 * depths[0]
    assert depths[2] > 1.5 * depths[1]
