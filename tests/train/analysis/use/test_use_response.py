"""The centre/relative transform, and response shares of planted outputs and of the real simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sprii_envs.banks import Bank
from sprii_train.analysis.use.queries import pulse_queries
from sprii_train.analysis.use.response import TRANSFORMS, centre_relative, donor_response, unstructured_share
from sprii_train.analysis.use.simulated import increments, query_targets, training_levels


def test_the_transform_is_orthonormal():
    matrix = centre_relative(np.eye(8))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(8), atol=1e-15)


@given(arrays(float, (3, 8), elements=st.floats(-1e3, 1e3)))
@settings(max_examples=50, deadline=None)
def test_it_keeps_norms(states: np.ndarray):
    np.testing.assert_allclose(
        np.square(centre_relative(states)).sum(1), np.square(states).sum(1), rtol=1e-12, atol=1e-12
    )


def test_coordinates():
    """Both balls together move the centre, by √2 as far as one; apart, the relative coordinate."""
    root = np.sqrt(2.0)
    together, apart = [3.0, 4.0, 3.0, 4.0, 1.0, 2.0, 1.0, 2.0], [-3.0, -4.0, 3.0, 4.0, -1.0, -2.0, 1.0, 2.0]
    np.testing.assert_allclose(centre_relative(together), [3 * root, 4 * root, root, 2 * root, 0, 0, 0, 0])
    np.testing.assert_allclose(centre_relative(apart), [0, 0, 0, 0, 3 * root, 4 * root, root, 2 * root])


def test_shares_of_planted_responses():
    levels = np.arange(5.0)[:, None]
    base = np.random.default_rng(0).normal(size=(7, 1, 8))
    # One unit along each of the four coordinates, as states.
    centre, relative = np.tile([1.0, 1.0], 4) / np.sqrt(2.0), np.tile([-1.0, -1.0, 1.0, 1.0], 2) / np.sqrt(2.0)
    only = donor_response(base + levels * centre)
    assert (only.centre_share, only.relative_share) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))
    mixed = donor_response(base + levels * (centre + 2.0 * relative))
    assert mixed.relative_share == pytest.approx(0.8)
    # Mean of (l − 2)² over the levels 0…4 is 2; ‖centre‖² = 4.
    np.testing.assert_allclose(mixed.centre, 8.0)
    assert mixed.relative_minus_centre == pytest.approx(32.0 - 8.0)
    assert np.isnan(donor_response(np.repeat(base, 5, axis=1)).relative_share)


@pytest.mark.parametrize(("along", "apart"), [(1.0, 2.0), (3.0, 0.5), (1.0, 0.0), (0.0, 1.0)])
def test_the_transform_of_the_two_balls_decides_the_share(along: float, apart: float):
    """Planted energies: what mean and difference call relative ÷ centre is four times the orthonormal ratio."""
    levels = np.arange(5.0)[:, None]
    common, opposite = np.tile([1.0, 1.0, 1.0, 1.0], 2), np.tile([-1.0, -1.0, 1.0, 1.0], 2)
    outputs = np.random.default_rng(0).normal(size=(7, 1, 8)) + levels * (along * common + apart * opposite)
    found = {transform: donor_response(outputs, transform) for transform in TRANSFORMS}
    shares = {transform: each.relative_share for transform, each in found.items()}
    assert shares["orthonormal"] == pytest.approx(apart**2 / (along**2 + apart**2), abs=1e-12)
    assert shares["mean-difference"] == pytest.approx(4 * apart**2 / (along**2 + 4 * apart**2), abs=1e-12)
    # Mean of (l − 2)² over the levels is 2, four coordinates: as many metres as the balls move, and 2 × as many apart.
    np.testing.assert_allclose(found["mean-difference"].centre, 2 * 4 * along**2, atol=1e-12)
    np.testing.assert_allclose(found["mean-difference"].relative, 2 * 4 * (2 * apart) ** 2, atol=1e-12)
    ratios = [np.divide(each.relative, each.centre) for each in found.values()] if along else []
    if ratios:
        np.testing.assert_allclose(ratios[0], 4 * ratios[1], rtol=1e-12, atol=1e-12)


def test_a_response_of_every_coordinate_alike_is_unstructured():
    outputs = np.random.default_rng(3).normal(size=(4_000, 5, 8))
    for transform, share in (("orthonormal", 0.5), ("mean-difference", 0.8)):
        assert unstructured_share(transform) == pytest.approx(share)
        assert donor_response(outputs, transform).relative_share == pytest.approx(share, abs=0.01)


def test_shares_are_those_of_all_pairs_of_levels():
    outputs = np.random.default_rng(1).normal(size=(3, 4, 8))
    pairs = (outputs[:, :, None] - outputs[:, None]).reshape(-1, 8)
    moved = centre_relative(pairs)
    share = np.square(moved[:, 4:]).sum() / np.square(moved).sum()
    assert donor_response(outputs).relative_share == pytest.approx(share)


def test_shares_are_ratios_of_sums():
    """A system that hardly responds weighs hardly anything."""
    rng = np.random.default_rng(2)
    large, small = rng.normal(size=(2, 1, 5, 8))
    both = donor_response(np.concatenate([large, 1e-6 * small]))
    assert both.relative_share == pytest.approx(donor_response(large).relative_share, rel=1e-9)


def test_stiffness_moves_the_relative_coordinate_alone(spring: Bank):
    queries = pulse_queries(spring, spring.split("validation"))
    shares = {}
    for factor in spring.properties.names:
        found = query_targets(spring, queries, factor, training_levels(spring.properties[factor]))
        shares[factor] = donor_response(increments(found)[:, :, -1]).relative_share
    # What is left is the rounding of the states to float32.
    assert shares["stiffness"] == pytest.approx(1.0, abs=1e-8)
    assert 0.2 < shares["mass"] < 0.8
    assert 0.2 < shares["drag"] < 0.8


def test_refuses_other_shapes():
    with pytest.raises(ValueError, match=r"states must be \(\.\.\., 8\)"):
        centre_relative(np.zeros(6))
    with pytest.raises(ValueError, match=r"unknown transform 'mean'; .*legal names: mean-difference, orthonormal"):
        centre_relative(np.zeros(8), "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="L >= 2 levels"):
        donor_response(np.zeros((3, 1, 8)))
