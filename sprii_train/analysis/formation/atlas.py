"""The persistent-context atlas: principal components of system centroids (`app:poke-formation`, last paragraph)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from sprii_envs.arguments import integer
from sprii_envs.standardiser import constant

Array = NDArray[np.float64]


class Projection(NamedTuple):
    """Coordinates of one source; its axes have no relation to another source's.

    Attributes:
        xy: (s, k) coordinates, centred, not whitened.
        shares: (k,) shares of the variance.
        loadings: (k, d) unit vectors; the entry of largest magnitude is positive.
    """

    xy: Array
    shares: Array
    loadings: Array


def project(centroids: Array, components: int = 2) -> Projection:
    """PCA of standardised system centroids (s, d) by full SVD, without whitening and without labels.

    Raises:
        ValueError: for fewer systems or dimensions than components, or centroids without variance.
    """
    centroids, components = np.asarray(centroids, dtype=np.float64), integer("components", components, least=1)
    if centroids.ndim != 2 or min(centroids.shape) < components:
        raise ValueError(
            f"an atlas of {components} components needs as many systems and dimensions, got {centroids.shape}"
        )
    if constant(centroids).all():
        raise ValueError(f"all {len(centroids)} centroids are the same: there is nothing to project")
    pca = PCA(components, svd_solver="full").fit(centroids)
    loadings = np.asarray(pca.components_)
    signs = np.sign(np.take_along_axis(loadings, np.abs(loadings).argmax(axis=1)[:, None], axis=1))
    shares = np.asarray(pca.explained_variance_ratio_)
    return Projection(pca.transform(centroids) * signs[:, 0], shares, loadings * signs)
