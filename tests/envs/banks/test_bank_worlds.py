"""A bank knows the world that made it: no build goes on with another, and no other is taken for it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest

from sprii_envs.banks import D_CLEAN, Bank, BankError, build, worlds
from sprii_envs.world import rollout

ROOT = Path(__file__).parents[3]
OVEN = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import sprii_envs
from sprii_envs.banks import BankProtocol, register
from sprii_envs.properties import PersistentProperties, PersistentProperty
from sprii_envs.world import World

HALF = 0.5


def flow(power, force):
    return HALF * power * force


@dataclass(frozen=True, kw_only=True)
class Oven(World):
    """Heats."""

    power: float = 3.0
    targets: tuple = (1.0, float("inf"))

    properties = PersistentProperties(
        [PersistentProperty("loss", "k", "1/s", low=0.05, high=0.5, nominal=0.2, physical_high=9.0)]
    )
    state_names = ("left", "right")
    action_size = 2
    start_draws = 2
    max_episode_steps = 9
    signals = {"heat": "float64"}
    endings = ()

    def prepare(self, values):
        return (values[:, 0].copy(),)

    def initial(self, u, values, query):
        return 2.0 * u

    def step(self, state, force, prepared):
        after = np.empty_like(state)
        for i in (0, 1):
            after[:, i] = state[:, i] + flow(self.power, force[:, i]) - prepared[0] * state[:, i]
        return after, {"heat": np.abs(force[:, 0])}

    def reward(self, state, force, after):
        return -np.abs(after[:, 0] - self.targets[0])


@register
@dataclass(frozen=True)
class Noise:
    kind: ClassVar[str] = "oven_noise"
    episode_kinds: ClassVar[tuple[str, ...]] = ()
    largest: float = 1.0

    def policy(self, rng, world, values, start, steps, episode_kind):
        return rng.uniform(-self.largest, self.largest, (len(values), steps, 2)).astype(np.float32)


sprii_envs.register("test/Oven-v0", Oven)
PROTOCOL = BankProtocol("ovens", 1, "test/Oven-v0", {"train": 6}, 2, 10, Noise(), systems_per_chunk=2)
'''
OLD, NEW = ("flow(self.power", "flow(2.0 * self.power"), ("power: float = 3.0", "power: float = 4.0")
CHANGES = [
    (*OLD, "the code is another"),
    ("HALF = 0.5", "HALF = 0.25", "the code is another"),
    ("HALF * power", "HALF * power * 1.5", "the code is another"),
    ("low=0.05", "low=0.1", "properties loss low: 0.05, now 0.1"),
    ("physical_high=9.0", "physical_high=8.0", "properties loss physical_high: 9.0, now 8.0"),
    ('"loss", "k"', '"leak", "k"', r"property names: \('loss',\), now \('leak',\)"),
    ('("left", "right")', '("right", "left")', r"state_names: \('left', 'right'\), now \('right', 'left'\)"),
    ('"float64"}', '"float32"}', "signals heat: '<f8', now '<f4'"),
    ("endings = ()", 'endings = ("hot",)', r"endings: \(\), now \('hot',\)"),
    ("    power:", "    dt: float = 0.5\n    power:", "dt: 1.0, now 0.5"),
]  # fmt: skip
DEFAULT = (*NEW, "constants power: 3.0, now 4.0")
ENDLESS = ('1.0, float("inf")', "1.0, 2.0", r"constants targets: \(1.0, inf\), now \(1.0, 2.0\)")
BEHAVIOUR = ("(-self.largest,", "(0.0 * -self.largest,", "the behaviour code is another")
HARMLESS = [
    ("    def prepare", "    # a comment\n\n    def prepare"),
    ('"""Heats."""', '"""Heats a kitchen."""'),
    ("PROTOCOL =", "def unused():\n    return 1\n\n\nPROTOCOL ="),
    ("max_episode_steps = 9", "max_episode_steps = 19"),
]


@pytest.fixture
def load(monkeypatch):
    """A module of a user's, as it is after an edit."""
    before = dict(gym.registry)

    def load(old="", new=""):
        assert old in OVEN
        module = ModuleType("oven_of_mine")
        monkeypatch.setitem(sys.modules, "oven_of_mine", module)
        exec(compile(OVEN.replace(old, new, 1) if old else OVEN, "oven_of_mine.py", "exec"), vars(module))
        return module.PROTOCOL

    yield load
    gym.registry.clear()
    gym.registry.update(before)


class Stop(Exception):
    pass


def _begin(protocol, path):
    """A build that stops after its first chunk, as a killed one does."""

    def stop(done, total):
        if done:
            raise Stop

    with pytest.raises(Stop):
        build(protocol, path, progress=stop)


def _follows(bank, power):
    """Whether the recorded states are those of the oven's equation."""
    states, actions = bank["states"].astype(float), bank["actions"].astype(float)
    loss = bank.table["loss"][:, None, None]
    return np.abs(states[:, :-1] * (1.0 - loss) + 0.5 * power * actions - states[:, 1:]).max() < 1e-5


@pytest.mark.parametrize(("old", "new", "says"), [*CHANGES, DEFAULT, ENDLESS, BEHAVIOUR])
def test_a_build_goes_on_in_its_own_world_only(load, tmp_path, old, new, says):
    _begin(load(), tmp_path / "bank")
    changed = load(old, new)
    with pytest.raises(BankError, match=rf"bank.partial: an unfinished build of another world \({says}.*overwrite"):
        build(changed, tmp_path / "bank")
    whole = build(load(), tmp_path / "bank")  # nothing was lost
    assert whole.fingerprint == build(load(), tmp_path / "other").fingerprint
    assert _follows(whole, 3.0)


def test_overwrite_begins_anew_in_the_changed_world(load, tmp_path):
    _begin(load(), tmp_path / "bank")
    assert _follows(build(load(*OLD), tmp_path / "bank", overwrite=True), 6.0)
    assert _follows(build(load(*NEW), tmp_path / "bank", overwrite=True), 4.0)


@pytest.mark.parametrize(("old", "new"), HARMLESS)
def test_what_changes_no_physics_is_no_other_world(load, tmp_path, old, new):
    _begin(load(), tmp_path / "bank")
    bank = build(load(old, new), tmp_path / "bank")
    assert _follows(bank, bank.world.power)
    load()
    assert build(load(), tmp_path / "bank").world.power == 3.0


@pytest.mark.parametrize(("old", "new", "says"), CHANGES)
def test_a_bank_of_a_changed_world_is_read_and_not_simulated(load, tmp_path, old, new, says):
    states = np.array(build(load(), tmp_path / "bank")["states"])
    changed = load(old, new)
    with pytest.raises(BankError, match=rf"holds a bank of another world \({says}.*overwrite=True"):
        build(changed, tmp_path / "bank")
    bank = Bank.open(tmp_path / "bank", "checksums")
    assert np.array_equal(bank["states"], states)
    assert bank.properties.names == ("loss",)
    with pytest.raises(BankError, match=rf"is not the world that made this bank any more \({says}"):
        _ = bank.world


@pytest.mark.parametrize(("old", "new", "says"), [DEFAULT, ENDLESS])
def test_a_banks_world_has_the_constants_that_it_was_made_with(load, tmp_path, old, new, says):
    build(load(), tmp_path / "bank")
    changed = load(old, new)
    with pytest.raises(BankError, match=rf"holds a bank of another world \({says}"):
        build(changed, tmp_path / "bank")
    bank = Bank.open(tmp_path / "bank")
    assert (bank.world.power, bank.world.targets) == (3.0, (1.0, np.inf))
    values = bank.table["loss"][:1, None]
    done = rollout(bank.world, values, bank["states"][0, 0].astype(float), bank["actions"][0])
    assert np.array_equal(done.states[0].astype(np.float32), bank["states"][0])


def test_another_behaviour_is_another_bank_of_the_same_world(load, tmp_path):
    build(load(), tmp_path / "bank")
    old, new, says = BEHAVIOUR
    changed = load(old, new)
    with pytest.raises(BankError, match=says):
        build(changed, tmp_path / "bank")
    assert Bank.open(tmp_path / "bank").world.power == 3.0


def test_a_constant_that_is_gone_is_named(load, tmp_path):
    protocol = load()
    build(protocol.replace(constants={"power": 5.0}), tmp_path / "bank")
    load("    power:", "    might:")
    bank = Bank.open(tmp_path / "bank")
    assert bank["states"].shape == (12, 10, 2)
    with pytest.raises(
        BankError, match=r"bank: the world of this bank cannot be made: unknown constant of Oven.*'power'"
    ):
        _ = bank.world


def test_the_digest_of_code_is_the_same_in_every_process_and_as_a_script(tmp_path):
    (tmp_path / "oven.py").write_text(OVEN, encoding="utf-8")
    tell = "from sprii_envs.banks import worlds\nprint(worlds.digest(Oven), worlds.digest(Noise))\n"
    (tmp_path / "script.py").write_text(OVEN + tell, encoding="utf-8")
    told = set()
    for seed, run in (("0", ["-c", "from oven import *\n" + tell]), ("7", ["script.py"])):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, *run], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        )
        told.add(done.stdout)
    assert len(told) == 1


KITCHEN = """
import kitchen.heat
from sprii_envs.world import World


class Named(World):
    def step(self, state, force, prepared):
        return kitchen.heat.flow(force)


class Imported(World):
    def step(self, state, force, prepared):
        from .heat import flow as of

        return of(force)


class Renamed(World):
    def step(self, state, force, prepared):
        import kitchen.heat as heat

        return heat.flow(force)
"""


def test_modules_in_modules_and_imports_on_the_way_are_followed(tmp_path):
    """What a step takes of another file of the package counts, and what it does not take does not."""
    package = tmp_path / "kitchen"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "oven.py").write_text(KITCHEN, encoding="utf-8")
    tell = "from kitchen.oven import *\nfrom sprii_envs.banks import worlds\n"
    tell += "print(*map(worlds.digest, (Named, Imported, Renamed)))"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    told = []
    for heat in ("2.0 * x", "3.0 * x", "3.0 * x  # degrees\n\n\ndef unused(x):\n    return x"):
        (package / "heat.py").write_text(f"def flow(x):\n    return {heat}\n", encoding="utf-8")
        run = [sys.executable, "-c", tell]
        done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
        told.append(done.stdout.split())
    assert all(one != other for one, other in zip(*told[:2], strict=True))
    assert told[1] == told[2]


def _rewrite(path, change):
    manifest = json.loads((path / "bank.json").read_text(encoding="utf-8"))
    change(manifest)
    (path / "bank.json").write_text(json.dumps(manifest), encoding="utf-8")


def test_banks_of_before_the_record_are_read_and_their_properties_compared(load, tmp_path):
    fingerprint = build(load(), tmp_path / "bank").fingerprint
    _rewrite(tmp_path / "bank", lambda manifest: manifest.pop("world"))
    bank = build(load(), tmp_path / "bank")
    assert (bank.fingerprint, bank.world.power) == (fingerprint, 3.0)
    load("low=0.05", "low=0.1")
    with pytest.raises(BankError, match=r"properties loss low: 0.05, now 0.1"):
        _ = Bank.open(tmp_path / "bank").world


def test_code_that_another_python_compiled_is_not_compared(load, tmp_path):
    build(load(), tmp_path / "bank")

    def older(manifest):
        manifest["world"]["code"] = {"of Python 3.0": "0" * 64}

    _rewrite(tmp_path / "bank", older)
    load(*OLD)
    assert Bank.open(tmp_path / "bank").world.power == 3.0


def test_of_this_packages_worlds_constants_and_properties_are_recorded(tmp_path):
    protocol = D_CLEAN.replace(systems={"train": 2}, rollouts=1, steps=4)
    bank = build(protocol, tmp_path / "bank")
    assert bank.recipe["constants"] == {**bank.recipe["constants"], **protocol.constants}
    assert "code" not in bank.recipe
    assert worlds.describe(bank.world) == {k: v for k, v in bank.recipe.items() if k != "behaviour code"}
