"""Segments of Swimmer: waveforms by closed forms, systems by scipy's Sobol, simulation by the Gymnasium environment."""

import dataclasses
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import qmc

import sprii_envs  # noqa: F401  (registers)
from sprii_envs.banks import RecordedBank
from sprii_envs.mujoco.swimmer import Swimmer
from sprii_envs.swimmer import (
    ACTED,
    CLEAN,
    HISTORIES,
    OBSERVED,
    QUERIES,
    WORLD,
    SegmentProtocol,
    build_segments,
    scales,
    torques,
)

pytest.importorskip("mujoco")
SMALL = SegmentProtocol(train=4, selection=2, prospective=3, draws=2)
KINDS = (*HISTORIES, *HISTORIES, *QUERIES)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> RecordedBank:
    return build_segments(SMALL, tmp_path_factory.mktemp("segments") / "bank")


def column(bank: RecordedBank, name: str) -> np.ndarray:
    episodes = bank.table["episode"]
    return bank.windows(name, episodes, np.zeros(len(episodes), np.int64), SMALL.length)


# Waveforms


@pytest.mark.parametrize("kind", dict.fromkeys((*HISTORIES, *QUERIES)))
def test_waveforms_have_one_energy(kind: str):
    found = torques(kind).astype(np.float64)
    assert found.shape == (40, 2)
    assert np.sqrt((found**2).sum(1).mean()) == pytest.approx(0.42, rel=1e-6)
    rests = {"joint_1": 1, "joint_2": 0}.get(kind[:7])
    assert (found == 0.0).all(0).tolist() == [rests == 0, rests == 1]


def test_waveforms_are_their_closed_forms():
    phi = np.arange(40) / 40
    one = 0.42 * np.sqrt(2)  # amplitude of a lone sine of that energy over whole cycles
    np.testing.assert_allclose(torques("joint_1_slow")[:, 0], one * np.sin(2 * np.pi * phi), atol=1e-6)
    np.testing.assert_allclose(torques("in_phase")[:, 1], 0.42 * np.sin(2 * np.pi * phi), atol=1e-6)
    turned = torques("quadrature")
    np.testing.assert_allclose(np.hypot(*turned.T), 0.42, rtol=1e-6)
    np.testing.assert_allclose(turned[0], [0.0, 0.42], atol=1e-7)
    for together, sign in (("in_phase_chirp", 1.0), ("anti_phase_chirp", -1.0)):
        pair = torques(together)
        np.testing.assert_array_equal(pair[:, 1], sign * pair[:, 0])
    chirp, t = torques("joint_2_chirp")[:, 1], 0.01 * np.arange(40)
    form = np.sin(2 * np.pi * (0.75 * t + 1.75 * t * t / 0.4))
    assert np.corrcoef(chirp, form)[0, 1] == pytest.approx(1.0, abs=1e-9)
    triangle = torques("joint_1_triangle")[:, 0]
    steps = np.abs(np.diff(triangle))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-4)  # of constant slope, up and down


def test_what_no_waveform_has_is_refused():
    with pytest.raises(ValueError, match="waveform is 'square'; legal: joint_1_slow"):
        torques("square")
    with pytest.raises(ValueError, match=r"rms is 0\.8, which takes joint_1_triangle to 1\.3"):
        torques("joint_1_triangle", rms=0.8)


# Systems


def test_systems_are_scrambled_sobol_in_the_ranges_and_distinct():
    p = Swimmer.properties
    unit = (scales(512, 89101) - p.low) / (p.high - p.low)
    np.testing.assert_allclose(unit, qmc.Sobol(5, scramble=True, rng=89101).random(512), atol=1e-12)
    for k in range(5):  # each interval of 1/512 has one: a property of the sequence, not of any other sample
        assert len(np.unique(np.floor(unit[:, k] * 512))) == 512
    np.testing.assert_array_equal(scales(100, 7), scales(128, 7)[:100])
    every = np.concatenate([scales(2048, 88101), scales(256, 88201), scales(512, 89101)])
    assert len(np.unique(every, axis=0)) == len(every)


def test_splits_of_a_bank_are_those_systems(bank: RecordedBank):
    seeds = {"train": (4, 88101), "selection": (2, 88201), "prospective": (3, 89101)}
    for split, (count, seed) in seeds.items():
        table = bank.split(split)
        found = np.stack([table[name] for name in Swimmer.properties.names], axis=1)
        np.testing.assert_array_equal(found, np.repeat(scales(count, seed), 2, axis=0))
        assert table["rollout"].tolist() == [0, 1] * count
    assert len(np.unique(bank.table["system"])) == 9


# Simulation


def test_a_segment_is_the_environment_stepped(bank: RecordedBank):
    observed, clean, acted = (column(bank, name) for name in (OBSERVED, CLEAN, ACTED))
    env = gym.make("sprii/Swimmer-v0", **WORLD)
    for episode, entry in ((0, 0), (5, 9), (12, 13), (17, 17)):
        system = {name: float(bank.table[name][episode]) for name in Swimmer.properties.names}
        start = np.concatenate([[0.0, 0.0], clean[episode, entry, 0].astype(np.float64)])
        seen, _ = env.reset(options={"system": system, "state": start})
        np.testing.assert_array_equal(seen, clean[episode, entry, 0])
        actions = torques(KINDS[entry])
        for t, action in enumerate(actions, 1):
            seen = env.step(action)[0]
            if t % 10 == 0:
                np.testing.assert_array_equal(seen, clean[episode, entry, t // 10])
                np.testing.assert_array_equal(acted[episode, entry, t // 10 - 1], action)
    noise = observed.astype(np.float64) - clean
    assert noise.std() == pytest.approx(0.0125, rel=0.03)
    assert abs(noise.mean()) < 4 * 0.0125 / np.sqrt(noise.size)
    spans = np.array([0.25, 0.45, 0.45, 0.2, 0.2, 0.2, 0.2, 0.2])
    reached = np.abs(clean[:, :, 0]).max((0, 1)) / spans
    assert (reached <= 1.0 + 1e-6).all()
    assert (reached > 0.95).all()


def test_the_world_is_what_its_constants_say():
    world = Swimmer(**WORLD)
    model = world.prepare(np.ones((1, 5))).models[0]
    assert model.dof_damping.tolist() == [0.0, 0.0, 0.02, 0.18, 0.18]
    assert model.actuator_gear[:, 0].tolist() == [1.0, 1.0]
    assert (model.opt.density, model.opt.viscosity, model.opt.timestep) == (0.35, 0.08, 0.01)
    assert (world.substeps, world.integrator) == (1, "RK4")
    assert np.array_equal(world.force(np.float32([[0.5, -0.25]])), [[0.5, -0.25]])  # N·m
    bank = Swimmer(fluid="bank").prepare(np.ones((1, 5))).models[0]
    assert bank.dof_damping[2] == 0.0  # as before there was such an argument
    with pytest.raises(ValueError, match="root_damping"):
        Swimmer(root_damping=-1.0)


# Banks


def test_a_build_that_was_stopped_resumes_to_the_same_bytes(
    bank: RecordedBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SegmentProtocol, "together", 3)

    def stop(done: int, total: int) -> None:
        assert total == 18
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_segments(SMALL, tmp_path / "bank", progress=stop)
    again = build_segments(SMALL, tmp_path / "bank")
    assert again.fingerprint == bank.fingerprint
    again.verify(checksums=True)


def test_what_no_bank_has_is_refused():
    with pytest.raises(ValueError, match=r"SegmentProtocol\.steps is 42; legal: multiples of 4"):
        SegmentProtocol(steps=42)
    with pytest.raises(ValueError, match=r"seeds of splits are \[88101, 89101, 89101\]; legal: three that differ"):
        dataclasses.replace(SMALL, selection_seed=89101)
    with pytest.raises(ValueError, match=r"SegmentProtocol\.train is 1"):
        SegmentProtocol(train=1)
