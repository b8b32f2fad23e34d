"""Behaviours, populations and worlds of one's own: registered, recorded, read by who knows them and who does not."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

from sprii_envs.banks import D_CLEAN, Bank, BankProtocol, ForceSegments, behaviours, build, populations, register
from sprii_envs.banks.kinds import Unregistered
from sprii_envs.banks.populations import Drawn, Uniform, Union
from sprii_envs.envs.d_clean import DClean, DCleanEnv


@dataclass(frozen=True)
class Pushes:
    """Constant forces of two kinds."""

    kind: ClassVar[str] = "test_pushes"
    episode_kinds: ClassVar[tuple[str, ...]] = ("left", "right")
    strength: float = 0.5

    def policy(self, rng, world, values, start, steps, episode_kind):
        sign = -1.0 if episode_kind == "left" else 1.0
        return np.full((len(values), steps, 2), sign * self.strength, np.float32)


@dataclass(frozen=True)
class Ladder:
    """Systems at evenly spaced values of the only property."""

    kind: ClassVar[str] = "test_ladder"
    rungs: int = 3
    above: float = 0.0

    @property
    def count(self):
        return self.rungs

    def draw(self, properties, rng):
        values = np.linspace(properties[0].low + self.above, properties[0].high, self.rungs, endpoint=False)[:, None]
        return Drawn(values, np.full(values.shape, -1), np.full(self.rungs, ""))


SMALL = D_CLEAN.replace(systems={"train": 3, "test": 2}, rollouts=2, steps=8)
OWN = SMALL.replace(
    systems={"train": Ladder(), "test": Union({"a": Ladder(2, above=0.1), "b": Uniform(2)})},
    behaviour=Pushes(),
    lengths={"left": 5},
)


@pytest.fixture
def registry():
    """Both registries are afterwards what they were before."""
    before = [(kinds, dict(kinds)) for kinds in (behaviours.KINDS, populations.KINDS)]
    yield
    for kinds, classes in before:
        kinds.clear()
        kinds.update(classes)


@pytest.mark.parametrize("field", ["behaviour", "population", "population of a union"])
def test_an_unregistered_class_is_refused_before_anything_is_built(tmp_path, registry, field):
    protocol = {
        "behaviour": SMALL.replace(behaviour=Pushes()),
        "population": SMALL.replace(systems={"train": Ladder()}),
        "population of a union": SMALL.replace(systems={"train": Union({"a": Ladder()})}),
    }[field]
    kind = "test_pushes" if field == "behaviour" else "test_ladder"
    with pytest.raises(ValueError, match=rf"cannot be recorded: unknown .* kind '{kind}'.*sprii_envs\.banks\.register"):
        build(protocol, tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


def test_what_is_registered_is_recorded_and_opened_with_its_class(tmp_path, registry):
    assert register(Pushes) is Pushes
    register(Ladder)
    bank = build(OWN, tmp_path / "bank")
    opened = Bank.open(tmp_path / "bank", "checksums", protocol=OWN)
    assert opened.protocol.behaviour == Pushes()
    assert isinstance(opened.protocol.systems["train"], Ladder)
    assert opened.fingerprint == bank.fingerprint
    assert (opened["actions"][0, :3] == -0.5).all()
    assert build(opened.protocol, tmp_path / "again").fingerprint == bank.fingerprint


def _forget():
    behaviours.KINDS.pop("test_pushes", None)
    populations.KINDS.pop("test_ladder", None)


def test_without_the_class_a_bank_is_whole_and_opens_for_reading(tmp_path, registry):
    register(Pushes)
    register(Ladder)
    path = tmp_path / "bank"
    bank = build(OWN, path)
    states, table, info, text = np.array(bank["states"]), bank.table, bank.info(), bank.describe()
    _forget()
    opened = Bank.open(path, "checksums")
    assert isinstance(opened.protocol.behaviour, Unregistered)
    assert np.array_equal(opened["states"], states)
    assert opened.table.fingerprint() == table.fingerprint()
    assert opened.info() == info
    assert opened.describe() == text
    assert opened.protocol == OWN
    assert opened.protocol.episodes == OWN.episodes == 3 * 4 + 4 * 4
    assert opened.frames([0], 0, 3, size=16).shape == (1, 3, 16, 16)
    assert Bank.open(path, protocol=OWN).fingerprint == bank.fingerprint
    assert len(build(opened.protocol, path)) == len(bank)  # finished: opened, not built
    with pytest.raises(ValueError, match=r"unknown population kind 'test_ladder'.*sprii_envs\.banks\.register"):
        build(opened.protocol, tmp_path / "again")
    with pytest.raises(ValueError, match=r"nothing of the kind 'test_pushes' is registered here"):
        opened.protocol.behaviour.policy(None, None, None, None, 1, None)
    register(Pushes)
    register(Ladder)
    assert isinstance(Bank.open(path).protocol.behaviour, Pushes)


def test_a_class_that_changed_since_is_not_the_one_recorded(tmp_path, registry):
    register(Pushes)
    path = tmp_path / "bank"
    protocol = SMALL.replace(behaviour=Pushes())
    build(protocol, path)

    def changed(**members):
        _forget()
        cls = type("Pushes", (), {"__module__": __name__, "kind": "test_pushes", **members})
        register(dataclass(frozen=True)(cls))

    policy = Pushes.policy
    for members in (
        {"episode_kinds": ("left",), "strength": 0.5, "__annotations__": {"strength": float}, "policy": policy},
        {"episode_kinds": ("left", "right"), "force": 0.5, "__annotations__": {"force": float}, "policy": policy},
    ):
        changed(**members)
        assert isinstance(Bank.open(path, "checksums").protocol.behaviour, Unregistered)


def test_a_class_under_the_kind_of_another_is_refused(tmp_path, registry):
    @dataclass(frozen=True)
    class Mine(ForceSegments):
        """Inherits the kind of its parent."""

    with pytest.raises(ValueError, match=r"kind 'force_segments' is that of .*ForceSegments already"):
        register(Mine)
    with pytest.raises(
        ValueError, match=r"the kind 'force_segments' of Mine is that of .*ForceSegments; give Mine a kind"
    ):
        build(SMALL.replace(behaviour=Mine()), tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [np.ones(3), {1, 2}, float("nan"), lambda: 1])
def test_parameters_that_json_cannot_hold_are_refused_before_anything_is_built(tmp_path, registry, value):
    register(Pushes)
    with pytest.raises(ValueError, match="protocol 'd-clean' cannot be recorded"):
        build(SMALL.replace(behaviour=Pushes(value)), tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [None, "force_segments", ForceSegments, object(), D_CLEAN])
def test_what_is_no_behaviour_is_named(wrong):
    with pytest.raises(ValueError, match="a behaviour must be an instance of a frozen dataclass with `kind`"):
        D_CLEAN.replace(behaviour=wrong)


@pytest.mark.parametrize("cls", [int, Drawn, BankProtocol, type("Bare", (), {"policy": None})])
def test_what_cannot_be_registered_is_named(cls, registry):
    with pytest.raises(ValueError, match=f"{cls.__name__} (is no behaviour|must be a frozen dataclass)"):
        register(cls)


def test_a_module_may_run_again(registry):
    register(Pushes)
    register(type("Pushes", (Pushes,), {"__module__": Pushes.__module__, "__qualname__": Pushes.__qualname__}))


class Plane(DClean):
    """A world of one's own, of a class as entry point."""


class PlaneEnv(DCleanEnv):
    """Its environment."""


def test_a_world_of_ones_own_is_built_and_without_it_the_bank_is_read(tmp_path):
    gym.register("test/Plane-v0", entry_point=PlaneEnv)
    try:
        protocol = SMALL.replace(env_id="test/Plane-v0")
        info = build(protocol, tmp_path / "bank").info()
    finally:
        del gym.registry["test/Plane-v0"]
    bank = Bank.open(tmp_path / "bank", "checksums")
    assert bank.info() == info
    with pytest.raises(ValueError, match="unknown environment"):
        bank.frames([0], 0, 2, size=16)
    with pytest.raises(ValueError, match="unknown environment"):
        build(bank.protocol, tmp_path / "again")


OTHER_PROCESS = """
import sys
from sprii_envs.banks import Bank, BankError, build
bank = Bank.open(sys.argv[1], "checksums")
print(bank.describe())
try:
    build(bank.protocol.replace(seed=1), sys.argv[2])
except ValueError as error:
    print(error)
"""


def test_another_process_reads_what_it_does_not_know(tmp_path, registry):
    register(Pushes)
    build(SMALL.replace(behaviour=Pushes()), tmp_path / "bank")
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "bank"), str(tmp_path / "again")]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "test_pushes" in text
    assert "d-clean v1 bank" in text
    assert os.listdir(tmp_path) == ["bank"]
