"""Systems that last for several episodes."""

import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from sprii_envs import SystemDistribution
from sprii_envs.snapshots import get_state, set_state
from sprii_envs.wrappers import ContextObservation, RepeatSystem, VectorContextObservation, VectorRepeatSystem

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


class Own(gym.Env):
    """Somebody's environment with systems 0, 1, 2, … of its own; `ignore` of "same" changes them at every reset."""

    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ignore: bool = False) -> None:
        self.system_number, self.ignore = -1, ignore

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.system_number += self.ignore or (options or {}).get("system") != "same"
        return np.zeros(1, np.float32), {"system_id": self.system_number}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_any_environment_that_tells_its_system_and_keeps_it_on_demand():
    env = RepeatSystem(Own(), 2)
    told = [env.reset()[1] for _ in range(5)]
    assert [info["system_id"] for info in told] == [0, 0, 1, 1, 2]
    assert [info["rollout"] for info in told] == [0, 1, 0, 1, 0]
    assert env.step([0.0])[-1] == {"system_id": 2, "rollout": 0}
    bad = RepeatSystem(Own(ignore=True), 2)
    bad.reset()
    with pytest.raises(ValueError, match="changed its system from 0 to 1"):
        bad.reset()


def test_other_environments_are_refused():
    with pytest.raises(ValueError, match="VectorRepeatSystem takes vector environments"):
        RepeatSystem(gym.make_vec(ID, num_envs=2))
    with pytest.raises(ValueError, match="RepeatSystem takes single environments"):
        VectorRepeatSystem(gym.make(ID))
    env = RepeatSystem(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"lacks 'system_id'.*PersistentEnv"):
        env.reset()


# --- vectors ---


MODES = list(AutoresetMode)


def native(n: int, limit: int, mode: AutoresetMode, **kwargs):
    return gym.make_vec(
        ID, num_envs=n, vectorization_mode="vector_entry_point", max_episode_steps=limit, autoreset_mode=mode, **kwargs
    )


def foreign(n: int, limit: int, mode: AutoresetMode, kind=SyncVectorEnv, wrap=lambda env: env):
    """`sprii_envs:` is for processes that are spawned, as they are once torchrl has been imported."""
    return kind([lambda: wrap(gym.make(f"sprii_envs:{ID}", max_episode_steps=limit))] * n, autoreset_mode=mode)


def same(a, b) -> bool:
    """Equal observations, rewards, flags; and equal `system_id`, `rollout`, of ended episodes too."""
    *left, left_infos = a
    *right, right_infos = b

    def both(x, y) -> bool:
        names = ("system_id", "rollout", "_system_id", "_rollout")
        return all(np.array_equal(x[name], y[name]) for name in names if name in x or name in y)

    if not both(left_infos, right_infos) or ("final_info" in left_infos) != ("final_info" in right_infos):
        return False
    if "final_info" in left_infos and not both(left_infos["final_info"], right_infos["final_info"]):
        return False
    return all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("episodes", [1, 3])
def test_a_vector_does_what_single_ones_do(mode, episodes):
    """Slots out of step, reset at times: native, and ours in a SyncVectorEnv, against single RepeatSystems."""
    n, limit = 3, 4
    wants = foreign(n, limit, mode, wrap=lambda env: RepeatSystem(env, episodes))
    envs = [VectorRepeatSystem(make(n, limit, mode), episodes) for make in (native, foreign)]
    rng = np.random.default_rng(0)

    def reset(**kwargs):
        copied = [{k: dict(v) if k == "options" else v for k, v in kwargs.items()} for _ in range(3)]
        want = wants.reset(**copied[0])
        assert all(same(env.reset(**each), want) for env, each in zip(envs, copied[1:], strict=True))

    reset(seed=5)
    reset(options={"reset_mask": np.array([True, False, True])})
    for t in range(60):
        actions = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
        want = wants.step(actions)
        assert all(same(env.step(actions), want) for env in envs)
        done = want[2] | want[3]
        if mode is AutoresetMode.DISABLED and done.any():
            reset(options={"reset_mask": done})
        if t % 23 == 22:
            reset(options={"reset_mask": np.array([False, True, False])})
        if t == 30:
            reset(seed=[7, None, None], options={"reset_mask": np.array([True, True, False])})
        if t == 40:
            reset(options={"system": {"mass": 1.0, "length": 0.7}, "reset_mask": np.array([False, True, True])})
        if t == 50:
            reset(options={"system": "same"})
    assert envs[0].system_ids == envs[1].system_ids == list(wants.get_attr("_system_id"))


def test_processes_do_the_same():
    envs = [
        VectorRepeatSystem(foreign(2, 3, AutoresetMode.NEXT_STEP, kind), 2) for kind in (SyncVectorEnv, AsyncVectorEnv)
    ]
    try:
        assert same(*(env.reset(seed=1) for env in envs))
        for _ in range(20):
            assert same(*(env.step(np.zeros((2, 1), np.float32)) for env in envs))
        mask = np.array([False, True])
        assert same(*(env.reset(options={"reset_mask": mask.copy()}) for env in envs))
    finally:
        envs[1].close()


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(MODES),
    st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_the_counts_follow_a_plain_model(mode, episodes, lengths, seed):
    """Each slot ends its episodes after its own number of steps, as a model in plain Python counts them."""
    n = len(lengths)
    source = SystemDistribution(gym.make(ID).unwrapped.persistent_properties)  # of which no system comes twice
    make = [lambda k=k: gym.make(ID, max_episode_steps=lengths[k], systems=source) for k in range(n)]
    env = VectorRepeatSystem(SyncVectorEnv(make, autoreset_mode=mode), episodes)
    _, infos = env.reset(seed=seed)
    numbers = [0] * n  # episodes that each slot has begun before the present one
    seen = [[infos["system_id"][k]] for k in range(n)]
    steps, over = [0] * n, [False] * n
    for _ in range(18):
        *_, terminated, truncated, infos = env.step(np.zeros((n, 1), np.float32))
        for k in range(n):
            began = False
            if mode is AutoresetMode.NEXT_STEP and over[k]:
                over[k], steps[k], began = False, 0, True
            else:
                steps[k] += 1
                over[k] = steps[k] == lengths[k]
            assert (terminated | truncated)[k] == over[k]
            if mode is AutoresetMode.SAME_STEP and over[k]:
                final = infos["final_info"]
                assert final["system_id"][k] == seen[k][-1]
                assert final["rollout"][k] == numbers[k] % episodes
                over[k], steps[k], began = False, 0, True
            if began:
                numbers[k] += 1
                seen[k].append(infos["system_id"][k])
            assert infos["system_id"][k] == seen[k][-1]
            assert infos["rollout"][k] == numbers[k] % episodes
        if mode is AutoresetMode.DISABLED and any(over):
            _, infos = env.reset(options={"reset_mask": np.array(over)})
            assert infos["_rollout"].tolist() == over
            for k in np.flatnonzero(over):
                numbers[k] += 1
                seen[k].append(infos["system_id"][k])
                assert infos["rollout"][k] == numbers[k] % episodes
                over[k], steps[k] = False, 0
    for ids in seen:
        assert [ids.index(id) for id in ids] == [k - k % episodes for k in range(len(ids))]


def test_vectors_with_contexts_and_snapshots():
    made = [VectorRepeatSystem(native(3, 4, AutoresetMode.NEXT_STEP), 2) for _ in range(2)]
    context = VectorContextObservation(VectorRepeatSystem(native(3, 4, AutoresetMode.SAME_STEP), 2))
    first, _ = context.reset(seed=0)
    for t in range(8):
        observation, *_ = context.step(np.zeros((3, 1), np.float32))
        assert np.array_equal(observation[:, 3:], first[:, 3:]) == (t < 7)
    made[0].reset(seed=3)
    for _ in range(6):
        made[0].step(np.zeros((3, 1), np.float32))
    saved = pickle.loads(pickle.dumps(get_state(made[0])))
    set_state(made[1], saved)
    for _ in range(25):
        assert same(*(env.step(np.full((3, 1), 0.1, np.float32)) for env in made))


def test_a_vector_that_forgets_resets_is_told_of():
    """Gymnasium's processes without shared memory reset an ended slot again in the next step."""
    make = lambda: gym.make(f"sprii_envs:{ID}", max_episode_steps=1)  # noqa: E731
    env = VectorRepeatSystem(AsyncVectorEnv([make], shared_memory=False))
    try:
        env.reset(seed=0)
        env.step(np.zeros((1, 1), np.float32))
        with pytest.raises(ValueError, match="forgets resets"):
            env.reset()
        env.step(np.zeros((1, 1), np.float32))
        env.reset()
    finally:
        env.close()


def test_vectors_that_cannot_keep_their_systems_are_refused():
    own = lambda mode: SyncVectorEnv([Own] * 2, autoreset_mode=mode)  # noqa: E731
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        with pytest.raises(ValueError, match=r"RepeatSystem before it goes into the vector.*DISABLED"):
            VectorRepeatSystem(own(mode))
    env = VectorRepeatSystem(own(AutoresetMode.DISABLED), 2)
    assert [env.reset()[1]["system_id"].tolist() for _ in range(4)] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    env.reset(options={"reset_mask": np.array([True, False])})
    assert env.system_ids == [2, 1]
    with pytest.raises(ValueError, match="in RepeatSystem already"):
        VectorRepeatSystem(foreign(2, 4, AutoresetMode.NEXT_STEP, wrap=RepeatSystem))
    with pytest.raises(ValueError, match="native vectors of sprii_envs, and SyncVectorEnv"):
        VectorRepeatSystem(gym.make_vec("CartPole-v1", num_envs=2))
    none = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match=r"lacks 'system_id'.*PersistentEnv"):
        VectorRepeatSystem(none).reset()
    liar = VectorRepeatSystem(
        SyncVectorEnv([lambda: Own(ignore=True)] * 2, autoreset_mode=AutoresetMode.DISABLED), episodes=2
    )
    liar.reset()
    with pytest.raises(ValueError, match="slot 0 of the environment changed its system from 0 to 1"):
        liar.reset()
    with pytest.raises(ValueError, match="episodes is 0"):
        VectorRepeatSystem(native(2, 4, AutoresetMode.NEXT_STEP), 0)
    two = native(2, 4, AutoresetMode.NEXT_STEP)
    two.reset(seed=0)
    with pytest.raises(ValueError, match=r"mask must be a bool array of shape \(2,\)"):
        two.unwrapped.keep_systems(np.ones(3, np.bool_))
