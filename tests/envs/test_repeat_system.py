"""Systems that last for several episodes."""

import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sprii_envs.snapshots import get_state, set_state
from sprii_envs.wrappers import ContextObservation, RepeatSystem

ID = "sprii/Pendulum-v0"


def make(episodes: int = 3, limit: int = 4) -> RepeatSystem:
    return RepeatSystem(gym.make(ID, max_episode_steps=limit), episodes)


def episode(env: gym.Env, steps: int = 4) -> str:
    """Run one; its system, which every step must name."""
    _, info = env.reset()
    assert info["system_id"] == env.unwrapped.system.id
    for _ in range(steps):
        assert env.step([0.3])[-1]["system_id"] == info["system_id"]
    return info["system_id"]


@pytest.mark.parametrize("episodes", [1, 3])
def test_each_system_has_its_episodes_in_a_row(episodes):
    env = make(episodes)
    env.reset(seed=0)
    first = env.unwrapped.system.id
    systems = [first, *(episode(env) for _ in range(5 * episodes - 1))]
    assert len(set(systems)) == 5
    assert systems == [system for system in systems[::episodes] for _ in range(episodes)]


def test_episodes_of_a_system_are_independent_and_seeded():
    env, again = make(), make()
    starts = []
    for one in (env, again):
        one.reset(seed=4)
        starts.append([one.unwrapped.initial_state, *(one.reset()[0] for _ in range(5))])
    assert all(np.array_equal(a, b) for a, b in zip(*starts, strict=True))
    assert len({tuple(start) for start in starts[0]}) == 6


def test_seeds_and_chosen_systems_begin_anew():
    env = make()
    env.reset(seed=0)
    first = episode(env)
    assert env.reset(seed=1)[1]["system_id"] != first
    assert len({env.unwrapped.system.id, episode(env), episode(env)}) == 1
    env.reset(seed=2)  # two more episodes are due, but a chosen system goes first
    chosen = env.reset(options={"system": {"mass": 1.0, "length": 1.0}})[1]["system_id"]
    assert [episode(env), episode(env)] == [chosen, chosen]
    assert episode(env) != chosen
    same = env.reset(options={"system": "same"})[1]["system_id"]  # counts as one of its episodes
    assert episode(env) == same
    assert episode(env) != same
    query = env.reset(options={"state": [0.5, 0.0]})  # other options pass
    assert query[1]["system_id"] == env.unwrapped.system.id
    assert env.unwrapped.initial_state.tolist() == [0.5, 0.0]


def test_with_contexts_and_vectors():
    env = ContextObservation(make(2))
    contexts = [tuple(env.reset(seed=0 if k == 0 else None)[0][3:]) for k in range(6)]
    assert contexts[::2] == contexts[1::2]
    assert len(set(contexts)) == 3
    envs = SyncVectorEnv([lambda: make(2)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    _, infos = envs.reset(seed=0)
    seen = [infos["system_id"]]
    for t in range(20):
        *_, infos = envs.step(np.zeros((2, 1), np.float32))
        if t % 4 == 3:
            assert (infos["final_info"]["system_id"] == seen[-1]).all()
            seen.append(infos["system_id"])
    assert all((seen[k] == seen[k + 1]).all() for k in (0, 2, 4))
    assert all((seen[k] != seen[k + 1]).all() for k in (1, 3))


def test_snapshots_and_checkers_know_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env, fresh = make(), make()
        env.reset(seed=0)
        env.reset()
        env.step([0.5])
        saved = pickle.loads(pickle.dumps(get_state(env)))
        want = [env.step([0.1]), env.reset(), env.step([0.1]), env.reset(), env.step([0.1]), env.reset()]
        set_state(fresh, saved)
        calls = [fresh.step([0.1]), fresh.reset(), fresh.step([0.1]), fresh.reset(), fresh.step([0.1]), fresh.reset()]
        assert all(data_equivalence(a, b, exact=True) for a, b in zip(calls, want, strict=True))
        systems = [step[-1]["system_id"] for step in want]
        assert systems[0] == systems[1] != systems[3] == systems[5]
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(RepeatSystem(gym.make(ID, render_mode="rgb_array")))


def test_is_rebuilt_from_its_spec():
    env = gym.make(make(5).spec)
    assert isinstance(env, RepeatSystem)
    assert env.episodes == 5


@pytest.mark.parametrize("episodes", [0, -1, 2.0, True, None])
def test_bad_counts_are_refused(episodes):
    with pytest.raises(ValueError, match=f"episodes is {episodes}; legal: an integer >= 1"):
        make(episodes)


def test_other_environments_are_refused():
    for env in (gym.make("CartPole-v1"), gym.make_vec(ID, num_envs=2)):
        with pytest.raises(ValueError, match="single environment of sprii_envs"):
            RepeatSystem(env)
