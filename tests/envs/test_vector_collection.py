"""A vector of Gymnasium's gives the episodes that one of its environments gives."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from carl_like import CARLPendulum
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from test_collection import CONTEXTS, Third, equal, push

from sprii_envs import System
from sprii_envs.collection import collect_related
from sprii_envs.wrappers import (
    ContextObservation,
    PersistentEnv,
    RepeatSystem,
    VectorContextObservation,
    VectorRepeatSystem,
)

MODES = list(AutoresetMode)
SETTINGS = {"systems": 5, "episodes_per_system": 3, "steps": 30, "seed": 1}


def spring():
    return gym.make("sprii/SpringWorld-v0", obs_type="state", max_episode_steps=20)


def set_pole(env, values):
    env.length = values["length"]
    env.polemass_length = env.masspole * env.length


def pole():
    return PersistentEnv(gym.make("CartPole-v1", max_episode_steps=25), {"length": (0.25, 1.0)}, set_pole)


def noisy():
    """Random numbers in every step: a reset without a seed would begin elsewhere after another number of steps."""
    return PersistentEnv(gym.make("FrozenLakeLike-v0"), {"slip": (0.0, 0.5)})


class Lake(gym.Env):
    """A walk that slips at random and ends at 5 steps from its start."""

    observation_space, action_space = gym.spaces.Discrete(11), gym.spaces.Discrete(2)
    slip = 0.1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(3, 8))
        return self.at, {}

    def step(self, action):
        left = (action == 0) != (self.np_random.random() < self.slip)
        self.at += -1 if left else 1
        return self.at, float(self.at), self.at in (0, 10), False, {}


gym.register("FrozenLakeLike-v0", Lake)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [spring, pole, noisy])
def test_the_same_episodes(mode, make):
    single = collect_related(make(), **SETTINGS)
    assert len(set(single.table["length"].tolist())) > 1 or make is spring
    for n in (1, 2, 7):
        env = SyncVectorEnv([make] * n, autoreset_mode=mode)
        equal(single, collect_related(env, **SETTINGS))
        if make is not spring or mode is AutoresetMode.SAME_STEP:
            assert not any(env.get_attr("keep_system"))  # as it was


@pytest.mark.parametrize("mode", MODES)
def test_chosen_systems_and_policies(mode):
    systems = [{"length": 0.3}, System({"length": 0.9}, id="long"), {"length": 0.5}]
    settings = {"systems": systems, "episodes_per_system": 2, "steps": 30}
    lean = lambda observation: (observation[..., 2] > 0).astype(np.int64)  # noqa: E731
    single = collect_related(pole(), lean, **settings)
    assert single.table["length"].max() > 20
    assert single.table["system"][2] == "long"
    equal(single, collect_related(SyncVectorEnv([pole] * 2, autoreset_mode=mode), lean, **settings))
    whole = {"systems": 3, "steps": 60}
    equal(
        collect_related(spring(), push, **whole),
        collect_related(SyncVectorEnv([spring] * 2, autoreset_mode=mode), push, **whole),
    )


@pytest.mark.parametrize("mode", MODES)
def test_processes(mode):
    env = AsyncVectorEnv([pole] * 2, autoreset_mode=mode)
    try:
        settings = {"systems": 3, "steps": 20}
        equal(collect_related(pole(), **settings), collect_related(env, **settings))
    finally:
        env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_somebody_elses_systems(mode):
    make = lambda: gym.wrappers.TimeLimit(Third(gym.make("CartPole-v1")), 20)  # noqa: E731
    settings = {"systems": 4, "steps": 30}
    single = collect_related(make(), **settings)
    assert len(set(single.table["length"].tolist())) > 2
    equal(single, collect_related(SyncVectorEnv([make] * 3, autoreset_mode=mode), **settings))


@pytest.mark.parametrize("mode", MODES)
def test_a_hook_sets_each_environment(mode):
    def choose(env, item):
        env.unwrapped.m = item["mass"]
        return {"x_init": item["mass"] / 10, "y_init": 0.1}

    settings = {"systems": [{"mass": 0.5}, {"mass": 2.0}, {"mass": 1.5}], "steps": 12, "choose": choose}
    make = partial(gym.make, "Pendulum-v1", max_episode_steps=7)
    single = collect_related(make(), **settings)
    assert single.table["mass"].tolist() == [0.5] * 2 + [2.0] * 2 + [1.5] * 2
    equal(single, collect_related(SyncVectorEnv([make] * 2, autoreset_mode=mode), **settings))
    counted = {**settings, "systems": 3, "choose": lambda env, k: setattr(env.unwrapped, "m", 1.0 + k)}
    equal(
        collect_related(make(), **counted), collect_related(SyncVectorEnv([make] * 2, autoreset_mode=mode), **counted)
    )


def test_wrapped_vectors():
    single = collect_related(ContextObservation(pole()), systems=3, steps=12)
    vector = VectorContextObservation(SyncVectorEnv([pole] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    equal(single, collect_related(vector, systems=3, steps=12))


@pytest.mark.parametrize("mode", MODES)
def test_vectors_under_repetition(mode):
    """It is the collector that says how long a system lasts."""
    single = collect_related(pole(), **SETTINGS)
    inside = SyncVectorEnv([lambda: RepeatSystem(pole(), 2)] * 2, autoreset_mode=mode)
    equal(single, collect_related(inside, **SETTINGS))
    outside = VectorRepeatSystem(SyncVectorEnv([pole] * 2, autoreset_mode=mode), 2)
    if mode is AutoresetMode.SAME_STEP:
        with pytest.raises(ValueError, match="pass the vector inside it, SyncVectorEnv"):
            collect_related(outside, **SETTINGS)
    else:
        equal(single, collect_related(outside, **SETTINGS))


def test_vectors_that_cannot_be_collected_from():
    def third(mode):
        return SyncVectorEnv([lambda: Third(gym.make("CartPole-v1"))] * 2, autoreset_mode=mode)

    with pytest.raises(ValueError, match=r"no `keep_system`.*DISABLED or NEXT_STEP"):
        collect_related(third(AutoresetMode.SAME_STEP), steps=4)
    plain = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    with pytest.raises(ValueError, match=r"does not tell its system.*choose="):
        collect_related(plain, steps=4)
    contexts = SyncVectorEnv([lambda: CARLPendulum(CONTEXTS)] * 2)
    with pytest.raises(ValueError, match=r"by contexts .* pass the single environment"):
        collect_related(contexts, steps=4)
    for shared, kwargs, message in ((True, {"choose": print}, "out of its reach"), (False, {}, "forgets resets")):
        processes = AsyncVectorEnv([pole] * 2, shared_memory=shared)
        try:
            with pytest.raises(ValueError, match=message):
                collect_related(processes, steps=4, **kwargs)
        finally:
            processes.close()


def test_systems_are_rows_of_values_too():
    rows = np.array([[1.0], [2.0]])
    one = collect_related(gym.make("sprii/D-Clean-v0"), systems=rows, episodes_per_system=2, steps=5)
    vector = gym.make_vec("sprii/D-Clean-v0", num_envs=2)
    found = collect_related(vector, systems=rows, episodes_per_system=2, steps=5)
    for table in (one.table, found.table):
        assert table["drag"].tolist() == [1.0, 1.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="drag"):
        collect_related(vector, systems=np.array([[-1.0]]), episodes_per_system=1, steps=5)
