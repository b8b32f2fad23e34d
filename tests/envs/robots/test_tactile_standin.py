"""The stand-in of the tactile recordings: its contact law against quadrature, and what it tells of whom."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from sprii_envs.banks.generated import build_generated
from sprii_envs.robots import tactile
from sprii_envs.robots.baxter import CONFIGURATIONS, HARDNESS
from sprii_envs.robots.tactile import Nuisance, TactileProtocol, closing, force, pressed, readings

SMALL = TactileProtocol(counts=(3, 2, 1))
SAMPLES, TAXELS = 80, 16


def gap(shape: str, x: float) -> float:
    """What lies between pad and object at x before they touch in the middle, mm."""
    return x * x / (2.0 * tactile.RADIUS) if shape == "cylinder" else 0.0 if abs(x) < tactile.HALF_WIDTH else np.inf


def plain(n: int = 1, **changes: float) -> Nuisance:
    """Grasps without any nuisance."""
    given = {"speed": 0.08, "phase": 0.5, "hold": 15} | changes
    return Nuisance(
        offset=np.full((n, 2), given.get("offset", 0.0)),
        tilt=np.full((n, 2), given.get("tilt", 0.0)),
        speed=np.full(n, given["speed"]),
        phase=np.full(n, given["phase"]),
        hold=np.full(n, int(given["hold"])),
        gain=np.ones((n, TAXELS)),
    )


@pytest.mark.parametrize("shape", HARDNESS)
@pytest.mark.parametrize(("left", "right"), [(-10.0, -5.0), (-5.0, 0.0), (2.0, 7.0), (8.0, 13.0), (-30.0, 30.0)])
def test_the_load_of_a_taxel_is_the_integral_of_the_pressure(shape: str, left: float, right: float):
    for depth in (0.0, 0.3, 1.7):
        edges = [x for x in (-10.0, 10.0) if left < x < right] or None
        expected = quad(lambda x, d=depth: max(0.0, d - gap(shape, x)), left, right, points=edges, limit=200)[0]
        assert pressed(shape, depth, left, right) == pytest.approx(expected, abs=2e-3)


def test_forces_are_those_of_the_closed_forms_and_grow_with_hardness():
    d = np.linspace(0.1, 3.0, 7)
    np.testing.assert_allclose(force("cube", 5.0, d), 200.0 * 0.005 * d)
    with pytest.raises(ValueError, match="shape is 'Cube'; legal: cube, cylinder"):
        force("Cube", 5.0, d)
    expected = 4.0 / 3.0 * 10.0 * 0.005 * d * np.sqrt(2.0 * 40.0 * d)
    np.testing.assert_allclose(force("cylinder", 5.0, d), expected)
    for shape, levels in HARDNESS.items():
        found = [float(force(shape, hardness, 1.0)) for hardness in levels]
        assert found == sorted(found)


@pytest.mark.parametrize(("shape", "level"), CONFIGURATIONS)
def test_the_gripper_closes_to_its_limit_and_lets_go(shape: str, level: int):
    hardness = HARDNESS[shape][level]
    depth, left = closing(shape, hardness, plain())
    total = force(shape, hardness, depth[0]) * left[0]
    assert 0.1 <= total[0] < 0.35  # a recording begins at the trigger
    peak = int(np.argmax(total))
    step = np.diff(depth[0, : peak + 1])
    np.testing.assert_allclose(step, 0.08, rtol=1e-9)
    assert 2.0 <= total[peak] < 2.4
    held = depth[0, peak : peak + 14]
    assert np.ptp(held) < 1e-9
    assert (np.diff(total[peak : peak + 14]) < 0.0).all()  # foam relaxes while it is held
    assert (left[0, : peak + 14] > 0.75 - 1e-9).all()  # by a quarter at most
    taxels = readings(shape, hardness, plain())[0]
    assert (taxels[depth[0] == 0.0] == 0.0).all()
    pad = taxels[:, :8].sum(1)
    assert (pad <= total + 1e-9).all()
    if shape == "cube":
        np.testing.assert_allclose(pad, total)  # whose face is as wide as the pad
        np.testing.assert_allclose(taxels, taxels[:, :1].repeat(TAXELS, 1))
    else:
        outer, inner = taxels[peak, [0, 3]], taxels[peak, [1, 2]]
        assert outer.max() < inner.min()


def test_a_shifted_object_loads_one_side_and_a_tilted_one_too():
    shifted = readings("cylinder", 8.0, plain(offset=2.0))[0, 10].reshape(2, 2, 4)
    assert (shifted[..., 2:].sum(-1) > shifted[..., :2].sum(-1)).all()
    np.testing.assert_allclose(shifted[:, 0], shifted[:, 1])  # rows share alike
    tilted = readings("cube", 8.0, plain(tilt=0.4))[0, 10].reshape(2, 2, 4)
    np.testing.assert_allclose(tilted[..., 3] / tilted[..., 0], 1.3 / 0.7)


def test_a_grasp_is_a_function_of_seed_configuration_and_number():
    plan = SMALL.plan()
    assert len(plan) == 36
    labels, arrays = SMALL.episodes(plan)
    assert labels == plan
    found = arrays["tactile"]
    assert found.shape == (36, SAMPLES, TAXELS)
    assert found.dtype == np.float32
    for i in (0, 7, 35):
        np.testing.assert_array_equal(SMALL.episodes([plan[i]])[1]["tactile"][0], found[i])
    assert len({each.tobytes() for each in found}) == 36
    other = replace(SMALL, seed=1).episodes(plan[:1])[1]["tactile"][0]
    assert not np.array_equal(other, found[0])
    quiet = replace(SMALL, noise=0.0).episodes(plan)[1]["tactile"]
    residual = found - quiet  # noise is drawn behind everything else
    assert residual.std() == pytest.approx(0.08, rel=0.02)
    assert (quiet >= 0.0).all()


def test_a_bank_of_grasps_has_the_published_columns_and_says_that_it_is_a_stand_in(tmp_path):
    bank = build_generated(SMALL, tmp_path / "bank")
    assert bank.origin["kind"] == "stand-in"
    assert bank.splits == ("train", "validation", "confirmation")
    assert [len(bank.split(split)) for split in bank.splits] == [18, 12, 6]
    by_grasp = {}
    for grasp, split in zip(bank.table["grasp"].tolist(), bank.table["split"].tolist(), strict=True):
        assert by_grasp.setdefault(grasp, split) == split
    read = bank.windows("tactile", bank.table["episode"][:1], [0], SAMPLES)
    np.testing.assert_array_equal(read, SMALL.episodes(SMALL.plan()[:1])[1]["tactile"])
    whole = TactileProtocol()
    assert len(whole.plan()) == 6 * 170


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": (3, 2)}, r"TactileProtocol.counts is \(3, 2\); legal: grasps of train, validation, confirmation"),
        ({"counts": (3, 2, 0)}, "counts"),
        ({"speed": 0.01}, "TactileProtocol.speed is 0.01"),
        ({"noise": -1.0}, r"TactileProtocol.noise is -1.0"),
        ({"hold": (9, 3)}, r"TactileProtocol.hold is \(9, 3\); legal: the least and the most samples"),
        ({"taxel_spread": 2.0}, "TactileProtocol.taxel_spread is 2.0"),
    ],
)
def test_what_is_no_protocol_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TactileProtocol(**changes)


def test_input_tells_hardness_and_shape_and_a_single_sample_does_not():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    protocol = TactileProtocol()
    plan = protocol.plan()
    samples = protocol.episodes(plan)[1]["tactile"]
    split = np.array([row["split"] for row in plan])
    fitted, read = split == "train", split != "train"

    def accuracy(features, labels):
        probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        features = features.reshape(len(features), -1)
        return probe.fit(features[fitted], labels[fitted]).score(features[read], labels[read])

    level, shape = (np.array([row[name] for row in plan]) for name in ("level", "shape"))
    history = samples[:, :40]
    assert accuracy(history, level) > 0.95
    assert accuracy(history, shape) > 0.97
    for at in (0, 8, 20, 39):
        assert accuracy(samples[:, at], level) < 0.75
        assert accuracy(samples[:, at], shape) < 0.9
