"""Windows, rollout means and system centroids against loops."""

import numpy as np
import pytest
import torch
from planted_codes import HELD_OUT, TRAIN

from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import (
    group_means,
    group_sums,
    rollout_means,
    sample_of,
    system_centroids,
    system_weights,
    with_codes,
)
from sprii_train.analysis.populations import Sample

SYSTEMS = np.array([4, 1, 4, 4, 1, 1, 1, 4, 4])
ROLLOUTS = np.array([0, 0, 1, 0, 1, 1, 1, 1, 1])  # numbered within a system: system 4 has 2 + 3 windows, 1 has 1 + 3


def ragged() -> Sample:
    codes = np.random.default_rng(0).standard_normal((9, 3))
    return Sample(HELD_OUT, codes, SYSTEMS, {"mass": 10.0 * SYSTEMS}, ROLLOUTS)


def test_group_means_and_sums():
    rng = np.random.default_rng(2)
    groups = rng.permutation(np.repeat([4, 1, 8, 6], [2, 3, 1, 5]))
    codes = rng.standard_normal((11, 3))
    means, first = group_means(codes, groups)
    sums, again, counts = group_sums(codes, groups)
    for k, i in enumerate([1, 4, 6, 8]):
        members = [row for row in range(11) if groups[row] == i]
        np.testing.assert_allclose(sums[k], sum(codes[m] for m in members), rtol=1e-12)
        np.testing.assert_allclose(means[k], sums[k] / len(members), rtol=1e-12)
        assert first[k] == again[k] == members[0]
        assert counts[k] == len(members)


def test_rollout_means_are_ordered_by_system_then_rollout():
    sample = ragged()
    means = rollout_means(sample)
    rows = [[1], [4, 5, 6], [0, 3], [2, 7, 8]]
    np.testing.assert_allclose(means.codes, [sample.codes[r].mean(0) for r in rows], rtol=1e-12)
    assert means.systems.tolist() == [1, 1, 4, 4]
    assert means.rollouts is not None
    assert means.rollouts.tolist() == [0, 1, 0, 1]
    assert means.factors["mass"].tolist() == [10.0, 10.0, 40.0, 40.0]
    assert means.population == HELD_OUT


def test_a_centroid_weighs_rollouts_and_not_windows():
    sample = ragged()
    got = system_centroids(sample)
    one = (sample.codes[1] + sample.codes[4:7].mean(0)) / 2
    np.testing.assert_allclose(got.codes[0], one, rtol=1e-12)
    assert np.abs(got.codes[0] - sample.codes[SYSTEMS == 1].mean(0)).max() > 0.1
    assert got.systems.tolist() == [1, 4]
    assert got.rollouts is None


def test_without_rollouts_every_row_is_one():
    plain = Sample(HELD_OUT, ragged().codes, SYSTEMS, {"mass": 10.0 * SYSTEMS})
    assert rollout_means(plain) is plain
    np.testing.assert_allclose(system_centroids(plain).codes[0], plain.codes[SYSTEMS == 1].mean(0), rtol=1e-12)


def test_what_varies_cannot_be_averaged():
    sample = ragged()
    transient = Sample(HELD_OUT, sample.codes, SYSTEMS, {"contact": np.arange(9.0)}, ROLLOUTS)
    with pytest.raises(ValueError, match="factor 'contact' varies within a rollout"):
        rollout_means(transient)
    moody = Sample(HELD_OUT, sample.codes, SYSTEMS, {"mood": 1.0 * ROLLOUTS}, ROLLOUTS)
    assert len(rollout_means(moody)) == 4
    with pytest.raises(ValueError, match="factor 'mood' varies within a system"):
        system_centroids(moody)


def test_system_weights():
    weights = system_weights(SYSTEMS)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[SYSTEMS == 1].sum() == pytest.approx(weights[SYSTEMS == 4].sum())
    assert len(set(weights[SYSTEMS == 4])) == 1
    assert (system_weights(np.array(["b", "a", "a", "b"])) == 1.0).all()


def test_with_codes_keeps_everything_else():
    sample = ragged()
    other = with_codes(sample, 2.0 * sample.codes)
    assert (other.codes == 2.0 * sample.codes).all()
    assert other.systems is sample.systems
    assert other.rollouts is sample.rollouts
    assert other.factors is sample.factors


def table() -> EpisodeTable:
    return EpisodeTable(
        {"episode": [10, 11, 12], "system": [5, 5, 6], "rollout": [0, 1, 0], "length": [4] * 3, "drag": [0.5, 0.5, 2.0]}
    )


def test_sample_of_a_torch_encoder():
    features = torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(3, 2)
    sample = sample_of(TRAIN, features, table(), ("drag",))
    assert sample.codes.dtype == np.float64
    assert sample.codes.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert sample.systems.tolist() == [5, 5, 6]
    assert sample.factors["drag"].tolist() == [0.5, 0.5, 2.0]
    assert sample.rollouts is not None
    assert sample.rollouts.tolist() == [10, 11, 12]


def test_sample_of_windows():
    sample = sample_of(TRAIN, np.zeros((4, 2), np.float32), table(), ("drag",), np.array([2, 0, 0, 1]))
    assert sample.systems.tolist() == [6, 5, 5, 5]
    assert sample.rollouts is not None
    assert sample.rollouts.tolist() == [12, 10, 10, 11]
    with pytest.raises(ValueError, match="2 codes, but 'systems' has shape"):
        sample_of(TRAIN, np.zeros((2, 2)), table(), ())
