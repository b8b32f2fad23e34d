"""Swimmer against MuJoCo itself, run by hand from the model file: masses, damping, steps, threads; its waveforms."""

import collections
import copy
import dataclasses
import hashlib
import importlib.util
import itertools
import os
import pickle
import sys
from dataclasses import fields
from importlib import resources
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest

from sprii_envs.banks import SWIMMER, build
from sprii_envs.banks.behaviours.swimmer_waves import SwimmerWaves
from sprii_envs.mujoco import swimmer, without_effect
from sprii_envs.mujoco import world as mujoco_world
from sprii_envs.mujoco.swimmer import FLUIDS, Swimmer, centre
from sprii_envs.snapshots import get_state, set_state
from sprii_envs.world import rollout

mujoco = pytest.importorskip("mujoco")

ID = "sprii/Swimmer-v0"
XML = resources.files("sprii_envs").joinpath("assets", "swimmer.xml").read_text(encoding="utf-8")
NOMINAL = np.ones(5)
BANK = Swimmer(fluid="bank")
FIRST_RELEASE = 11.9148498  # rad that joints turned in the bank of two systems
BOTH = pytest.mark.parametrize("fluid", FLUIDS)
HEADERS = {
    "bank": '<option timestep="0.01" integrator="RK4" gravity="0 0 0" density="0.35" viscosity="0.08">',
    "water": '<option timestep="0.01" integrator="implicitfast" gravity="0 0 0" density="1000" viscosity="0.001">',
}
DAMPING, TORQUE = {"bank": 0.18, "water": 8.0}, {"bank": 0.8, "water": 80.0}


def text_of(fluid):
    """The model file rewritten by hand for a fluid."""
    text = XML.replace(HEADERS["bank"], HEADERS[fluid])
    text = text.replace('damping="0.18"', f'damping="{DAMPING[fluid]}"')
    assert text.count(HEADERS[fluid]) == text.count(f'damping="{DAMPING[fluid]}"') == 1
    return text.replace('ctrlrange="-0.8 0.8"', f'ctrlrange="-{TORQUE[fluid]} {TORQUE[fluid]}"')


def plain(values=NOMINAL, fluid="bank"):
    """The file compiled anew, with masses (inertia follows from the shape) and dampings written into it."""
    text = text_of(fluid)
    for i, length in enumerate((0.8, 0.7, 0.6)):
        mass = 900.0 * (np.pi * 0.08**2 * length + 4 / 3 * np.pi * 0.08**3) * values[i]
        text = text.replace(f'<geom name="link_{i}"', f'<geom name="link_{i}" mass="{mass:.17g}"')
    for i in (1, 2):
        text = text.replace(
            f'<joint name="joint_{i}"', f'<joint name="joint_{i}" damping="{DAMPING[fluid] * values[2 + i]:.17g}"'
        )
    return mujoco.MjModel.from_xml_string(text)


def step_by_hand(model, state, torque):
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = state[:5], state[5:], torque
    for _ in range(4):
        mujoco.mj_step(model, data)
    return np.concatenate([data.qpos, data.qvel])


def mass_matrix(model, state):
    """M(q) column by column: the force that inverse dynamics asks for a unit acceleration from rest."""
    data = mujoco.MjData(model)
    data.qpos[:] = state[:5]
    columns = []
    for i in range(5):
        data.qacc[:] = np.eye(5)[i]
        mujoco.mj_inverse(model, data)
        columns.append(data.qfrc_inverse.copy())
    return np.array(columns).T


def systems(n, seed=0):
    p = Swimmer.properties
    return p.low + (p.high - p.low) * np.random.default_rng(seed).random((n, 5))


def starts(n, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).uniform(-1, 1, (n, 10))


def actions(n, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1.3, 1.3, (n, steps, 2)).astype(np.float32)


# --- the model ---


def test_the_file_and_the_arguments_say_the_same():
    model, world = mujoco.MjModel.from_xml_string(XML), BANK
    assert world.compiled.model.opt.timestep == model.opt.timestep == 0.01
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert (model.opt.density, model.opt.viscosity) == (world.fluid_density, world.fluid_viscosity)
    assert not model.opt.gravity.any()
    assert model.jnt_range[3:].tolist() == [[-world.joint_limit, world.joint_limit]] * 2
    assert model.dof_damping.tolist() == [0.0, 0.0, 0.0, world.joint_damping, world.joint_damping]
    assert model.actuator_ctrlrange.tolist() == [[-world.torque_limit, world.torque_limit]] * 2
    assert np.allclose(2 * model.geom_size[:, 1], swimmer.LENGTHS, rtol=1e-15)
    assert (model.geom_size[:, 0] == swimmer.RADIUS).all()
    assert not (model.geom_contype | model.geom_conaffinity).any()
    assert (model.vis.quality.shadowsize, model.vis.quality.offsamples) == (0, 0)
    nominal = world.prepare(NOMINAL[None]).models[0]
    for name in ("body_mass", "body_inertia", "dof_damping", "jnt_range", "body_subtreemass", "dof_invweight0"):
        assert np.array_equal(getattr(nominal, name), getattr(model, name)), name


def test_a_fluid_is_a_name_for_numbers_and_numbers_win():
    assert Swimmer() == Swimmer(fluid="water")
    numbers = {"fluid_density": 0.35, "fluid_viscosity": 0.08, "torque_limit": 0.8, "joint_damping": 0.18}
    assert Swimmer(**numbers) == BANK
    assert Swimmer(**SWIMMER.constants) == BANK
    assert (BANK.fluid, BANK.integrator) == ("bank", "RK4")
    thick = Swimmer(fluid="bank", fluid_viscosity=0.16)
    assert (thick.fluid, thick.fluid_viscosity, thick.fluid_density, thick.integrator) == ("own", 0.16, 0.35, "RK4")
    strong = Swimmer(torque_limit=100.0)
    assert (strong.fluid, strong.fluid_density, strong.integrator) == ("own", 1000.0, "implicitfast")
    assert dataclasses.replace(strong, dt=0.02).torque_limit == 100.0
    assert dataclasses.replace(strong, torque_limit=80.0).fluid == "water"
    assert {
        "RK4": int(mujoco.mjtIntegrator.mjINT_RK4),
        "implicitfast": int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST),
    } == swimmer.INTEGRATORS
    with pytest.raises(ValueError, match=r"Swimmer\.fluid is 'own', which has no fluid_density: give it"):
        Swimmer(fluid="own")
    for make in (gym.make, gym.make_vec):
        assert make(ID, fluid="bank").unwrapped.world == BANK
        with pytest.raises(ValueError, match=r"Swimmer\.fluid is 'oil'; legal: water, bank, own"):
            make(ID, fluid="oil")
        with pytest.raises(ValueError, match=r"Swimmer\.integrator is 'Euler'; legal: RK4, implicitfast"):
            make(ID, integrator="Euler")


def test_the_bank_keeps_its_fluid_and_protocols_can_name_one(tmp_path):
    small = SWIMMER.replace(systems={"train": 2})
    bank = build(small, tmp_path / "bank")
    assert bank.world == BANK
    assert bank.info()["packages"]["model"] == hashlib.sha256(XML.encode()).hexdigest()
    named = build(small.replace(constants={"fluid": "bank", "control_cost": 1e-4}), tmp_path / "named")
    assert named.protocol.constants["fluid"] == "bank"
    for column in ("states", "actions", "rewards"):
        assert np.array_equal(named[column], bank[column])
    # What the bank of the first release held, on whatever machine: to a part in a million.
    moved = np.abs(np.diff(bank["states"][:, :, 3:5].astype(np.float64), axis=1)).sum()
    assert moved == pytest.approx(FIRST_RELEASE, rel=1e-6)


def test_a_saved_episode_goes_on_in_its_fluid_only():
    water, thin = gym.make(ID), gym.make(ID, fluid="bank")
    water.reset(seed=0)
    thin.reset(seed=0)
    saved = get_state(thin)
    with pytest.raises(ValueError, match="fluid is 'bank' there, 'water' here"):
        set_state(water, saved)
    again = gym.make(ID, fluid_density=0.35, fluid_viscosity=0.08, torque_limit=0.8, joint_damping=0.18)
    set_state(again, saved)
    assert np.array_equal(again.step(np.ones(2, np.float32))[0], thin.step(np.ones(2, np.float32))[0])


def test_mass_matrices_are_those_of_links_built_with_these_masses():
    values = np.concatenate([systems(4), [[4.0, 0.25, 2.0, 0.0, 10.0]]])
    models = BANK.prepare(values).models
    found = []
    for model, row in zip(models, values, strict=True):
        for state in starts(3, scale=1.5):
            found.append(mass_matrix(model, state))
            assert np.allclose(found[-1], mass_matrix(plain(row), state), rtol=1e-9, atol=1e-9)
        weights = np.array([16.40665347, 14.59709611, 12.78753874])  # 900·(π·r²·L + 4/3·π·r³)
        assert mujoco.mj_getTotalmass(model) == pytest.approx(weights @ row[:3], rel=1e-9)
        assert found[-1][0, 0] == pytest.approx(weights @ row[:3], rel=1e-9)
        reference = plain(row)
        for name in ("body_mass", "body_inertia", "body_subtreemass", "dof_damping", "dof_invweight0"):
            assert np.allclose(getattr(model, name), getattr(reference, name), rtol=1e-9, atol=1e-14), name
    assert np.abs(found[0] - found[3]).max() > 0.1


def test_the_fluid_drags_and_the_joints_damp():
    start = np.zeros(10)
    start[5] = 1.0
    rest = np.zeros((250, 2), np.float32)
    coasting = rollout(BANK, NOMINAL[None], start, rest).states[0, -1, 5]
    thick = rollout(Swimmer(fluid="bank", fluid_viscosity=0.16), NOMINAL[None], start, rest).states[0, -1, 5]
    free = rollout(Swimmer(fluid="bank", fluid_density=0.0, fluid_viscosity=0.0), NOMINAL[None], start, rest).states[
        0, -1, 5
    ]
    assert 0.80 < coasting < 0.85
    assert thick == pytest.approx(coasting**2, rel=0.01)
    assert free == pytest.approx(1.0, rel=1e-12)
    # Without fluid, momentum stays 0 under internal torques, and energy changes by the work and the damping alone.
    world = Swimmer(fluid="bank", fluid_density=0.0, fluid_viscosity=0.0, joint_damping=0.0, joint_limit=3.0)
    states = rollout(world, NOMINAL[None], np.zeros(10), np.full((25, 2), 0.3, np.float32)).states[0]
    model = plain()
    energies, momenta = [], []
    for state in (states[0], states[-1]):
        m = mass_matrix(model, state)
        energies.append(0.5 * state[5:] @ m @ state[5:])
        momenta.append((m @ state[5:])[:3])
    work = 0.24 * (states[-1, 3:5] - states[0, 3:5]).sum()
    assert energies[1] - energies[0] == pytest.approx(work, rel=1e-7)
    assert np.abs(momenta[1][:2]).max() < 1e-9


@BOTH
def test_the_centre_of_mass_is_mujocos(fluid):
    values, state = systems(4, seed=5), starts(4, seed=6, scale=2.0)
    for row, s in zip(values, state, strict=True):
        data = mujoco.MjData(plain(row, fluid))
        data.qpos[:] = s[:5]
        mujoco.mj_forward(plain(row, fluid), data)
        assert np.allclose(centre(s[None], row), data.subtree_com[0, :2], rtol=0, atol=1e-12)
    assert np.array_equal(centre(state, values)[2], centre(state[2:3], values[2:3])[0])


def test_a_gait_swims_in_water_under_every_system_and_in_the_banks_fluid_under_none():
    example = load_example("swimmer_gait")
    p = Swimmer.properties
    corners = np.array(list(itertools.product(*zip(p.low, p.high, strict=True))))
    moved, root = example.metres("water", corners)
    assert (moved > 3.0).all()
    assert np.abs(moved - root).max() < 1.5  # the two differ by less than the body is long, however far it gets
    assert moved.max() > 2.0 * moved.min()  # and which system it is decides how far
    thin, root = example.metres("bank", corners)
    assert np.abs(thin).max() < 0.05
    assert np.abs(root).max() > 0.1  # a root moves to and fro there, which is not progress


def test_the_progress_in_water_is_that_of_a_time_step_ten_times_shorter():
    example = load_example("swimmer_gait")
    fine = mujoco.MjModel.from_xml_string(text_of("water").replace('timestep="0.01"', 'timestep="0.001"'))
    fine.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    data, state = mujoco.MjData(fine), np.zeros(10)
    for t in range(500):
        data.ctrl[:] = 80.0 * np.clip(example.gait(t, state[None])[0], -1, 1)
        mujoco.mj_step(fine, data, nstep=40)
        state = np.concatenate([data.qpos, data.qvel])
    want = (centre(state[None], NOMINAL) - centre(np.zeros((1, 10)), NOMINAL))[0, 0]
    assert example.metres("water", NOMINAL[None], steps=500)[0][0] == pytest.approx(want, rel=0.15)


def test_no_property_is_without_effect_in_any_fluid():
    for fluid in FLUIDS:
        assert without_effect(Swimmer(fluid=fluid)) == ()


@pytest.mark.parametrize("name", Swimmer.properties.names)
def test_sensitivity_in_water_is_a_slope_of_plain_mujoco(name):
    env = gym.make(ID).unwrapped
    env.reset(seed=0, options={"system": NOMINAL, "state": np.zeros(10)})
    wave = np.stack([np.sin(0.2 * np.arange(25)), np.cos(0.2 * np.arange(25))], axis=1).astype(np.float32)
    slope = env.sensitivity(name, wave)
    ends = []
    for factor in (1.01, 0.99):
        values, state = NOMINAL.copy(), np.zeros(10)
        values[Swimmer.properties.index(name)] = factor
        model = plain(values, "water")
        for a in wave:
            state = step_by_hand(model, state, 80.0 * a.astype(np.float64))
        ends.append(state)
    assert np.allclose(slope[-1], (ends[0] - ends[1]) / 0.02, rtol=1e-4, atol=1e-6)
    assert np.abs(slope[-1, 3:5]).max() > 0.02  # rad per e-fold, after one second


# --- steps ---


@BOTH
def test_a_step_is_plain_mujoco_bit_for_bit_alone_and_together(fluid):
    n = 17
    world, values, state, action = Swimmer(fluid=fluid), systems(n), starts(n), actions(n, 3)
    prepared = world.prepare(values)
    by_hand = [mujoco.MjModel.from_xml_string(text_of(fluid)) for _ in range(n)]
    for model, row in zip(by_hand, values, strict=True):
        model.body_mass[1:] *= row[:3]
        model.body_inertia[1:] *= row[:3, None]
        model.dof_damping[3:] *= row[3:]
        mujoco.mj_setConst(model, mujoco.MjData(model))
    for t in range(3):
        torque = TORQUE[fluid] * np.clip(action[:, t].astype(np.float64), -1, 1)
        assert np.array_equal(world.force(action[:, t]), torque)
        after, extras = world.step(np.asfortranarray(state), world.force(action[:, t]), prepared)
        assert extras == {}
        assert after.flags.f_contiguous
        want = [step_by_hand(model, s, f) for model, s, f in zip(by_hand, state, torque, strict=True)]
        assert np.array_equal(after, want)
        for i in (0, n - 1):
            alone = world.step(state[i : i + 1], torque[i : i + 1], world.prepare(values[i : i + 1]))[0]
            assert np.array_equal(alone[0], want[i])
        state = after


@BOTH
def test_masses_compiled_into_the_file_move_the_same_way(fluid):
    values, state, action = systems(1, seed=3), starts(1), actions(1, 25)
    states = rollout(Swimmer(fluid=fluid), values, state, action).states[0]
    want = state[0]
    model = plain(values[0], fluid)
    for a in action[0]:
        want = step_by_hand(model, want, TORQUE[fluid] * np.clip(a.astype(np.float64), -1, 1))
    assert np.allclose(states[-1], want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("count", [1, 3])
def test_rollouts_are_the_steps_of_an_environment_whatever_the_threads(count, monkeypatch):
    n, steps = 9, 40
    world, state, action = Swimmer(), starts(n), actions(n, steps)
    values = np.repeat(systems(3), 3, axis=0)
    values[4] = 1.1
    want = rollout(world, values, state, action)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(count), raising=False)
    torque = np.stack([world.force(action[:, t]) for t in range(steps)], axis=1)
    again = world.prepare(values).trajectory(state, torque, world.substeps)
    assert np.array_equal(want.states, again)
    env = gym.make_vec(ID, num_envs=n)
    env.reset(options={"system": values, "state": state})
    for t in range(steps):
        _, reward, *_ = env.step(action[:, t])
        assert np.array_equal(env.unwrapped.state, want.states[:, t + 1])
        assert np.array_equal(reward, want.rewards[:, t])
    policy = rollout(world, values, state, lambda t, _: action[:, t], steps=steps)
    assert np.array_equal(policy.states, want.states)
    assert rollout(world, values, state, action[:, :0]).states.shape == (n, 1, 10)


@pytest.mark.parametrize("vector", [False, True])
def test_a_saved_state_is_complete_also_at_a_joint_limit(vector):
    n = 2 if vector else 1
    env = gym.make_vec(ID, num_envs=n) if vector else gym.make(ID)
    u = env.unwrapped
    env.reset(seed=0, options={"state": np.concatenate([np.zeros(3), [1.74, -1.7], np.zeros(3), [1.0, -2.0]])})
    push = np.array([[1.0, -1.0]] * n, np.float32) if vector else np.array([1.0, -1.0], np.float32)
    touched = 0
    for _ in range(60):
        env.step(push)
        saved = u.get_state()
        touched += np.abs(np.atleast_2d(u.state)[0, 3:5]).max() > 1.75
        for _ in range(2):
            env.step(push)
        want = u.state
        other = gym.make_vec(ID, num_envs=n) if vector else gym.make(ID)
        other.reset(seed=5)
        other.step(push)
        other.unwrapped.set_state(saved)
        for _ in range(2):
            other.step(push)
        assert np.array_equal(other.unwrapped.state, want)
    assert touched > 20


def test_resets_and_edits_do_not_compound_and_copy_no_model():
    env = gym.make(ID)
    u = env.unwrapped
    env.reset(seed=0)
    models = u._slots.prepared.models
    for _ in range(20):
        env.reset()
    assert u._slots.prepared.models[0] is models[0]
    env.reset(options={"system": NOMINAL})
    reference = mujoco.MjModel.from_xml_string(text_of("water"))
    for name in ("body_mass", "body_inertia", "dof_damping", "body_subtreemass", "dof_invweight0"):
        assert np.array_equal(getattr(models[0], name), getattr(reference, name)), name
    vector = gym.make_vec(ID, num_envs=4, max_episode_steps=2)
    vector.reset(seed=0, options={"system": NOMINAL})
    prepared = vector.unwrapped._slots.prepared
    vector.reset(options={"system": {name: np.array([1.0, 1.2, 1.0, 0.9]) for name in Swimmer.properties.names}})
    masses = [mujoco.mj_getTotalmass(model) for model in prepared.models]
    assert np.allclose(np.array(masses) / masses[0], [1.0, 1.2, 1.0, 0.9])
    assert vector.unwrapped._slots.prepared is prepared
    vector.reset(options={"reset_mask": np.array([False, True, False, False]), "system": NOMINAL})
    assert np.array_equal(prepared.models[1].body_inertia, reference.body_inertia)
    assert mujoco.mj_getTotalmass(prepared.models[3]) == masses[3]


@BOTH
def test_every_property_acts_alone_on_every_link_it_should(fluid):
    world = Swimmer(fluid=fluid)
    base = rollout(world, NOMINAL[None], np.zeros(10), actions(1, 30)[0]).states
    effects = []
    for i in range(5):
        values = NOMINAL[None].copy()
        values[0, i] = 1.2
        effects.append(rollout(world, values, np.zeros(10), actions(1, 30)[0]).states - base)
    effects = np.array(effects).reshape(5, -1)
    assert (np.abs(effects).max(axis=1) > 1e-3).all()
    assert np.linalg.matrix_rank(effects / np.linalg.norm(effects, axis=1, keepdims=True), tol=1e-2) == 5


# --- Gymnasium's definitions ---


def test_observations_and_rewards_are_gymnasiums(monkeypatch):
    if importlib.util.find_spec("imageio") is None:  # Gymnasium's viewer imports it to save pictures
        monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))
    env = gym.make(ID)
    theirs = gym.make("Swimmer-v5").unwrapped
    obs, _ = env.reset(seed=0)
    assert obs.dtype == np.float32
    assert obs.shape == (8,)
    for action in actions(1, 30)[0]:
        before = env.unwrapped.state
        obs, reward, terminated, *_ = env.step(action)
        state = env.unwrapped.state
        assert not terminated
        theirs.data.qpos[:], theirs.data.qvel[:] = state[:5], state[5:]
        assert np.array_equal(obs, theirs._get_obs().astype(np.float32))
        clipped = np.clip(action.astype(np.float64), -1, 1)
        want, _ = theirs._get_rew((state[0] - before[0]) / 0.04, clipped)
        assert reward == pytest.approx(want, rel=1e-12)
    assert theirs.dt == pytest.approx(env.unwrapped.world.dt)


def test_starts_are_small_and_uniform_with_the_root_at_the_origin():
    state = Swimmer().initial(np.random.default_rng(0).random((4000, 8)), np.ones((4000, 5)), None)
    assert not state[:, :2].any()
    assert 0.099 < np.abs(state[:, 2:]).max() <= 0.1
    assert np.abs(state[:, 2:].mean(axis=0)).max() < 0.005
    assert np.allclose(state[:, 2:].std(axis=0), 0.1 / 3**0.5, rtol=0.05)


def test_what_time_steps_cannot_follow_is_refused():
    env = gym.make(ID)
    env.reset(seed=0)
    state = np.zeros(10)
    for index, value, match in (
        (3, 3.2, r"'joint_1' = 3\.2: it must be in \[-3\.14159, 3\.14159\]"),
        (9, -31.0, r"'joint_2_velocity' = -31\.0: it must be in \[-30, 30\]"),
    ):
        bad = state.copy()
        bad[index] = value
        with pytest.raises(ValueError, match=match):
            env.reset(options={"state": bad})
    for system, match in (({"mass_1": 0.2}, "≥ 0.25 and ≤ 4"), ({"damping_2": -0.1}, "'damping_2' = -0.1")):
        with pytest.raises(ValueError, match=match):
            env.reset(options={"system": dict.fromkeys(Swimmer.properties.names, 1.0) | system})
    for kwargs, match in (({"dt": 0.035}, "dt = 0.035: .* multiple of 0.01"), ({"joint_limit": 4.0}, "joint_limit")):
        with pytest.raises(ValueError, match=match):
            gym.make(ID, **kwargs)
    assert gym.make(ID, dt=0.05).unwrapped.world.substeps == 5


@BOTH
def test_legal_systems_are_followed_from_any_legal_state(fluid):
    rng = np.random.default_rng(0)
    n = 300
    values = np.concatenate([rng.choice([0.25, 1.0, 4.0], (n, 3)), rng.choice([0.0, 1.0, 10.0], (n, 2))], axis=1)
    state = swimmer.SPEED_LIMIT * rng.choice([-1.0, 1.0], (n, 10))
    state[:, 3:5] = rng.uniform(-np.pi, np.pi, (n, 2))
    states = rollout(
        Swimmer(fluid=fluid), values, state, rng.choice([-1.0, 1.0], (n, 100, 2)).astype(np.float32)
    ).states
    assert np.abs(states[:, -1, 5:]).max() < 200
    # Nor do motors that push as hard as they can drive one at rest beyond what is legal, so that it can be saved.
    state = np.zeros((n, 10))
    for held in (1, 5, 20):
        push = np.repeat(rng.choice([-1.0, 1.0], (n, 200 // held, 2)), held, axis=1).astype(np.float32)
        states = rollout(Swimmer(fluid=fluid), values, state, push).states
        assert np.abs(states[:, :, 5:]).max() < swimmer.SPEED_LIMIT


@pytest.mark.parametrize("n", [1, 2])
def test_a_simulation_that_blows_up_is_an_error_and_not_a_number(n, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log of it
    env = gym.make_vec(ID, num_envs=n, torque_limit=1e7)
    env.reset(seed=0)
    with pytest.raises(FloatingPointError, match=r"the Swimmer of slot [01] moves too fast"):
        collections.deque((env.step(np.ones((n, 2), np.float32)) for _ in range(20)), maxlen=0)


# --- pictures ---


def test_frames_show_the_pose_and_neither_place_nor_speed_nor_system():
    world = Swimmer()
    state = np.zeros((4, 10))
    state[:, 2:5] = [0.3, 0.8, -1.0]
    state[1, :2] = 3.7, -40.0
    state[2, 5:] = 2.0
    state[3, 4] = 1.0
    frames = world.draw(state, 64)
    assert np.array_equal(frames[0], frames[1])
    assert np.array_equal(frames[0], frames[2])
    assert not np.array_equal(frames[0], frames[3])
    looks = [
        gym.make(ID, obs_type="pixels").reset(seed=0, options={"system": np.full(5, scale)})[0] for scale in (0.8, 1.2)
    ]
    assert np.array_equal(*looks)


def test_drawn_links_are_where_mujoco_has_them():
    world, state = Swimmer(), starts(6, scale=1.5)
    model = mujoco.MjModel.from_xml_string(XML)
    data = mujoco.MjData(model)
    rows, columns = np.mgrid[:128, :128] + 0.5
    for s, frame in zip(state, world.draw(state, 128), strict=True):
        data.qpos[:] = s[:5]
        mujoco.mj_forward(model, data)
        near = np.full((128, 128), np.inf)
        for i, length in enumerate((0.8, 0.7, 0.6)):
            centre = data.geom(f"link_{i}").xpos[:2] - s[:2]
            axis = data.geom(f"link_{i}").xmat.reshape(3, 3)[:2, 2]
            offset = np.stack([(columns - 64) / 32 - centre[0], (64 - rows) / 32 - centre[1]], axis=-1)
            along = np.clip(offset @ axis, -length / 2, length / 2)
            near = np.minimum(near, np.linalg.norm(offset - along[..., None] * axis, axis=-1))
        want = np.clip(32 * (0.08 - near) + 0.5, 0, 1)
        assert np.abs(np.minimum(frame, world.link_grey) / world.link_grey - want).max() < 0.02
        assert np.abs(swimmer.points(s[None])[2][0] + s[:2] - data.body("link_2").xpos[:2]).max() < 1e-12


@pytest.mark.parametrize("size", [64, (48, 96)])
def test_the_whole_swimmer_is_always_in_view(size):
    turned = np.zeros((64, 10))
    turned[:, 2] = np.linspace(0, 2 * np.pi, 64)
    inside = Swimmer().draw(turned, 64)[:, 1:-1, 1:-1]
    assert (inside.any(axis=(1, 2))).all()
    edge = Swimmer().draw(turned, 64)
    assert not np.concatenate([edge[:, [0, -1]].reshape(-1), edge[:, :, [0, -1]].reshape(-1)]).any()
    env = gym.make(ID, render_mode="rgb_array", image_size=size)
    env.reset(seed=0)
    here = env.render()
    assert here.shape == ((256, 256, 3) if size == 64 else (144, 288, 3))
    moved = env.unwrapped.state
    moved[0] += 0.2
    env.reset(options={"state": moved})
    assert not np.array_equal(env.render(), here)  # the grid passes


# --- copies ---


def test_copies_and_pickles_continue_exactly():
    for env, action in (
        (gym.make(ID), np.array([0.7, -0.4], np.float32)),
        (gym.make_vec(ID, num_envs=3), np.full((3, 2), 0.6, np.float32)),
    ):
        env.reset(seed=2)
        env.step(action)
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        for _ in range(5):
            env.step(action)
        for twin in twins:
            for _ in range(5):
                twin.step(action)
            assert np.array_equal(twin.unwrapped.state, env.unwrapped.state)
        masses = twins[0].unwrapped._slots.prepared.models[0].body_mass.copy()
        env.reset()
        assert np.array_equal(twins[0].unwrapped._slots.prepared.models[0].body_mass, masses)


def test_forks_and_fresh_processes_step_alike_while_threads_run_here():
    action = np.full((2, 2), 0.5, np.float32)
    native = gym.make_vec(ID, num_envs=2)
    native.reset(seed=3)
    want = native.step(action)[0]
    for context in ("fork", "spawn"):
        workers = gym.vector.AsyncVectorEnv([make_one] * 2, context=context)
        try:
            workers.reset(seed=3)
            assert np.array_equal(workers.step(action)[0], want)
        finally:
            workers.close()


def load_example(name):
    path = Path(__file__).parents[3] / "examples" / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_prints_metres_in_both_fluids(capsys):
    load_example("swimmer_gait").main(steps=250, drawn=8)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["m", "along", "+x", "water:", "centre", "root", "bank:", "centre", "root"]
    assert [row.split()[0] for row in rows[:2]] == ["nominal", "mass_0"]
    assert len(rows) == 1 + 10 + 3
    assert all(float(row.split()[-4]) > 0.5 and abs(float(row.split()[-2])) < 0.05 for row in rows)


def make_one():
    return gym.make(ID)


def test_without_mujoco_one_line_says_what_to_install(monkeypatch):
    mujoco_world.compiled.cache_clear()
    mujoco_world._adjusted.cache_clear()
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for make in (gym.make, gym.make_vec):
        with pytest.raises(gym.error.DependencyNotInstalled, match="pip install mujoco"):
            make(ID)


# --- the waveforms of its bank ---


@pytest.mark.parametrize("steps", [1, 2, 7, 16, 63, 95])
@pytest.mark.parametrize("kind", SwimmerWaves.episode_kinds)
def test_waveforms_have_equal_energy_within_bounds(kind, steps):
    n = 400
    waves = SwimmerWaves().policy(np.random.default_rng(0), BANK, np.ones((n, 5)), np.zeros((n, 10)), steps, kind)
    assert waves.shape == (n, steps, 2)
    assert waves.dtype == np.float32
    assert np.abs(waves).max() <= 1.0
    energy = (waves.astype(np.float64) ** 2).sum(axis=2).mean(axis=1)
    assert np.allclose(energy, 0.25, rtol=1e-6)


def test_waveforms_are_what_they_are_called():
    n, steps = 300, 63
    time = 0.04 * np.arange(steps)
    waves = {
        kind: SwimmerWaves()
        .policy(np.random.default_rng(1), BANK, np.ones((n, 5)), np.zeros((n, 10)), steps, kind)
        .astype(np.float64)
        for kind in SwimmerWaves.episode_kinds
    }
    for kind in ("single_slow", "single_chirp"):
        used = (waves[kind] != 0).any(axis=1)
        assert (used.sum(axis=1) == 1).all()
        assert 0.4 < used[:, 0].mean() < 0.6
    assert np.allclose(waves["in_phase"][..., 0], waves["in_phase"][..., 1], atol=1e-7)
    assert np.allclose(waves["anti_phase"][..., 0], -waves["anti_phase"][..., 1], atol=1e-6)
    squares = (waves["quadrature"] ** 2).sum(axis=2)
    assert np.allclose(squares, 0.25, atol=1e-6)
    slope = np.abs(np.diff(waves["triangle"], axis=1))
    assert np.median(slope / slope.max(axis=1, keepdims=True)) > 0.999
    turns = lambda x: (np.diff(np.sign(x), axis=1) != 0).sum(axis=1)  # noqa: E731
    slow, chirp = waves["single_slow"].sum(axis=2), waves["single_chirp"].sum(axis=2)
    assert turns(chirp[:, 32:]).mean() > 1.5 * turns(chirp[:, :32]).mean()
    assert abs(turns(slow).mean() / (2 * 0.3 * time[-1]) - 1) < 0.1
    assert abs(turns(waves["in_phase"][..., 0]).mean() / (2 * 0.6 * time[-1]) - 1) < 0.1
    assert abs(np.mean([w.mean() for w in waves.values()])) < 0.02


def test_waveforms_are_reproducible_and_wrong_ones_are_refused():
    def waves(seed, kind="triangle", **kwargs):
        values, start = np.ones((3, 5)), np.zeros((3, 10))
        return SwimmerWaves(**kwargs).policy(np.random.default_rng(seed), BANK, values, start, 20, kind)

    assert np.array_equal(waves(0), waves(0))
    assert not np.array_equal(waves(0), waves(1))
    with pytest.raises(ValueError, match="unknown waveform 'sawtooth'; known: single_slow"):
        waves(0, "sawtooth")
    with pytest.raises(ValueError, match=r"energy = 0\.5 takes a single_chirp episode of 20 steps to 1\.\d+"):
        waves(0, "single_chirp", energy=0.5)
    for kwargs, match in (({"slow": 2.0}, "slow"), ({"spread": 1.0}, "spread"), ({"energy": 0.0}, "energy")):
        with pytest.raises(ValueError, match=match):
            SwimmerWaves(**kwargs)


def test_the_manual_page_states_the_real_defaults():
    page = (Path(__file__).parents[3] / "docs" / "envs" / "swimmer.md").read_text(encoding="utf-8")
    for field in fields(Swimmer):
        assert f"| `{field.name}` | `{field.default}` |" in page
    for p in Swimmer.properties:
        assert f"| `{p.name}` | {p.symbol} | {p.unit} | [{p.low:g}, {p.high:g}] |" in page


def test_states_beyond_the_limits_of_a_start_are_restored_and_rolled_on():
    """A legal start may lead to velocities that no episode may begin with."""
    env = gym.make("sprii/Swimmer-v0", fluid="bank")
    env.reset(seed=0)
    for signs in itertools.product((-30.0, 30.0), repeat=5):
        env.reset(options={"state": np.array([0.0] * 5 + list(signs))})
        env.step(np.zeros(2, np.float32))
        if (np.abs(env.unwrapped.state[5:]) > 30.0).any():
            break
    else:
        pytest.fail("no velocity went beyond 30")
    saved, reached = get_state(env), env.unwrapped.state.copy()
    with pytest.raises(ValueError, match="must be in"):
        env.reset(options={"state": reached})
    actions = np.zeros((3, 2), np.float32)
    found = env.unwrapped.counterfactual([env.unwrapped.system], actions)
    seen = [env.step(action)[0] for action in actions]
    set_state(env, saved)
    assert np.array_equal(env.unwrapped.state, reached)
    assert np.array_equal([env.step(action)[0] for action in actions], seen)
    assert np.array_equal(found.states[0, -1], env.unwrapped.state)
