"""Systems of any Gymnasium environment are what setting its attributes by hand gives, bit for bit."""

import copy
import pickle
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from sprii_envs import PersistentProperties, PersistentProperty, System, SystemDistribution, SystemSet
from sprii_envs.snapshots import get_state
from sprii_envs.wrappers import (
    ContextObservation,
    PersistentEnv,
    RepeatSystem,
    VectorContextObservation,
    VectorRepeatSystem,
    without_effect,
)

POLE = {"length": (0.25, 1.0), "masspole": (0.05, 0.5)}


def set_pole(env, values):
    """CartPole with what it has computed from these when it was made."""
    env.length, env.masspole = values["length"], values["masspole"]
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length


def pole(**kwargs):
    return PersistentEnv(gym.make("CartPole-v1"), POLE, set_pole, **kwargs)


def pendulum(**kwargs):
    return PersistentEnv(
        gym.make("Pendulum-v1"), {"mass": (0.5, 2.0), "length": (0.5, 1.5)}, {"mass": "m", "length": "l"}, **kwargs
    )


def run(env, actions, **reset):
    """All that an episode shows."""
    shown = [env.reset(**reset)[0]]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        shown.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            break
    return shown


def test_cartpole_is_one_set_by_hand():
    env, plain = pole(), gym.make("CartPole-v1")
    actions = np.random.default_rng(0).integers(2, size=60)
    for length, mass in ((0.25, 0.05), (0.5, 0.1), (0.9, 0.4), (2.0, 1.0)):
        set_pole(plain.unwrapped, {"length": length, "masspole": mass})
        chosen = {"system": {"length": length, "masspole": mass}}
        assert data_equivalence(run(env, actions, seed=3, options=chosen), run(plain, actions, seed=3), exact=True)
        assert env.system == System({"length": length, "masspole": mass})


def test_half_cheetah_is_one_set_by_hand():
    def set_masses(env, values):
        env.model.body_mass[1], env.model.opt.gravity[2] = values["torso"], -values["gravity"]

    made = [
        PersistentEnv(gym.make("HalfCheetah-v5"), {"torso": (3.0, 9.0), "gravity": (5.0, 15.0)}, set_masses),
        PersistentEnv(
            gym.make("HalfCheetah-v5"),
            {"torso": (3.0, 9.0), "gravity": (-15.0, -5.0)},
            {"torso": "model.body_mass[1]", "gravity": "model.opt.gravity[2]"},
        ),
    ]
    plain = gym.make("HalfCheetah-v5")
    plain.unwrapped.model.body_mass[1], plain.unwrapped.model.opt.gravity[2] = 8.0, -7.0
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 6)).astype(np.float32)
    want = run(plain, actions, seed=1)
    for env, sign in zip(made, (1, -1), strict=True):
        chosen = {"system": {"torso": 8.0, "gravity": sign * 7.0}}
        assert data_equivalence(run(env, actions, seed=1, options=chosen), want, exact=True)
    assert not data_equivalence(run(gym.make("HalfCheetah-v5"), actions, seed=1), want, exact=True)


def test_infos_tell_the_system_as_ours_do():
    env = pendulum()
    _, info = env.reset(seed=0)
    values = dict(zip(("mass", "length"), info["persistent"].tolist(), strict=True))
    assert env.unwrapped.m == values["mass"]
    assert env.unwrapped.l == values["length"]
    assert info["system_id"] == System(values).id == env.system.id
    assert info["persistent"].dtype == np.float64
    assert info["extrapolated"] is False
    assert env.reset(options={"system": {"mass": 9.0, "length": 1.0}})[1]["extrapolated"] is True
    assert env.persistent_properties.names == ("mass", "length")
    assert env.persistent_properties.nominal.tolist() == [1.0, 1.0]  # what the environment has by itself
    env.reset(options={"x_init": 0.01, "y_init": 0.01})  # Pendulum's own: how far it begins from upright
    assert abs(env.unwrapped.state[0]) <= 0.01
    # The same properties, source, seed and episode give the same systems as an environment of sprii_envs.
    ours = gym.make("sprii/Pendulum-v0")
    source = SystemDistribution(ours.unwrapped.persistent_properties)
    ours = gym.make("sprii/Pendulum-v0", systems=source)
    theirs = PersistentEnv(gym.make("Pendulum-v1"), source.properties, {"mass": "m", "length": "l"}, systems=source)
    for seed in (7, None, None):
        assert ours.reset(seed=seed)[1]["system_id"] == theirs.reset(seed=seed)[1]["system_id"]


def test_an_episode_is_a_function_of_seed_and_number():
    first, second = pole(), pole()
    runs = []
    for env, steps in ((first, 3), (second, 9)):
        seen = []
        for episode in range(5):
            observation, info = env.reset(seed=5 if episode == 0 else None)
            seen.append((observation.tolist(), info["system_id"]))
            for _ in range(steps):
                if any(env.step(env.action_space.sample())[2:4]):
                    break
        runs.append(seen)
    assert runs[0] == runs[1]
    assert len({id for _, id in runs[0]}) == 5
    assert len({str(start) for start, _ in runs[0]}) == 5
    # The initial state is that of the plain environment, and of the seed whatever the system.
    assert runs[0][0][0] == gym.make("CartPole-v1").reset(seed=5)[0].tolist()
    pinned = pole(system={"length": 0.4, "masspole": 0.2})
    assert [pinned.reset(seed=5 if k == 0 else None)[0].tolist() for k in range(5)] == [start for start, _ in runs[0]]
    assert pinned.system == System({"length": 0.4, "masspole": 0.2})
    assert not np.array_equal(pole().reset()[0], pole().reset()[0])  # without a seed, by chance


def test_same_sets_and_pinned_systems():
    env = pole()
    with pytest.raises(ValueError, match="'same' needs a system"):
        env.reset(options={"system": "same"})
    with pytest.raises(ResetNeeded):
        _ = env.system
    id = env.reset(seed=0)[1]["system_id"]
    assert env.reset(options={"system": "same"})[1]["system_id"] == id
    assert env.reset(seed=9, options={"system": "same"})[1]["system_id"] == id
    assert env.reset()[1]["system_id"] != id
    env.keep_system = True
    kept = env.system.id
    assert env.reset()[1]["system_id"] == kept
    assert env.reset(seed=1)[1]["system_id"] != kept
    few = SystemSet(env.persistent_properties, [[0.3, 0.1], [0.9, 0.2]], ids=["short", "long"])
    env = pole(systems=few)
    env.reset(options={"system": "long"})
    assert env.unwrapped.length == 0.9
    assert env.system == few["long"]
    assert {env.reset()[1]["system_id"] for _ in range(20)} == {"short", "long"}
    assert env.systems is few
    assert env.distribution is None
    levels = SystemDistribution(few.properties, {"length": [0.3, 0.6]})
    env = pole(systems=levels)
    assert {float(env.reset()[1]["persistent"][0]) for _ in range(20)} == {0.3, 0.6}


@pytest.mark.parametrize("make", [pole, pendulum])
def test_counterfactuals_are_independent_rollouts(make):
    env = make()
    env.reset(seed=2)
    env.action_space.seed(0)
    before, after = [np.array([env.action_space.sample() for _ in range(n)]) for n in (4, 6)]
    for action in before:
        env.step(action)
    systems = env.vary("length", [0.3, 0.8, 1.4])
    found = env.counterfactual(systems, after)
    assert (found.values == systems.values).all()
    for row in range(len(systems)):
        other = make()  # brought to the same state in the first system, and put into the other by its own setter
        other.reset(seed=2)
        for action in before:
            seen = other.step(action)
        other._put(other.unwrapped, systems.values[row])
        assert np.array_equal(found.observations[row, 0], seen[0])
        assert found.lengths[row] == len(after)
        for t, action in enumerate(after):
            observation, reward, *_ = other.step(action)
            assert np.array_equal(found.observations[row, t + 1], observation)
            assert found.rewards[row, t] == reward
    present = env.counterfactual(env.system, after)
    assert np.array_equal(present.observations[0, 1:], [env.step(action)[0] for action in after])
    assert not np.array_equal(found.observations[0], found.observations[1])


def test_counterfactuals_of_mujoco_are_what_then_happens():
    env = PersistentEnv(gym.make("HalfCheetah-v5"), {"torso": (3.0, 9.0)}, {"torso": "model.body_mass[1]"})
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 6)).astype(np.float32)
    for action in actions:
        env.step(action)
    found = env.counterfactual([env.system, {"torso": 12.0}], actions)
    assert np.array_equal(found.observations[0, 1:], [env.step(action)[0] for action in actions])
    other = gym.make("HalfCheetah-v5")
    other.reset(seed=0)
    other.unwrapped.model.body_mass[1] = env.system["torso"]
    for action in actions:
        other.step(action)
    other.unwrapped.model.body_mass[1] = 12.0
    assert np.array_equal(found.observations[1, 1:], [other.step(action)[0] for action in actions])


def test_counterfactuals_end_with_the_episode():
    env = pole()
    env.reset(seed=0)
    found = env.counterfactual(env.vary("length", [0.25, 1.0]), np.ones(100, np.int64))
    assert (found.lengths < 30).all()
    assert found.terminated.all()
    for row, length in enumerate(found.lengths):
        assert found.observations[row, length].any()
        assert not found.observations[row, length + 1 :].any()
        assert found.rewards[row].sum() == length
    for _ in range(100):
        if env.step(1)[2]:
            break
    with pytest.raises(ResetNeeded, match="no running episode"):
        env.counterfactual(env.vary("length", [0.25]), [1])
    env.reset(seed=0)
    with pytest.raises(ValueError, match="not in Discrete"):
        env.counterfactual(env.vary("length", [0.25]), [2])
    env.unwrapped.window = threading.Lock()
    with pytest.raises(ValueError, match="cannot be copied, which counterfactual needs"):
        env.counterfactual(env.vary("length", [0.25]), [1])


def test_without_effect_finds_attributes_that_nothing_reads():
    trap = PersistentEnv(gym.make("CartPole-v1"), {"masscart": (0.5, 2.0), "length": (0.25, 1.0)})
    assert without_effect(trap, starts=2) == ("masscart",)  # `total_mass` has been computed from it
    assert without_effect(RepeatSystem(pole()), starts=2) == ()
    assert without_effect(gym.make("sprii/Pendulum-v0"), starts=1, steps=8) == ()
    with pytest.raises(ValueError, match="needs an environment with persistent properties"):
        without_effect(gym.make("CartPole-v1"))


def test_checkers_specs_and_time_limits():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(PersistentEnv(gym.make("MountainCarContinuous-v0", render_mode="rgb_array"), {"power": (1e-3, 2e-3)}))
    again = gym.make(pole(system={"length": 0.4, "masspole": 0.2}).spec)
    again.reset(seed=0)
    assert again.get_wrapper_attr("system") == System({"length": 0.4, "masspole": 0.2})
    gym.register(
        "PersistentPole-v0",
        lambda: PersistentEnv(gym.make("CartPole-v1").unwrapped, POLE, set_pole),
        max_episode_steps=5,
    )
    outside = gym.make("PersistentPole-v0")  # the limit around it, and not within
    id = outside.reset(seed=0)[1]["system_id"]
    assert [outside.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
    assert outside.reset(options={"system": "same"})[1]["system_id"] == id


def test_contexts_show_or_hide_the_system():
    env = pendulum(system={"mass": 2.0, "length": 0.5})
    assert env.reset(seed=0)[0].shape == (3,)
    assert ContextObservation(env, "all").reset(seed=0)[0][3:].tolist() == [1.0, -1.0]
    assert ContextObservation(env, ["length"], normalise=False).reset(seed=0)[0][3:].tolist() == [0.5]
    assert ContextObservation(env, "none").reset(seed=0)[0].shape == (3,)
    coded = ContextObservation(env, lambda seen, done: [len(done)], size=1)
    coded.reset(seed=0)
    assert coded.step([0.0])[0][3:].tolist() == [1.0]
    envs = VectorContextObservation(SyncVectorEnv([pendulum] * 2))
    observations, infos = envs.reset(seed=0)
    assert np.allclose(observations[:, 3:], (infos["persistent"] - [1.25, 1.0]) / [0.75, 0.5])


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_systems_last_in_vectors(kind, mode):
    """Under VectorRepeatSystem a slot does what RepeatSystem around its environment does."""
    limited = lambda: PersistentEnv(gym.make("Pendulum-v1", max_episode_steps=3), {"m": (0.5, 2.0)})  # noqa: E731
    envs = VectorRepeatSystem(kind([limited] * 2, autoreset_mode=mode), episodes=2)
    singles = SyncVectorEnv([lambda: RepeatSystem(limited(), 2)] * 2, autoreset_mode=mode)
    try:
        envs.reset(seed=0), singles.reset(seed=0)
        for _ in range(20):
            actions = envs.action_space.sample()
            got, want = envs.step(actions), singles.step(actions)
            assert all(np.array_equal(a, b) for a, b in zip(got[:4], want[:4], strict=True))
            assert all(np.array_equal(got[4][name], want[4][name]) for name in ("system_id", "rollout"))
            done = want[2] | want[3]
            if mode is AutoresetMode.DISABLED and done.any():
                envs.reset(options={"reset_mask": done.copy()}), singles.reset(options={"reset_mask": done.copy()})
    finally:
        envs.close()


def test_stable_baselines3_trains_on_it():
    sb3 = pytest.importorskip("stable_baselines3")
    env = RepeatSystem(ContextObservation(pole(), "all"), episodes=2)
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, device="cpu", seed=0).learn(64)
    assert model.observation_space.shape == (6,)


class Odd(gym.Env):
    """Somebody's environment, with attributes of every kind."""

    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    flag, word, count = True, "a", 3

    def __init__(self):
        self.single, self.whole = np.zeros(2, np.float32), np.zeros(2, np.int64)
        self.forgets = 1.0

    @property
    def fixed(self):
        return 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.forgets = 1.0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "Odd has no attribute 'missing'"),
        ("single[5]", r"has no attribute 'single\[5\]'"),
        ("flag", "'flag' of Odd is True, and no number"),
        ("word", "'word' of Odd is 'a', and no number"),
        ("single", "and no number"),
        ("fixed", "'fixed' of Odd cannot be set"),
        ("whole[0]", "keeps 0.0 where 0.5 was written"),
        ("single[0] + 1", "names joined by dots"),
        ("__import__('os')", "names joined by dots"),
    ],
)
def test_attributes_that_cannot_be_set_are_refused_at_once(path, message):
    with pytest.raises(ValueError, match=message):
        PersistentEnv(Odd(), {"p": (0.5, 2.0)}, {"p": path})


def test_attributes_of_arrays_and_lists():
    env = PersistentEnv(Odd(), {"a": (0.1, 2.0), "count": (0.5, 2.0)}, {"a": "single[1]"})
    env.reset(options={"system": {"a": 0.1, "count": 1.5}})
    assert env.unwrapped.single.tolist() == [0.0, np.float32(0.1)]  # float32 keeps what it can
    assert (env.unwrapped.count, Odd.count) == (1.5, 3)  # the class keeps its own


def test_what_a_reset_overwrites_is_refused():
    env = PersistentEnv(Odd(), {"forgets": (0.5, 2.0)})
    with pytest.raises(ValueError, match=r"the reset of .* changed 'forgets' from .* to 1\.0"):
        env.reset(seed=0)


def failing(env, values):
    env.lenght += 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PersistentEnv(gym.make("CartPole-v1"), POLE, failing), r"set\(env, .*raised AttributeError.*lenght"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), POLE, {"lenght": "length"}), "did you mean 'length'"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), POLE, {"masspole": "length"}), "two properties set one"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), POLE, "length"), "a function set"),
        (lambda: PersistentEnv("CartPole-v1", POLE), r"pass gym\.make"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), "length"), r"properties are 'length'; legal: name"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), ["length"]), r"properties are \['length'\]; legal: name"),
        (lambda: pole().reset(options={"sytem": "same"}), "unknown reset option 'sytem'; did you mean 'system'"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), {}), "name one at least"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), {"length": 0.5}), r"legal: \(low, high\)"),
        (lambda: PersistentEnv(gym.make("CartPole-v1"), {"length": (1.0, 0.5)}), "finite low < high"),
        (lambda: PersistentEnv(gym.make("sprii/Pendulum-v0"), {"x": (0, 1)}), "has persistent properties already"),
        (lambda: PersistentEnv(SyncVectorEnv([pole]), POLE), "single environment"),
        (lambda: PersistentEnv(gym.wrappers.Autoreset(gym.make("CartPole-v1")), POLE), "put that outside"),
        (lambda: pole(systems="train"), "SystemSet or a SystemDistribution, got str"),
        (lambda: pole(systems=SystemDistribution([PersistentProperty("x", "x", "1", 0, 1, 0.5)])), "systems have prop"),
        (lambda: pole(system={"length": -1.0, "masspole": 0.1}), "property 'length' = -1.0 is not physical"),
        (lambda: get_state(pole()), "only environments of sprii_envs can be saved"),
    ],
)
def test_bad_declarations_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_resets_change_nothing():
    env = pole()
    env.reset(seed=0)
    before = env.system, env.unwrapped.length
    for options in ({"system": {"length": 0.5}}, {"system": "long"}, {"system": {"length": -1, "masspole": 1}}, ["x"]):
        with pytest.raises(ValueError, match=r"masspole|id|physical|mapping"):
            env.reset(options=options)
    assert (env.system, env.unwrapped.length) == before
    declared = PersistentProperties([PersistentProperty("length", "L", "m", 0.25, 1.0, 0.5, "log")])
    assert PersistentEnv(gym.make("CartPole-v1"), declared).persistent_properties == declared


def compounding(env, values):
    env.length *= values["length"]


def forgetful(env, values):
    if values["length"] > 0.7:
        env.length = values["length"]


def growing(env, values):
    if values["length"] > 0.7:
        env.boost = values["length"]


@pytest.mark.parametrize("declared", [(0.25, 1.0), (0.25, 0.4), (0.8, 1.0), (0.25, 0.71)])
@pytest.mark.parametrize(("function", "path"), [(compounding, "length"), (forgetful, "length"), (growing, "boost")])
def test_a_set_that_depends_on_the_systems_before_is_refused(function, path, declared):
    silent = function is not compounding and (declared[1] < 0.7 or declared[0] > 0.7)  # it does the same for all
    if silent:
        PersistentEnv(gym.make("CartPole-v1"), {"length": declared}, function)
        return
    with pytest.raises(ValueError, match=rf"no function of the values alone: '{path}' was .* Start from numbers"):
        PersistentEnv(gym.make("CartPole-v1"), {"length": declared}, function)


def test_a_set_that_compounds_in_mujoco_is_refused_and_the_stored_nominal_is_the_way():
    def compounds(env, values):
        env.model.body_mass[1] *= values["mass"]

    with pytest.raises(ValueError, match=r"no function of the values alone: 'model\.body_mass' was"):
        PersistentEnv(gym.make("Hopper-v5"), {"mass": (0.5, 2.0)}, compounds)
    bare = gym.make("Hopper-v5")
    mass = bare.unwrapped.model.body_mass[1]

    def scales(env, values):
        env.model.body_mass[1] = mass * values["mass"]

    env = PersistentEnv(bare, {"mass": (0.5, 2.0)}, scales)
    for factor in (1.5, 0.5, 1.5):
        env.reset(options={"system": {"mass": factor}})
        assert bare.unwrapped.model.body_mass[1] == mass * factor


class Terrain(gym.Env):
    """Its function may draw what the reset draws anew, and count on the way in what nobody reads afterwards."""

    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    height = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ground = self.np_random.normal(size=3) * self.height
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_what_a_reset_draws_anew_is_no_remainder():
    def build(env, values):
        env.height = values["height"]
        env.reset()

    env = PersistentEnv(Terrain(), {"height": (0.5, 2.0)}, build)
    env.reset(seed=0, options={"system": {"height": 2.0}})
    assert np.array_equal(env.unwrapped.ground, np.random.default_rng(0).normal(size=3) * 2.0)


def hopper(**kwargs):
    return PersistentEnv(gym.make("Hopper-v5"), {"g": (-15.0, -5.0)}, {"g": "model.opt.gravity[2]"}, **kwargs)


def test_a_deep_copy_goes_on_as_the_original_and_an_unpickled_robot_needs_a_reset():
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)
    env = hopper()
    env.reset(seed=3, options={"system": {"g": -14.0}})
    env.step(actions[0])
    plain = gym.make("Hopper-v5")
    plain.unwrapped.model.opt.gravity[2] = -14.0
    plain.reset(seed=3)
    plain.step(actions[0])
    copied, outer, pickled = copy.deepcopy(env), copy.deepcopy(RepeatSystem(env, 2)), pickle.loads(pickle.dumps(env))
    for action in actions[1:]:
        want = plain.step(action)[0]
        assert np.array_equal(copied.step(action)[0], want)
        assert np.array_equal(outer.env.step(action)[0], want)
    assert copied.system == env.system == System({"g": -14.0})
    assert copied.unwrapped.model is not env.unwrapped.model
    for use in (
        lambda: pickled.step(actions[0]),
        lambda: pickled.system,
        lambda: pickled.counterfactual([env.system], actions),
    ):
        with pytest.raises(ResetNeeded, match=r"keeps its arguments and not its state: call reset"):
            use()
    seen = pickled.reset(options={"system": "same"})
    assert pickled.system == env.system
    assert pickled.unwrapped.model.opt.gravity[2] == -14.0
    assert np.array_equal(seen[0], env.reset(options={"system": "same"})[0])  # the next episode of the seed
    cart = pole()
    cart.reset(seed=0)
    cart.step(1)
    again = pickle.loads(pickle.dumps(cart))  # whose state is in its attributes
    assert np.array_equal(again.step(1)[0], cart.step(1)[0])


def test_a_failing_set_leaves_the_present_system():
    def picky(env, values):
        env.length, env.polemass_length = values["length"], values["length"] * env.masspole
        if 0.65 < values["length"] < 0.9:
            raise RuntimeError("no such pole")

    env = PersistentEnv(gym.make("CartPole-v1"), {"length": (0.25, 1.0)}, picky)
    twin = PersistentEnv(gym.make("CartPole-v1"), {"length": (0.25, 1.0)}, picky)
    for each in (env, twin):
        each.reset(seed=0, options={"system": {"length": 0.3}})
    with pytest.raises(ValueError, match="no such pole"):
        env.reset(options={"system": {"length": 0.7}})
    assert (env.system["length"], env.unwrapped.length) == (0.3, 0.3)
    assert np.array_equal(env.step(1)[0], twin.step(1)[0])  # the episode goes on


def test_where_nothing_can_be_set_any_more_steps_need_a_reset():
    broken = []

    def fails(env, values):
        env.length = values["length"]
        if broken:
            raise RuntimeError("out of order")

    env = PersistentEnv(gym.make("CartPole-v1"), {"length": (0.25, 1.0)}, fails)
    env.reset(seed=0, options={"system": {"length": 0.3}})
    broken.append(True)
    with pytest.raises(ValueError, match="out of order"):
        env.reset(options={"system": {"length": 0.7}})
    for use in (lambda: env.step(1), lambda: env.system, lambda: env.counterfactual([{"length": 0.3}], [1])):
        with pytest.raises(ResetNeeded, match="could not be set again: call reset"):
            use()
    broken.clear()
    env.reset(options={"system": "same"})
    env.step(1)
    assert (env.system["length"], env.unwrapped.length) == (0.3, 0.3)
    with pytest.raises(ValueError, match="low"):  # CartPole's own reset fails, after the system has been set
        env.reset(options={"system": {"length": 0.9}, "low": 1.0, "high": 0.0})
    with pytest.raises(ResetNeeded, match="the last reset failed"):
        env.step(1)
    bare = PersistentEnv(Odd(), {"p": (0.1, 1.0)}, lambda env, values: 1 / (values["p"] != 0.5))
    with pytest.raises(ValueError, match="division"):
        bare.reset(options={"system": {"p": 0.5}})
    with pytest.raises(ResetNeeded, match="no system could be set yet"):
        bare.step([0.0])


def test_a_set_that_writes_to_the_original_has_no_counterfactuals():
    base = gym.make("CartPole-v1")

    def closure(env, values):
        base.unwrapped.length = values["length"]

    def by_class(env, values):
        Terrain.height = values["length"]

    for env in (
        PersistentEnv(base, {"length": (0.25, 1.0)}, closure),
        PersistentEnv(Terrain(), {"length": (0.5, 2.0)}, by_class),
    ):
        env.reset(seed=0, options={"system": {"length": 0.5}})
        action = env.action_space.sample()
        with pytest.raises(ValueError, match=r"wrote '(length|height)' of the wrapped environment .* its argument env"):
            env.counterfactual(env.vary("length", [0.5, 0.9]), [action])
        env.step(action)
        assert env.system["length"] == 0.5
    assert base.unwrapped.length == Terrain.height == 0.5
    Terrain.height = 1.0


def test_pages_of_pybind_are_not_shown():
    with pytest.raises(ValueError, match=r"cannot be set to 4.5: it is an integer$"):
        PersistentEnv(gym.make("Hopper-v5"), {"p": (4.5, 8.0)}, {"p": "model.opt.iterations"})


def test_integers_take_fractions_where_the_steps_do():
    four = {"p": (2.0, 8.0)}
    with pytest.raises(
        ValueError, match=r"'frame_skip' of HopperEnv is the integer 4, and takes no fraction such as .*draw whole"
    ):
        PersistentEnv(gym.make("Hopper-v5"), {"frame_skip": (2.0, 8.0)})
    for path, says in (
        ("model.opt.iterations", "integer 100, and takes no fraction .*keeps none"),
        ("model.geom_contype[1]", "keeps"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            PersistentEnv(gym.make("Hopper-v5"), four, {"p": path})
        assert len(str(caught.value)) < 400
        assert "MjOption" not in str(caught.value)
    declared = PersistentProperties([PersistentProperty("frame_skip", "k", "1", 2.0, 8.0, 4.0)])
    env = PersistentEnv(gym.make("Hopper-v5"), declared, systems=SystemDistribution(declared, {"frame_skip": [2, 8]}))
    env.reset(seed=0)
    assert type(env.unwrapped.frame_skip) is int
    env.step(env.action_space.sample())
    assert env.unwrapped.data.time == env.system["frame_skip"] * env.unwrapped.model.opt.timestep
    speed = PersistentEnv(gym.make("Pendulum-v1"), {"max_speed": (1.0, 8.0)})  # the integer 8, and no less a number
    speed.reset(options={"system": {"max_speed": 1.5}})
    assert speed.unwrapped.max_speed == 1.5


class Careless(Terrain):
    """Draws from NumPy's global generator, or from the operating system's."""

    def __init__(self, draw):
        self.draw = draw

    def step(self, action):
        return np.full(1, self.draw(), np.float32), 0.0, False, False, {}


def test_without_effect_is_not_misled_by_global_randomness():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    names = {"height": (0.5, 2.0)}
    globally = PersistentEnv(Careless(np.random.random), names, lambda env, values: None)
    assert without_effect(globally, starts=1) == ("height",)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    anyhow = PersistentEnv(Careless(lambda: np.random.default_rng().random()), names)
    with pytest.raises(ValueError, match=r"two episodes of .* differ under one system, seed and actions"):
        without_effect(anyhow, starts=1)


class Windy(PendulumEnv):
    """A pendulum whose reward falls by the square of its wind, so that both ends of the range do the same."""

    wind = 0.0

    def step(self, u):
        observation, reward, *rest = super().step(u)
        return observation, float(reward) - self.wind**2, *rest


def test_an_effect_that_is_the_same_at_both_ends_is_one():
    assert without_effect(PersistentEnv(Windy(), {"wind": (-1.0, 1.0)}, {"wind": "wind"})) == ()
