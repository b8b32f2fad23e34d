"""Features of numerical histories against the systems that made them."""

import numpy as np
import pytest
from planted_codes import HELD_OUT, TRAIN

from sprii_envs.banks import POKE_ORIGINAL, SPRING, Bank, build
from sprii_envs.envs.poke_world import PokeWorld
from sprii_train.analysis.formation import (
    POKE_FACTORS,
    poke_evidence,
    probe_factors,
    sample_of,
    spring_evidence,
)
from sprii_train.analysis.formation.evidence import FEATURES

MASS, DRAG, STIFFNESS = range(3)
INFORMATION, KNOWN = slice(3, 6), slice(6, 9)


@pytest.fixture(scope="module")
def poke(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    protocol = POKE_ORIGINAL.replace(systems={"train": 60, "validation": 40}, rollouts=4, frames=None)
    return build(protocol, tmp_path_factory.mktemp("banks") / "poke")


@pytest.fixture(scope="module")
def spring(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    held_out = {"forced": 1, "free": 1, "static": 1}
    protocol = SPRING.replace(
        systems={"train": 20, "validation": 2}, rollouts={"train": held_out, "validation": held_out}
    )
    return build(protocol, tmp_path_factory.mktemp("banks") / "spring")


def histories(bank: Bank, split: str, kind: str | None = None):
    """Table, states (n, T, 8), actions (n, T − 1, 2), and log factors (n, 3) as FEATURES order them."""
    table = bank.split(split)
    if kind is not None:
        table = table.select(table["kind"] == kind)
    length = int(table["length"].min())
    rows = table["episode"]
    logs = np.log(np.stack([table[name] for name in ("mass", "drag", "stiffness")], axis=1))
    return table, bank["states"][rows][:, :length], bank["actions"][rows][:, : length - 1], logs


def test_poke_estimates_are_the_systems(poke: Bank):
    """Where four histories tell a factor, its estimate is within 5 % (drag, mass) or 15 % (stiffness, undamped)."""
    table, states, actions, logs = histories(poke, "train")
    features = poke_evidence(states, actions, table["system"], poke.world)  # type: ignore[arg-type]
    assert features.shape == (60, len(FEATURES))
    error = np.abs(features[:, :3] - logs[::4])
    known = features[:, KNOWN] > 0.99
    assert (known.mean(0) > 0.8).all()
    for factor, tolerance in ((MASS, 0.05), (DRAG, 0.05), (STIFFNESS, 0.15)):
        assert error[known[:, factor], factor].max() < tolerance


def test_poke_probes_read_them_on_systems_never_seen(poke: Bank):
    samples = []
    for population, split in ((TRAIN, "train"), (HELD_OUT, "validation")):
        table, states, actions, _ = histories(poke, split)
        features = poke_evidence(states, actions, table["system"])
        _, first = np.unique(table["system"], return_index=True)
        samples.append(sample_of(population, features, table, ("mass", "drag", "stiffness"), first))
    scores = probe_factors(*samples, POKE_FACTORS, seed=0, kinds=("ridge",))
    assert all(s.r2 > 0.8 for s in scores.values()), {key: s.r2 for key, s in scores.items()}


def test_spring_estimates_are_the_systems(spring: Bank):
    _, states, actions, logs = histories(spring, "train", "forced")
    features = spring_evidence(states, actions, None, spring.world)  # type: ignore[arg-type]
    assert (features[:, KNOWN] > 0.5).all()
    error = np.abs(features[:, :3] - logs)
    assert error[:, MASS].max() < 0.02
    assert error[:, STIFFNESS].max() < 0.05
    assert np.median(error[:, DRAG]) < 0.02


def test_spring_without_a_push_knows_the_frequency_and_not_the_mass(spring: Bank):
    _, states, actions, logs = histories(spring, "train", "free")
    features = spring_evidence(states, actions)
    assert features[:, MASS] == pytest.approx(0.0)  # the nominal 1 kg
    assert features[:, 6 + MASS] == pytest.approx(0.0)
    ratio = features[:, STIFFNESS] - features[:, MASS]
    assert np.corrcoef(ratio, logs[:, STIFFNESS] - logs[:, MASS])[0, 1] > 0.99


def test_a_history_at_rest_says_nothing(spring: Bank):
    _, states, actions, _ = histories(spring, "train", "static")
    features = spring_evidence(np.repeat(states[:, :1], states.shape[1], axis=1), np.zeros_like(actions))
    assert (np.abs(features[:, KNOWN]) < 1e-6).all()  # rounding of float32 positions
    np.testing.assert_allclose(features[:, :3], np.log([[1.0, 0.75, 12.0]] * 20), atol=1e-6)
    still = np.zeros((1, 24, 8))
    still[:, :, 4] = 0.5
    features = poke_evidence(still, np.zeros((1, 23, 2)))
    np.testing.assert_allclose(features[0, :3], np.log([1.0, 1.0, 2000.0]), atol=1e-9)
    np.testing.assert_allclose(features[0, KNOWN], 0.0, atol=1e-9)


def test_histories_read_together_are_a_longer_history(poke: Bank):
    """Information adds up; a group of one is that history; the order of the rows does not matter."""
    table, states, actions, _ = histories(poke, "validation")
    alone = poke_evidence(states, actions)
    np.testing.assert_allclose(poke_evidence(states, actions, np.arange(len(table))), alone)
    together = poke_evidence(states, actions, table["system"])
    sums = np.exp(alone[:, INFORMATION]).reshape(40, 4, 3).sum(1)
    np.testing.assert_allclose(np.exp(together[:, 4]), sums[:, DRAG], rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(np.exp(together[:, 5]), sums[:, STIFFNESS], rtol=1e-6, atol=1e-11)
    order = np.random.default_rng(0).permutation(len(table))
    np.testing.assert_allclose(
        poke_evidence(states[order], actions[order], table["system"][order]), together, rtol=1e-9
    )
    assert (together[:, KNOWN] >= alone[:, KNOWN].reshape(40, 4, 3).min(1) - 1e-9).all()


def test_the_constants_of_the_world_count(poke: Bank):
    _, states, actions, _ = histories(poke, "validation")
    assert (poke_evidence(states, actions, None, PokeWorld()) == poke_evidence(states, actions)).all()
    heavier = poke_evidence(states, actions, None, PokeWorld(finger_mass=2.0))
    assert (heavier != poke_evidence(states, actions)).any()


@pytest.mark.parametrize("shapes", [((2, 24, 8), (2, 24, 2)), ((2, 24, 4), (2, 23, 2)), ((24, 8), (23, 2))])
@pytest.mark.parametrize("evidence", [poke_evidence, spring_evidence])
def test_other_shapes_are_refused(evidence, shapes: tuple[tuple[int, ...], tuple[int, ...]]):
    with pytest.raises(ValueError, match=r"needs states \(n, T, 8\) and actions \(n, T - 1, 2\), got"):
        evidence(np.zeros(shapes[0]), np.zeros(shapes[1]))
