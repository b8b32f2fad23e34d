"""Registration, import weight, Gymnasium's and SB3's checkers over every registered environment."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from test_every_env import OTHER_COUNTS

import sprii_envs

ALL = sorted(id for id, spec in gym.registry.items() if id.startswith("sprii/") and spec.vector_entry_point)
IDS = [id for id in ALL if id not in OTHER_COUNTS]


def python(code, **env):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_environments_are_registered_on_import():
    assert "sprii/D-Clean-v0" in IDS
    gym.register_envs(sprii_envs)


def test_make_imports_the_module_named_in_the_id():
    out = python("import gymnasium as gym; print(gym.make('sprii_envs:sprii/D-Clean-v0').reset(seed=0)[0].shape)")
    assert out.strip() == "(4,)"


def test_import_is_light():
    out = python(
        "import sys, time; t = time.perf_counter(); import sprii_envs; import sprii_envs.envs.d_clean;"
        "heavy = {'torch', 'mujoco', 'pygame', 'jax', 'scipy'};"
        "print(time.perf_counter() - t, sorted(heavy & set(sys.modules)))"
    )
    seconds, loaded = out.split(" ", 1)
    assert loaded.strip() == "[]"
    assert float(seconds) < 5.0  # under 0.3 s on an idle machine; loose so that a busy one does not fail


@pytest.mark.parametrize("id", ALL)
def test_specs_are_serialisable_and_modes_agree(id):
    spec = gym.spec(id)
    assert isinstance(spec.entry_point, str)
    assert isinstance(spec.vector_entry_point, str)
    again = gym.envs.registration.EnvSpec.from_json(spec.to_json())
    single = gym.make(again)
    assert single.unwrapped.world.max_episode_steps == spec.max_episode_steps
    vector = gym.make_vec(id, num_envs=3)
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    assert vector.metadata["autoreset_mode"] is gym.vector.AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("render_mode", [None, "rgb_array", "human"])
@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("id", IDS)
def test_both_checkers_are_silent(id, obs_type, render_mode, monkeypatch):
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        # pygame's own import warns about pkg_resources; nothing else may.
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module="pygame")
        env = gym.make(id, obs_type=obs_type, render_mode=render_mode)
        other = gym.make(id, obs_type=obs_type, render_mode=render_mode)
        for each in (env, other):
            assert each.unwrapped.metadata["render_fps"] == round(1.0 / each.unwrapped.world.dt)
            each.unwrapped.metadata["render_fps"] = 1000
        check_env(env.unwrapped, skip_render_check=render_mode is not None)  # without one it tries every mode
        sb3_check_env(other, skip_render_check=False)
        env.close()
        env.close()


@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("id", IDS)
def test_async_vector_environment_agrees_with_the_native_one(id, obs_type):
    kwargs = {"num_envs": 2, "obs_type": obs_type}
    workers = gym.make_vec(id, vectorization_mode="async", **kwargs)
    native = gym.make_vec(id, **kwargs)
    try:
        assert np.array_equal(workers.reset(seed=4)[0], native.reset(seed=4)[0])
        native.action_space.seed(0)
        for _ in range(5):
            action = native.action_space.sample()
            assert np.array_equal(workers.step(action)[0], native.step(action)[0])
    finally:
        workers.close()


@pytest.mark.parametrize("id", IDS)
def test_every_declared_property_acts_alone(id):
    env = gym.make(id).unwrapped
    env.action_space.seed(0)
    silent = set(env.persistent_properties.names)
    for seed in range(40):  # not every episode of random actions shows everything: a finger may miss its object
        env.reset(seed=seed)
        actions = np.array([env.action_space.sample() for _ in range(32)])
        for p in [p for p in env.persistent_properties if p.name in silent]:
            states = env.counterfactual(env.vary(p.name, [p.low, p.high]), actions).states
            if np.abs(states[0] - states[1]).max() > 1e-3 and np.abs(env.sensitivity(p.name, actions)).max() > 1e-4:
                silent.remove(p.name)
        if not silent:
            break
    assert not silent


@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("id", IDS)
def test_a_bank_of_resets_is_reproducible_and_the_first_observation_hides_the_system(id, obs_type):
    def observations(seed, **options):
        env = gym.make(id, obs_type=obs_type)
        first = env.reset(seed=seed, options=options)
        rest = [env.reset() for _ in range(2)]
        return [first, *rest]

    one, two = observations(0), observations(0)
    for (a, info_a), (b, info_b) in zip(one, two, strict=True):
        assert np.array_equal(a, b)
        assert info_a["system_id"] == info_b["system_id"]
        assert np.array_equal(info_a["persistent"], info_b["persistent"])
    assert not np.array_equal(one[0][0], one[1][0])
    assert len({info["system_id"] for _, info in one}) == 3
    properties = gym.make(id).unwrapped.persistent_properties
    low = observations(0, system=dict(zip(properties.names, properties.low, strict=True)))
    assert np.array_equal(low[0][0], one[0][0])
