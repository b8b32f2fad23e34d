"""What every registered environment owes its users, beyond the checkers."""

import copy
import dataclasses
import functools
import importlib
import inspect
import json
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sprii_envs
from sprii_envs.properties import SystemDistribution

OTHER_COUNTS = tuple(f"sprii/CoPhy{name}-v0" for name in ("Balls2", "Balls3", "Balls5", "Balls6", "Blocktower4"))
"""The same worlds with other numbers of bodies, which `test_cophy_worlds.py` makes, at a fraction of the time."""
IDS = sorted(
    id
    for id, spec in gym.registry.items()
    if id.startswith("sprii/") and spec.vector_entry_point and id not in OTHER_COUNTS
)
every_env = pytest.mark.parametrize("id", IDS)
both_kinds = pytest.mark.parametrize("obs_type", ["state", "pixels"])


def wander(env, steps, seed=0):
    """Everything `steps` steps of random actions return, after whatever state the environment is in."""
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample()) for _ in range(steps)]


def same(one, two):
    return data_equivalence(one, two, exact=True)


def corners(properties, rng, n):
    """Systems at, between and beyond the ends of the ranges, all physical."""
    low, high = properties.low, properties.high
    values = low + (high - low) * rng.uniform(-0.2, 1.2, (n, len(properties)))
    return np.clip(values, 0.5 * low, [p.physical_high for p in properties])


@both_kinds
@every_env
def test_copies_and_pickles_go_on_as_the_original_does(id, obs_type):
    env = gym.make(id, obs_type=obs_type)
    env.reset(seed=3)
    wander(env, 5)
    copies = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    original = wander(env, 8), env.reset()
    for other in copies:
        assert same((wander(other, 8), other.reset()), original)
    native = gym.make_vec(id, num_envs=3, obs_type=obs_type)
    native.reset(seed=3)
    wander(native, 5)
    copies = copy.deepcopy(native), pickle.loads(pickle.dumps(native))
    original = wander(native, 8), native.reset()
    for other in copies:
        assert same((wander(other, 8), other.reset()), original)


@pytest.fixture(scope="module")
def digests():
    """Environment → what two processes saw of it, each with another order of hashes."""
    code = (
        "import hashlib, json, sys, gymnasium as gym, numpy as np, sprii_envs\n"
        "told = {}\n"
        "for id in sys.argv[1:]:\n"
        "    for env in (gym.make(id), gym.make_vec(id, num_envs=3)):\n"
        "        seen = hashlib.sha256()\n"
        "        for seed in (7, None):\n"
        "            seen.update(env.reset(seed=seed)[0].tobytes())\n"
        "            env.action_space.seed(1)\n"
        "            for _ in range(4):\n"
        "                seen.update(env.step(env.action_space.sample())[0].tobytes())\n"
        "        told.setdefault(id, []).append(seen.hexdigest())\n"
        "print(json.dumps(told))\n"
    )
    run = [sys.executable, "-c", code, *IDS]
    return [
        json.loads(subprocess.run(run, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": s}).stdout)
        for s in ("1", "2")
    ]


@every_env
def test_a_seed_means_the_same_in_every_process(id, digests):
    one, other = (told[id] for told in digests)
    assert one == other
    assert len(set(one)) == 2


@every_env
def test_record_video_writes_a_video(id, tmp_path):
    pytest.importorskip("moviepy")
    env = gym.make(id, render_mode="rgb_array")
    env = gym.wrappers.RecordVideo(env, str(tmp_path / "videos"), disable_logger=True)
    env.reset(seed=0)
    wander(env, 10)
    env.close()
    (video,) = tmp_path.glob("videos/*.mp4")
    assert video.stat().st_size > 1000


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
@every_env
def test_random_resets_and_the_steps_after_them_stay_finite_and_in_the_space(id, rounds):
    n = 500
    env = gym.make_vec(id, num_envs=n, obs_type="state", autoreset_mode="Disabled")
    properties, rng = env.unwrapped.persistent_properties, np.random.default_rng(0)
    box = env.single_observation_space
    for i in range(rounds):
        options = {"system": corners(properties, rng, n)} if i % 2 else {}
        observation, info = env.reset(seed=i * n, options=options)
        assert np.isfinite(info["persistent"]).all()
        assert ((observation >= box.low) & (observation <= box.high)).all()
        if i % 9 == 0:  # after systems of both kinds
            observation, reward, *_ = env.step(env.action_space.sample())
            assert np.isfinite(observation).all()
            assert np.isfinite(reward).all()
            assert ((observation >= box.low) & (observation <= box.high)).all()


@every_env
def test_long_episodes_of_full_force_stay_finite_anywhere_in_the_range(id):
    n = 8 if "CoPhy" in id else 16 if hasattr(gym.make(id).unwrapped.world, "compiled") else 64  # MuJoCo's cost more
    env = gym.make_vec(id, num_envs=n, obs_type="state", max_episode_steps=None)
    rng = np.random.default_rng(1)
    env.reset(seed=1, options={"system": corners(env.unwrapped.persistent_properties, rng, n)})
    for t in range(300):
        action = np.repeat(rng.choice([-1.0, 1.0], (n, 1)), env.single_action_space.shape[0], axis=1)
        observation, reward, *_ = env.step(action.astype(np.float32) if t % 50 < 25 else env.action_space.sample())
        assert np.isfinite(observation).all()
        assert np.isfinite(reward).all()


@functools.cache
def made(id):
    """One environment of states, for examples that begin with a seeded reset."""
    return gym.make(id, obs_type="state").unwrapped


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "system": st.one_of(
            st.just("same"),
            st.text(max_size=6),
            st.lists(st.one_of(st.floats(), st.none()), max_size=6),
            st.dictionaries(st.sampled_from(["mass", "drag", "length", "stiffness", "mas"]), st.floats(), max_size=4),
            st.floats(),
        ),
        "state": st.one_of(st.lists(st.floats(), max_size=11), st.floats(), st.text(max_size=3)),
        "query": st.one_of(st.none(), st.sampled_from(["cold", "moving", "warm", ""])),
        "reset_mask": st.just([True]),
        "sytem": st.just(1),
    },
)


@every_env
@given(options=OPTIONS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_options_either_work_or_are_a_value_error_that_changes_nothing(id, options):
    env = made(id)
    env.reset(seed=0)
    before = env.get_state()
    try:
        observation, info = env.reset(options=options)
    except ValueError:
        assert same(env.get_state(), before)
        return
    assert np.isfinite(observation).all()
    assert np.isfinite(info["persistent"]).all()
    assert np.isfinite(env.step(env.action_space.sample())[0]).all()


@every_env
def test_hidden_properties_show_in_no_frame_and_the_first_difference_is_zero(id):
    env = gym.make_vec(id, num_envs=8, obs_type="pixels")
    properties = env.unwrapped.persistent_properties
    values = corners(properties, np.random.default_rng(2), 8)
    env.reset(seed=5)
    for _ in range(3):  # at a start, and in states that a system has moved to
        state = env.unwrapped.state[0]
        observation, _ = env.reset(options={"system": values, "state": state})
        assert (observation == observation[0]).all()
        assert np.array_equal(observation[..., 0], observation[..., 1])
        assert observation[..., 0].any()
        (before, _, terminated, *_), (after, *_) = wander(env, 6)[-2:]
        running = ~terminated
        assert np.array_equal(after[running, :, :, 1], before[running, :, :, 0])


@every_env
def test_a_system_persists_over_episodes_and_reports_itself(id):
    env = gym.make(id, obs_type="state")
    names = env.unwrapped.persistent_properties.names
    _, first = env.reset(seed=0)
    assert env.unwrapped.system.id == first["system_id"]
    assert list(env.unwrapped.system.values) == list(names)
    start = env.unwrapped.state
    _, second = env.reset(options={"system": "same"})
    assert second["system_id"] == first["system_id"]
    assert np.array_equal(second["persistent"], first["persistent"])
    assert not np.array_equal(env.unwrapped.state, start)


@every_env
def test_systems_come_from_a_set_or_a_distribution_by_name_or_by_slot(id):
    properties = gym.make(id).unwrapped.persistent_properties
    some = SystemDistribution(properties).sample(5, np.random.default_rng(0))
    env = gym.make(id, systems=some, obs_type="state")
    seen = {env.reset(seed=s)[1]["system_id"] for s in range(60)}
    assert seen == set(some.ids.tolist())
    vector = gym.make_vec(id, num_envs=5, systems=some, obs_type="state")
    _, info = vector.reset(seed=0, options={"system": some.ids.tolist()})
    assert np.array_equal(info["persistent"], some.values)
    mask = np.array([False, True, False, False, True])
    _, info = vector.reset(options={"reset_mask": mask, "system": np.repeat(some.values[:1], 5, 0)})
    assert np.array_equal(vector.unwrapped.values, np.where(mask[:, None], some.values[0], some.values))


@every_env
def test_counterfactuals_differ_in_exactly_the_stated_property(id):
    env = gym.make(id, obs_type="state").unwrapped
    env.reset(seed=0)
    actions = np.array([env.action_space.sample() for _ in range(10)])
    for p in env.persistent_properties:
        systems = env.vary(p.name, [p.low, p.high])
        done = env.counterfactual(systems, actions, frames=True)
        others = [i for i, name in enumerate(env.persistent_properties.names) if name != p.name]
        assert np.array_equal(done.values[0, others], done.values[1, others])
        assert np.array_equal(done.states[0, 0], done.states[1, 0])
        assert np.array_equal(done.frames[0, 0], done.frames[1, 0])
        for system, states, rewards in zip(systems, done.states, done.rewards, strict=True):
            env.reset(options={"system": system, "state": done.states[0, 0]})
            rows = [env.step(action) for action in actions]
            assert np.array_equal(env.state, states[-1])
            assert [row[1] for row in rows] == rewards.tolist()
        env.reset(seed=0)


@every_env
def test_pages_and_pictures_exist(id):
    from pathlib import Path

    root = Path(sprii_envs.__file__).parent.parent
    path = gym.spec(id).entry_point.split(":")[0]
    package, module = path.split(".")[-2:]
    own = root / "docs" / "envs" / f"{module}.md"
    shared = own.with_name("cophy.md" if package == "cophy" else "mujoco.md")
    page = (own if own.exists() else shared).read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    for name in gym.make(id).unwrapped.persistent_properties.names:
        assert f"`{name}`" in page
    gif = f"assets/{'cophy-' * (package == 'cophy')}{module.replace('_', '-')}.gif"
    assert gif in page
    assert gif in readme
    assert (root / gif).stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("id", "gain"), [("sprii/D-Clean-v0", 30.0), ("sprii/Pendulum-v0", 250.0)])
def test_ppo_learns_far_above_a_random_policy(id, gain):
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    pendulum = "Pendulum" in id
    train = make_vec_env(id, 8, seed=0, env_kwargs={"obs_type": "state"})
    model = PPO(
        "MlpPolicy", train, seed=0, device="cpu", n_steps=256, batch_size=256, gamma=0.9 if pendulum else 0.95,
        learning_rate=1e-3, use_sde=pendulum, sde_sample_freq=4,
    )  # fmt: skip
    test = make_vec_env(id, 1, seed=1000, env_kwargs={"obs_type": "state"})

    def score(policy):
        test.seed(1000)
        rewards, _ = evaluate_policy(policy, test, n_eval_episodes=20, return_episode_rewards=True)
        return np.array(rewards)

    class Random:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.array([test.action_space.sample() for _ in observation]), state

    test.action_space.seed(0)
    chance = score(Random())
    model.learn(200_000 if pendulum else 60_000)
    learned = score(model)
    # Same 20 systems and starts: 20 paired differences, and a gain the size of the task, not of the noise.
    difference = learned - chance
    assert difference.mean() > gain
    assert difference.mean() / (difference.std(ddof=1) / np.sqrt(20)) > 4.0


@every_env
def test_infinite_actions_are_clipped_like_large_ones(id):
    env = gym.make(id, obs_type="state").unwrapped
    env.reset(seed=0)
    for sign in (1.0, -1.0):
        observation, reward, *_ = env.step(np.full(env.action_space.shape, sign * np.inf, np.float32))
        assert np.isfinite(observation).all()
        assert np.isfinite(reward)


@every_env
@pytest.mark.parametrize("value", [1e300, -1e300, np.nan, np.inf, 1e-300, True, "1", None])
def test_absurd_constants_are_refused_by_name_or_harmless(id, value):
    world = gym.make(id).unwrapped.world
    for name in dataclasses.asdict(world):
        try:
            env = gym.make(id, obs_type="state", **{name: value}).unwrapped
        except ValueError as error:
            assert name in str(error) or "substeps" in str(error)  # noqa: PT017 - either outcome is legal
            continue
        observation, _ = env.reset(seed=0)
        for _ in range(3):
            assert np.isfinite(observation).all(), name
            observation, reward, *_ = env.step(env.action_space.sample())
            assert np.isfinite(reward), name


@every_env
def test_constructors_show_the_worlds_defaults_and_constants_and_build_what_they_show(id):
    spec = gym.spec(id)
    for path in (spec.entry_point, spec.vector_entry_point):
        module, name = path.split(":")
        kind = getattr(importlib.import_module(module), name)
        shown = {p.name: p.default for p in inspect.signature(kind).parameters.values()}
        assert ... not in shown.values()
        env = kind(**shown)
        world = env.world
        defaults = dataclasses.asdict(
            type(world)()
        )  # None stands for what another constant implies, as Swimmer's fluid
        assert {name: value if shown[name] is None else shown[name] for name, value in defaults.items()} == defaults
        assert (env.obs_type, env.image_size) == (shown["obs_type"], (shown["image_size"],) * 2)
        assert same(env.reset(seed=3), kind(num_envs=1).reset(seed=3) if "num_envs" in shown else kind().reset(seed=3))
        for group in world.groups:
            assert kind(systems=group).distribution == world.groups[group]
        with pytest.raises(ValueError, match="systems"):
            kind(systems="nowhere")
        with pytest.raises(ValueError, match="did you mean 'obs_type'"):
            kind(obs_typ="state")

        class Child(kind):
            def __init__(self, width: int = 3) -> None:
                super().__init__(image_size=8 * width)

        assert list(inspect.signature(Child).parameters) == ["width"]
        assert Child().image_size == (24, 24)
    limit = inspect.signature(kind).parameters["max_episode_steps"].default
    assert limit == kind().max_episode_steps == spec.max_episode_steps
    assert kind(max_episode_steps=None).max_episode_steps is None


@every_env
def test_the_slots_of_a_native_vector_have_the_attributes_of_single_environments(id):
    native, sync = (gym.make_vec(id, num_envs=2, vectorization_mode=mode, obs_type="state") for mode in (None, "sync"))
    properties = native.unwrapped.persistent_properties
    names = ["state", "initial_state", "system", "systems", "distribution", "world", "persistent_properties"]
    names += ["obs_type", "image_size", "running", "render_mode", "metadata", "observation_space", "action_space"]
    first, actions = properties.names[0], np.zeros((3, *native.single_action_space.shape), np.float32)
    calls = [("get_state",), ("vary", first, [properties.nominal[0]]), ("sensitivity", first, actions)]
    for env in (native, sync):
        with pytest.raises(ResetNeeded):
            env.get_attr("system")
        with pytest.raises(AttributeError, match="stat"):
            env.get_attr("stat")
        env.set_attr("label", ["a", "b"])
        env.reset(seed=[4, 2])
        with pytest.raises(AttributeError, match="system"):
            env.set_attr("system", None)
        env.action_space.seed(0)
        for _ in range(3):
            env.step(env.action_space.sample())
    for name in ["label", "np_random_seed", *names]:
        ours, theirs = native.get_attr(name), sync.get_attr(name)
        assert isinstance(ours, tuple)
        assert same(ours, theirs), name
        assert same(native.call(name), theirs), name
    for call in calls:
        assert same(native.call(*call), sync.call(*call)), call
    results = (env.call("counterfactual", [properties.nominal], actions) for env in (native, sync))
    for ours, theirs in zip(*results, strict=True):
        assert same(vars(ours), vars(theirs))
