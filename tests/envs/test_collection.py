"""Live collection: what is recorded is what the environment showed, and episodes of a system are of that system."""

import gymnasium as gym
import numpy as np
import pytest
from carl_like import CARLPendulum, Elsewhere, RoundRobin, Static
from gymnasium.vector import AutoresetMode

from sprii_envs import System, SystemSet, wrappers
from sprii_envs.collection import collect_related
from sprii_envs.envs.d_clean import DClean
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler

D_CLEAN, SPRING = "sprii/D-Clean-v0", "sprii/SpringWorld-v0"


class Log(gym.Wrapper):
    """Keeps all that passes."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes, self.resets = [], []

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self.resets.append((seed, options, info))
        self.episodes.append([(observation, None, None, None, None)])
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.episodes[-1].append((observation, action, reward, terminated, truncated))
        return observation, reward, terminated, truncated, info


def push(observation):
    """Out of the picture, each episode after its own time."""
    return np.sign(observation[..., :2]).astype(np.float32)


def equal(a, b):
    assert a.table.columns == b.table.columns
    assert a.table.fingerprint() == b.table.fingerprint()
    assert set(a.columns) == set(b.columns)
    for name in a.columns:
        assert a[name].dtype == b[name].dtype
        assert np.array_equal(a[name], b[name]), name


@pytest.mark.parametrize("policy", [None, push])
def test_what_was_shown_is_recorded(policy):
    env = Log(gym.make(SPRING, obs_type="state", max_episode_steps=90))
    found = collect_related(env, policy, systems=3, episodes_per_system=2, steps=60, seed=1)
    table = found.table
    assert len(found) == len(env.episodes) == 6
    if policy is push:
        assert len(set(table["length"].tolist())) > 2
    for row, shown in enumerate(env.episodes):
        length = table["length"][row]
        assert length == len(shown)
        assert np.array_equal(found["observations"][row, :length], np.stack([step[0] for step in shown]))
        assert np.array_equal(found["actions"][row, : length - 1], np.stack([step[1] for step in shown[1:]]))
        assert found["rewards"][row, : length - 1].tolist() == [step[2] for step in shown[1:]]
        assert not found["observations"][row, length:].any()
        assert not found["rewards"][row, length - 1 :].any()
        ended, cut = shown[-1][3:]
        assert table["ending"][row] == ("terminated" if ended else "truncated" if cut else "")
    for row, (_, options, info) in enumerate(env.resets):
        assert options == ({"system": "same"} if row % 2 else None)
        assert table["system"][row] == info["system_id"]
        assert [table[name][row] for name in ("mass", "drag", "stiffness")] == info["persistent"].tolist()
    assert table["rollout"].tolist() == [0, 1] * 3
    assert len(set(table["system"].tolist())) == 3
    assert len(np.unique(found["observations"][:, 0], axis=0)) == 6  # independent starts


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("policy", [None, push])
@pytest.mark.parametrize("limit", [45, 90])
def test_a_vector_environment_gives_the_same_episodes(mode, policy, limit):
    def vector(n):
        return gym.make_vec(SPRING, num_envs=n, obs_type="state", max_episode_steps=limit, autoreset_mode=mode)

    settings = {"systems": 5, "episodes_per_system": 3, "steps": 60, "seed": 1}
    single = collect_related(gym.make(SPRING, obs_type="state", max_episode_steps=limit), policy, **settings)
    if policy is push:
        assert len(set(single.table["length"].tolist())) > 2
    for n in (1, 2, 7):
        equal(single, collect_related(vector(n), policy, **settings))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_wrapped_vector_environments(mode):
    settings = {"systems": 3, "steps": 12, "seed": 1}

    def both(make, **kwargs):
        return make(SPRING, image_size=32, max_episode_steps=9, **kwargs)

    single = collect_related(wrappers.StateObservation(both(gym.make), both=True), **settings)
    vector = wrappers.VectorStateObservation(both(gym.make_vec, num_envs=2, autoreset_mode=mode), both=True)
    equal(single, collect_related(vector, **settings))
    assert len(single.columns) == 4
    assert (single.table["ending"] == "truncated").all()


def test_chosen_systems():
    systems = [{"drag": 1.0}, System({"drag": 3.0}), {"drag": 0.5}]
    single = collect_related(gym.make(D_CLEAN), systems=systems, steps=5)
    equal(single, collect_related(gym.make_vec(D_CLEAN, num_envs=2), systems=systems, steps=5))
    assert single.table["drag"].tolist() == [1.0, 1.0, 3.0, 3.0, 0.5, 0.5]
    few = SystemSet(DClean.properties, [[0.7], [2.0]], ids=["slow", "fast"])
    for env in (gym.make(D_CLEAN, systems=few), gym.make_vec(D_CLEAN, num_envs=3, systems=few)):
        found = collect_related(env, systems=["fast", "slow"], steps=5)
        assert found.table["system"].tolist() == ["fast", "fast", "slow", "slow"]
        drawn = collect_related(env, systems=5, episodes_per_system=2, steps=5).table
        assert set(drawn["system"]) == {"slow", "fast"}  # drawn more than once: more rollouts, numbered on
        for name in ("slow", "fast"):
            of = drawn["rollout"][drawn["system"] == name]
            assert of.tolist() == list(range(len(of)))


def test_a_pure_function_of_the_seed():
    env = gym.make(D_CLEAN)
    env.action_space.seed(0)
    before, own = np.random.get_state()[1].copy(), str(env.action_space.np_random.bit_generator.state)  # noqa: NPY002
    first = collect_related(env, systems=2, episodes_per_system=2, steps=9, seed=4)
    equal(first, collect_related(env, systems=2, episodes_per_system=2, steps=9, seed=4))
    more = collect_related(env, systems=4, episodes_per_system=3, steps=9, seed=4)
    kept = np.flatnonzero((more.table["rollout"] < 2) & np.isin(more.table["system"], first.table["system"]))
    assert np.array_equal(more["observations"][kept], first["observations"])
    other = collect_related(env, systems=2, episodes_per_system=2, steps=9, seed=5)
    assert not np.isin(other["actions"], first["actions"]).any()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert str(env.action_space.np_random.bit_generator.state) == own


def test_random_actions_are_uniform():
    actions = collect_related(gym.make_vec(D_CLEAN, num_envs=50), systems=50, steps=40)["actions"].ravel()
    share = np.histogram(actions, 8, (-1, 1))[0] / len(actions)
    assert len(actions) == 8000
    assert np.abs(share - 1 / 8).max() < 5 * np.sqrt(7 / 64 / len(actions))
    assert len(np.unique(actions)) > 7900


def test_pairs_and_windows_of_what_was_collected():
    env = gym.make_vec(SPRING, num_envs=12, obs_type="state")
    found = collect_related(env, push, systems=12, episodes_per_system=3, steps=60)
    long = found.table.select(found.table["length"] >= 9)
    pairs = PairSampler(long, SAME_SYSTEM, on_missing="drop").batch(0, 30)
    w = WindowSampler(long, history=5, horizon=4).batch(0, pairs)
    donors = long.rows[w.donor]
    windows = found.windows("observations", donors, w.donor_start, 5)
    for window, row, start in zip(windows, donors, w.donor_start, strict=True):
        assert np.array_equal(window, found.episode(row)["observations"][start : start + 5])
    assert (found.table["mass"][donors] == found.table["mass"][long.rows[w.recipient]]).all()
    assert found.windows("actions", [0], 0, 4).shape == (1, 4, 2)
    length = found.table["length"][3]
    with pytest.raises(ValueError, match=f"not inside episode 3, which has {length - 1} entries of 'actions'"):
        found.windows("actions", [3], length - 3, 3)
    with pytest.raises(ValueError, match="no column 'states' of the collected episodes; they have observations"):
        found.windows("states", [0], 0, 2)


class Third(gym.Wrapper):
    """Somebody else's environment: CartPole that knows its pole's mass and the option "same", and is Discrete."""

    mass = 0.1
    strict = True

    def reset(self, *, seed=None, options=None):
        if (options or {}).get("system") != "same" or not self.strict:
            self.env.reset(seed=seed)
            self.mass = float(self.unwrapped.np_random.uniform(0.05, 0.5))
            self.unwrapped.masspole = self.mass
        observation, _ = self.env.reset(seed=seed)
        return observation, {"system_id": round(1e6 * self.mass), "persistent": {"masspole": np.float32(self.mass)}}


def test_other_environments_with_our_metadata():
    found = collect_related(gym.wrappers.TimeLimit(Third(gym.make("CartPole-v1")), 20), systems=4, steps=30)
    table = found.table
    assert np.allclose(table["system"], 1e6 * table["masspole"], atol=1)
    assert (table["system"][::2] == table["system"][1::2]).all()
    assert len(set(table["system"].tolist())) == 4
    assert set(table["ending"]) <= {"terminated", "truncated"}
    assert "terminated" in table["ending"]
    assert found["actions"].dtype == np.int64
    assert found["actions"].shape == (8, 30)
    assert set(found["actions"].ravel().tolist()) == {0, 1}


def test_an_environment_that_changes_its_system_is_refused():
    env = Third(gym.make("CartPole-v1"))
    env.strict = False
    with pytest.raises(ValueError, match=r"changed its system from \d+ to \d+"):
        collect_related(env, systems=2, steps=5)


def test_an_environment_without_metadata_is_refused():
    with pytest.raises(ValueError, match=r"does not tell its system.*info has: nothing.*pass choose="):
        collect_related(gym.make("Pendulum-v1"), steps=5)


CONTEXTS = {"light": {"m": 0.5}, "heavy": {"m": 2.0}, "long": {"l": 1.5}, "again": {"m": 0.5}}


@pytest.mark.parametrize("selector", [RoundRobin, Static])
@pytest.mark.parametrize(
    "seen",
    [{}, {"obs_context_features": []}, {"obs_context_features": ["m"], "obs_context_as_dict": False}],
    ids=["dict", "hidden", "vector"],
)
@pytest.mark.parametrize("wrap", [lambda env: env, gym.wrappers.RecordEpisodeStatistics])
def test_carl(selector, seen, wrap):
    env = wrap(CARLPendulum(CONTEXTS, context_selector=selector, **seen))
    log = Log(env)
    found = collect_related(log, systems=4, episodes_per_system=2, steps=8, seed=3)
    table = found.table
    assert table["m"].tolist() == [0.5, 0.5, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5]
    assert table["l"].tolist() == [1.0] * 4 + [1.5] * 2 + [1.0] * 2
    assert table["property_length"].tolist() == [1.0] * 8  # the table's own length is that of the episode
    assert len(set(table["system"].tolist())) == 3  # "again" is "light"
    assert table["rollout"].tolist() == [0, 1, 0, 1, 0, 1, 2, 3]
    assert found["observations"].shape == (8, 9, 3)
    kept = [shown for shown, (_, _, info) in zip(log.episodes, log.resets, strict=True) if len(shown) > 1]
    for row, shown in enumerate(kept):
        assert np.array_equal(found["observations"][row], np.stack([step[0]["obs"] for step in shown]))


def test_carl_runs_the_context_that_the_table_tells():
    def pull(observation):
        return np.array([2.0], np.float32)

    found = collect_related(CARLPendulum(CONTEXTS), pull, systems=["heavy", "light"], steps=6)
    for row, mass in enumerate([2.0, 2.0, 0.5, 0.5]):
        _, sin, speed = found["observations"][row].astype(np.float64).T
        torque = 3.0 / mass * 2.0
        after = (speed[:-1] + (15.0 * sin[:-1] + torque) * 0.05).clip(-8, 8)
        assert np.allclose(speed[1:], after, atol=1e-4)


@pytest.mark.parametrize(
    ("env", "systems", "message"),
    [
        (CARLPendulum(CONTEXTS, context_selector=Elsewhere), 4, "selector does not follow `context_id`"),
        (CARLPendulum(CONTEXTS), 5, "systems=5, but the environment has 4 contexts"),
        (CARLPendulum({0: {"m": float("nan")}}), 1, "a system whose 'm' is NaN"),
        (CARLPendulum(CONTEXTS), ["lihgt"], "no context 'lihgt' in the environment; it has light, heavy"),
    ],
)
def test_contexts_that_cannot_be_had(env, systems, message):
    with pytest.raises(ValueError, match=message):
        collect_related(env, systems=systems, steps=3)


def test_a_hook_chooses_for_any_environment():
    asked = []

    def choose(env, item):
        asked.append(item)
        env.unwrapped.m = item["mass"]
        return {"x_init": 0.1, "y_init": 0.1}

    systems = [{"mass": 0.5, "name": "light"}, {"mass": 2.0, "name": "heavy"}]
    found = collect_related(gym.make("Pendulum-v1"), systems=systems, episodes_per_system=3, steps=4, choose=choose)
    assert asked == [systems[0]] * 3 + [systems[1]] * 3
    assert found.table["mass"].tolist() == [0.5] * 3 + [2.0] * 3
    assert found.table["name"].tolist() == ["light"] * 3 + ["heavy"] * 3
    assert found.table["rollout"].tolist() == [0, 1, 2] * 2
    assert (found["observations"][:, 0, 0] > np.cos(0.1) - 1e-6).all()
    told = collect_related(gym.make(D_CLEAN), systems=2, steps=4, choose=lambda env, k: {"system": {"drag": 1.0 + k}})
    assert told.table["drag"].tolist() == [1.0, 1.0, 2.0, 2.0]  # what the environment tells comes first


class Remembering:
    """A recurrent model, after Stable-Baselines3: pushes in its first step and then counts down."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        n = len(episode_start)
        state = np.zeros(n) if state is None else state
        state = np.where(episode_start, 1.0, state - 0.25)
        action = np.repeat(state[:, None], 2, axis=1).astype(np.float32)
        return (action if np.ndim(observation) > 1 else action[0]), state


def test_models_with_a_memory():
    for env in (gym.make(D_CLEAN), gym.make_vec(D_CLEAN, num_envs=2)):
        found = collect_related(env, Remembering(), systems=3, steps=4)
        assert (found["actions"] == np.array([1.0, 0.75, 0.5, 0.25])[:, None]).all()


def test_stable_baselines3():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", gym.make(D_CLEAN), n_steps=8, batch_size=8, device="cpu", seed=0)
    single = collect_related(gym.make(D_CLEAN), model, systems=2, steps=6)
    acts = model.predict(single["observations"][:, :-1].reshape(-1, 4), deterministic=True)[0]
    assert np.allclose(single["actions"].reshape(-1, 2), acts, atol=1e-5)
    vector = collect_related(gym.make_vec(D_CLEAN, num_envs=2), model, systems=2, steps=6)
    assert np.allclose(vector["observations"], single["observations"], atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": "random"}, TypeError, "policy must be None .* got str"),
        ({"systems": 0}, ValueError, "systems is 0; legal: an integer >= 1"),
        ({"systems": []}, ValueError, "at least one system"),
        ({"systems": {"drag": 1.0}}, ValueError, "put it in a list"),
        ({"systems": 2.5}, ValueError, r"systems is 2\.5; legal: an integer"),
        ({"episodes_per_system": 0}, ValueError, "episodes_per_system is 0; legal: an integer >= 1"),
        ({"steps": 0}, ValueError, "steps is 0; legal: an integer >= 1"),
        ({"seed": -1}, ValueError, "seed is -1; legal: an integer >= 0"),
        ({"systems": [{"drga": 1.0}]}, ValueError, "drga"),
    ],
)
def test_bad_arguments(arguments, error, message):
    for env in (gym.make(D_CLEAN), gym.make_vec(D_CLEAN, num_envs=2)):
        with pytest.raises(error, match=message):
            collect_related(env, **{"steps": 4, **arguments})


def test_environments_that_cannot_be_collected_from():
    class Other(gym.vector.VectorEnv):
        num_envs = 2
        single_observation_space = single_action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    with pytest.raises(ValueError, match=r"from a Other is not supported.*SyncVectorEnv"):
        collect_related(Other(), steps=4)
    with pytest.raises(ValueError, match="choose= is for single environments"):
        collect_related(gym.make_vec(D_CLEAN, num_envs=2), steps=4, choose=lambda env, item: None)
    text = gym.wrappers.TransformObservation(gym.make(D_CLEAN), str, gym.spaces.Text(500))
    with pytest.raises(ValueError, match=r"observations of the space Text.* cannot be kept as arrays"):
        collect_related(text, steps=4)


class Stub(gym.Env):
    """Shows what it is given, entry by entry, and keeps the actions and seeds it gets."""

    def __init__(self, shown, told=None, space=None, actions=None):
        self.observation_space = space or gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = actions or gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.shown, self.told, self.resets, self.actions, self.seeds = shown, told, 0, [], []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.t, self.resets = 0, self.resets + 1
        return self.shown[0], {} if self.told is None else self.told[self.resets - 1]

    def step(self, action):
        self.t += 1
        self.actions.append(action)
        return self.shown[self.t], 0.0, False, False, {}


def still(env, item):
    """A system of which the environment knows nothing."""


def test_columns_have_the_types_of_their_spaces():
    shown = [np.array([0]), np.array([0.75]), [2.5]]
    replies = iter([[0], [0.75]])
    env = Stub(shown)
    found = collect_related(env, lambda o: next(replies), episodes_per_system=1, steps=2, choose=still)
    for name, values in (("observations", [0, 0.75, 2.5]), ("actions", [0, 0.75])):
        assert found[name].dtype == np.float32
        assert found[name].ravel().tolist() == values
    assert [(action.dtype, action.tolist()) for action in env.actions] == [(np.float32, [0]), (np.float32, [0.75])]
    env = Stub(shown[:1] * 3, actions=gym.spaces.Discrete(3))
    found = collect_related(env, lambda o: np.array(2.0), episodes_per_system=1, steps=2, choose=still)
    assert found["actions"].dtype == np.int64
    assert {2: "found"}[env.actions[0]] == "found"  # a scalar


@pytest.mark.parametrize(
    ("shown", "space", "message"),
    [
        ([[0.0], [0.0, 1.0]], None, r"observations must be numbers of shape \(1,\), .* got \[0.0, 1.0\]"),
        ([[0.0], [None]], None, r"observations must be numbers of shape \(1,\), .* got \[None\]"),
        ([[0], [0.5]], gym.spaces.Box(0, 9, (1,), np.uint8), r"observations must be integers, .* got \[0.5\]"),
    ],
)
def test_observations_that_are_not_of_their_space(shown, space, message):
    with pytest.raises(ValueError, match=message):
        collect_related(Stub(shown, space=space), steps=1, choose=still)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (None, r"actions must be numbers of shape \(2,\), .* got None"),
        ([5.0, 1.0, 0.0], r"actions must be numbers of shape \(2,\)"),
        ([5.0, 1.0], "the policy's action .*5.* is not in Box.*clip it to the space's bounds"),
        ([np.nan, 0.0], "action .*nan.* is not in Box"),
    ],
)
def test_actions_that_are_not_of_their_space(action, message):
    with pytest.raises(ValueError, match=message):
        collect_related(gym.make(D_CLEAN), lambda o: action, steps=4)
    with pytest.raises(ValueError, match=message.replace(r"\(2,", r"\(3, 2")):
        collect_related(gym.make_vec(D_CLEAN, num_envs=3), lambda o: None if action is None else [action] * 3, steps=4)
    cart = Third(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="action 2 is not in Discrete"):
        collect_related(cart, lambda o: 2, steps=4)
    with pytest.raises(ValueError, match=r"actions must be integers, .* got 0.75"):
        collect_related(cart, lambda o: 0.75, steps=4)


def test_systems_of_arrays_are_told_apart_to_the_last_bit():
    def table(*systems):
        return collect_related(Stub([[0.0]] * 2), systems=systems, episodes_per_system=1, steps=1, choose=still).table

    goal, long = np.array([0.1, 0.2]), np.zeros(2000)
    other = long.copy()
    other[1000] = 1e-300
    for a, b in ((goal, goal + 1e-10), (long, other), ([goal], [goal + 1e-10]), ({"x": goal}, {"x": goal + 1e-10})):
        for wrap in (lambda value: value, lambda value: {"goal": value}):
            assert table(wrap(a), wrap(b), wrap(a))["rollout"].tolist() == [0, 0, 1]
            assert max(map(len, table(wrap(a), wrap(b))["system"])) < 200
    assert table({"goal": [0.0, 1.0]}, {"goal": np.array([-0.0, 1.0])})["rollout"].tolist() == [0, 1]
    assert table(0.0, -0.0)["rollout"].tolist() == [0, 1]
    for wrong in (np.nan, {"m": np.nan}, {"m": [0.0, np.nan]}, [np.array([np.nan, 1.0])]):
        with pytest.raises(ValueError, match="is NaN cannot be grouped"):
            table(wrong)


def test_systems_as_an_array():
    def numbers(systems):
        return collect_related(Stub([[0.0]] * 2), systems=systems, steps=1, choose=still).table

    assert numbers(np.array([1, 2]))["system"].tolist() == [1, 1, 2, 2]
    assert numbers(np.array([[1, 2], [3, 4]]))["system"].tolist() == ["[1, 2]"] * 2 + ["[3, 4]"] * 2
    assert numbers(np.int64(3))["system"].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("changed", [{"mass": 2.0}, {}, {"mass": np.array([1.0, 2.0])}])
def test_one_system_has_one_set_of_properties(changed):
    told = [{"system_id": 7, "persistent": {"mass": 1.0}}, {"system_id": 7, "persistent": changed}]
    for shape in ({"systems": 1, "episodes_per_system": 2}, {"systems": 2, "episodes_per_system": 1}):
        with pytest.raises(ValueError, match=r"tells the system 7 with mass=1\.0 and then with"):
            collect_related(Stub([[0.0]] * 2, told), steps=1, **shape)


def test_seeds_fit_numpys_global_generator():
    env = Stub([[0.0]] * 2)
    collect_related(env, systems=50, episodes_per_system=4, steps=1, choose=still)
    assert len(set(env.seeds)) == 200
    assert 2**30 < max(env.seeds) < 2**31


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match=r"env must be a Gymnasium environment, got 'Pendulum-v1': pass gym.make"):
        collect_related("Pendulum-v1", steps=4)


def test_progress():
    for env in (gym.make(D_CLEAN), gym.make_vec(D_CLEAN, num_envs=2)):
        seen: list[tuple[int, int]] = []
        collect_related(env, systems=3, steps=2, progress=lambda *told, seen=seen: seen.append(told))
        assert seen[-1] == (6, 6)
        assert seen == sorted(seen)


def test_to_minari(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    from sprii_envs.banks.minari import MinariWindows, from_minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = wrappers.StateObservation(gym.make(SPRING, image_size=32), both=True)
    found = collect_related(env, systems=3, steps=12)
    dataset = found.to_minari("live/spring-v0", about={"author": "me"})
    for row, episode in enumerate(minari.load_dataset("live/spring-v0")):
        own = found.episode(row)
        for name, part in episode.observations.items():
            assert np.array_equal(part, own[f"observations/{name}"])
        assert np.array_equal(episode.actions, own["actions"])
        assert np.array_equal(episode.rewards, own["rewards"])
        assert episode.truncations[-1]
        assert not episode.terminations.any()
    table = from_minari(dataset)
    for name in found.table.columns:
        assert (table[name] == found.table[name]).all()
    window = MinariWindows(dataset, table).windows("observations/state", [4], 2, 5)
    assert np.array_equal(window, found.windows("observations/state", [4], 2, 5))
    ended = collect_related(Third(gym.make("CartPole-v1")), systems=2, steps=200).to_minari("live/cartpole-v0")
    assert all(e.terminations[-1] and not e.truncations.any() for e in ended)


class Telling(gym.vector.VectorWrapper):
    """Infos with what looks like a last observation in every step."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" not in infos:
            blank = np.full(self.num_envs, None, object)
            infos |= {"final_obs": blank, "_final_obs": np.ones(self.num_envs, bool)}
        return observations, rewards, terminated, truncated, infos


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_info_is_no_end_of_an_episode(mode):
    settings = {"systems": 3, "steps": 12, "seed": 1}
    vector = gym.make_vec(SPRING, num_envs=2, obs_type="state", max_episode_steps=9, autoreset_mode=mode)
    single = gym.make(SPRING, obs_type="state", max_episode_steps=9)
    equal(collect_related(single, **settings), collect_related(Telling(vector), **settings))


@pytest.mark.parametrize(
    "action",
    [
        np.ma.array([0.5, 0.5], mask=[True, False]),
        np.array([True, False]),
        [True, 0.5],
        ["0", "1"],
        np.zeros(2, complex),
        [10**40, 0],
        [[0.0], [0.0, 1.0]],
    ],
    ids=repr,
)
def test_what_a_policy_does_is_numbers(action):
    with pytest.raises(ValueError, match=r"actions must be numbers of shape \(2,\)"):
        collect_related(gym.make(D_CLEAN), lambda _: action, steps=2)


def test_tensors_that_require_gradients_are_no_actions():
    torch = pytest.importorskip("torch")
    collect_related(gym.make(D_CLEAN), lambda _: torch.zeros(2), steps=2)
    with pytest.raises(ValueError, match="actions must be numbers"):
        collect_related(gym.make(D_CLEAN), lambda _: torch.zeros(2, requires_grad=True), steps=2)


def test_chosen_systems_are_labelled_by_their_ids():
    def choose(env, item):
        env.unwrapped.gravity = item["mass"]

    items = [System({"mass": 1.0}, id="light"), System({"mass": 2.0}, id="heavy")]
    table = collect_related(gym.make("MountainCarContinuous-v0"), systems=items, steps=2, choose=choose).table
    assert table["system"].tolist() == ["light", "light", "heavy", "heavy"]
    assert table["mass"].tolist() == [1.0, 1.0, 2.0, 2.0]


def test_episodes_are_asked_by_column_and_not_gone_through():
    found = collect_related(gym.make(D_CLEAN), steps=2)
    assert "actions" in found
    assert "systems" not in found
    assert 0 not in found
    for each in (found, found.table):
        assert "system" in found.table
        with pytest.raises(TypeError, match="not iterable"):
            list(each)


def test_a_hook_returns_options_or_nothing():
    with pytest.raises(ValueError, match=r"choose must return None or reset options, a mapping; it returned \[\]"):
        collect_related(gym.make(D_CLEAN), steps=2, choose=lambda env, item: [])
