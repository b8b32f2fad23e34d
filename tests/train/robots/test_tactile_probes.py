"""Probes of grasps on planted features: what is told where it was not fitted, and what is not."""

import numpy as np
import pytest
from scipy.stats import rankdata

from sprii_envs.robots.baxter import HARDNESS
from sprii_train.robots.probes import (
    Grasped,
    geometry,
    hardness_across_shapes,
    probed,
    readout,
    shape_across_hardness,
    shuffled,
)


def planted(seed: int, each: int, *, level: float = 0.0, shape: float = 0.0, mixed: float = 0.0) -> Grasped:
    """Features (N, 6) that tell level and shape on axes of their own; `mixed`, the level on an axis a shape."""
    rng = np.random.default_rng(seed)
    names = np.repeat(["cube", "cylinder"], 3 * each)
    levels = np.tile(np.repeat(np.arange(3), each), 2)
    hard = np.array([HARDNESS[s][k] for s, k in zip(names, levels, strict=True)])
    cube = (names == "cube").astype(np.float64)
    features = rng.standard_normal((len(names), 6))
    features[:, 0] += level * levels
    features[:, 1] += shape * cube
    features[:, 2] += mixed * levels * cube
    features[:, 3] += mixed * levels * (1.0 - cube)
    return Grasped(features, names, levels, hard)


def both(**how: float) -> tuple[Grasped, Grasped]:
    return planted(0, 40, **how), planted(1, 40, **how)


def test_each_property_is_told_alone():
    found = probed(*both(level=12.0))
    assert found["hardness"] > 0.99
    assert 0.35 < found["shape"] < 0.65
    assert found["rho_hardness"] > 0.6  # levels of two shapes differ a little in measured hardness
    assert abs(found["rho_shape"]) < 0.4
    found = probed(*both(shape=12.0))
    assert found["shape"] > 0.99
    assert 0.2 < found["hardness"] < 0.5
    assert found["rho_shape"] > 0.8
    assert abs(found["rho_hardness"]) < 0.4
    nothing = probed(*both())
    assert 0.2 < nothing["hardness"] < 0.5
    assert 0.35 < nothing["shape"] < 0.65


def test_what_is_told_within_a_shape_alone_does_not_count():
    """Levels that lie elsewhere for another shape: a probe that had seen both would read them."""
    train, held = both(mixed=12.0)
    assert hardness_across_shapes(train, held) < 0.5
    seen = readout(train._replace(features=train.features[:, None]), [held._replace(features=held.features[:, None])],
                   seed=0)  # fmt: skip
    assert seen[0]["hardness"] > 0.95


def test_ways_and_levels_are_averaged():
    train, held = both(level=12.0)
    one_way = held.where(held.shape == "cylinder")
    broken = held._replace(features=np.where((held.shape == "cube")[:, None], 0.0, held.features))
    assert hardness_across_shapes(train, held) == pytest.approx(1.0, abs=0.01)
    assert hardness_across_shapes(train, broken) == pytest.approx(0.5 + 0.5 / 3.0, abs=0.01)  # one way is a constant
    assert len(one_way.features) == 120
    train, held = both(shape=12.0)
    broken = held._replace(features=np.where((held.level == 1)[:, None], 0.0, held.features))
    assert shape_across_hardness(train, broken) == pytest.approx((1.0 + 0.5 + 1.0) / 3.0, abs=0.01)


def test_geometry_is_a_partial_rank_correlation_of_fifteen_distances():
    train, held = both(level=3.0, shape=2.0)
    found = geometry(train, held)
    names = [(s, k) for s in ("cube", "cylinder") for k in range(3)]
    scaled = (held.features - train.features.mean(0)) / train.features.std(0)
    means = {n: scaled[(held.shape == n[0]) & (held.level == n[1])].mean(0) for n in names}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    assert len(pairs) == 15
    columns = np.array(
        [
            (np.linalg.norm(means[a] - means[b]), abs(HARDNESS[a[0]][a[1]] - HARDNESS[b[0]][b[1]]), a[0] != b[0])
            for a, b in pairs
        ],
        np.float64,
    )
    # partial correlation from the inverse of the matrix of rank correlations
    inverse = np.linalg.inv(np.corrcoef(rankdata(columns, axis=0).T))
    expected = [-inverse[0, i] / np.sqrt(inverse[0, 0] * inverse[i, i]) for i in (1, 2)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_shuffled_labels_tell_nothing():
    found = shuffled(*both(level=12.0, shape=12.0), seed=0, times=10)
    assert found["hardness"] == pytest.approx(1 / 3, abs=0.12)
    assert found["shape"] == pytest.approx(0.5, abs=0.15)
    assert found == shuffled(*both(level=12.0, shape=12.0), seed=0, times=10)
