"""Worlds of one's own MJCF: how they are declared, what is refused and how it is said, and where they can be used."""

import importlib.util
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sprii_envs.banks import BankProtocol, UniformSegments, build
from sprii_envs.core import SpriiEnv
from sprii_envs.dependencies import PackageImportError
from sprii_envs.envs.base import WorldEnv
from sprii_envs.mujoco import GymnasiumModel, MujocoWorld, assign, multiple, scale, without_effect
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.vector import SpriiVectorEnv

mujoco = pytest.importorskip("mujoco")

MJCF = """
<mujoco>
  <option timestep="0.01" viscosity="0.1" density="1.2"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="cart" pos="0 0 0.3">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.5"/>
      <geom name="cart" type="box" size="0.2 0.1 0.1" mass="1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0" range="-1 1" limited="true"/>
        <geom name="pole" type="capsule" fromto="0 0 0 0 0 0.6" size="0.03" mass="0.3"/>
      </body>
    </body>
    <body name="ball" pos="0.6 0 0.5"><freejoint name="ball"/><geom name="ball" size="0.1" mass="0.2"/></body>
  </worldbody>
  <actuator>
    <motor name="push" joint="rail" gear="10" ctrllimited="true" ctrlrange="-2 2"/>
    <position name="servo" joint="hinge" kp="3" ctrllimited="true" ctrlrange="0 1"/>
    <general name="slow" joint="hinge" dyntype="filter" dynprm="0.1" gainprm="1" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


def world(edits, properties=None, model=MJCF, **extra):
    """A kind of world whose properties are multiples, by default."""
    found = properties or [multiple(name, 0.5, 2.0) for name in edits]
    body = {"name": "Mine", "model": model, "properties": PersistentProperties(found), "edits": edits, **extra}
    return dataclass(frozen=True, kw_only=True)(type("Mine", (MujocoWorld,), body))


NEW = int(mujoco.__version__.partition(".")[0]) >= 4
"""Whether MuJoCo follows the size of a geom, so that it may be edited."""
SIZE = (scale("geom_size", "ball", power=1 / 3),) if NEW else ()
EDITS = {
    "cart_mass": scale("body_mass", "cart"),
    "rail_damping": scale("dof_damping", "rail"),
    "ball_size": (*SIZE, scale("body_mass", "ball")),
    "grip": scale("geom_friction", column=0),
    "push": scale("actuator_gear", "push", column=0),
    "servo": (scale("actuator_gainprm", "servo", column=0), scale("actuator_biasprm", "servo", column=1)),
    "softness": scale("geom_solref", "ball", "floor", column=0),
    "weight": scale("opt.gravity"),
    "air": scale("opt.viscosity"),
    "hinge_friction": assign("dof_frictionloss", "hinge"),
}


@dataclass(frozen=True, kw_only=True)
class Cart(MujocoWorld):
    """Everything that an edit may be."""

    start_noise: float = 0.05
    name: ClassVar[str] = "Cart"
    model: ClassVar[str] = MJCF
    properties: ClassVar = PersistentProperties([multiple(name, 0.5, 2.0) for name in EDITS])
    edits: ClassVar = EDITS


class CartEnv(WorldEnv, world=Cart):
    """For registration."""


def test_declarations_follow_from_the_model():
    cart = Cart()
    assert (cart.action_size, cart.substeps) == (3, 5)
    assert cart.state_names[:4] == ("rail", "hinge", "ball_x", "ball_y")
    assert cart.state_names[9:11] == ("rail_velocity", "hinge_velocity")
    assert cart.state_names[17] == "activation_0"
    assert cart.state_names[18] == "rail_warm_start"
    assert len(cart.state_names) == 9 + 8 + 1 + 8
    assert SpriiEnv(cart).observation_space.shape == (18,)
    force = cart.force(np.array([[-1, -1, 0.5], [2, 2, np.nan]], np.float32))
    assert np.array_equal(force, [[-2, 0, 0.5], [2, 1, np.nan]], equal_nan=True)


def test_fields_are_scaled_from_the_models_own_numbers_and_nothing_compounds():
    cart = Cart()
    nominal = mujoco.MjModel.from_xml_string(MJCF)
    values = np.full((2, 10), 2.0)
    prepared = cart.prepare(values)
    for _ in range(3):
        prepared.update(np.array([0]), np.full((1, 10), 0.5))
        prepared.update(np.array([0]), np.full((1, 10), 2.0))
    for model in prepared.models:
        assert model.body("cart").mass == 2 * nominal.body("cart").mass
        assert np.array_equal(model.body("cart").inertia, 2 * nominal.body("cart").inertia)
        assert model.geom("ball").size[0] == 0.1 * (2 ** (1 / 3) if NEW else 1)
        assert model.joint("rail").damping == 1.0
        assert model.joint("hinge").frictionloss == 2.0
        assert model.geom("floor").friction.tolist() == [2.0, 0.005, 0.0001]
        assert model.actuator("push").gear.tolist() == [20, 0, 0, 0, 0, 0]
        assert model.actuator("servo").gainprm[0] == 6
        assert model.geom("floor").solref.tolist() == [0.04, 1.0]
        assert model.geom("cart").solref.tolist() == [0.02, 1.0]
        assert model.opt.gravity.tolist() == [0, 0, -19.62]
        assert model.opt.viscosity == 0.2
        assert model.body("cart").subtreemass == pytest.approx(2.3)
    prepared.update(np.array([1]), np.ones((1, 10)))
    for field in ("body_mass", "geom_size", "geom_rbound", "dof_invweight0", "body_invweight0"):
        assert np.array_equal(getattr(prepared.models[1], field), getattr(nominal, field)), field


def test_the_models_bounds_follow_a_geoms_size():
    size = {"size": scale("geom_size", "ball")}
    if not NEW:
        with pytest.raises(ValueError, match="Mine edits geom_size, whose bounds MuJoCo follows from version 4 on"):
            SpriiEnv(world(size)())
        return
    done = SpriiEnv(world(size)()).counterfactual(
        [[0.5], [1.0], [2.0]], np.zeros((60, 3)), state=world(size)().compiled.start
    )
    z = done.states[:, -1, 4]
    assert np.allclose(z, [0.05, 0.1, 0.2], atol=0.01)


def test_checkers_wrappers_banks_and_pickles_take_such_a_world():
    env = SpriiEnv(Cart())
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    env.step(actions[0])
    again = pickle.loads(pickle.dumps(env))
    assert np.array_equal(again.step(actions[1])[0], env.step(actions[1])[0])
    vector = SpriiVectorEnv(Cart(), 3, max_episode_steps=5, obs_type="pixels")
    frames, _ = vector.reset(seed=0)
    assert frames.shape == (3, 64, 64, 2)
    assert frames.any()
    for _ in range(12):
        vector.step(vector.action_space.sample())


def test_a_bank_of_ones_own_world_holds_what_environments_do(tmp_path):
    gym.register(id="test/Cart-v0", entry_point=CartEnv, max_episode_steps=1000)
    try:
        protocol = BankProtocol("cart", 1, "test/Cart-v0", {"train": 3}, 2, 9, UniformSegments())
        bank = build(protocol, tmp_path / "cart")
    finally:
        del gym.registry["test/Cart-v0"]
    states, actions = bank["states"], bank["actions"]
    assert states.shape == (6, 9, len(Cart().state_names))
    env = SpriiEnv(Cart(), systems=bank.systems)
    for episode in (0, 5):
        env.reset(options={"system": bank.systems[episode // 2], "state": states[episode, 0]})
        for t, action in enumerate(actions[episode]):
            env.step(action)
            assert np.array_equal(env.state.astype(np.float32), states[episode, t + 1])


def test_a_bank_of_a_ready_world_knows_how_its_episodes_ended(tmp_path):
    bank = build(BankProtocol("hops", 1, "sprii/Hopper-v0", {"train": 4}, 2, 120, UniformSegments()), tmp_path / "hops")
    table = bank.table
    assert set(table["ending"]) <= {"", "unhealthy"}
    assert ((table["length"] < 120) == (table["ending"] == "unhealthy")).all()
    assert (table["length"] < 120).any()
    assert np.isfinite(bank["states"]).all()


def test_a_state_may_be_given_without_its_warm_start():
    env = SpriiEnv(Cart())
    start = Cart().compiled.start
    env.reset(seed=0, options={"state": start})
    data = mujoco.MjData(Cart().compiled.model)
    mujoco.mj_forward(Cart().compiled.model, data)
    assert np.array_equal(env.state, np.concatenate([start, data.qacc_warmstart]))
    with pytest.raises(ValueError, match="must have shape"):
        env.reset(options={"state": start[1:]})
    vector = SpriiVectorEnv(Cart(), 2)
    vector.reset(seed=0, options={"state": np.stack([start, start])})
    assert np.array_equal(vector.state[1], env.initial_state)


def test_a_snapshot_of_another_model_is_refused_and_a_bank_records_which_it_was_built_of(tmp_path):
    edit = {"weight": scale("opt.gravity")}
    one, other = (SpriiEnv(world(edit, model=text)()) for text in (MJCF, MJCF.replace('kp="3"', 'kp="4"')))
    one.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(ValueError, match="the saved state is of another world: model is"):
        other.set_state(one.get_state())
    bank = build(BankProtocol("ants", 1, "sprii/Ant-v0", {"train": 1}, 1, 3, UniformSegments()), tmp_path / "ants")
    assert bank.info()["packages"]["model"] == gym.make("sprii/Ant-v0").unwrapped.world.compiled.digest


def test_positions_and_velocities_are_bounded_and_accelerations_hardly():
    env, names = SpriiEnv(Cart()), Cart().state_names
    start = np.concatenate([Cart().compiled.start, np.full(8, 1e7)])
    env.reset(seed=0, options={"state": start})
    env.set_state(env.get_state())
    start[names.index("hinge_velocity")] = 2e6
    with pytest.raises(ValueError, match=r"'hinge_velocity' = 2000000.0: it must be in \[-1e\+06, 1e\+06\]"):
        env.reset(options={"state": start})
    start[-1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        env.reset(options={"state": start})


def test_a_property_without_effect_is_found():
    still = MJCF.replace('<geom name="cart"', '<geom name="cart" contype="0" conaffinity="0"')
    kind = world({"weight": scale("opt.gravity"), "grip": scale("geom_friction", "cart", column=0)}, model=still)
    assert without_effect(kind()) == ("grip",)
    assert without_effect(Cart(), steps=80) == ()


def test_without_warm_starts_the_state_is_positions_and_velocities():
    cold = MJCF.replace('density="1.2"/>', 'density="1.2"><flag warmstart="disable"/></option>')
    kind = world({"weight": scale("opt.gravity")}, model=cold)
    assert len(kind().state_names) == 18


def test_models_come_from_text_from_files_and_from_gymnasium(tmp_path):
    path = tmp_path / "cart.xml"
    path.write_text(MJCF, encoding="utf-8")
    edit = {"weight": scale("opt.gravity")}
    for source in (path, str(path), MJCF):
        assert world(edit, model=source)().action_size == 3
    pytest.importorskip("imageio")  # which Gymnasium's MuJoCo environments import
    assert world(edit, model=GymnasiumModel("Reacher-v5"))().action_size == 2
    assert world(edit, model=GymnasiumModel("InvertedPendulum-v4"))().action_size == 1
    for source, says in [
        ("nowhere.xml", "neither MJCF text nor a file: 'nowhere.xml'"),
        ("<mujoco><nonsense/></mujoco>", "does not compile: .*nonsense"),
        (GymnasiumModel("CartPole-v1"), "not made from an MJCF file"),
    ]:
        with pytest.raises(ValueError, match=says):
            SpriiEnv(world(edit, model=source)())


def test_what_mujoco_warns_of_a_model_of_ones_own_is_a_warning_and_not_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = MJCF.replace("<option", '<compiler settotalmass="3"/><option')
    kind = world({"weight": scale("opt.gravity")}, model=old)
    if NEW:
        with pytest.warns(UserWarning, match="the model of Mine: .*settotalmass"):
            SpriiEnv(kind())
    code = "import gymnasium as gym, sprii_envs; gym.make('sprii/HalfCheetah-v0').reset(seed=0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert not list(tmp_path.iterdir())


free = PersistentProperty(name="p", symbol="p", unit="1", low=0.5, high=2.0, nominal=1.0)
signed = PersistentProperty(name="p", symbol="p", unit="1", low=0.5, high=2.0, nominal=1.0, physical_low=-1.0)


@pytest.mark.parametrize(
    ("edit", "declared", "says"),
    [
        (scale("body_mass", "kart"), None, "body of property 'p' of Mine 'kart'; did you mean 'cart'.*pole"),
        (scale("dof_damping", "hing"), None, "joint of property 'p' of Mine 'hing'; did you mean 'hinge'"),
        (scale("geom_size", "flor"), None, "geom .*did you mean 'floor'"),
        (scale("actuator_gear", 7), None, "actuator of property 'p' of Mine is 7; legal: an integer >= 0, at most 2"),
        (scale("body_mas"), None, "model field of property 'p' of Mine 'body_mas'; did you mean 'body_mass'"),
        (scale("body_subtreemass"), None, "unknown model field"),
        (scale("opt.timestep"), None, "unknown model field"),
        (scale("opt.gravity", "cart"), None, "belongs to no object"),
        (scale("tendon_damping"), None, "the model has no tendons"),
        (scale("dof_damping", "hinge"), None, "dof_damping of 'hinge', which is 0 in the model"),
        (scale("dof_armature"), None, "scales dof_armature, which is 0 in the model"),
        (scale("opt.wind"), None, "scales opt.wind, which is 0"),
        (scale("geom_solref", column=2), None, "geom_solref has 2 column.s., got column 2"),
        (scale("body_mass", "cart"), free, "may be a finite number ≥ 0, but body_mass must stay > 0"),
        (scale("dof_damping", "rail", power=-1), free, "must stay > 0"),
        (assign("dof_damping", "rail"), signed, "must not be negative"),
        (assign("body_mass"), None, "sets the mass of several bodies that differ"),
    ],
)
def test_what_a_model_has_not_is_said_before_anything_is_built(edit, declared, says):
    kind = world({"p": edit}, [declared] if declared else None)
    with pytest.raises(ValueError, match=says):
        SpriiEnv(kind())


def test_readings_without_a_way_to_read_them_are_refused_at_the_class():
    with pytest.raises(ValueError, match=r"Blind has the readings torso_x; it needs read\(data\) of them"):
        type("Blind", (MujocoWorld,), {"reading_names": ("torso_x",)})


def test_mappings_models_and_constants_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="property 'q' of Mine acts on nothing"):
        world({"p": scale("opt.gravity")}, [multiple("p", 0.5, 2), multiple("q", 0.5, 2)])
    with pytest.raises(ValueError, match="unknown property 'q'"):
        world({"q": scale("opt.gravity")}, [multiple("p", 0.5, 2)])
    gravity = {"p": scale("opt.gravity")}
    with pytest.raises(ValueError, match="actuator 'push' of Mine has no ctrlrange"):
        SpriiEnv(world(gravity, model=MJCF.replace('ctrllimited="true" ctrlrange="-2 2"', ""))())
    with pytest.raises(ValueError, match=r"dt = 0\.025: it must be a whole multiple of 0\.01"):
        SpriiEnv(world(gravity)(dt=0.025))
    with pytest.raises(ValueError, match="mocap"):
        SpriiEnv(world(gravity, model=MJCF.replace("</worldbody>", '<body mocap="true"/></worldbody>'))())
    lost = SpriiEnv(world(gravity, view_body="tail")(), obs_type="pixels")
    with pytest.raises(ValueError, match="unknown view_body of Mine 'tail'"):
        lost.reset(seed=0)
    with pytest.raises(ValueError, match="renderer"):
        world(gravity)(renderer="opengl")


BOTH = "both change body_mass of body 'pole': the last would undo the first"


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        (assign("body_mass", "pole"), assign("body_mass", "pole"), rf"property 'm' and .* of property 'n' .*{BOTH}"),
        (scale("body_mass", "pole"), assign("body_mass", "pole"), BOTH),
        (assign("body_mass", "pole"), scale("body_mass"), BOTH),
        (
            assign("body_mass", "pole"),
            assign("body_inertia", "pole"),
            "body_inertia of body 'pole', as an edit of body",
        ),
        (scale("opt.gravity"), assign("opt.gravity", column=2), "both change opt.gravity: "),
        (assign("opt.density"), assign("opt.density"), "both change opt.density: "),
        (assign("dof_damping", "rail"), scale("dof_damping"), "both change dof_damping of joint 'rail'"),
        (scale("geom_friction"), assign("geom_friction", 0, column=0), "both change geom_friction of geom 'floor'"),
    ],
)
def test_two_edits_of_one_number_are_refused_unless_both_scale(one, two, says):
    for edits in ({"m": one, "n": two}, {"m": (one, two), "n": scale("opt.impratio")}):
        with pytest.raises(ValueError, match=says if "'n'" not in says or edits["m"] is one else BOTH):
            SpriiEnv(world(edits)())


def test_edits_of_other_numbers_live_together_and_scales_of_one_multiply():
    kind = world(
        {
            "m": (scale("body_mass"), scale("opt.gravity")),
            "n": (scale("body_mass", "pole"), scale("opt.gravity", column=2), scale("body_inertia", "pole")),
            "o": (assign("geom_friction", "floor", column=0), assign("geom_friction", "floor", column=1)),
        }
    )
    nominal = mujoco.MjModel.from_xml_string(MJCF)
    model = kind().prepare(np.array([[1.5, 1.25, 0.75]])).models[0]
    assert model.body("pole").mass == nominal.body("pole").mass * 1.5 * 1.25
    assert model.body("cart").mass == nominal.body("cart").mass * 1.5
    assert np.allclose(model.body("pole").inertia, nominal.body("pole").inertia * 1.5 * 1.25**2, rtol=1e-14)
    assert model.opt.gravity[2] == -9.81 * 1.5 * 1.25
    assert model.geom("floor").friction.tolist()[:2] == [0.75, 0.75]


def test_an_inertia_can_be_set():
    model = world({"p": assign("body_inertia", "pole", column=0)})().prepare(np.array([[1.5]])).models[0]
    assert model.body("pole").inertia[0] == 1.5


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"m": ()}, "property 'm' of Mine acts on nothing"),
        ({"m": "body_mass"}, "edits of property 'm' of Mine are 'body_mass'; legal: scale"),
        ({"m": (scale("body_mass"), "body_mass")}, r"edits of property 'm' of Mine are \(Edit.*legal: scale"),
        ({"m": None}, "edits of property 'm' of Mine are None; legal: scale"),
    ],
)
def test_empty_edits_are_refused_at_the_class(edits, says):
    with pytest.raises(ValueError, match=says):
        world(edits)
    with pytest.raises(ValueError, match=r"edits of Mine are Edit.*legal: property"):
        world(scale("body_mass"), [multiple("m", 0.5, 2)])
    with pytest.raises(ValueError, match=r"scale\('body_mass', power=0\) multiplies by 1"):
        scale("body_mass", power=0)


def test_the_mass_of_one_body_can_be_set_and_its_inertia_follows():
    nominal = mujoco.MjModel.from_xml_string(MJCF)
    model = world({"p": assign("body_mass", "pole")})().prepare(np.array([[1.5]])).models[0]
    assert model.body("pole").mass == 1.5
    assert np.allclose(model.body("pole").inertia, 5 * nominal.body("pole").inertia, rtol=1e-12)


def test_a_world_that_runs_away_is_an_error_that_names_its_slot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log
    wild = MJCF.replace('gear="10"', 'gear="1e12"')
    vector = SpriiVectorEnv(world({"p": scale("opt.gravity")}, model=wild)(), 2)
    vector.reset(seed=0)
    with pytest.raises(FloatingPointError, match="the Mine of slot 1 moves too fast for time steps of"):
        vector.step(np.array([[0, 0, 0], [1, 0, 0]]))


RENDER = """
import copy, gymnasium as gym, numpy as np, sprii_envs
try:
    env = gym.make_vec("sprii/Hopper-v0", num_envs=2, obs_type="pixels", render_mode="rgb_array", renderer="mujoco")
except sprii_envs.dependencies.PackageImportError as error:
    print("none", error)
else:
    p, u = env.unwrapped.persistent_properties, env.unwrapped
    env.reset(seed=0)
    frames, _ = env.reset(options={"system": np.stack([p.low, p.high]), "state": u.state[0]})
    assert np.array_equal(frames[0], frames[1]) and len(np.unique(frames)) > 20
    assert env.render()[0].shape == (256, 256, 3)
    action = np.ones((2, 3), np.float32)
    assert np.array_equal(copy.deepcopy(env).step(action)[0], env.step(action)[0])
    print("drawn")
"""


@pytest.mark.parametrize("graphics", ["egl", "disabled"])
def test_mujocos_renderer_draws_or_says_that_there_is_no_opengl(graphics):
    done = subprocess.run(
        [sys.executable, "-c", RENDER], capture_output=True, text=True, env={**os.environ, "MUJOCO_GL": graphics}
    )
    assert done.returncode == 0, done.stderr
    if "drawn" in done.stdout:
        assert graphics == "egl"
    else:
        assert "Hopper with renderer='mujoco' needs OpenGL" in done.stdout
        assert len(done.stdout.splitlines()) == 1


def test_without_mujoco_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(PackageImportError, match=r"^Mine needs MuJoCo"):
        SpriiEnv(world({"p": scale("opt.gravity")})())


def test_the_example_is_short_and_runs():
    path = Path(__file__).parents[3] / "examples" / "own_mujoco.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    spec = importlib.util.spec_from_file_location("own_mujoco", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_mujoco"] = module
    try:
        spec.loader.exec_module(module)
        env = SpriiEnv(module.CartPole())
        env.reset(seed=0)
        for _ in range(5):
            env.step([1.0])
    finally:
        del sys.modules["own_mujoco"]
