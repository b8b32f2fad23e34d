"""The single and the vector environment over any world: one trajectory, every autoreset mode, snapshots."""

import copy
import pickle
import warnings
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import sprii_envs
from sprii_envs.core import SpriiEnv
from sprii_envs.envs.d_clean import DClean
from sprii_envs.properties import PersistentProperties, PersistentProperty, System, SystemDistribution, SystemSet
from sprii_envs.snapshots import get_state, set_state
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import Ending, rollout
from sprii_envs.wrappers import ContextObservation, RepeatSystem, VectorContextObservation, VectorTemporalDifference

ID = "sprii/D-Clean-v0"
MODES = list(AutoresetMode)
SET = SystemSet.from_values(
    DClean.properties, {"drag": [0.5, 1.0, 2.0, 4.0]}, ids=["a", "b", "c", "d"], split=["x", "x", "y", "y"]
)


@dataclass(frozen=True, kw_only=True)
class Bounded(DClean):
    """D-Clean with everything a world may have: two kinds of start, a goal, a wall, and step infos."""

    queries = ("still", "fast")

    def initial(self, u, values, query):
        state = super().initial(u, values, query)
        if query is not None:
            state[:, 2:] *= {"still": 0.0, "fast": 3.0}[query]
        return state

    def end(self, after, extras):
        x, y = np.abs(after[:, 0]), np.abs(after[:, 1])
        reason = np.full(len(after), None, object)
        reason[y > 1.2] = "wall"
        return Ending(
            x > 1.2,
            y > 1.2,
            {"distance": x + y, "reason": reason, "where": after[:, :2].copy(), "out": x > 1},
        )


def pair(n, mode, world=None, limit=7, **kwargs):
    world = Bounded() if world is None else world
    native = SpriiVectorEnv(world, n, max_episode_steps=limit, autoreset_mode=mode, **kwargs)
    one = lambda: gym.wrappers.TimeLimit(SpriiEnv(world, **kwargs), limit)  # noqa: E731
    return native, SyncVectorEnv([one] * n, autoreset_mode=mode)


def actions(n, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1.3, 1.3, (steps, n, 2)).astype(np.float32)


@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 17])
def test_vector_and_single_environments_agree_exactly_through_resets(n, mode, obs_type):
    native, sync = pair(n, mode, obs_type=obs_type)
    assert data_equivalence(native.reset(seed=11), sync.reset(seed=11), exact=True)
    ended = 0
    for action in actions(n, 60):
        ours, theirs = native.step(action), sync.step(action)
        assert data_equivalence(ours, theirs, exact=True)
        assert np.array_equal(native.state, [e.unwrapped.state for e in sync.envs])
        done = ours[2] | ours[3]
        ended += done.sum()
        if mode is AutoresetMode.DISABLED and done.any():
            ours = native.reset(options={"reset_mask": done})
            assert data_equivalence(ours, sync.reset(options={"reset_mask": done}), exact=True)
    assert ended >= n


@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("kwargs", [{}, {"systems": SET}, {"system": {"drag": 2.5}}, {"system": "c", "systems": SET}])
def test_registered_vector_and_single_environments_agree(kwargs, obs_type):
    native = gym.make_vec(ID, num_envs=5, obs_type=obs_type, **kwargs)
    sync = gym.make_vec(ID, num_envs=5, obs_type=obs_type, vectorization_mode="sync", **kwargs)
    assert data_equivalence(native.reset(seed=[5, 3, 3, 9, 0]), sync.reset(seed=[5, 3, 3, 9, 0]), exact=True)
    for action in actions(5, 130):
        assert data_equivalence(native.step(action), sync.step(action), exact=True)
    assert data_equivalence(native.reset(), sync.reset(), exact=True)
    assert data_equivalence(
        native.reset(seed=[None, 1, 2, None, 3]), sync.reset(seed=[None, 1, 2, None, 3]), exact=True
    )


def test_time_limit_counts_transitions_so_an_episode_has_64_states():
    env = gym.make(ID)
    env.reset(seed=0)
    for t in range(63):
        *_, terminated, truncated, info = env.step(np.zeros(2, np.float32))
        assert not terminated
        assert truncated == (t == 62)
        assert info == {}
    assert gym.make_vec(ID, num_envs=2, max_episode_steps=3).max_episode_steps == 3


def test_infos_name_the_system_at_reset_only_and_are_fresh():
    env = gym.make(ID)
    _, info = env.reset(seed=0)
    assert info["system_id"] == env.unwrapped.system.id
    assert info["persistent"].tolist() == list(env.unwrapped.system.values.values())
    assert info["extrapolated"] is False
    info["persistent"][:] = 99.0
    assert env.unwrapped.system.values["drag"] <= 4.0
    vector = gym.make_vec(ID, num_envs=3)
    _, info = vector.reset(seed=0)
    info["persistent"][:] = 99.0
    assert vector.unwrapped.system(1).values["drag"] <= 4.0


# --- choosing systems and states ---


def test_every_way_to_choose_a_system():
    env = gym.make(ID, systems=SET)
    u = env.unwrapped
    env.reset(seed=0, options={"system": "c"})
    assert u.system == SET["c"]
    assert u.system.split == "y"
    for system in ({"drag": 3.0}, System({"drag": 3.0}, id="mine"), [3.0], np.array([3.0])):
        _, info = env.reset(options={"system": system})
        assert u.system.values == {"drag": 3.0}
        assert info["system_id"] == u.system.id
    first = env.reset(options={"system": "b"})[0]
    again, info = env.reset(options={"system": "same"})
    assert info["system_id"] == "b"
    assert not np.array_equal(first, again)
    seen = {env.reset()[1]["system_id"] for _ in range(60)}
    assert seen == {"a", "b", "c", "d"}


def test_constructor_pins_survive_a_hand_chosen_episode():
    env = gym.make(ID, system={"drag": 2.0})
    assert env.reset(seed=0)[1]["persistent"].tolist() == [2.0]
    assert env.reset(options={"system": {"drag": 3.0}})[1]["persistent"].tolist() == [3.0]
    assert env.reset()[1]["persistent"].tolist() == [2.0]


def test_the_system_does_not_touch_the_initial_state_of_a_seed():
    starts = [
        gym.make(ID).reset(seed=7, options=options)[0]
        for options in (None, {"system": {"drag": 0.5}}, {"system": {"drag": 4.0}})
    ]
    assert np.array_equal(starts[0], starts[1])
    assert np.array_equal(starts[0], starts[2])


def test_extrapolation_is_legal_and_flagged():
    env = gym.make(ID)
    assert env.reset(options={"system": {"drag": 0.0}})[1]["extrapolated"] is True
    assert env.reset(options={"system": {"drag": 4.0}})[1]["extrapolated"] is False
    vector = gym.make_vec(ID, num_envs=3)
    _, info = vector.reset(options={"system": {"drag": np.array([0.1, 1.0, 9.0])}})
    assert info["extrapolated"].tolist() == [True, False, True]


def test_exact_initial_states():
    env = gym.make(ID)
    state = np.array([0.1, 0.2, -0.3, 1 / 3])
    obs, _ = env.reset(options={"state": state})
    assert np.array_equal(env.unwrapped.state, state)
    assert np.array_equal(obs, state.astype(np.float32))
    env.step(np.ones(2, np.float32))
    assert np.array_equal(env.unwrapped.initial_state, state)
    vector = gym.make_vec(ID, num_envs=3)
    vector.reset(seed=0, options={"state": np.stack([state, 2 * state, 3 * state])})
    assert np.array_equal(vector.unwrapped.state, np.stack([state, 2 * state, 3 * state]))


def test_named_starts_hold_through_autoresets_and_mix():
    env = SpriiVectorEnv(Bounded(), 4, max_episode_steps=1)
    env.reset(seed=0, options={"query": "still"})
    assert not env.state[:, 2:].any()
    env.reset(options={"query": "fast", "reset_mask": np.array([True, False, True, False])})
    for _ in range(2):
        env.step(np.zeros((4, 2), np.float32))
    assert not env.state[[1, 3], 2:].any()
    assert env.state[[0, 2], 2:].all()
    env.reset()
    assert env.state[:, 2:].all()
    single = SpriiEnv(Bounded())
    single.reset(options={"query": "still"})
    assert not single.state[2:].any()
    with pytest.raises(ValueError, match="'stil'; did you mean 'still'"):
        single.reset(options={"query": "stil"})
    before = single.state
    with pytest.raises(ValueError, match="'state' and 'query' = 'fast' both say"):
        single.reset(options={"query": "fast", "state": np.ones(4)})
    assert np.array_equal(single.state, before)
    env.reset(options={"query": "still", "state": np.ones((4, 4))})
    assert env.state[:, 2:].all()
    for _ in range(2):
        env.step(np.zeros((4, 2), np.float32))
    assert not env.state[:, 2:].any()


BAD_OPTIONS = [
    ({"sytem": {"drag": 1.0}}, ["'sytem'", "did you mean 'system'"]),
    ({"system": {"drga": 1.0}}, ["'drga'", "did you mean 'drag'"]),
    ({"system": {"drag": -1.0}}, ["'drag'", "-1.0", "≥ 0"]),
    ({"system": {"drag": np.nan}}, ["'drag'", "nan"]),
    ({"system": {}}, ["'drag' is missing"]),
    ({"system": "a"}, ["'a'", "systems="]),
    ({"state": [0, 0, np.nan, 0]}, ["'vx'", "nan", "finite number in [-1e+06, 1e+06]"]),
    ({"state": [0, 0, 0]}, ["('x', 'y', 'vx', 'vy')", "(3,)"]),
    ({"state": "here"}, ["'here'"]),
    ({"state": [0, 1e9, 0, 0]}, ["'y'", "1000000000.0"]),
    ({"query": "cold"}, ["'cold'", "there are none"]),
    ({"system": {"drag": 1.0}, "state": [np.inf, 0, 0, 0]}, ["'x'", "inf"]),
]


@pytest.mark.parametrize(("options", "pieces"), BAD_OPTIONS)
@pytest.mark.parametrize("vector", [False, True])
def test_bad_options_are_refused_by_name_and_change_nothing(options, pieces, vector):
    env = gym.make_vec(ID, num_envs=3) if vector else gym.make(ID)
    env.reset(seed=3)
    before = pickle.dumps(env.unwrapped.get_state())
    with pytest.raises(ValueError, match=r".+") as caught:
        env.reset(seed=99, options=options)
    assert all(piece in str(caught.value) for piece in pieces), str(caught.value)
    assert pickle.dumps(env.unwrapped.get_state()) == before


@pytest.mark.filterwarnings("ignore:.*render_mode='rgb'")
def test_bad_arguments_are_refused():
    for kwargs, match in (
        ({"obs_type": "pixel"}, "did you mean 'pixels'"),
        ({"render_mode": "rgb"}, "rgb_array"),
        ({"image_size": 4}, "image_size"),
        ({"image_size": 2.5}, r"image_size must be .* got 2\.5"),
        ({"system": {"drag": -1.0}}, "'drag' = -1.0"),
        ({"system": "zz", "systems": SET}, "unknown system id 'zz'"),
        ({"systems": [1.0]}, "SystemSet or a SystemDistribution"),
        ({"force_limt": 1.0}, "did you mean 'force_limit'"),
        ({"mass": 0.0}, "mass is 0.0"),
        ({"dt": np.nan}, "dt is nan"),
    ):
        for make in (gym.make, gym.make_vec):
            with pytest.raises(ValueError, match=match):
                make(ID, **kwargs)
    with pytest.raises(ValueError, match="num_envs"):
        SpriiVectorEnv(DClean(), 0)


def test_bad_actions_are_refused_and_change_nothing():
    env = gym.make(ID)
    env.reset(seed=0)
    state = env.unwrapped.state
    for bad, match in (([np.nan, 0.0], "component 0.*nan"), ([1.0], r"shape \(2,\), got \(1,\)"), ("up", "action")):
        with pytest.raises(ValueError, match=match):
            env.step(bad)
        assert np.array_equal(env.unwrapped.state, state)
    vector = gym.make_vec(ID, num_envs=3)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match="component 1 of slot 2"):
        vector.step(np.array([[0, 0], [0, 0], [0, np.nan]], np.float32))
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        vector.step(np.zeros((2, 2), np.float32))


def test_use_before_reset_is_refused():
    for env in (gym.make(ID).unwrapped, gym.make_vec(ID, num_envs=2)):
        with pytest.raises(ResetNeeded):
            env.step(np.zeros((2, 2), np.float32))
        with pytest.raises(ValueError, match="'same'"):
            env.reset(options={"system": "same"})
    with pytest.raises(ValueError, match="first reset"):
        gym.make_vec(ID, num_envs=2).reset(options={"reset_mask": np.array([True, False])})


# --- per-slot systems in the vector environment ---


@given(
    st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4).filter(any),
)
@settings(max_examples=25, deadline=None)
def test_partial_resets_touch_only_the_masked_slots(drags, mask):
    mask = np.array(mask)
    env = gym.make_vec(ID, num_envs=4)
    twin = gym.make_vec(ID, num_envs=4)
    for e in (env, twin):
        e.reset(seed=0)
        e.step(np.ones((4, 2), np.float32))
    _, info = env.reset(options={"system": {"drag": np.array(drags)}, "reset_mask": mask})
    assert info["_persistent"].tolist() == mask.tolist()
    assert info["persistent"][mask, 0].tolist() == np.array(drags)[mask].tolist()
    action = np.full((4, 2), 0.5, np.float32)
    starts = env.unwrapped.state
    after, untouched = env.step(action)[0], twin.step(action)[0]
    assert np.array_equal(after[~mask], untouched[~mask])
    for i in np.flatnonzero(mask):
        alone = rollout(DClean(), np.array([[drags[i]]]), starts[i], action[:1]).states[0, 1]
        assert np.array_equal(after[i], alone.astype(np.float32))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_per_slot_systems_hold_through_autoresets_until_the_next_reset(mode):
    env = gym.make_vec(ID, num_envs=3, max_episode_steps=2, autoreset_mode=mode)
    values = np.array([[0.5], [1.5], [2.5]])
    env.reset(seed=0, options={"system": values})
    for _ in range(9):
        *_, info = env.step(np.zeros((3, 2), np.float32))
        if "persistent" in info:
            assert np.array_equal(info["persistent"], values)
    env.reset(options={"reset_mask": np.array([True, False, False])})
    drags = [env.unwrapped.system(i).values["drag"] for i in range(3)]
    assert drags[0] != 0.5
    assert drags[1:] == [1.5, 2.5]
    _, info = env.reset(options={"system": "same"})
    assert info["persistent"][:, 0].tolist() == drags


def test_systems_by_id_and_by_object_for_each_slot():
    env = gym.make_vec(ID, num_envs=3, systems=SET)
    _, info = env.reset(options={"system": SET.ids[:3]})  # an array of text
    assert info["system_id"].tolist() == SET.ids[:3].tolist()
    spelt = SystemSet(SET.properties, [[1.0], [2.0], [3.0]], ids=[1, 2, 3])
    with pytest.raises(ValueError, match=r"\[1, 2, 3\] may be ids or values; ids are text: \['1', '2', '3'\]"):
        gym.make_vec(ID, num_envs=3, systems=spelt).reset(options={"system": [1, 2, 3]})
    with pytest.raises(AttributeError, match="'keep_system' cannot be set slot by slot"):
        env.set_attr("keep_system", True)
    _, info = env.reset(options={"system": ["d", SET["a"], "b"]})
    assert info["system_id"].tolist() == ["d", "a", "b"]
    assert env.unwrapped.system(0) == SET["d"]
    _, info = env.reset(options={"system": SET[:3]})
    assert info["system_id"].tolist() == ["a", "b", "c"]
    for bad, match in (
        (["a", "b"], "2 systems were given for 3 slots"),
        (np.ones((2, 1)), r"\(3, 1\)"),
        ({"drag": np.ones(2)}, r"\(3,\)"),
    ):
        with pytest.raises(ValueError, match=match):
            env.reset(options={"system": bad})


@pytest.mark.parametrize("mask", [[True, False], np.array([1, 0, 1]), np.zeros(3, bool), "all"])
def test_bad_masks_are_refused(mask):
    env = gym.make_vec(ID, num_envs=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": mask})


def test_disabled_autoreset_refuses_to_step_an_ended_slot():
    env = gym.make_vec(ID, num_envs=2, max_episode_steps=1, autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step(np.zeros((2, 2), np.float32))
    with pytest.raises(ResetNeeded, match=r"\[0, 1\]"):
        env.step(np.zeros((2, 2), np.float32))


def test_nothing_handed_out_changes_later():
    for obs_type in ("state", "pixels"):
        env = gym.make_vec(ID, num_envs=3, obs_type=obs_type, max_episode_steps=2)
        kept, copies = [], []
        out = env.reset(seed=0)
        for action in actions(3, 8):
            kept.append(out)
            copies.append(copy.deepcopy(out))
            out = env.step(action)
        assert data_equivalence(kept, copies, exact=True)


# --- snapshots and copies ---


def run(env, steps, n=None):
    out = []
    for action in actions(n or 1, steps, seed=5):
        result = env.step(action if n else action[0])
        out.append(result)
        if n is None and result[3]:
            out.append(env.reset())
    return out


@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("kwargs", [{}, {"systems": SET}])
def test_a_saved_episode_continues_exactly_time_limit_and_later_resets_included(obs_type, kwargs):
    env = gym.make(ID, obs_type=obs_type, **kwargs)
    env.reset(seed=1)
    run(env, 40)
    saved = pickle.loads(pickle.dumps(get_state(env)))
    first = run(env, 70)
    set_state(env, saved)
    second = run(env, 70)
    assert data_equivalence(first, second, exact=True)
    other = gym.make(ID, obs_type=obs_type, **kwargs)
    set_state(other, saved)
    assert data_equivalence(first, run(other, 70), exact=True)
    assert saved["episode"]["state"].dtype == np.float64
    assert saved["episode"]["state"].shape == (4,)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_saved_vector_environment_continues_exactly(mode):
    env, _ = pair(4, mode, obs_type="pixels")
    env.reset(seed=1)
    run(env, 10, 4)
    saved = pickle.loads(pickle.dumps(get_state(env)))
    first = run(env, 20, 4)
    set_state(env, saved)
    assert data_equivalence(first, run(env, 20, 4), exact=True)


def test_copies_and_pickles_continue_exactly():
    for env, n in (
        (gym.make(ID, render_mode="rgb_array"), None),
        (gym.make_vec(ID, num_envs=3, max_episode_steps=9), 3),
    ):
        env.reset(seed=2)
        run(env, 5, n)
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        want = run(env, 70, n)
        for twin in twins:
            assert data_equivalence(run(twin, 70, n), want, exact=True)


def test_bad_snapshots_are_refused_and_change_nothing():
    env = gym.make(ID)
    env.reset(seed=0)
    good = env.unwrapped.get_state()
    for name, value in (("state", np.zeros(3)), ("state", np.full(4, np.nan)), ("values", np.array([-1.0]))):
        with pytest.raises(ValueError, match=r".+"):
            env.unwrapped.set_state(good | {name: value})
    with pytest.raises(ValueError, match="lacks 'key'"):
        env.unwrapped.set_state({k: v for k, v in good.items() if k != "key"})
    with pytest.raises(ValueError, match="np_random"):
        env.unwrapped.set_state(good | {"np_random": {"bit_generator": "MT19937"}})
    assert data_equivalence(env.unwrapped.get_state()["state"], good["state"], exact=True)
    with pytest.raises(ValueError, match="layers"):
        set_state(env.unwrapped, get_state(env))
    for bad, match in (
        (None, "get_state.*None"),
        ({"a": 1}, "'episode' and 'wrappers'; got a mapping of 'a'"),
        ({"episode": None, "wrappers": get_state(env)["wrappers"]}, "mapping; got None"),
        ({"episode": {"a": 1}, "wrappers": get_state(env)["wrappers"]}, "lacks 'world'; it has 'a'"),
        (get_state(env) | {"wrappers": 3}, "'wrappers' must be a list"),
        (get_state(env) | {"made": None}, "'made' must be a list of"),
        (get_state(env) | {"made": [64]}, "'made' must be a list of"),
    ):
        with pytest.raises(ValueError, match=match):
            set_state(env, bad)
    with pytest.raises(ValueError, match=r"only environments of sprii_envs.*CartPole"):
        get_state(gym.make("CartPole-v1"))


@pytest.mark.parametrize("vector", [False, True])
def test_a_snapshot_of_another_world_is_refused(vector):
    def make(**kwargs):
        return gym.make_vec(ID, num_envs=2, **kwargs) if vector else gym.make(ID, **kwargs)

    for there, here, match in (
        ({"dt": 0.1}, {}, r"another world: dt is 0\.1 there, 0\.05 here"),
        ({"obs_type": "pixels"}, {}, "obs_type is 'pixels' there, 'state' here"),
        ({"obs_type": "pixels", "image_size": 32}, {"obs_type": "pixels"}, r"image_size is \(32, 32\) there"),
    ):
        env, other = make(**there), make(**here)
        env.reset(seed=0)
        other.reset(seed=1)
        before = pickle.dumps(get_state(other))
        with pytest.raises(ValueError, match=match):
            set_state(other, get_state(env))
        assert pickle.dumps(get_state(other)) == before


def test_wrappers_that_a_snapshot_does_not_cover_are_named_once():
    env = gym.wrappers.FrameStackObservation(gym.wrappers.RecordEpisodeStatistics(gym.make(ID)), 3)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="FrameStackObservation, RecordEpisodeStatistics;") as caught:
        saved = get_state(env)
    with pytest.warns(UserWarning, match="FrameStackObservation, RecordEpisodeStatistics;") as again:
        set_state(env, saved)
    assert len(caught) == len(again) == 1
    vector = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec(ID, num_envs=2))
    vector.reset(seed=0)
    with pytest.warns(UserWarning, match="RecordEpisodeStatistics"):
        get_state(vector)
    quiet = gym.wrappers.FlattenObservation(gym.wrappers.ClipAction(gym.make(ID)))
    quiet.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        set_state(quiet, get_state(quiet))


def test_a_generator_set_by_hand_drives_the_episodes():
    def first(seed):
        env = gym.make(ID).unwrapped
        env.np_random = np.random.default_rng(seed)
        return env.reset()[0], env.reset()[0]

    assert np.array_equal(first(0), first(0))
    assert not np.array_equal(first(0), first(1))


# --- counterfactuals ---


def test_counterfactuals_are_what_the_environment_would_have_done():
    env = gym.make(ID, obs_type="pixels", image_size=32)
    env.reset(seed=4)
    for action in actions(1, 10)[:, 0]:
        env.step(action)
    u = env.unwrapped
    before = pickle.dumps(u.get_state())
    plan = actions(1, 20, seed=9)[:, 0]
    systems = u.vary("drag", [0.5, u.system.values["drag"], 4.0])
    result = u.counterfactual(systems, plan, frames=True)
    assert pickle.dumps(u.get_state()) == before
    assert result.states.shape == (3, 21, 4)
    assert result.frames.shape == (3, 21, 32, 32)
    assert np.array_equal(result.states[:, 0], np.repeat(u.state[None], 3, axis=0))
    assert (result.states[0, -1] != result.states[2, -1]).all()
    start = u.state
    for i, system in enumerate(systems):
        replay = gym.make(ID, obs_type="pixels", image_size=32)
        replay.reset(options={"system": system, "state": start})
        for t, action in enumerate(plan):
            obs, reward, *_ = replay.step(action)
            assert np.array_equal(replay.unwrapped.state, result.states[i, t + 1])
            assert np.array_equal(obs[..., 0], result.frames[i, t + 1])
            assert np.array_equal(obs[..., 1], result.frames[i, t])
            assert reward == result.rewards[i, t]
    assert not result.ended.any()


def test_counterfactuals_take_systems_in_every_form_and_start_anywhere():
    env = SpriiEnv(Bounded())
    env.reset(seed=0)
    plan = np.ones((40, 2), np.float32)
    forms = (
        env.vary("drag", [0.5, 4.0]),
        [System({"drag": 0.5}), {"drag": 4.0}],
        {"drag": [0.5, 4.0]},
        np.array([[0.5], [4.0]]),
    )
    results = [env.counterfactual(form, plan, state=env.initial_state) for form in forms]
    for result in results:
        assert np.array_equal(result.states, results[0].states)
    assert results[0].ended[:, -1].all()
    assert (np.diff(results[0].ended.astype(int), axis=1) >= 0).all()
    for bad in (np.ones((3, 5)), np.ones(2), np.ones((3, 4, 2))):
        with pytest.raises(ValueError, match=r"actions must have shape"):
            env.counterfactual(forms[0], bad)
    with pytest.raises(ValueError, match="nan"):
        env.counterfactual(forms[0], np.full((2, 2), np.nan))
    vector = SpriiVectorEnv(DClean(), 3)
    vector.reset(seed=0)
    out = vector.counterfactual(1, vector.vary(1, "drag", [1.0, 2.0]), plan)
    assert np.array_equal(out.states[0, 0], vector.state[1])


def test_sensitivity_is_the_derivative_by_the_log_of_the_property():
    env = SpriiEnv(DClean(), system={"drag": 1.5})
    env.reset(seed=0)
    start, plan = np.array([0.0, 0.0, 2.0, -1.0]), np.zeros((30, 2), np.float32)
    got = env.sensitivity("drag", plan, state=start)
    t = 0.05 * np.arange(31)[:, None]
    want = -1.5 * t * np.exp(-1.5 * t) * start[2:]
    assert np.allclose(got[:, 2:], want, atol=1e-3)
    with pytest.raises(ValueError, match="did you mean 'drag'"):
        env.sensitivity("dragg", plan)
    with pytest.raises(ValueError, match="relative"):
        env.sensitivity("drag", plan, relative=0.0)


def test_distributions_can_be_given_instead_of_sets():
    levels = SystemDistribution(DClean.properties, {"drag": [1.0, 2.0]})
    env = gym.make_vec(ID, num_envs=200, systems=levels)
    assert set(env.reset(seed=0)[1]["persistent"][:, 0]) == {1.0, 2.0}
    assert env.unwrapped.distribution == levels
    assert env.unwrapped.systems is None
    assert sprii_envs.SystemSet is SystemSet


def test_vector_environments_tell_what_runs_in_their_slots():
    env = gym.make_vec(ID, num_envs=3, systems=SET)
    _, info = env.reset(seed=np.int64(0), options={"system": ["d", "d", "b"]})
    assert env.unwrapped.system_ids == info["system_id"].tolist() == ["d", "d", "b"]
    assert np.array_equal(env.unwrapped.values, info["persistent"])
    assert env.unwrapped.elapsed_steps.tolist() == [0, 0, 0]


def test_specs_with_a_pinned_system_stay_serialisable():
    env = gym.make(ID, system={"drag": 2.0}, obs_type="pixels")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=0), again.reset(seed=0), exact=True)
    assert pickle.loads(pickle.dumps(env.spec)) == env.spec


def test_a_refused_action_changes_nothing_even_when_a_slot_awaits_its_autoreset():
    env = SpriiVectorEnv(DClean(), 2, max_episode_steps=3)
    env.reset(seed=0)
    still = np.zeros((2, 2), np.float32)
    env.step(still)
    env.reset(options={"reset_mask": np.array([False, True])})
    env.step(still)
    env.step(still)  # slot 0 has ended
    bad = still.copy()
    bad[1] = np.nan
    before = env.get_state()
    with pytest.raises(ValueError, match="nan"):
        env.step(bad)
    assert data_equivalence(env.get_state(), before, exact=True)
    env.step(still)
    assert env.elapsed_steps.tolist() == [0, 3]


def test_a_vector_snapshot_is_of_its_autoreset_mode_and_time_limit():
    made = SpriiVectorEnv(DClean(), 2, max_episode_steps=5)
    made.reset(seed=0)
    saved = made.get_state()
    for other, name in (
        (SpriiVectorEnv(DClean(), 2, max_episode_steps=5, autoreset_mode="SameStep"), "autoreset_mode"),
        (SpriiVectorEnv(DClean(), 2, max_episode_steps=6), "max_episode_steps"),
    ):
        with pytest.raises(ValueError, match=name):
            other.set_state(saved)


@pytest.mark.parametrize(("name", "value"), [("query", 7), ("query", -2), ("ids", 5), ("origin", "x")])
def test_a_corrupt_snapshot_is_refused(name, value):
    env = SpriiEnv(DClean())
    env.reset(seed=0)
    saved = env.get_state()
    with pytest.raises(ValueError, match=name):
        env.set_state({**saved, name: value})
    assert data_equivalence(env.get_state(), saved, exact=True)


# --- messages in the user's axes ---


def message(call) -> str:
    with pytest.raises(ValueError, match=r".+") as caught:
        call()
    return str(caught.value)


def test_single_environments_speak_of_single_actions_states_and_systems():
    env = SpriiEnv(DClean())
    env.reset(seed=0)
    assert message(lambda: env.step([1.0, 2.0, 3.0])) == "action must have shape (2,), got (3,)"
    assert message(lambda: env.step([[1.0, 2.0]])) == "action must have shape (2,), got (1, 2)"
    assert message(lambda: env.step(0.5)) == "action must have shape (2,), got ()"
    assert message(lambda: env.step([0.0, np.nan])).startswith("action component 1 is nan")
    assert "shape (4,), got (3,)" in message(lambda: env.reset(options={"state": [0.0] * 3}))
    for system, shape in (([1.0, 2.0], "(2,)"), ([[1.0, 2.0]], "(1, 2)"), (1.0, "()")):
        for call in (lambda s=system: env.reset(options={"system": s}), lambda s=system: SpriiEnv(DClean(), system=s)):
            assert message(call).endswith(f"shape (1,), got {shape}")
    two = [System({"drag": 1.0}), System({"drag": 2.0})]
    assert message(lambda: env.reset(options={"system": two})) == "2 systems were given for one episode"
    saved = env.get_state()
    for name, wrong, shapes in (
        ("state", np.zeros(3), "shape (4,), got float64 of shape (3,)"),
        ("values", np.zeros(2), "shape (1,), got float64 of shape (2,)"),
        ("key", [1, 2], "shape (), got uint64 of shape (2,)"),
    ):
        assert message(lambda n=name, w=wrong: env.set_state({**saved, n: w})).endswith(shapes)
    assert "in −1 … -1, got 7" in message(lambda: env.set_state({**saved, "query": 7}))


def test_what_is_rolled_out_is_spoken_of_as_it_was_given():
    env = SpriiEnv(DClean())
    env.reset(seed=0)
    bad = np.zeros((5, 2))
    bad[3, 1] = np.nan
    assert "(T, 2), got (5, 3)" in message(lambda: env.sensitivity("drag", np.zeros((5, 3))))
    assert "shape (4,), got (2, 4)" in message(
        lambda: env.sensitivity("drag", np.zeros((5, 2)), state=np.zeros((2, 4)))
    )
    for call in (lambda: env.sensitivity("drag", bad), lambda: env.counterfactual([[1.0]] * 3, bad)):
        assert message(call).startswith("actions[3, 1] is nan")
    each = np.stack([np.zeros((5, 2)), bad])
    assert message(lambda: env.counterfactual([[1.0]] * 2, each)).startswith("actions[1, 3, 1] is nan")
    assert message(lambda: env.counterfactual([[1.0]] * 3, np.zeros((5, 3)))).endswith("(3, T, 2), got (5, 3)")
    assert message(lambda: rollout(DClean(), np.ones((3, 2)), np.zeros(4), bad)).endswith("got (3, 2)")
    wrong = lambda t, state: np.zeros((3, 2), np.float32)  # noqa: E731
    assert message(lambda: rollout(DClean(), np.ones((2, 1)), np.zeros(4), wrong, steps=1)).endswith(
        "actions must have shape (2, 2), got (3, 2)"
    )
    other = SystemSet.from_values(PERIOD, {"period": [1.0]})
    assert "'period'" in message(lambda: env.counterfactual(other, np.zeros((2, 2))))


PERIOD = PersistentProperties([PersistentProperty("period", "T", "s", 1.0, 2.0, 1.0)])


def test_a_vector_of_one_has_its_axis():
    env = SpriiVectorEnv(DClean(), 1)
    env.reset(seed=0, options={"system": {"drag": np.array([3.0])}, "state": np.ones((1, 4))})
    assert env.values.tolist() == [[3.0]]
    assert message(lambda: env.step(np.zeros(2))) == "actions must have shape (1, 2), got (2,)"


# --- no silent coercion ---

UNREAL = {
    "beyond 64 bits": lambda k: [10**40] + [0] * (k - 1),
    "masked": lambda k: np.ma.array(np.zeros(k), mask=[True] + [False] * (k - 1)),
    "text": lambda k: ["1"] * k,
    "bytes": lambda k: [b"1"] * k,
    "booleans": lambda k: np.ones(k, bool),
    "one boolean": lambda k: [True] + [0.5] * (k - 1),
    "dates": lambda k: np.zeros(k, "M8[s]"),
    "spans": lambda k: np.zeros(k, "m8[s]"),
    "complex": lambda k: np.ones(k, complex),
    "structured": lambda k: np.zeros(k, [("a", float)]),
    "nothing": lambda k: [None] * k,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", UNREAL)
def test_what_is_not_a_real_number_is_refused_by_name_and_changes_nothing(kind):
    make = UNREAL[kind]
    stack = np.ma.stack if kind == "masked" else list if isinstance(make(1), list) else np.stack
    single, vector = SpriiEnv(DClean()), SpriiVectorEnv(DClean(), 2)
    for env in (single, vector):
        env.reset(seed=0)
    before = single.get_state(), vector.get_state()
    action, state, system = make(2), make(4), make(1)
    actions = stack([action] * 2)
    calls = {
        "action": [lambda: single.step(action)],
        "actions": [
            lambda: vector.step(actions),
            lambda: single.counterfactual([[1.0]], actions),
            lambda: single.sensitivity("drag", actions),
        ],
        "state": [
            lambda: single.reset(options={"state": state}),
            lambda: vector.reset(options={"state": stack([state] * 2)}),
            lambda: single.counterfactual([[1.0]], np.zeros((2, 2)), state=state),
            lambda: single.set_state({**before[0], "state": state}),
            lambda: vector.set_state({**before[1], "state": stack([state] * 2)}),
        ],
        "system": [
            lambda: single.reset(options={"system": system}),
            lambda: vector.reset(options={"system": system}),
            lambda: SpriiEnv(DClean(), system=system),
        ],
        "drag": [
            lambda: single.reset(options={"system": {"drag": system[0]}}),
            lambda: vector.reset(options={"system": {"drag": system}}),
            lambda: single.vary("drag", system),
        ],
    }
    for name, each in calls.items():
        for call in each:
            assert name in message(call)
    for env, state in zip((single, vector), before, strict=True):
        assert data_equivalence(env.get_state(), state, exact=True)


def test_tensors_that_require_gradients_are_refused_and_others_are_taken():
    torch = pytest.importorskip("torch")
    single = SpriiEnv(DClean())
    single.reset(seed=0)
    single.step(torch.zeros(2))
    assert "action must be 2 numbers" in message(lambda: single.step(torch.zeros(2, requires_grad=True)))
    state = torch.zeros(4, requires_grad=True)
    assert "state must be numbers" in message(lambda: single.reset(options={"state": state}))
    drag = torch.tensor(1.0, requires_grad=True)
    assert "'drag' must be one number" in message(lambda: single.reset(options={"system": {"drag": drag}}))


@pytest.mark.parametrize("options", [[], (), "system", 0, [("system", "same")]], ids=repr)
def test_options_that_are_no_mapping_are_refused(options):
    for env in (
        gym.make(ID),
        gym.make_vec(ID, num_envs=2),
        RepeatSystem(gym.make(ID)),
        ContextObservation(gym.make(ID)),
        VectorContextObservation(gym.make_vec(ID, num_envs=2)),
    ):
        assert "reset options must be a mapping" in message(lambda e=env: e.reset(options=options))


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        ([1.5, 2.7], "seed[0]"),
        ("12", "seed"),
        (b"12", "seed"),
        (bytearray(b"12"), "seed"),
        ([True, 1], "seed[0]"),
        ([1, "2"], "seed[1]"),
        ({1: 2, 3: 4}, "seed"),
        (np.array([1.0, 2.0]), "seed[0]"),
        ([[1], [2]], "seed[0]"),
        ([1, -2], "seed[1]"),
        ([1], "seed"),
        (1.5, "seed"),
        (True, "seed"),
        (-1, "seed"),
        (2**128, "seed"),
    ],
    ids=repr,
)
def test_seeds_that_are_no_integers_are_refused_by_name_and_change_nothing(seed, name):
    for env in (SpriiVectorEnv(DClean(), 2), SpriiEnv(DClean())):
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(ValueError, match=r"^seed.* (is .*; legal: an integer|must be .*got)") as caught:
            env.reset(seed=seed)
        assert str(caught.value).startswith(name) or isinstance(env, SpriiEnv)
        assert data_equivalence(env.get_state(), before, exact=True)


def test_counts_and_modes_of_a_vector_are_checked():
    for kwargs, match in (
        ({"num_envs": True}, "num_envs is .*; legal: an integer >= 1"),
        ({"num_envs": 2.0}, "num_envs is .*; legal: an integer >= 1"),
        ({"max_episode_steps": 2.5}, "max_episode_steps is .*; legal: an integer >= 1"),
        ({"max_episode_steps": "5"}, "max_episode_steps is .*; legal: an integer >= 1"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0; legal: an integer >= 1"),
        ({"autoreset_mode": "SameStpe"}, "autoreset_mode 'SameStpe'; did you mean 'SameStep'"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            SpriiVectorEnv(DClean(), **{"num_envs": 2, **kwargs})


@pytest.mark.parametrize(
    ("name", "value"),
    [("elapsed_steps", [1.5, 2]), ("done", [0, 1]), ("key", [-1, 2]), ("drawn", [0.5, 1]), ("pinned", [1, 0])],
)
def test_a_vector_snapshot_is_not_rounded(name, value):
    env = SpriiVectorEnv(DClean(), 2)
    env.reset(seed=0)
    saved = env.get_state()
    assert f"saved {name!r}" in message(lambda: env.set_state({**saved, name: value}))
    assert data_equivalence(env.get_state(), saved, exact=True)


def test_what_a_wrapper_remembers_is_checked_before_anything_is_put_back():
    env = ContextObservation(gym.make(ID))
    env.reset(seed=0)
    saved = get_state(env)
    layer = next(i for i, values in enumerate(saved["wrappers"]) if "_elapsed_steps" in values)
    for at, name, value in ((layer, "_elapsed_steps", "3"), (0, "_context", np.zeros(3, np.float32))):
        broken = copy.deepcopy(saved)
        broken["wrappers"][at][name] = value
        env.step([1.0, 1.0])
        before = env.unwrapped.get_state()
        assert name in message(lambda b=broken: set_state(env, b))
        assert data_equivalence(env.unwrapped.get_state(), before, exact=True)


# --- attributes of the slots ---


@pytest.mark.parametrize("seed", [7, [5, 3, 9], None])
def test_the_slots_of_a_native_vector_have_the_attributes_of_single_environments(seed):
    limit = 40 if seed is None else 4  # without a seed, later episodes differ
    native, sync = pair(3, AutoresetMode.NEXT_STEP, systems=SET, render_mode="rgb_array", limit=limit)
    names = ["state", "initial_state", "system", "systems", "distribution", "world", "persistent_properties"]
    names += ["obs_type", "image_size", "running", "render_mode", "metadata", "observation_space", "action_space"]
    for env in (native, sync):
        with pytest.raises(ResetNeeded):
            env.get_attr("system")
        with pytest.raises(AttributeError, match="stat"):
            env.get_attr("stat")
        env.reset(seed=seed, options={"system": "b"} if seed is None else None)
    if seed is None:
        for env in (native, sync):
            env.reset(options={"system": "c", "state": [0.1, 0.2, 0.0, 0.0]})
    taken, last = np.zeros((3, 2)), np.zeros((3, 2), np.float32)
    for action in actions(3, 6):
        for env in (native, sync):
            env.step(action)
        for name in names:
            ours, theirs = native.get_attr(name), sync.get_attr(name)
            assert isinstance(ours, tuple)
            assert data_equivalence(ours, theirs, exact=True), name
        if seed is not None:
            assert native.get_attr("np_random_seed") == sync.get_attr("np_random_seed")
            assert data_equivalence(native.call("get_state"), sync.call("get_state"), exact=True)
        assert data_equivalence(native.call("render"), sync.call("render"), exact=True)
        assert native.call("vary", "drag", [1.0, 2.0]) == sync.call("vary", "drag", [1.0, 2.0])
        assert data_equivalence(
            native.call("sensitivity", "drag", taken), sync.call("sensitivity", "drag", taken), exact=True
        )
        for ours, theirs in zip(
            *(env.call("counterfactual", SET, last, state=np.ones(4), frames=True) for env in (native, sync)),
            strict=True,
        ):
            assert data_equivalence(vars(ours), vars(theirs), exact=True)
    before = native.get_state()
    native.get_attr("state")[0][:] = 99.0
    assert data_equivalence(native.get_state(), before, exact=True)


def test_attributes_can_be_given_to_slots_and_what_cannot_is_refused():
    native, sync = pair(3, AutoresetMode.NEXT_STEP)
    for values, expected in ((["a", "b", "c"], ("a", "b", "c")), ((1, 2, 3), (1, 2, 3)), ("ab", ("ab",) * 3)):
        for env in (native, VectorContextObservation(native), sync):
            env.set_attr("label", values)
            assert env.get_attr("label") == env.call("label") == expected
    for env in (native, sync):
        with pytest.raises(ValueError, match="2"):
            env.set_attr("label", [1, 2])
        env.reset(seed=0)
        for name in ("system", "state", "persistent_properties"):
            with pytest.raises(AttributeError, match=name):
                env.set_attr(name, None)
    for name in ("world", "max_episode_steps", "render_mode", "_max_episode_steps", "num_envs"):
        with pytest.raises(AttributeError, match=f"'{name}' cannot be set slot by slot"):
            native.set_attr(name, 3)
    for name in ("reset", "step", "set_state", "close"):
        with pytest.raises(ValueError, match=f"use the vector's own {name}"):
            native.call(name)
    with pytest.raises(ValueError, match=r"^name is 3; legal: str$"):
        native.set_attr(3, 1)
    assert copy.deepcopy(native).get_attr("label") == ("ab",) * 3


def test_wrapped_vectors_have_the_attributes_of_what_they_wrap():
    for kind in (None, "sync"):
        env = gym.make_vec(ID, num_envs=2, obs_type="pixels", vectorization_mode=kind)
        wrapped = VectorContextObservation(gym.wrappers.vector.RecordEpisodeStatistics(VectorTemporalDifference(env)))
        wrapped.reset(seed=3)
        assert wrapped.get_attr("system") == env.get_attr("system")
        assert wrapped.call("vary", "drag", [1.0]) == env.call("vary", "drag", [1.0])
        wrapped.set_attr("label", [1, 2])
        assert env.get_attr("label") == (1, 2)


@pytest.mark.parametrize("slot", [3, -4, True, 1.0, "0"], ids=repr)
def test_slots_are_numbered(slot):
    env = SpriiVectorEnv(DClean(), 3)
    env.reset(seed=0)
    still = np.zeros((2, 2))
    for call in (
        lambda: env.system(slot),
        lambda: env.vary(slot, "drag", [1.0]),
        lambda: env.counterfactual(slot, [[1.0]], still),
        lambda: env.sensitivity(slot, "drag", still),
    ):
        with pytest.raises(ValueError, match=r"^slot is .*; legal: an integer >= -3, at most 2$"):
            call()
    assert env.system(-1) == env.system(2)


def test_masks_and_contexts_of_other_kinds_are_refused():
    env = SpriiVectorEnv(DClean(), 2)
    env.reset(seed=0)
    mask = np.ma.array([True, True], mask=[False, True])
    assert "reset_mask must be" in message(lambda: env.reset(options={"reset_mask": mask}))
    assert "context must be" in message(lambda: ContextObservation(gym.make(ID), 5))
    for size in (np.timedelta64(64), True, "64", (64.0, 64.0)):
        assert "image_size must be" in message(lambda s=size: SpriiEnv(DClean(), image_size=s))
