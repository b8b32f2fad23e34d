"""The ready worlds beside Gymnasium's v5 environments, bit for bit at nominal properties; what each property does."""

import copy
import gc
import multiprocessing
import os
import weakref

import gymnasium as gym
import numpy as np
import pytest

import sprii_envs  # noqa: F401
from sprii_envs.mujoco import without_effect
from sprii_envs.world import rollout

pytest.importorskip("mujoco")
pytest.importorskip("imageio")  # which Gymnasium's MuJoCo environments import

NAMES = ["HalfCheetah", "Hopper", "Walker2d", "Ant"]
every_body = pytest.mark.parametrize("name", NAMES)


def pair(name, **constants):
    return gym.make(f"{name}-v5"), gym.make(f"sprii/{name}-v0", **constants)


def start_alike(theirs, ours, seed):
    """Both in the start that Gymnasium draws, ours with nominal properties; what both report of it."""
    observation, info = theirs.reset(seed=seed)
    data, nominal = theirs.unwrapped.data, ours.unwrapped.persistent_properties.nominal
    start = np.concatenate([data.qpos, data.qvel])
    return (observation, info), ours.reset(options={"system": nominal, "state": start})


def assert_equal_infos(theirs, ours):
    same = {name: value for name, value in theirs.items() if name != "distance_from_origin"}
    assert {name: ours[name] for name in same} == same
    if len(same) < len(theirs):  # theirs is a norm of the machine's BLAS, which may fuse its products
        assert ours["distance_from_origin"] == pytest.approx(theirs["distance_from_origin"], rel=1e-15)
    assert set(ours) - set(theirs) <= {"reason", "system_id", "persistent", "extrapolated"}


@every_body
def test_episodes_of_random_actions_are_gymnasiums_bit_for_bit(name):
    theirs, ours = pair(name)
    rng, ended, world = np.random.default_rng(0), 0, ours.unwrapped.world
    for seed in range(12):
        (expected, their_info), (observation, info) = start_alike(theirs, ours, seed)
        assert np.array_equal(observation, expected.astype(np.float32))
        assert_equal_infos(their_info, info)
        for _ in range(100):
            action = rng.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
            expected, their_reward, their_end, _, their_info = theirs.step(action)
            observation, reward, end, _, info = ours.step(action)
            data = theirs.unwrapped.data
            state = np.concatenate([data.qpos, data.qvel, data.qacc_warmstart])
            assert np.array_equal(ours.unwrapped.state[: world.compiled.memory], state)
            assert np.array_equal(observation, expected.astype(np.float32))
            assert reward == their_reward
            assert_equal_infos(their_info, info)
            assert end == their_end
            assert ("reason" in info) == end
            if end:
                ended += 1
                break
    assert (ended > 5) == bool(world.endings)


@every_body
def test_spaces_models_and_time_steps_are_gymnasiums(name):
    theirs, ours = pair(name)
    assert ours.observation_space.shape == theirs.observation_space.shape
    assert ours.action_space == theirs.action_space
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert ours.unwrapped.world.seconds == theirs.unwrapped.dt
    prepared = ours.unwrapped.world.prepare(ours.unwrapped.persistent_properties.nominal[None])
    for field in dir(theirs.unwrapped.model):
        number = getattr(theirs.unwrapped.model, field)
        if isinstance(number, np.ndarray) and number.dtype.kind in "fiu":
            assert np.array_equal(number, getattr(prepared.models[0], field)), field


@every_body
def test_starts_are_spread_as_gymnasiums(name):
    theirs = gym.make(f"{name}-v5")
    theirs.reset(seed=0)
    data = theirs.unwrapped.data
    physical = data.qpos.size + data.qvel.size
    given = []
    for _ in range(1000):
        theirs.reset()
        given.append(np.concatenate([data.qpos, data.qvel]))
    native = gym.make_vec(f"sprii/{name}-v0", num_envs=1000)
    native.reset(seed=0)
    ours = native.unwrapped.state[:, :physical]
    spread = np.std(given, axis=0)
    assert np.abs(ours.mean(axis=0) - np.mean(given, axis=0)).max() < 0.25 * spread.max()
    assert np.abs(ours.std(axis=0) / spread - 1).max() < 0.2
    assert (np.abs(ours[:, data.qpos.size :]).max() > 2 * native.unwrapped.world.start_noise) == (
        native.unwrapped.world.normal_velocities
    )


@every_body
def test_every_property_changes_positions_and_only_its_own_fields(name):
    env = gym.make(f"sprii/{name}-v0").unwrapped
    assert without_effect(env.world, change=1.01) == ()
    for column, p in enumerate(env.persistent_properties):
        values = env.persistent_properties.nominal[None].repeat(2, 0)
        values[1, column] = 1.5
        one, two = env.world.prepare(values).models
        wanted = {t.field for t in env.world.compiled.targets if t.property == column and "." not in t.field}
        changed = {field for field in env.world.compiled.base if "." not in field
                   and not np.array_equal(getattr(one, field), getattr(two, field))}  # fmt: skip
        assert changed == wanted, p.name


@every_body
def test_vectors_rollouts_and_policies_are_the_single_environments_whatever_the_threads(name, monkeypatch):
    n, steps = 5, 12
    single, vector = gym.make(f"sprii/{name}-v0").unwrapped, gym.make_vec(f"sprii/{name}-v0", num_envs=n).unwrapped
    vector.reset(seed=3)
    start, values = vector.state, vector.values
    actions = np.random.default_rng(1).uniform(-1, 1, (n, steps, *single.action_space.shape)).astype(np.float32)
    steps_of = [vector.step(actions[:, t]) for t in range(steps)]
    for slot in range(n):
        single.reset(seed=3 + slot)
        assert np.array_equal(single.state, start[slot])
        for t in range(steps):
            observation, reward, *_ = single.step(actions[slot, t])
            if not steps_of[t][2][slot]:
                assert np.array_equal(observation, steps_of[t][0][slot])
                assert reward == steps_of[t][1][slot]
            else:
                break
    whole = rollout(vector.world, values, start, actions)
    by_step = rollout(vector.world, values, start, lambda t, _: actions[:, t], steps=steps)
    for count, native in ((1, True), (3, True), (1, False), (3, False)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=count: range(count), raising=False)
        monkeypatch.setattr(vector.world.compiled, "native", native)
        again = rollout(vector.world, values, start, actions)
        assert np.array_equal(whole.states, again.states)
    assert np.array_equal(whole.states, by_step.states)
    assert np.array_equal(whole.rewards, by_step.rewards)


def test_models_go_with_their_environment_and_another_of_the_kind_steps_on():
    """MuJoCo's threads, which never end, keep no model of an environment that is gone: 0.5 MB a system."""
    kept, gone = (gym.make_vec("sprii/Walker2d-v0", num_envs=4) for _ in range(2))
    action = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(4, 6)
    first = [(env.reset(seed=0), env.step(action)[0])[1] for env in (kept, gone)]
    assert np.array_equal(*first)
    models = gone.unwrapped.world.prepare(gone.reset(seed=0)[1]["persistent"])
    models.step(gone.unwrapped.state, np.zeros((4, 6)), 1)
    refs = [weakref.ref(model) for model in models.models]
    gone.close()
    del gone, models
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4
    kept.reset(seed=0)
    assert np.array_equal(kept.step(action)[0], first[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.parametrize("name", ["HalfCheetah", "Ant"])
def test_a_fork_goes_on_while_threads_run_here_and_ends(name):
    native = gym.make_vec(f"sprii/{name}-v0", num_envs=3)
    native.reset(seed=3)
    action = np.full(native.action_space.shape, 0.5, np.float32)
    native.step(action)
    process = multiprocessing.get_context("fork").Process(target=go_on, args=(native, action, native.unwrapped.state))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def go_on(env, action, state):
    """In a child: the same steps as in a fresh environment."""
    expected = rollout(env.unwrapped.world, env.unwrapped.values, state, action[:, None])
    env.step(action)
    assert np.array_equal(env.unwrapped.state, expected.states[:, 1])


def test_systems_edited_between_steps_run_as_edited():
    env = gym.make_vec("sprii/HalfCheetah-v0", num_envs=4, max_episode_steps=3)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(10):
        u, action = env.unwrapped, env.action_space.sample()
        state, values, resetting = u.state, u.values, u._done.copy()
        env.step(action)
        fresh = rollout(u.world, values, state, action[:, None]).states[:, 1]
        assert np.array_equal(u.state[~resetting], fresh[~resetting])


@every_body
def test_rewards_observations_and_starts_do_not_depend_on_company(name):
    world, rng, n = gym.make(f"sprii/{name}-v0").unwrapped.world, np.random.default_rng(0), 100
    u = rng.random((n, world.start_draws))
    values = np.ones((n, len(world.properties)))
    start = world.initial(u, values, None)
    state, after = start + rng.normal(size=(2, *start.shape))
    force = rng.uniform(-1, 1, (n, world.action_size))
    together = world.reward(np.asfortranarray(state), force, after), world.observe(np.asfortranarray(after)), start
    for i in range(n):
        one = slice(i, i + 1)
        alone = world.reward(state[one], force[one], after[one]), world.observe(after[one])
        alone = (*alone, world.initial(u[one], values[one], None))
        assert all(np.array_equal(a[i], b[0]) for a, b in zip(together, alone, strict=True))


@every_body
def test_a_snapshot_carries_the_warm_start(name):
    env = gym.make(f"sprii/{name}-v0")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(15):
        env.step(env.action_space.sample())
    u, saved, other = env.unwrapped, env.unwrapped.get_state(), gym.make(f"sprii/{name}-v0").unwrapped
    warm = slice(u.world.compiled.physical, u.world.compiled.memory)
    assert np.abs(saved["state"][warm]).max() > 0
    other.set_state(saved)
    twin = copy.deepcopy(u)
    for _ in range(5):
        action = env.action_space.sample()
        expected = u.step(action)
        for each in (other, twin):
            assert np.array_equal(each.step(action)[0], expected[0])
            assert np.array_equal(each.state, u.state)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_of_a_vector_are_of_the_states_it_is_in_through_autoresets(mode):
    env = gym.make_vec("sprii/Hopper-v0", num_envs=6, autoreset_mode=mode)
    u, ended = env.unwrapped, 0
    _, info = env.reset(seed=0)
    assert np.array_equal(info["x_position"], u.state[:, 0])
    env.action_space.seed(0)
    for _ in range(80):
        before = u.state
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        assert not truncated.any()
        assert np.array_equal(info["x_position"], u.state[:, 0])
        assert info["_x_position"].all()
        if mode == "SameStep" and terminated.any():
            assert np.array_equal(info["final_info"]["x_position"][terminated], u.final_state[terminated, 0])
            assert (info["final_info"]["reason"][terminated] == "unhealthy").all()
        elif terminated.any():
            assert (info["reason"][terminated] == "unhealthy").all()
            velocity = (u.state[:, 0] - before[:, 0]) / u.world.seconds
            assert np.array_equal(info["x_velocity"][terminated], velocity[terminated])
        ended += terminated.sum()
    assert ended > 6


def test_weights_and_limits_are_gymnasiums_arguments():
    theirs = gym.make("Hopper-v5", healthy_z_range=(1.2, np.inf), healthy_reward=2.0, ctrl_cost_weight=0.5)
    ours = gym.make("sprii/Hopper-v0", healthy_z_low=1.2, healthy_reward=2.0, ctrl_cost_weight=0.5)
    start_alike(theirs, ours, 0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        action = rng.uniform(-1, 1, 3).astype(np.float32)
        expected, got = theirs.step(action), ours.step(action)
        assert got[1:3] == expected[1:3]
        if expected[2]:
            break
    assert expected[2]
    lasting = gym.make("sprii/Hopper-v0", terminate_when_unhealthy=False)
    lasting.reset(seed=0)
    assert not any(lasting.step(rng.uniform(-1, 1, 3))[2] for _ in range(200))
