"""Wrappers: what they add is what the infos and the states say, in every kind of environment and autoreset mode."""

import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

from sprii_envs.envs.pendulum import GROUPS, Pendulum
from sprii_envs.properties import PersistentProperty, SystemSet
from sprii_envs.snapshots import get_state, set_state
from sprii_envs.wrappers import (
    ContextObservation,
    RepeatSystem,
    StateObservation,
    TemporalDifference,
    VectorContextObservation,
    VectorStateObservation,
    VectorTemporalDifference,
)

DRAG, PENDULUM = "sprii/D-Clean-v0", "sprii/Pendulum-v0"
MODES = list(AutoresetMode)
SYSTEMS = SystemSet(Pendulum.properties, [[1.0, 0.8], [0.9, 1.2], [0.3, 1.6]], ids=["a", "b", "c"])
CODES = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}
VECTOR = {
    ContextObservation: VectorContextObservation,
    StateObservation: VectorStateObservation,
    TemporalDifference: VectorTemporalDifference,
}


def summary(observations, actions):
    """Sums over a history of any batch shape: (…, T+1, O) and (…, T, A) → (…, 3)."""
    t = np.full(actions.shape[:-2], actions.shape[-2], np.float64)
    return np.stack([observations.sum(axis=(-2, -1)), actions.sum(axis=(-2, -1)), t], axis=-1)


def looks(observations, actions):
    """The same of pixel histories (…, T+1, H, W, 2)."""
    return np.stack([observations.mean(axis=(-4, -3, -2, -1)) / 255, actions.sum(axis=(-2, -1))], axis=-1)


CASES = [
    (PENDULUM, "state", ContextObservation, {}),
    (PENDULUM, "state", ContextObservation, {"context": "none"}),
    (PENDULUM, "state", ContextObservation, {"context": ["length"], "normalise": False}),
    (PENDULUM, "state", ContextObservation, {"context": summary, "size": 3}),
    (PENDULUM, "state", ContextObservation, {"context": summary, "size": 3, "history": 4}),
    (PENDULUM, "state", ContextObservation, {"context": CODES}),
    (PENDULUM, "pixels", ContextObservation, {}),
    (PENDULUM, "pixels", ContextObservation, {"context": "none"}),
    (PENDULUM, "pixels", ContextObservation, {"context": looks, "size": 2, "history": 3}),
    (PENDULUM, "pixels", StateObservation, {}),
    (PENDULUM, "pixels", StateObservation, {"both": True}),
    (PENDULUM, "pixels", TemporalDifference, {}),
    (DRAG, "state", ContextObservation, {"context": "drag"}),
    (DRAG, "pixels", ContextObservation, {}),
    (DRAG, "pixels", TemporalDifference, {}),
    (DRAG, "pixels", StateObservation, {"both": True}),
]


def kwargs(id, obs_type, size=36):
    systems = {"systems": SYSTEMS} if id == PENDULUM else {}
    return {"obs_type": obs_type, **systems, **({"image_size": size} if obs_type == "pixels" else {})}


def actions(env, steps, seed=0):
    shape = (steps, *env.action_space.shape)
    return np.random.default_rng(seed).uniform(-1.2, 1.2, shape).astype(np.float32)


@pytest.mark.parametrize(("id", "obs_type", "wrapper", "arguments"), CASES)
def test_checkers_are_silent(id, obs_type, wrapper, arguments):
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    env = wrapper(gym.make(id, **kwargs(id, obs_type), render_mode="rgb_array"), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(env)
        if wrapper is TemporalDifference:  # SB3 warns of every image that is not uint8
            warnings.filterwarnings("ignore", message=".*is an image but")
        sb3_check_env(env, skip_render_check=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("id", "obs_type", "wrapper", "arguments"), CASES)
def test_vectors_give_what_wrapped_single_environments_give(id, obs_type, wrapper, arguments, mode):
    n, limit, made = 3, 5, kwargs(id, obs_type)
    native = gym.make_vec(id, num_envs=n, max_episode_steps=limit, autoreset_mode=mode, **made)
    native = VECTOR[wrapper](native, **arguments)
    one = lambda: wrapper(gym.make(id, max_episode_steps=limit, **made), **arguments)  # noqa: E731
    sync = SyncVectorEnv([one] * n, autoreset_mode=mode)
    assert native.single_observation_space == sync.single_observation_space
    assert native.observation_space == sync.observation_space
    vectors = [native, sync]
    if wrapper is not StateObservation:
        bare = SyncVectorEnv([lambda: gym.make(id, max_episode_steps=limit, **made)] * n, autoreset_mode=mode)
        vectors.append(VECTOR[wrapper](bare, **arguments))
    first, *others = [env.reset(seed=7) for env in vectors]
    for other in others:
        assert data_equivalence(first, other, exact=True)
    # One slot is reset half-way, so that the slots do not end together.
    lone = {"reset_mask": np.array([False, True, False])}
    ended = 0
    for t, action in enumerate(actions(native, 23)):
        if t == 2:
            first, *others = [env.reset(options=dict(lone)) for env in vectors]
            for other in others:
                assert data_equivalence(first[0], other[0], exact=True)
        first, *others = [env.step(action) for env in vectors]
        for other in others:
            assert data_equivalence(first, other, exact=True)
        assert native.observation_space.contains(first[0])
        done = first[2] | first[3]
        ended += done.sum()
        if mode is AutoresetMode.SAME_STEP and done.any():
            assert all(native.single_observation_space.contains(last) for last in first[4]["final_obs"][done])
        if mode is AutoresetMode.DISABLED and done.any():
            first, *others = [env.reset(options={"reset_mask": done}) for env in vectors]
            for other in others:
                assert data_equivalence(first, other, exact=True)
    assert ended >= 9


@pytest.mark.parametrize(("id", "obs_type", "wrapper", "arguments"), CASES)
def test_wrapped_environments_can_be_made_again_from_their_spec_and_from_a_pickle(id, obs_type, wrapper, arguments):
    env = wrapper(gym.make(id, **kwargs(id, obs_type)), **arguments)
    again = gym.make(env.spec)
    assert again.observation_space == env.observation_space
    assert data_equivalence(again.reset(seed=3), env.reset(seed=3), exact=True)
    copied = pickle.loads(pickle.dumps(env))
    for action in actions(env, 3):
        assert data_equivalence(copied.step(action), env.step(action), exact=True)


# --- context ---


def test_property_values_are_those_of_the_info_scaled_by_the_declared_range():
    env = ContextObservation(gym.make(PENDULUM))
    raw = ContextObservation(gym.make(PENDULUM), ["length", "mass"], normalise=False)
    assert env.observation_space.shape == raw.observation_space.shape == (5,)
    for seed in range(10):
        observation, info = env.reset(seed=seed)
        mass, length = info["persistent"]
        assert observation[3:] == pytest.approx([(mass - 1) / 0.25, (length - 1) / 0.25], abs=1e-6)
        assert raw.reset(seed=seed)[0][3:] == pytest.approx([length, mass], rel=1e-7)
        after = env.step([0.5])[0]
        assert after[3:].tolist() == observation[3:].tolist()
        assert after[:3] == pytest.approx(env.unwrapped.world.observe(env.unwrapped.state[None])[0])
    assert env.reset(options={"system": {"mass": 0.75, "length": 1.25}})[0][3:].tolist() == [-1.0, 1.0]


def test_a_logarithmic_scale_puts_the_geometric_mean_in_the_middle():
    p = PersistentProperty("mass", "m", "kg", 0.5, 8.0, 1.0, scale="log", physical_low=0.0)
    assert p.to_uniform([0.5, 2.0, 8.0, 32.0]) == pytest.approx([0.0, 0.5, 1.0, 1.5])
    assert p.to_uniform(0.0) == -np.inf
    u = np.linspace(0, 0.99, 50)
    for each in (p, Pendulum.properties["mass"]):
        assert each.to_uniform(each.from_uniform(u)) == pytest.approx(u, abs=1e-14)


def test_extrapolated_systems_stay_inside_the_space():
    env = ContextObservation(gym.make(PENDULUM, systems=GROUPS["OOD_c3"]))
    observation, info = env.reset(seed=0)
    assert info["extrapolated"]
    assert observation[3] > 2.0
    assert observation[4] < -2.0
    assert env.observation_space.contains(observation)
    huge = env.reset(options={"system": {"mass": 1e300, "length": 1.0}})[0]
    assert env.observation_space.contains(huge)


def test_context_follows_the_system_and_same_keeps_it():
    env = ContextObservation(gym.make(PENDULUM, systems=SYSTEMS), CODES)
    seen = set()
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert observation[3:].tolist() == CODES[info["system_id"]]
        seen.add(info["system_id"])
    assert seen == set("abc")
    env.reset(options={"system": "b"})
    again, info = env.reset(options={"system": "same"})
    assert (info["system_id"], again[3:].tolist()) == ("b", [3.0, 4.0])


def test_no_context_keeps_the_kind_of_observation():
    assert ContextObservation(gym.make(PENDULUM), "none").observation_space == gym.make(PENDULUM).observation_space
    assert ContextObservation(gym.make(PENDULUM), []).observation_space == gym.make(PENDULUM).observation_space
    pixels = gym.make(PENDULUM, obs_type="pixels")
    none, one = ContextObservation(pixels, "none"), ContextObservation(pixels, "mass")
    assert list(none.observation_space.spaces) == list(none.reset(seed=0)[0]) == ["observation"]
    assert {k: v.shape for k, v in one.observation_space.spaces.items()} == {
        "observation": (64, 64, 2),
        "context": (1,),
    }


def test_wrappers_stack():
    env = ContextObservation(StateObservation(TemporalDifference(gym.make(DRAG, obs_type="pixels")), both=True))
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert {k: v.shape for k, v in observation.items()} == {"pixels": (64, 64, 2), "state": (4,), "context": (1,)}
    assert observation["context"][0] == pytest.approx((info["persistent"][0] - 0.5) / 1.75 - 1, abs=1e-6)
    observation["context"][:] = 99.0
    assert abs(env.step([0.0, 0.0])[0]["context"][0]) <= 1.0
    vector = gym.make_vec(DRAG, num_envs=2, obs_type="pixels", max_episode_steps=3, autoreset_mode="SameStep")
    vector = VectorContextObservation(VectorStateObservation(VectorTemporalDifference(vector), both=True))
    _, before = vector.reset(seed=0)
    for action in actions(vector, 3):
        observations, *_, infos = vector.step(action)
    assert vector.observation_space.contains(observations)
    for slot, last in enumerate(infos["final_obs"]):
        assert vector.single_observation_space.contains(last)
        assert last["context"][0] == pytest.approx((before["persistent"][slot, 0] - 0.5) / 1.75 - 1, abs=1e-6)
        assert observations["context"][slot, 0] != last["context"][0]


@pytest.mark.parametrize("history", [None, 3])
def test_an_encoder_sees_the_running_episode(history):
    calls = []

    def encoder(observations, actions):
        calls.append((observations, actions))
        return np.full(2, len(actions), np.float32)

    inner = gym.make(PENDULUM)
    env = ContextObservation(inner, encoder, size=2, history=history)
    taken = actions(env, 6)
    for episode in range(2):
        calls.clear()
        seen = [env.reset(seed=episode)[0][:3]]
        for t, action in enumerate(taken):
            observation, *_ = env.step(action)
            seen.append(observation[:3])
            kept = t + 1 if history is None else min(t + 1, history)
            assert observation[3:].tolist() == [kept, kept]
            assert np.array_equal(calls[-1][0], seen[-kept - 1 :])
            assert np.array_equal(calls[-1][1], taken[t + 1 - kept : t + 1])
        assert calls[0][0].shape == (1, 3)
        assert calls[0][1].shape == (0, 1)
        assert len(calls) == 7


def test_a_vector_encoder_is_called_once_for_equally_long_histories():
    calls = []

    def encoder(observations, actions):
        calls.append(actions.shape)
        return summary(observations, actions)

    env = VectorContextObservation(gym.make_vec(PENDULUM, num_envs=8), encoder, size=3)
    env.reset(seed=0)
    for action in actions(env, 4):
        env.step(action)
    assert calls == [(8, t, 1) for t in range(5)]
    env.reset(options={"reset_mask": np.arange(8) < 3})
    env.step(np.zeros((8, 1), np.float32))
    assert calls[5:] == [(3, 0, 1), (3, 1, 1), (5, 5, 1)]


@pytest.mark.parametrize(
    ("context", "extra", "pieces"),
    [
        ("lenght", {}, ["unknown context 'lenght'", "did you mean 'length'"]),
        (["mass", "lenght"], {}, ["unknown property 'lenght'", "did you mean 'length'"]),
        (["mass", "mass"], {}, ["twice"]),
        (summary, {}, ["size", "None"]),
        (summary, {"size": 0}, ["size", "0"]),
        (summary, {"size": 3, "history": 0}, ["history", "0"]),
        ("all", {"size": 3}, ["size = 3", "encoder"]),
        ({}, {}, ["at least one system"]),
        ({"a": [1.0], "b": [1.0, 2.0]}, {}, ["one size", "'b'"]),
        ({"a": [np.nan]}, {}, ["finite", "'a'"]),
        ({"a": "x"}, {}, ["numbers", "'a'"]),
    ],
)
def test_bad_contexts_are_refused_by_name(context, extra, pieces):
    for make in (
        lambda: ContextObservation(gym.make(PENDULUM), context, **extra),
        lambda: VectorContextObservation(gym.make_vec(PENDULUM, num_envs=2), context, **extra),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the pieces are checked below
            make()
        assert all(piece in str(error.value) for piece in pieces), str(error.value)


def test_systems_without_a_code_and_codes_of_the_wrong_shape_are_refused():
    env = ContextObservation(gym.make(PENDULUM, systems=SYSTEMS), {"a": [1.0]})
    with pytest.raises(ValueError, match="no code for system 'b'"):
        env.reset(options={"system": "b"})
    with pytest.raises(ResetNeeded, match="the context of the system that runs could not be told"):
        env.step([0.0])  # of the second system, whose context would be the first one's
    env.reset(options={"system": "a"})
    assert env.step([0.0])[0][-1] == 1.0
    vector = VectorContextObservation(gym.make_vec(PENDULUM, num_envs=2, systems=SYSTEMS), {"a": [1.0]})
    vector.reset(options={"system": ["a", "a"]})
    with pytest.raises(ValueError, match="no code for system 'b'"):
        vector.reset(options={"system": ["a", "b"]})
    for call in (
        lambda: vector.step(np.zeros((2, 1), np.float32)),
        lambda: vector.reset(options={"reset_mask": np.array([True, False])}),
    ):
        with pytest.raises(ResetNeeded, match="could not be told: call reset\\(\\) of all slots"):
            call()
    vector.reset(options={"system": ["a", "a"]})
    assert vector.step(np.zeros((2, 1), np.float32))[0][:, -1].tolist() == [1.0, 1.0]
    for wrong in (lambda o, a: np.zeros(3), lambda o, a: [np.nan, 0.0]):
        with pytest.raises(ValueError, match="finite code of size 2"):
            ContextObservation(gym.make(PENDULUM), wrong, size=2).reset(seed=0)
    with pytest.raises(ValueError, match="has a context already"):
        ContextObservation(ContextObservation(gym.make(PENDULUM, obs_type="pixels")))
    both = StateObservation(gym.make(PENDULUM, obs_type="pixels"), both=True)
    with pytest.raises(ValueError, match="one array"):
        ContextObservation(both, summary, size=3)
    for env, wrapper in (
        (gym.make("CartPole-v1"), ContextObservation),
        (gym.make_vec("CartPole-v1", num_envs=2), VectorContextObservation),
        (gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"), VectorContextObservation),
    ):
        with pytest.raises(ValueError, match="persistent properties"):
            wrapper(env)


# --- frames and states ---


def test_the_difference_is_the_difference_of_the_frames():
    inner = gym.make(PENDULUM, obs_type="pixels")
    env = TemporalDifference(inner)
    world = inner.unwrapped.world
    observation, _ = env.reset(seed=0)
    frames = [world.draw(inner.unwrapped.state[None], 64)[0].astype(np.float64)]
    assert not observation[..., 1].any()
    moved = 0
    for action in actions(env, 20):
        observation, *_ = env.step(action)
        frames.append(world.draw(inner.unwrapped.state[None], 64)[0].astype(np.float64))
        assert observation.dtype == np.float32
        assert np.array_equal(observation[..., 0], (frames[-1] / 255).astype(np.float32))
        assert np.array_equal(observation[..., 1], ((frames[-1] - frames[-2]) / 255).astype(np.float32))
        moved += observation[..., 1].any()
    assert moved > 10


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_the_first_difference_after_an_autoreset_is_zero(mode):
    env = gym.make_vec(DRAG, num_envs=4, obs_type="pixels", max_episode_steps=5, autoreset_mode=mode)
    env = VectorTemporalDifference(env)
    env.reset(seed=0)
    begun = 0
    for action in actions(env, 20):
        observations, *_, infos = env.step(action)
        first = infos.get("_system_id", np.zeros(4, np.bool_))
        assert not observations[first][..., 1].any()
        assert observations[~first][..., 1].any(axis=(1, 2)).all()
        begun += first.sum()
    assert begun >= 12


def test_states_are_those_of_a_state_environment():
    pixels, states = gym.make(PENDULUM, obs_type="pixels"), gym.make(PENDULUM)
    env, both = StateObservation(pixels), StateObservation(gym.make(PENDULUM, obs_type="pixels"), both=True)
    plain = gym.make(PENDULUM, obs_type="pixels")
    assert env.observation_space == states.observation_space
    want, _ = states.reset(seed=5)
    assert np.array_equal(env.reset(seed=5)[0], want)
    assert np.array_equal(both.reset(seed=5)[0]["state"], want)
    plain.reset(seed=5)
    for action in actions(env, 10):
        want = states.step(action)[0]
        assert np.array_equal(env.step(action)[0], want)
        got = both.step(action)[0]
        assert np.array_equal(got["state"], want)
        assert np.array_equal(got["pixels"], plain.step(action)[0])


def test_pixel_wrappers_refuse_other_environments():
    for wrapper in (TemporalDifference, StateObservation):
        with pytest.raises(ValueError, match="pixel"):
            wrapper(gym.make(PENDULUM))
        with pytest.raises(ValueError, match="pixel"):
            VECTOR[wrapper](gym.make_vec(PENDULUM, num_envs=2))
    pixels = gym.make(PENDULUM, obs_type="pixels")
    with pytest.raises(ValueError, match="uint8"):
        TemporalDifference(TemporalDifference(pixels))
    with pytest.raises(ValueError, match="native"):
        VectorStateObservation(SyncVectorEnv([lambda: gym.make(PENDULUM, obs_type="pixels")]))


# --- snapshots ---


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("arguments", [{"context": {"a": [1.0]}}, {"context": summary, "size": 3, "history": 4}, {}])
def test_a_snapshot_holds_the_context_and_the_history(arguments, fresh):
    make = lambda: ContextObservation(gym.make(PENDULUM, systems=SYSTEMS), **arguments)  # noqa: E731
    env = make()
    env.reset(seed=0, options={"system": "a"})
    for action in actions(env, 3):
        env.step(action)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = pickle.loads(pickle.dumps(get_state(env)))
        want = [env.step(action) for action in actions(env, 6, seed=1)]
        other = make() if fresh else env
        set_state(other, saved)
    for action, step in zip(actions(env, 6, seed=1), want, strict=True):
        assert data_equivalence(other.step(action), step, exact=True)


def test_a_snapshot_of_vectors_and_pixel_wrappers_continues_exactly():
    native = gym.make_vec(PENDULUM, num_envs=3, obs_type="pixels", max_episode_steps=5)
    env = VectorContextObservation(VectorStateObservation(VectorTemporalDifference(native)), summary, size=3)
    env.reset(seed=0)
    for action in actions(env, 7):
        env.step(action)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = get_state(env)
        want = [env.step(action) for action in actions(env, 9, seed=1)]
        set_state(env, saved)
    for action, step in zip(actions(env, 9, seed=1), want, strict=True):
        assert data_equivalence(env.step(action), step, exact=True)


def test_channels_first_suits_the_image_policies_of_sb3():
    from stable_baselines3 import PPO

    def make(**kwargs):
        return TemporalDifference(gym.make("sprii/Pendulum-v0", obs_type="pixels"), **kwargs)

    last, first = make(), make(channels_first=True)
    assert first.observation_space.shape == (2, 64, 64)
    for env in (last, first):
        env.reset(seed=0)
    action = np.ones(1, np.float32)
    assert np.array_equal(last.step(action)[0].transpose(2, 0, 1), first.step(action)[0])
    vector = VectorTemporalDifference(gym.make_vec("sprii/Pendulum-v0", 3, obs_type="pixels"), channels_first=True)
    observation, _ = vector.reset(seed=0)
    assert observation.shape == (3, 2, 64, 64)
    assert observation in vector.observation_space
    normalised = {"normalize_images": False, "features_extractor_kwargs": {"normalized_image": True}}
    PPO("CnnPolicy", first, n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=normalised, device="cpu").learn(8)


# --- an info is no event ---


class Telling(VectorWrapper):
    """Infos that name the system, and what looks like a last observation, of every slot in every step."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        everywhere = np.ones(self.num_envs, bool)
        inner = self.unwrapped
        infos |= {"system_id": np.array(inner.system_ids, object), "_system_id": everywhere}
        infos |= {"persistent": inner.values, "_persistent": everywhere}
        if "final_obs" not in infos:
            infos |= {"final_obs": np.full(self.num_envs, None, object), "_final_obs": ~everywhere}
        return observations, rewards, terminated, truncated, infos


def counting(observations, actions):
    """Transitions seen, and the sum of all observed, of histories (n, T+1, 3)."""
    return np.stack([np.full(len(actions), actions.shape[1]), observations.sum(axis=(1, 2))], axis=1)


def vectors(kind, mode, limit, obs_type="state"):
    """Two slots whose infos name the system in every step."""

    def one():
        env = gym.make(PENDULUM, max_episode_steps=limit, systems=SYSTEMS, obs_type=obs_type)
        return gym.wrappers.RecordEpisodeStatistics(RepeatSystem(env, 2))

    if kind == "native":
        made = {"max_episode_steps": limit, "systems": SYSTEMS, "obs_type": obs_type, "autoreset_mode": mode}
        return Telling(gym.make_vec(PENDULUM, num_envs=2, **made))
    env = (SyncVectorEnv if kind == "sync" else AsyncVectorEnv)([one] * 2, autoreset_mode=mode)
    return gym.wrappers.vector.RecordEpisodeStatistics(env, stats_key="whole")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["native", "sync", "async"])
def test_an_info_in_every_step_is_no_beginning_of_an_episode(kind, mode):
    limit = 3
    encoded = VectorContextObservation(vectors(kind, mode, limit), counting, size=2)
    known = VectorContextObservation(vectors(kind, mode, limit), "all", normalise=False)
    coded = VectorContextObservation(vectors(kind, mode, limit), CODES)
    first = [env.reset(seed=4)[0] for env in (encoded, known, coded)]
    transitions, total = np.zeros(2), first[0][:, :3].sum(axis=1)
    waits = np.zeros(2, bool)
    for t, action in enumerate(actions(encoded, 14)):
        if t == 2:  # so that the slots do not end together
            lone = np.array([False, True])
            first = [env.reset(options={"reset_mask": lone.copy()})[0] for env in (encoded, known, coded)]
            transitions[1], total[1] = 0, first[0][1, :3].sum()
        (observations, _, terminated, truncated, infos), (values, *_), (codes, *_) = (
            env.step(action) for env in (encoded, known, coded)
        )
        done = terminated | truncated
        seen = observations[:, :3].sum(axis=1)
        if mode is AutoresetMode.SAME_STEP and done.any():
            for slot in np.flatnonzero(done):
                last = infos["final_obs"][slot]
                assert last[3:] == pytest.approx([limit, total[slot] + last[:3].sum()], abs=1e-4)
        began = waits if mode is AutoresetMode.NEXT_STEP else done & (mode is AutoresetMode.SAME_STEP)
        transitions, total = np.where(began, 0, transitions + 1), np.where(began, seen, total + seen)
        assert observations[:, 3:] == pytest.approx(np.stack([transitions, total], axis=1), abs=1e-4)
        systems = known.get_attr("system")
        assert values[:, 3:] == pytest.approx(np.stack([system.vector() for system in systems]))
        assert codes[:, 3:].tolist() == [CODES[system.id] for system in coded.get_attr("system")]
        waits = done
        if mode is AutoresetMode.DISABLED and done.any():
            first = [env.reset(options={"reset_mask": done.copy()})[0] for env in (encoded, known, coded)]
            transitions, total = np.where(done, 0, transitions), np.where(done, first[0][:, :3].sum(axis=1), total)
    for env in (encoded, known, coded):
        env.close()


@pytest.mark.parametrize("mode", MODES)
def test_only_ended_episodes_have_last_observations(mode):
    env = VectorTemporalDifference(vectors("native", mode, 2, "pixels"))
    env.reset(seed=0)
    for _ in range(2):
        *_, infos = env.step(np.zeros((2, 1), np.float32))
    assert (infos["final_obs"][0] is not None) == (mode is AutoresetMode.SAME_STEP)


def test_a_mask_says_whose_infos_are_blank():
    class Silent(VectorWrapper):
        def reset(self, **kwargs):
            observations, infos = self.env.reset(**kwargs)
            infos["_persistent"] = np.array([True, False])
            return observations, infos

    env = VectorContextObservation(Silent(gym.make_vec(PENDULUM, num_envs=2)))
    with pytest.raises(ValueError, match=r"lack 'persistent' of slots \[1\]"):
        env.reset(seed=0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_snapshot_knows_which_slots_begin_anew(mode):
    env = VectorContextObservation(
        gym.make_vec(PENDULUM, num_envs=2, max_episode_steps=2, autoreset_mode=mode), counting, size=2
    )
    env.reset(seed=0)
    still = np.zeros((2, 1), np.float32)
    env.step(still)
    env.step(still)
    saved = pickle.loads(pickle.dumps(get_state(env)))
    go_on = (lambda: env.step(still)[0]) if mode is AutoresetMode.NEXT_STEP else (lambda: env.reset()[0])
    expected = [go_on(), env.step(still)[0]]
    env.reset(seed=5)
    set_state(env, saved)
    assert np.array_equal(expected, [go_on(), env.step(still)[0]])


def test_resets_that_a_wrapper_cannot_see_are_refused():
    inner = gym.wrappers.Autoreset(gym.make(PENDULUM))
    for wrapper in (ContextObservation, RepeatSystem):
        with pytest.raises(ValueError, match=f"{wrapper.__name__} does not see the resets"):
            wrapper(inner)
        gym.wrappers.Autoreset(wrapper(gym.make(PENDULUM))).reset(seed=0)


def test_a_single_encoder_hears_of_its_own_shapes():
    for wrong in ([1.0, 2.0, 3.0], "12", [True, False], None):
        env = ContextObservation(gym.make(PENDULUM), lambda o, a, code=wrong: code, size=2)
        with pytest.raises(ValueError, match=r"numbers of shape \(2,\); after 0 transitions it gave"):
            env.reset(seed=0)
    env = VectorContextObservation(gym.make_vec(PENDULUM, num_envs=3), lambda o, a: np.zeros(2), size=2)
    with pytest.raises(ValueError, match=r"numbers of shape \(3, 2\)"):
        env.reset(seed=0)
    for name in ("size", "history"):
        with pytest.raises(ValueError, match=f"an encoder's {name} is"):
            ContextObservation(gym.make(PENDULUM), summary, **{"size": 3, name: True})


@pytest.mark.parametrize("wrapper", [ContextObservation, RepeatSystem])
def test_infos_that_were_dropped_are_named(wrapper):
    class Mute(gym.Wrapper):
        def reset(self, **kwargs):
            return self.env.reset(**kwargs)[0], {}

    with pytest.raises(ValueError, match=rf"^the info of a reset lacks 'system_id': put {wrapper.__name__} inside"):
        wrapper(Mute(gym.make(PENDULUM))).reset(seed=0)


@pytest.mark.parametrize("make", [gym.make, lambda id, **kwargs: gym.make_vec(id, num_envs=2, **kwargs)])
def test_a_state_beside_differences_with_the_channels_first(make):
    single = make is gym.make
    difference, state = (
        (TemporalDifference, StateObservation) if single else (VectorTemporalDifference, VectorStateObservation)
    )
    env = state(difference(make(DRAG, obs_type="pixels", image_size=16), channels_first=True), both=True)
    seen, _ = env.reset(seed=0)
    plain, _ = make(DRAG, obs_type="state").reset(seed=0)
    assert seen["pixels"].shape[-3:] == (2, 16, 16)
    np.testing.assert_array_equal(seen["state"], plain)


def test_what_is_no_flag_is_refused():
    pixels = gym.make(DRAG, obs_type="pixels", image_size=16)
    for make, name in (
        (lambda: ContextObservation(gym.make(PENDULUM), normalise="no"), "normalise"),
        (lambda: StateObservation(pixels, both="no"), "both"),
        (lambda: TemporalDifference(pixels, channels_first=1), "channels_first"),
    ):
        with pytest.raises(ValueError, match=f"{name} is .*; legal: True, False"):
            make()
    with pytest.raises(ValueError, match="normalise = False: it belongs to values of properties"):
        ContextObservation(gym.make(PENDULUM, systems=SYSTEMS), CODES, normalise=False)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            lambda env: env,
            lambda env: gym.wrappers.TimeLimit(env.env, 10),
            "a TimeLimit with max_episode_steps 200, here 10",
        ),
        (lambda e: ContextObservation(e, "mass"), lambda e: ContextObservation(e, "length"), "values of mass', here"),
        (lambda e: RepeatSystem(e, 4), lambda e: RepeatSystem(e, 2), "a RepeatSystem with episodes 4, here 2"),
    ],
)
def test_a_snapshot_is_of_wrappers_that_are_made_alike(one, other, said):
    saved, there = one(gym.make(PENDULUM)), other(gym.make(PENDULUM))
    saved.reset(seed=0)
    there.reset(seed=1)
    before = there.unwrapped.state.copy()
    with pytest.raises(ValueError, match=said):
        set_state(there, get_state(saved))
    np.testing.assert_array_equal(there.unwrapped.state, before)
    set_state(one(gym.make(PENDULUM)), get_state(saved))
    older = {name: value for name, value in get_state(saved).items() if name != "made"}
    set_state(one(gym.make(PENDULUM)), older)
