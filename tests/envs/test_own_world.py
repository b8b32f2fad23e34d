"""Worlds of one's own, registered by one call: everything a ready environment does; what is wrong is named."""

import copy
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from own_worlds import CELLARS, KITES, Cellar, Kite
from scipy.integrate import solve_ivp

import sprii_envs
from sprii_envs import declarations, snapshots
from sprii_envs.banks import PROTOCOLS, BankError, BankProtocol, UniformSegments, build, register_protocol
from sprii_envs.collection import collect_related
from sprii_envs.core import SpriiEnv
from sprii_envs.effects import without_effect
from sprii_envs.properties import PersistentProperties, PersistentProperty, SystemDistribution
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import Ending, World, rollout
from sprii_envs.world_checks import check_functions, check_world
from sprii_envs.wrappers import ContextObservation, RepeatSystem, VectorContextObservation

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IDS = ("test/Kite-v0", "test/Cellar-v0")
every = pytest.mark.parametrize("id", IDS)


def wander(env, steps, seed=0):
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample()) for _ in range(steps)]


# --- environments ---


@every
@pytest.mark.filterwarnings("error::UserWarning")
def test_checkers_pass(id):
    check_env(gym.make(id, disable_env_checker=True).unwrapped)
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    sb3.check_env(gym.make(id), warn=True)


@every
def test_slots_of_the_native_vector_are_the_single_environments(id):
    native = gym.make_vec(id, num_envs=5, max_episode_steps=7)
    assert isinstance(native, SpriiVectorEnv)
    seen, _ = native.reset(seed=3)
    singles = [gym.make(id, max_episode_steps=7) for _ in range(5)]
    assert np.array_equal(seen, np.stack([env.reset(seed=3 + i)[0] for i, env in enumerate(singles)]))
    rng = np.random.default_rng(0)
    for _ in range(7):
        actions = rng.uniform(-1, 1, native.action_space.shape).astype(np.float32)
        rows = native.step(actions)
        for i, env in enumerate(singles):
            observation, reward, terminated, truncated, _ = env.step(actions[i])
            assert np.array_equal(rows[0][i], observation)
            assert (rows[1][i], rows[2][i], rows[3][i]) == (reward, terminated, truncated)
        if rows[2].any():
            return
    assert rows[3].all()


@every
def test_time_limits_come_from_the_class_or_the_call(id):
    limit = {"test/Kite-v0": 20, "test/Cellar-v0": 30}[id]
    assert gym.spec(id).max_episode_steps == limit
    assert gym.make_vec(id, num_envs=2).unwrapped.max_episode_steps == limit
    assert gym.spec(id).to_json() == gym.envs.registration.EnvSpec.from_json(gym.spec(id).to_json()).to_json()


@every
def test_copies_pickles_and_snapshots_go_on_as_the_original_does(id):
    for env in (gym.make(id), gym.make_vec(id, num_envs=3)):
        env.reset(seed=3)
        wander(env, 4)
        saved = snapshots.get_state(env)
        copies = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
        original = wander(env, 5), env.reset()
        for other in copies:
            assert data_equivalence((wander(other, 5), other.reset()), original, exact=True)
        snapshots.set_state(env, saved)
        assert data_equivalence((wander(env, 5), env.reset()), original, exact=True)


@every
def test_counterfactuals_are_resets_and_sensitivities_are_slopes(id):
    env = gym.make(id).unwrapped
    env.reset(seed=1)
    name = env.persistent_properties.names[0]
    actions = np.random.default_rng(0).uniform(-1, 1, (6, *env.action_space.shape)).astype(np.float32)
    systems = env.vary(name, [0.3, 0.4])
    done = env.counterfactual(systems, actions)
    for system, states in zip(systems, done.states, strict=True):
        env.reset(options={"system": system, "state": states[0]})
        for action in actions:
            env.step(action)
        assert np.array_equal(env.state, states[-1])
    env.reset(seed=1)
    value = env.system[name]
    slope = env.sensitivity(name, actions, relative=0.01)
    ends = env.counterfactual(env.vary(name, [value * 1.01, value * 0.99]), actions).states
    assert np.array_equal(slope, (ends[0] - ends[1]) / 0.02)
    assert np.abs(slope).max() > 0


@every
def test_wrappers_and_collectors_work(id):
    env = gym.make(id, max_episode_steps=5)
    names = env.unwrapped.persistent_properties.names
    seen, info = ContextObservation(env, normalise=False).reset(seed=0)
    assert np.array_equal(seen[-len(names) :], info["persistent"].astype(np.float32))
    both, _ = VectorContextObservation(gym.make_vec(id, num_envs=2), normalise=False).reset(seed=0)
    assert np.array_equal(both[0], seen)
    repeated, ids = RepeatSystem(gym.make(id, max_episode_steps=5), episodes=2), []
    for _ in range(4):
        ids.append(repeated.reset()[1]["system_id"])
    assert ids[0] == ids[1] != ids[2] == ids[3]
    for source in (env, gym.make_vec(id, num_envs=3, max_episode_steps=5)):
        episodes = collect_related(source, systems=3, episodes_per_system=2, steps=5)
        assert len(episodes.table) == 6
        assert set(names) <= set(episodes.table.columns)
        assert len(PairSampler(episodes.table, SAME_SYSTEM).batch(0, 4).donor) == 4


@every
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_processes_of_gymnasium_make_it_too(id, context, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    envs = gym.make_vec(id, num_envs=2, vectorization_mode="async", vector_kwargs={"context": context})
    sync = gym.make_vec(id, num_envs=2, vectorization_mode="sync")
    try:
        assert np.array_equal(envs.reset(seed=5)[0], sync.reset(seed=5)[0])
        assert data_equivalence(wander(envs, 3), wander(sync, 3), exact=True)
    finally:
        envs.close()


def test_sb3_learns_in_the_native_vector():
    sb3 = pytest.importorskip("stable_baselines3")
    from sprii_train.plugins.sb3_envs import NativeVecEnv

    envs = NativeVecEnv(gym.make_vec("test/Kite-v0", num_envs=4))
    model = sb3.PPO("MlpPolicy", envs, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(32)
    assert model.num_timesteps == 32


def test_a_world_without_pictures_has_states_only():
    for make, arguments in [
        (lambda **k: gym.make("test/Cellar-v0", **k), {"obs_type": "pixels"}),
        (lambda **k: gym.make("test/Cellar-v0", **k), {"render_mode": "rgb_array"}),
        (lambda **k: gym.make_vec("test/Cellar-v0", num_envs=2, **k), {"render_mode": "rgb_array"}),
        (lambda **k: SpriiEnv(Cellar(), **k), {"obs_type": "pixels"}),
    ]:
        with pytest.raises(ValueError, match=r"Cellar has no pictures: .* needs a world with patches\(state, size\)"):
            make(**arguments)
    env = gym.make("test/Cellar-v0").unwrapped
    assert env.metadata["render_modes"] == []
    env.reset(seed=0)
    with pytest.raises(ValueError, match="Cellar has no pictures: frames"):
        env.counterfactual(env.vary("leak", [0.1]), np.zeros((2, 1)), frames=True)
    seen, _ = gym.make("test/Kite-v0", obs_type="pixels", image_size=16).reset(seed=0)
    assert seen.shape == (16, 16, 2)
    assert seen.max() == 200


def test_defaults_are_the_names_and_forces_that_are_said():
    assert (Kite.name, Kite().name, Cellar().dt, Kite().image_size) == ("Kite", "Kite", 1.0, 64)
    clipped = Kite().force(np.array([[2.0, -np.inf, np.nan]], np.float32))
    assert clipped.dtype == np.float64
    assert np.array_equal(clipped, [[1.0, -1.0, np.nan]], equal_nan=True)
    with pytest.raises(ValueError, match="unknown argument of Kite 'pul'; did you mean 'pull'"):
        gym.make("test/Kite-v0", pul=3.0)
    assert gym.make("test/Kite-v0", pull=3.0).unwrapped.world == Kite(pull=3.0)


def test_episodes_end_where_the_world_says():
    env = gym.make("test/Cellar-v0")
    env.reset(options={"state": [1.01], "system": {"leak": 0.5}})
    _, _, terminated, _, info = env.step([0.0])
    assert (terminated, info["reason"]) == (True, "frozen")
    env.reset(options={"query": "cold"})
    assert 1.0 <= env.unwrapped.state[0] <= 2.0


# --- banks ---


@pytest.mark.parametrize("protocol", [KITES, CELLARS], ids=["kites", "cellars"])
def test_banks_have_the_same_bytes_for_any_number_of_workers_and_hold_what_the_world_does(
    protocol, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(HERE))
    bank, several = (build(protocol, tmp_path / f"{n}", workers=n) for n in (1, 3))
    assert bank.fingerprint == several.fingerprint
    for row in (0, len(bank) - 1):
        values = [bank.table[name][row] for name in bank.properties.names]
        done = rollout(bank.world, np.array([values]), bank["states"][row, 0].astype(float), bank["actions"][row])
        assert np.array_equal(done.states[0].astype(np.float32), bank["states"][row])
        assert np.array_equal(done.rewards[0].astype(np.float32), bank["rewards"][row])
    if protocol is CELLARS:
        assert set(bank.table["ending"]) <= {"", "frozen"}
        assert "power" in bank.columns
    train = bank.split("train")
    pairs = PairSampler(train, SAME_SYSTEM, seed=0, distinct="system").batch(0, 4)
    assert (train["system"][np.searchsorted(train.rows, train.rows[pairs.donor])]
            == train["system"][pairs.recipient]).all()  # fmt: skip
    least = int(train["length"].min())
    windows = WindowSampler(train, history=min(4, least), horizon=0).batch(0, pairs)
    assert len(bank.read(windows, "states", min(4, least))) == 2


def _frames(bank):
    return bank.frames([0], 0, 2, size=16)


def test_a_pickled_bank_knows_its_world_in_another_process(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    bank = build(KITES, tmp_path / "kites")
    code = "import pickle, sys; bank = pickle.load(sys.stdin.buffer); print(bank.frames([0], 0, 2, size=16).sum())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(bank), capture_output=True, env=environment)
    assert int(run.stdout) == _frames(bank).sum() > 0, run.stderr.decode()
    environment["PYTHONPATH"] = str(ROOT)  # without the module: what is recorded can be read
    code = "import pickle, sys; bank = pickle.load(sys.stdin.buffer); print(bank['states'].shape); bank.world"
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(bank), capture_output=True, env=environment)
    assert run.stdout.decode().strip() == str(bank["states"].shape)
    assert "known once the module that registers it is imported" in run.stderr.decode()


def test_frames_without_pictures_and_names_of_the_table_are_refused_before_anything_is_written(tmp_path, registry):
    with pytest.raises(ValueError, match="Cellar has no pictures: frames=16 of the bank 'cellars'"):
        build(CELLARS.replace(frames=16), tmp_path / "bank")
    sprii_envs.register("test/Long-v0", Long)
    with pytest.raises(ValueError, match=r"property 'length' of Long has the name of a column .* choose none of"):
        build(KITES.replace(env_id="test/Long-v0"), tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


NOTEBOOK = """
import sys
exec(open(sys.argv[1]).read())
from sprii_envs.banks import PROTOCOLS, BankError, build
print(build(KITES, sys.argv[2] + "/one").name)
try:
    build(KITES.replace(seed=1), sys.argv[2] + "/two", workers=2)
except BankError as error:
    print(error)
"""


def test_a_class_of_a_notebook_is_built_in_one_process_and_refused_for_several(tmp_path):
    command = [sys.executable, "-c", NOTEBOOK, str(HERE / "own_worlds.py"), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert run.returncode == 0, run.stderr
    assert (
        "build workers cannot import Kite, which is defined in a notebook or shell: put it into a module" in run.stdout
    )
    assert os.listdir(tmp_path) == ["one"]


def test_workers_that_cannot_import_the_module_say_so(tmp_path, registry):
    module = importlib.util.module_from_spec(
        spec := importlib.util.spec_from_file_location("gone", HERE / "own_worlds.py")
    )
    sys.modules["gone"] = module
    gym.registry.clear()
    try:
        spec.loader.exec_module(module)
        with pytest.raises(BankError, match=r"a build worker cannot import .* gone:Kite .*No module named 'gone'"):
            build(module.KITES, tmp_path / "bank", workers=2)
    finally:
        del sys.modules["gone"]


def test_the_command_line_builds_a_protocol_of_a_plugin(tmp_path):
    pytest.importorskip("tyro")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    command = [sys.executable, "-m", "sprii_train", "bank"]
    run = subprocess.run(
        [*command, "build", "kites", str(tmp_path / "bank"), "--plugin", "own_worlds", "--workers", "2"],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "6 train" in run.stdout
    listed = subprocess.run(
        [*command, "list", "--plugin", "own_worlds"], capture_output=True, text=True, env=environment
    )
    assert "kites" in listed.stdout
    wrong = subprocess.run(
        [*command, "build", "kite", "bank"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert wrong.returncode == 2
    assert "unknown bank 'kite'" in wrong.stderr
    assert "d-clean" in wrong.stderr


def test_a_protocol_keeps_its_name_to_itself(registry):
    own = register_protocol(KITES.replace(name="my kites"))
    again = own.replace()
    assert register_protocol(again) is again  # as of a module that is loaded anew
    with pytest.raises(ValueError, match=r"'my kites' is registered already .*\(seed: 0, not 1\); .*another name"):
        register_protocol(own.replace(seed=1))
    assert PROTOCOLS["my kites"] == own


def test_protocols_of_this_package_cannot_be_replaced():
    with pytest.raises(ValueError, match="the protocol 'd-clean' is one of this package"):
        register_protocol(KITES.replace(name="d-clean"))
    with pytest.raises(ValueError, match="legal: BankProtocol"):
        register_protocol("kites")


# --- any size of action ---


def sized(size):
    """Each component of the action turns a wheel, the slower the larger the inertia."""

    class Wheels(Kite):
        state_names = tuple(f"speed_{i}" for i in range(size))
        action_size = size
        start_draws = 0

        def prepare(self, values):
            return values[:, :1], values[:, 1:]

        def initial(self, u, values, query):
            assert u.shape == (len(values), 0)
            return np.zeros((len(values), size))

        def step(self, state, force, prepared):
            return state + force * prepared[0] + prepared[1], {}

        def reward(self, state, force, after):
            return np.zeros(len(state))

        def patches(self, state, size):
            return []

    return Wheels


@settings(max_examples=12, deadline=None)
@given(size=st.integers(1, 8), n=st.integers(1, 4), steps=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_worlds_and_the_starter_behaviour_take_actions_of_any_size(size, n, steps, seed):
    world = sized(size)()
    check_world(world)
    values = world.properties.low + np.random.default_rng(seed).random((n, 2))
    start = world.initial(np.zeros((n, 0)), values, None)
    actions = UniformSegments().policy(np.random.default_rng(seed), world, values, start, steps, None)
    assert actions.shape == (n, steps, size)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1.0
    assert len(np.unique(actions[0, 0])) == size  # each component its own draw
    done = rollout(world, values, start, actions)
    expected = values[:, :1] * actions.sum(axis=1, dtype=float) + steps * values[:, 1:]
    assert np.allclose(done.states[:, -1], expected, rtol=1e-12, atol=1e-12)
    envs = SpriiVectorEnv(world, n)
    envs.reset(seed=seed, options={"system": values})
    for t in range(steps):
        envs.step(actions[:, t])
    assert np.array_equal(envs.state, done.states[:, -1])


# --- what is wrong is named ---


@pytest.fixture
def registry():
    held = gym.registry, PROTOCOLS
    before = [dict(each) for each in held]
    yield
    for each, was in zip(held, before, strict=True):
        each.clear()
        each.update(was)


class Long(Kite):
    properties = PersistentProperties(
        [PersistentProperty(name, "l", "m", low=0.5, high=1.0, nominal=0.7) for name in ("length", "lift")]
    )


LEAK = PersistentProperties([PersistentProperty("leak", "k", "1/h", low=0.05, high=0.5, nominal=0.2)])
OTHER = PersistentProperties([PersistentProperty("heat", "h", "1", low=0.05, high=0.5, nominal=0.2)])


def declared(**changes):
    return type("Mine", (Cellar,), changes)


class Bare(Cellar):
    pass


class Undone(World):
    properties, state_names, action_size, start_draws = LEAK, ("x",), 1, 1

    def prepare(self, values):
        return (values,)


class Loose(Cellar):
    wall: float = 3.0


@dataclass
class Empty(World):
    pass


DECLARATIONS = [
    (object(), r"world is <object .*legal: a class derived from sprii_envs.world.World"),
    ([Cellar], "world is .*legal: a class derived"),
    (Cellar(), r"legal: a class derived .*; pass the class, Cellar"),
    (Undone, r"Undone is no dataclass; legal: @dataclass\(frozen=True, kw_only=True\) above its class"),
    (Empty, "Empty is a dataclass that can be changed; legal: @dataclass"),
    (dataclass(frozen=True)(type("Empty", (World,), {})),
     r"Empty lacks properties, state_names, action_size, start_draws \(properties: PersistentProperties"),
    (dataclass(frozen=True)(type("Undone", (Undone,), {})),
     r"Undone lacks initial, reward, step: initial\(u, values, query\) returns states \(N, "
     r"S\).*reward\(state, force, after\) returns rewards \(N,\) float64; step"),
    (Loose, "Loose annotates 'wall' without @dataclass"),
    (declared(properties=[PersistentProperty("leak", "k", "1", low=0, high=1, nominal=0)]),
     r"Mine.properties is \[Pers.*legal: PersistentProperties\("),
    (declared(properties=PersistentProperties([])), "legal: .* of at least one"),
    (declared(state_names=["warmth"]), r"Mine.state_names is \['warmth'\]; legal: a tuple of names, at least one"),
    (declared(state_names="warmth"), r"one name is written \(name,\)"),
    (declared(state_names=("x", "y", "x")), "Mine.state_names has 'x' 2 times; legal: distinct names"),
    (declared(action_size=0), "Mine.action_size is 0; legal: an integer >= 1"),
    (declared(action_size=2.0), "Mine.action_size is 2.0; legal: an integer"),
    (declared(start_draws="2"), "Mine.start_draws is '2'; legal: an integer >= 0"),
    (declared(queries=["cold"]), "Mine.queries is .*legal: a tuple of names"),
    (declared(groups={"all": LEAK}), "Mine.groups is .*legal: a mapping from names to SystemDistribution"),
    (declared(groups={"all": SystemDistribution(OTHER)}),
     r"Mine.groups\['all'\] has the properties \('heat',\), Mine has \('leak',\)"),
    (declared(signals={"power": "much"}),
     "Mine.signals is .*legal: a mapping from names to bool, int64, uint8, float64"),
    (declared(signals={"states": "float64"}), "Mine.signals has 'states', which banks use themselves"),
    (declared(endings=("ended",)), "Mine.endings has 'ended', which banks use themselves"),
    (declared(endings=("cold", "cold")), "Mine.endings has 'cold' 2 times"),
    (declared(obs_type="pixels"), r"Mine.obs_type is 'pixels', and Mine has no patches\(state, size\)"),
    (declared(obs_type="sound"), "Mine.obs_type is 'sound'; legal: state, pixels"),
    (declared(image_size=3), r"image_size must be .* each in \[8, 4096\], got 3"),
    (declared(max_episode_steps=0), "Mine.max_episode_steps is 0; legal: an integer >= 1"),
    (declared(state_limit=-1.0), "Mine.state_limit is -1.0; legal"),
    (declared(dt=0.0), "Mine.dt is 0.0; legal: a finite number > 0"),
    (declared(name=""), "Mine.name is"),
    (declared(step=lambda self, state, force: (state, {})),
     r"Mine.step is step\(self, state, force\); it is called as step\(state, force, prepared\)"),
    (declared(prepare=3), r"Mine.prepare is prepare3; it is called as prepare\(values\)"),
    (make_dataclass("Mine", [("system", int, 1)], bases=(Cellar,), frozen=True),
     "Mine.system: gym.make has an argument of this name"),
    (make_dataclass("Mine", [("state_names", tuple, ("x",))], bases=(Cellar,), frozen=True),
     "Mine.state_names is a field, which callers could change; legal: `state_names: ClassVar"),
    (make_dataclass("Mine", [("mass", float)], bases=(Cellar,), frozen=True), "Mine.mass has no default"),
    (make_dataclass("Mine", [("table", object, np.float64)], bases=(Cellar,), frozen=True),
     "Mine.table is <class .*legal: a number, a text, or a tuple of them"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), DECLARATIONS)
def test_what_is_declared_wrongly_is_named_before_anything_is_registered(kind, message, registry):
    before = set(gym.registry)
    with pytest.raises(ValueError, match=message):
        sprii_envs.register("test/Wrong-v0", kind, max_episode_steps=5)
    assert set(gym.registry) == before
    if isinstance(kind, type) and not getattr(kind, "__abstractmethods__", True) and kind.__name__ == "Mine":
        values = {name: 1.0 for name in ("mass",) if name in kind.__dataclass_fields__}
        with pytest.raises(ValueError, match=message):
            SpriiEnv(kind(**values))


class Plain(Cellar):
    pass


def test_what_cannot_be_registered_is_named(registry):
    for id in ("Kite", "mine/Kite", "mine/Kite v0", 3, ""):
        with pytest.raises(ValueError, match=r"id is .*; legal: a name with a version"):
            sprii_envs.register(id, Kite)
    with pytest.raises(ValueError, match=r"Cellar has no time limit: register\('test/Other-v0', Cellar, max_episode"):
        sprii_envs.register("test/Other-v0", Cellar)
    with pytest.raises(ValueError, match="max_episode_steps is 0; legal: an integer >= 1"):
        sprii_envs.register("test/Other-v0", Cellar, max_episode_steps=0)
    with pytest.raises(ValueError, match="id 'test/Kite-v0' is that of own_worlds:Kite already"):
        sprii_envs.register("test/Kite-v0", Plain, max_episode_steps=5)
    with pytest.raises(ValueError, match=r"id 'sprii/D-Clean-v0' is that of sprii_envs.envs.d_clean:DCleanEnv already"):
        sprii_envs.register("sprii/D-Clean-v0", Kite)
    with pytest.raises(ValueError, match="define it at the top of a module"):
        sprii_envs.register("test/Other-v0", sized(2))
    sprii_envs.register("test/Kite-v0", Kite, max_episode_steps=9)  # a cell that runs again
    assert gym.make_vec("test/Kite-v0", num_envs=1).unwrapped.max_episode_steps == 9


def test_a_world_that_is_gone_is_named(registry):
    gym.registry["test/Gone-v0"] = spec = copy.deepcopy(gym.spec("test/Kite-v0"))
    spec.id = "test/Gone-v0"
    for path, message in [
        ("nowhere:Kite", "the world nowhere:Kite cannot be imported in this process .*nowhere must be on sys.path"),
        ("own_worlds:Kit", "the world own_worlds:Kit cannot be imported"),
        ("own_worlds:KITES", "own_worlds:KITES is no World"),
    ]:
        spec.kwargs["world"] = path
        with pytest.raises(ValueError, match=message):
            gym.make("test/Gone-v0")


# --- what functions do wrong ---


def of_kite(**functions):
    return type("Mine", (Kite,), functions)()


def _mutating(self, state, force, prepared):
    after = Kite.step(self, state, force, prepared)
    state *= 0.5
    return after


def _wearing(self, state, force, prepared):
    after = Kite.step(self, state, force, prepared)
    prepared[0][:] = 0.0
    return after


def _in_place(self, state, force, prepared):
    state += 0.0
    return state, {}


def _hot(self, state, force, prepared):
    after = Kite.step(self, state, force, prepared)[0]
    return after, {"heat": np.where(after[:, 0] < 9e9, np.inf, 0.0)}


def _reasons(where):
    return {"reason": np.where(where, np.array("far", object), None)}


COUNTER = iter(range(10**9))
KITE_STEP = Kite.step
WRONG = [
    ({"prepare": lambda self, v: v[:, 0]}, r"Mine.prepare .*; one array is written \(array,\)"),
    ({"prepare": lambda self, v: [v[:, 0], v[:, 1]]},
     r"Mine.prepare returned .*; legal: a tuple of arrays whose first axis is N = 7"),
    ({"prepare": lambda self, v: (np.broadcast_to(0.5, len(v)), v[:, 1])},
     r"Mine.prepare returned an array that cannot be written to"),
    ({"prepare": lambda self, v: (v[0, 0], v[:, 1].copy())},
     r"Mine.prepare returned .*; legal: a tuple of arrays whose first axis"),
    ({"prepare": lambda self, v: (v[:, 0] - v[:, 0].mean(), v[:, 1] * 1.0)},
     r"Mine.prepare returned something else for N = 1 than for N = 7"),
    ({"initial": lambda self, u, v, q: u},
     r"Mine.initial returned an array \(7, 3\) of float64; legal: an array \(7, 6\) of float64: states "
     r"\(N, S\)"),
    ({"initial": lambda self, u, v, q: np.full((len(u), 6), np.nan)},
     r"Mine.initial returned no legal start: state component 'x' of slot 0 = nan"),
    ({"initial": lambda self, u, v, q: np.zeros((len(u), 6), np.float32)},
     r"Mine.initial returned an array \(7, 6\) of float32; legal: .* of float64"),
    ({"initial": lambda self, u, v, q: np.full((len(u), 6), float(next(COUNTER)))},
     r"Mine.initial returned something else when it is called again"),
    ({"force": lambda self, a: a.astype(float)},
     r"Mine.force returned what is not finite for actions of inf; legal: actions clipped to ±1"),
    ({"force": lambda self, a: np.nan_to_num(np.clip(a.astype(float), -1, 1))},
     r"Mine.force returned a number for an action of NaN; legal: NaN kept"),
    ({"force": lambda self, a: np.clip(a, -1, 1)},
     r"Mine.force returned an array \(7, 3\) of float32; legal: .* of float64"),
    ({"force": lambda self, a: np.clip(a[:, 0].astype(float), -1, 1)},
     r"Mine.force returned an array \(7,\) of float64; legal: an array \(7, 3\)"),
    ({"step": lambda self, s, f, p: KITE_STEP(self, s, f, p)[0]},
     r"Mine.step returned an array \(7, 6\) of float64; legal: a pair"),
    ({"step": lambda self, s, f, p: (s[:, :5] * 1.0, {})},
     r"Mine.step returned an array \(7, 5\) of float64; legal: an array \(7, 6\)"),
    ({"step": lambda self, s, f, p: (np.zeros(6), {})}, r"Mine.step returned "),
    ({"step": lambda self, s, f, p: (s / 0.0, {})},
     r"Mine.step returned .* for the system \{'drag': .*; legal: finite states"),
    ({"step": lambda self, s, f, p: (s + f, {})},
     r"Mine.step fails for state \(7, 6\), force \(7, 3\): ValueError: operands"),
    ({"step": lambda self, s, f, p: (s - s.mean(axis=0), {})},
     r"Mine.step returned something else for N = 1 than for N = 7"),
    ({"step": lambda self, s, f, p: (s + next(COUNTER), {})},
     r"Mine.step returned something else when it is called again"),
    ({"step": lambda self, s, f, p: (s + 1.0 * s.flags.c_contiguous, {})},
     r"Mine.step returned something else of F-ordered arrays"),
    ({"step": _mutating}, r"Mine.step returned with another `state` than it was given"),
    ({"step": _wearing}, r"Mine.step returned with another `prepared` than it was given"),
    ({"step": _in_place}, r"Mine.step returned a view of its argument; legal: a new array"),
    ({"signals": {"speed": "float64"}}, r"Mine.step returned no signal 'speed'; legal: an array \(7,\) of float64"),
    ({"signals": {"on": "bool"}, "step": lambda self, s, f, p: (s * 1.0, {"on": s[:, 0] * 1.0})},
     r"Mine.step returned an array \(7,\) of float64 as the signal 'on'; legal: .* of bool"),
    ({"reward": lambda self, s, f, a: -np.abs(a).sum()},
     r"Mine.reward returned .*; legal: an array \(7,\) of float64: rewards"),
    ({"reward": lambda self, s, f, a: a[:, 0]}, r"Mine.reward returned a view of its argument"),
    ({"reward": lambda self, s, f, a: np.abs(a[:, 0]).astype(np.float32)},
     r"Mine.reward returned an array \(7,\) of float32"),
    ({"end": lambda self, a, e: a[:, 0] > 0}, r"Mine.end returned .*; legal: an Ending"),
    ({"end": lambda self, a, e: Ending(terminated=a[:, 0] * 0.0)},
     r"Mine.end returned an array \(7,\) of float64 as terminated; legal: .* of bool"),
    ({"end": lambda self, a, e: Ending(a[:, 0] > -9, info={"reason": np.full(len(a), "far", object)})},
     r"Mine.end returned the reason 'far'; legal: a reason that is in endings, \(\)"),
    ({"reward": lambda self, s, f, a: np.log(a[:, 0])},
     r"Mine.reward returned rewards of nan for the system \{'drag': .*; legal: finite numbers"),
    ({"signals": {"heat": "float64"}, "step": _hot},
     r"Mine.step returned the signal 'heat' of inf for the system \{'drag': .*; legal: finite numbers"),
    ({"endings": ("far",), "end": lambda self, a, e: Ending(a[:, 0] > 9e9, info=_reasons(a[:, 0] < 9e9))},
     r"Mine.end returned the reason 'far' where nothing ended; legal: None there"),
    ({"endings": ("far",), "end": lambda self, a, e: Ending(a[:, 0] < 9e9, info=_reasons(a[:, 0] > 9e9))},
     r"Mine.end returned no reason where an episode ended; legal: info\[\"reason\"\] of \('far',\) there"),
    ({"endings": ("far",), "end": lambda self, a, e: Ending(truncated=a[:, 0] < 9e9)},
     r"Mine.end returned no reason where an episode ended"),
    *[({"reset_info": lambda self, s, name=name: {name: s[:, 0].copy()}},
       rf"Mine.reset_info reports '{name}'; legal: .*extrapolated, final_info, final_obs, .*system_id")
      for name in ("system_id", "persistent", "extrapolated", "final_obs", "final_info", "episode", "rollout", "_x")],
    ({"end": lambda self, a, e: Ending(info={"persistent": a[:, 0].copy()})}, r"Mine.end reports 'persistent'; legal"),
    ({"observe": lambda self, s: s * 1.0},
     r"Mine.observe returned an array \(7, 6\) of float64; legal: an array \(7, 6\) of float32"),
    ({"observe": lambda self, s: s[:, :2].astype(np.float32, order="C")},
     r"Mine.observe returned an array \(7, 2\) of float32; legal: an array \(7, 6\) of float32, O as in "
     r"observation_bounds"),
    ({"observation_bounds": property(lambda self: (np.zeros(6, np.float32), np.ones(6, np.float32)))},
     r"Mine.observe returned .* in component \d; legal: \[0.0, 1.0\], its observation_bounds"),
    ({"observation_bounds": property(lambda self: (np.full(6, -np.inf, np.float32),) * 2)},
     r"Mine.observation_bounds returned .*; legal: two finite float32 arrays"),
    ({"patches": lambda self, s, size: np.zeros((len(s), *size), np.uint8)},
     r"Mine.patches returned .*; legal: a list of what rendering.disc"),
    ({"picture": lambda self, s, v, size: np.zeros((len(s), *size), np.uint8)},
     r"Mine.picture returned an array \(7, 16, 24\) of uint8; legal: an array \(7, 16, 24, 3\)"),
    ({"prepare": lambda self, v: (np.full(len(v), 0.5), v[:, 1] * 1.0)},
     r"property 'drag' of Mine changes nothing: no start, and no state or signal"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("functions", "message"), WRONG)
def test_what_a_function_does_wrong_is_named(functions, message):
    with pytest.raises(ValueError, match=message):
        check_world(of_kite(**functions))


class Late(Kite):
    """What `check_world` does not reach: a logarithm that fails far from where it looks."""

    signals: ClassVar = {"depth": "float64"}
    reached: ClassVar[float] = 4.0

    def step(self, state, force, prepared):
        return super().step(state, force, prepared)[0], {"depth": self._log(state) if self.loud else state[:, 0] * 1.0}

    def reward(self, state, force, after):
        return -after[:, 0] if self.loud else self._log(state)

    def _log(self, state):
        return np.log(self.reached - np.abs(state[:, 0]))

    loud: ClassVar[bool] = False


class Loud(Late):
    loud: ClassVar[bool] = True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("kind", "column"), [(Late, "rewards"), (Loud, "depth")])
def test_a_bank_holds_finite_rewards_and_signals(kind, column, registry, tmp_path):
    sprii_envs.register("test/Late-v0", kind)
    check_functions(kind())
    far = KITES.replace(env_id="test/Late-v0", steps=60)
    with pytest.raises(
        ValueError, match=rf"'kites': the {column} of an episode of system \d is not finite at step \d+"
    ):
        build(far, tmp_path / "far")
    assert np.isfinite(build(far.replace(steps=4), tmp_path / "near")[column]).all()


class Telling(Kite):
    def reset_info(self, state):
        return {"system_id": state[:, 0].copy()}


def test_reserved_names_are_refused_at_the_first_reset():
    with pytest.raises(ValueError, match=r"Telling.reset_info reports 'system_id'; legal"):
        SpriiEnv(Telling()).reset(seed=0)
    with pytest.raises(ValueError, match=r"Telling.reset_info reports 'system_id'; legal"):
        SpriiVectorEnv(Telling(), num_envs=2).reset(seed=0)


def test_the_sampler_names_the_remedy_for_episodes_that_ended(tmp_path):
    bank = build(CELLARS, tmp_path / "bank")
    pairs = PairSampler(bank.table, SAME_SYSTEM, seed=0)
    least = int(bank.table["length"].min()) + 1
    with pytest.raises(ValueError, match=rf"table, short = table.without_short\({least}\)"):
        WindowSampler(bank.table, history=least - 2, horizon=2)
    table, short = bank.table.without_short(least)
    assert len(short) > 0
    pairs = PairSampler(table, SAME_SYSTEM, seed=0, on_missing="drop").batch(0, 2)
    windows = WindowSampler(table, history=least - 2, horizon=2).batch(0, pairs)
    assert bank.read(windows, "states", least - 2)[0].shape == (2, least - 2, 1)
    with pytest.raises(ValueError, match=r"w is None; legal: the WindowPairs that WindowSampler.batch returns"):
        bank.read(None, "states", 4)  # type: ignore[arg-type]


class Flat(Kite):
    def reward(self, state, force, after):
        return np.abs(after)


def test_functions_are_tried_when_the_first_environment_or_bank_is_built(registry, tmp_path):
    sprii_envs.register("test/Flat-v0", Flat)
    says = r"Flat.reward returned an array \(7, 6\) of float64; legal: an array \(7,\)"
    for make in (
        lambda: gym.make("test/Flat-v0"),
        lambda: gym.make_vec("test/Flat-v0", num_envs=2),
        lambda: build(KITES.replace(env_id="test/Flat-v0"), tmp_path / "bank"),
    ):
        with pytest.raises(ValueError, match=says):
            make()
    assert list(tmp_path.iterdir()) == []


def test_good_worlds_pass_and_properties_are_told_by_what_they_change():
    check_world(Kite())
    check_world(Cellar(), seed=3)
    assert without_effect(Kite()) == ()
    with pytest.raises(ValueError, match=r"legal: an instance of a World; an instance is Kite\(\)"):
        check_world(Kite)  # type: ignore[arg-type]

    class Signalled(Cellar):  # a property that a signal alone shows
        properties = PersistentProperties([*LEAK, *OTHER])

        def prepare(self, values):
            return values[:, :1], values[:, 1]

        def step(self, state, force, prepared):
            return super().step(state, force, prepared)[0], {"power": np.abs(force[:, 0]) * prepared[1]}

    check_world(Signalled())


def test_ready_worlds_pass():
    for id in ("sprii/D-Clean-v0", "sprii/SpringWorld-v0", "sprii/PokeWorld-v0", "sprii/Pendulum-v0"):
        check_world(gym.make(id).unwrapped.world)


# --- MuJoCo, the example ---


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_mujoco_world_is_registered_by_the_same_call(registry, monkeypatch, tmp_path):
    pytest.importorskip("mujoco")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    cart = importlib.import_module("own_mujoco").CartPole
    sprii_envs.register("test/CartPole-v0", cart, max_episode_steps=50)
    env, envs = gym.make("test/CartPole-v0"), gym.make_vec("test/CartPole-v0", num_envs=2)
    assert np.array_equal(envs.reset(seed=1)[0][0], env.reset(seed=1)[0])
    assert env.spec.max_episode_steps == envs.unwrapped.max_episode_steps == 50
    check_world(cart())
    bank = build(
        BankProtocol("carts", 1, "test/CartPole-v0", {"train": 2}, 2, 9, UniformSegments()),
        tmp_path / "bank",
        workers=2,
    )
    assert bank["states"].shape[:2] == (4, 9)


def test_the_examples_physics_is_the_solution_of_its_equation(registry):
    drone = load("own_world_example", ROOT / "examples" / "own_world.py").Drone()
    rng = np.random.default_rng(0)
    values = np.array([[0.5, 2.0, -2.0], [2.0, 0.2, 1.5], [1.0, 1.0, 0.5]])
    start, actions = rng.normal(size=6), rng.uniform(-1, 1, (10, 3)).astype(np.float32)
    done = rollout(drone, values, start, actions)

    def slope(_, y, system, push):
        mass, drag, wind = system
        return np.concatenate([y[3:], (push - drag * (y[3:] - [wind, 0, 0])) / mass])

    for system, states in zip(values, done.states, strict=True):
        state = start
        for t, action in enumerate(actions):
            args = system, drone.thrust * action.astype(float)
            state = solve_ivp(slope, (0, drone.dt), state, args=args, rtol=1e-11, atol=1e-12).y[:, -1]
            assert np.allclose(states[t + 1], state, rtol=1e-8, atol=1e-9)
    check_world(drone)
    assert replace(drone, thrust=1.0).thrust == 1.0


def test_the_example_is_short_and_runs_with_workers():
    path = ROOT / "examples" / "own_world.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "(16, 24, 6)"


def test_the_page_runs_from_nothing_to_a_sampler(tmp_path, monkeypatch, registry):
    text = (ROOT / "docs" / "own_world.md").read_text(encoding="utf-8")
    first, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert first.startswith("# kite.py\n")
    (tmp_path / "kite.py").write_text(first, encoding="utf-8")
    PROTOCOLS.pop("kites", None)  # of the other worlds here
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    told: dict = {}
    try:
        for block in others:  # each alone
            names = {"__name__": "__main__"}
            exec(block, names)
            told = names | told  # of the bank's block, not of the one without short episodes
        assert told["rollout"].frames.shape == (3, 21, 64, 64)
        assert told["rollout"].states.shape == (3, 21, 5)
        assert told["frames"].shape == (64, 64, 64, 2)
        assert told["recipients"].shape == told["donors"].shape == (48, 24, 5)
        system = told["train"]["system"]
        assert (system[told["pairs"].donor] == system[told["pairs"].recipient]).all()
        assert (told["pairs"].donor != told["pairs"].recipient).all()
    finally:
        sys.modules.pop("kite", None)


def test_the_page_names_every_declaration_and_function():
    text = (ROOT / "docs" / "own_world.md").read_text(encoding="utf-8")
    for name in (*declarations._RULES, "observation_bounds", "reset_info"):
        assert f"`{name}" in text, name
    for name, (arguments, _) in declarations.FUNCTIONS.items():
        assert name == "update" or f"`{name}({', '.join(arguments)})`" in text, name
