"""The projection against an eigendecomposition, and the rule of its signs."""

import numpy as np
import pytest

from sprii_train.analysis.formation import project


def centroids(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((50, 6)) * [3.0, 2.0, 1.0, 0.5, 0.3, 0.1] @ rng.standard_normal((6, 6)) + 5.0


def test_components_are_eigenvectors_of_the_covariance():
    codes = centroids()
    got = project(codes, 3)
    centred = codes - codes.mean(0)
    values, vectors = np.linalg.eigh(np.cov(centred.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    np.testing.assert_allclose(got.shares, values[:3] / values.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.abs((got.loadings * vectors[:, :3].T).sum(1)), 1.0, rtol=1e-9)
    np.testing.assert_allclose(got.xy, centred @ got.loadings.T, atol=1e-9)
    np.testing.assert_allclose(got.xy.var(0, ddof=1), values[:3], rtol=1e-9)  # not whitened


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_loading_is_positive(seed: int):
    codes = centroids(seed)
    got = project(codes)
    for loading in got.loadings:
        assert loading[np.abs(loading).argmax()] > 0
    mirrored = project(-codes)
    np.testing.assert_allclose(mirrored.loadings, got.loadings, atol=1e-9)
    np.testing.assert_allclose(mirrored.xy, -got.xy, atol=1e-9)


def test_order_and_place_of_the_systems_do_not_matter():
    codes = centroids()
    order = np.random.default_rng(1).permutation(50)
    moved = project(codes[order] - 100.0)
    np.testing.assert_allclose(moved.xy, project(codes).xy[order], atol=1e-9)


def test_all_components_hold_everything():
    codes = centroids()
    got = project(codes, 6)
    assert got.shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(got.xy @ got.loadings, codes - codes.mean(0), atol=1e-9)


def test_refused():
    with pytest.raises(ValueError, match=r"2 components needs as many systems and dimensions, got \(50, 1\)"):
        project(centroids()[:, :1])
    with pytest.raises(ValueError, match="all 4 centroids are the same"):
        project(np.ones((4, 3)))
