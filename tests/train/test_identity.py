"""A run is what its weights depend on: every change of it is refused, and what changes nothing is not."""

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import Plain

from sprii_envs.banks import Bank
from sprii_train import identity
from sprii_train.checkpoints import CheckpointError
from sprii_train.control import push
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.experiments.sources import source_code
from sprii_train.fit import TrainConfig, fit
from sprii_train.identity import code_of, learner_state
from sprii_train.learners import LEARNERS, JEPAConfig
from sprii_train.protocol import Objective, Windows
from sprii_train.recipes import RECIPES
from sprii_train.settings import SETTINGS

CONFIG = TrainConfig(steps=2, pairs=2, warmup=1, precision="fp32")

LEARNER = '''
from functools import partial
from tiny import Plain
import helper
from helper import scaled

EXPONENT = 2
PUBLIC = {"weight": 1.0}

def power(x, by):
    return x.abs() ** by

def weighted(weight):
    def loss(x):
        return weight * x
    return loss

class Base(Plain):
    share = 0.5

    def distance(self, prediction, y):
        return power(prediction - y, EXPONENT)

class Learner(Base):
    """What it learns."""

    def __init__(self):
        super().__init__()
        self.weight = 1.0
        self.outer = weighted(2.0)
        self.inner = partial(power, by=1)

    def task_loss(self, prediction, y):
        # the mean over horizons and coordinates
        import late
        loss = scaled(self.distance(prediction, y).mean((1, 2))) * late.FACTOR
        return helper.final(self.inner(self.outer(loss * self.share * self.weight * PUBLIC["weight"])))
'''
HELPER = """
from constants import SCALE

def scaled(x):
    return x * SCALE

def final(x):
    return [y for y in (x + 1.0,)][0]

def unused(x):
    return x
"""
FILES = {"own_learner": LEARNER, "helper": HELPER, "constants": "SCALE = 1.0\n", "late": "FACTOR = 1.0\n"}

CHANGES = {
    "constant of the module": ("own_learner", "EXPONENT = 2", "EXPONENT = 1"),
    "contents of a constant": ("own_learner", '{"weight": 1.0}', '{"weight": 2.0}'),
    "closure": ("own_learner", "weighted(2.0)", "weighted(3.0)"),
    "partial": ("own_learner", "by=1", "by=2"),
    "attribute": ("own_learner", "self.weight = 1.0", "self.weight = 2.0"),
    "attribute of a base class": ("own_learner", "share = 0.5", "share = 0.25"),
    "method of a base class": ("own_learner", "power(prediction - y,", "power(prediction + y,"),
    "own method": ("own_learner", ".mean((1, 2))", ".sum((1, 2))"),
    "nested expression of a helper": ("helper", "x + 1.0", "x + 2.0"),
    "constant of a helper's helper": ("constants", "1.0", "2.0"),
    "module imported in a method": ("late", "1.0", "2.0"),
}
HARMLESS = {
    "comment": ("own_learner", "# the mean", "# a mean"),
    "docstring": ("own_learner", '"""What it learns."""', ""),
    "formatting": ("own_learner", "EXPONENT = 2", "\n\nEXPONENT = (\n    2\n)"),
    "helper that nothing calls": ("helper", "    return x\n", "    return -x\n"),
}


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Writes the modules of a learner of one's own, with a change, and imports them anew, as another process would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(name: str = "helper", old: str = "", new: str = "") -> Any:
        for stem, text in FILES.items():
            (tmp_path / f"{stem}.py").write_text(text.replace(old, new) if stem == name and old else text)
            sys.modules.pop(stem, None)
        importlib.invalidate_caches()
        return importlib.import_module("own_learner")

    yield load
    for stem in FILES:
        sys.modules.pop(stem, None)


def run(learner: torch.nn.Module, data: Any, folder: Path, identity: dict[str, Any] | None = None) -> None:
    fit(learner, data, Objective(), CONFIG, folder, identity=identity, tensorboard=False)


def seeded(make: Callable[[], torch.nn.Module], seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return make()


@pytest.fixture(scope="module")
def data(bank: Bank) -> PairedWindows:
    return PairedWindows(WindowReader(bank, 6, (1, 3)), pairs=2)


@pytest.mark.parametrize("change", CHANGES)
def test_code_of_ones_own_that_changed_is_another_run(own_module, data: PairedWindows, tmp_path: Path, change: str):
    run(seeded(own_module().Learner), data, tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"holds another run \((code\.|learner\.attributes)"):
        run(seeded(own_module(*CHANGES[change]).Learner), data, tmp_path / "run")


@pytest.mark.parametrize("change", HARMLESS)
def test_what_code_does_not_do_is_not_compared(
    own_module, data: PairedWindows, tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
):
    run(seeded(own_module().Learner), data, tmp_path / "run")
    run(seeded(own_module(*HARMLESS[change]).Learner), data, tmp_path / "run")
    assert capsys.readouterr().err.count("holds this run, finished") == 1


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("weights", lambda learner: learner.q.bias.data.add_(1e-6)),
        ("weights", lambda learner: learner.register_buffer("mask", torch.ones(2), persistent=False)),
        ("attributes", lambda learner: learner.current.bias.requires_grad_(False)),
        ("attributes", lambda learner: setattr(learner, "weights", np.array([1.0, 2.0]))),
        ("attributes", lambda learner: learner.history.register_forward_hook(lambda *_: None)),
        ("attributes", lambda learner: setattr(learner, "task_loss", functools.partial(power_loss, by=3))),
    ],
)
def test_initial_weights_and_attributes_are_compared(
    data: PairedWindows, tmp_path: Path, named: str, change: Callable[[torch.nn.Module], Any]
):
    run(seeded(Plain), data, tmp_path)
    learner = seeded(Plain)
    change(learner)
    with pytest.raises(CheckpointError, match=rf"learner\.{named}"):
        run(learner, data, tmp_path)
    with pytest.raises(CheckpointError, match=r"learner\.weights"):
        run(seeded(Plain, 1), data, tmp_path)
    run(seeded(Plain), data, tmp_path)


def power_loss(prediction: torch.Tensor, y: torch.Tensor, by: int) -> torch.Tensor:
    return (prediction - y).abs().pow(by).mean((1, 2))


def test_data_without_an_identity_are_refused_unless_one_is_given(data: PairedWindows, tmp_path: Path):
    windows = data(0)

    def plain(step: int) -> Windows:
        return windows

    for nameless in (plain, functools.partial(plain), lambda step: windows):
        with pytest.raises(ValueError, match="do not say what they are"):
            run(seeded(Plain), nameless, tmp_path)
    assert not list(tmp_path.iterdir())
    run(seeded(Plain), plain, tmp_path, {"data": "a"})
    run(seeded(Plain), plain, tmp_path, {"data": "a"})
    with pytest.raises(CheckpointError, match=r"data: there 'a', here 'b'"):
        run(seeded(Plain), plain, tmp_path, {"data": "b"})


class Noisy(PairedWindows):
    """A subclass that says of itself what its base does."""

    scale = 1.0

    def __call__(self, step: int) -> Windows:
        windows = super().__call__(step)
        return windows._replace(observations=windows.observations * self.scale)


def test_data_are_compared_by_more_than_they_say(bank: Bank, data: PairedWindows, tmp_path: Path):
    run(seeded(Plain), data, tmp_path)
    reader = data.reader
    own = Noisy(reader, pairs=2)
    with pytest.raises(CheckpointError, match=r"code\.test_identity"):
        run(seeded(Plain), own, tmp_path)
    run(seeded(Plain), own, tmp_path / "own")
    own.scale = 2.0
    with pytest.raises(CheckpointError, match="data_attributes"):
        run(seeded(Plain), own, tmp_path / "own")
    labelled = PairedWindows(WindowReader(bank, 6, (1, 3), properties=("drag",)), pairs=2)
    with pytest.raises(CheckpointError, match=r"data\.labels"):
        run(seeded(Plain), labelled, tmp_path)
    train = bank.split("train")
    table = train.select(np.random.default_rng(0).permutation(len(train)))
    with pytest.raises(CheckpointError, match=r"data\.table"):
        run(seeded(Plain), PairedWindows(reader, table, pairs=2), tmp_path)


def named_data(scale: float, windows: Windows) -> Callable[[int], Windows]:
    """A function that says of itself what another of other values says."""

    def scaled(step: int) -> Windows:
        return windows._replace(observations=windows.observations * scale)

    scaled.identity = lambda: "mine"  # pyright: ignore[reportFunctionMemberAccess]
    return scaled


def test_a_data_function_that_says_what_it_is_is_compared_by_its_code_too(data: PairedWindows, tmp_path: Path):
    run(seeded(Plain), named_data(1.0, data(0)), tmp_path)
    run(seeded(Plain), named_data(1.0, data(0)), tmp_path)
    with pytest.raises(CheckpointError, match=r"code\.test_identity"):
        run(seeded(Plain), named_data(2.0, data(0)), tmp_path)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ({"data": {1, 2}}, r"^fit's identity\['data'\] is \{1, 2\}; legal: JSON"),
        ({"data": [float("nan")]}, r"^fit's identity\['data'\] is \[nan\]; legal: JSON"),
        (["a"], r"^fit's identity is \['a'\]; legal: a dict"),
        ([], r"^fit's identity is \[\]; legal: a dict"),
    ],
)
def test_identities_that_no_later_run_could_be_compared_with(
    data: PairedWindows, tmp_path: Path, identity: Any, message: str
):
    with pytest.raises(ValueError, match=message):
        run(seeded(Plain), data, tmp_path, identity)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("said", "shown"), [(None, "None"), ({1}, r"\{1\}"), (float("nan"), "nan")])
def test_data_that_say_nothing_or_no_json(data: PairedWindows, tmp_path: Path, said: Any, shown: str):
    function = named_data(1.0, data(0))
    function.identity = lambda: said  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(ValueError, match=rf"^the data's identity\(\) is {shown}; legal: "):
        run(seeded(Plain), function, tmp_path)
    assert not list(tmp_path.iterdir())


INTERACTIVE = """
import torch
from torch import nn
from sprii_train.identity import code_of
{constant}
class Learner(nn.Module):
    names = {{"a", "b", "c", "d"}}
    def forward(self, x):
        return (lambda y: y ** EXPONENT)(x) if x in {{"p", "q", "r"}} else self.names
print(code_of(Learner()))
"""


def test_code_without_a_file_and_another_process(tmp_path: Path):
    """As in a notebook: no source is to be had. Hashes of text differ from process to process."""

    def said(constant: str) -> str:
        text = INTERACTIVE.format(constant=constant)
        return subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True).stdout

    two = said("EXPONENT = 2")
    assert "__main__" in two
    assert two == said("EXPONENT = 1 + 1  # the same")
    assert two != said("EXPONENT = 3")


def test_installed_packages_count_by_name():
    assert code_of(Plain()).keys() == {"tiny", "sprii_train.protocol", "sprii_train.objectives"}
    assert learner_state(torch.nn.Dropout(0.1)) != learner_state(torch.nn.Dropout(0.2))


HELPER = "def loss(x):\n    return x {operator} 2\n"
HOLDERS = {
    "class attribute": "class Own:\n    ops = helper\n    def task_loss(self, x):\n        return self.ops.loss(x)",
    "default": "class Own:\n    def task_loss(self, x, ops=helper):\n        return ops.loss(x)",
    "mapping": "LIB = {'h': helper}\nclass Own:\n    def task_loss(self, x):\n        return LIB['h'].loss(x)",
    "getattr": "class Own:\n    def task_loss(self, x):\n        return getattr(helper, 'loss')(x)",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_module_held_as_a_value_counts_as_a_whole(holder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for operator in ("**", "*", "**"):
        (tmp_path / "held_helper.py").write_text(HELPER.format(operator=operator))
        (tmp_path / "held_own.py").write_text(f"import held_helper as helper\n{HOLDERS[holder]}\n")
        for name in ("held_helper", "held_own"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        identity._file_code.cache_clear()
        digests.append(code_of(importlib.import_module("held_own").Own))
    assert digests[0] == digests[2] != digests[1]


def test_a_set_is_the_same_in_every_process(tmp_path, monkeypatch):
    (tmp_path / "own_sets.py").write_text(
        "import torch\nfrom enum import Enum\nMode = Enum('Mode', 'A B C D')\n"
        "MODES, KINDS = {*Mode}, frozenset({torch.float32, torch.float16, torch.int8})\n"
        "class Own:\n    def task_loss(self, x):\n        return x in MODES or x in KINDS\n"
    )
    code = "import own_sets\nfrom sprii_train.identity import code_of\nprint(code_of(own_sets.Own))"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    assert runs == {f"{code_of(importlib.import_module('own_sets').Own)}\n"}  # and in this one


def test_a_learner_that_is_registered_changes_no_other_learners_sources(monkeypatch: pytest.MonkeyPatch):
    class Other(torch.nn.Module):
        pass

    def told() -> list[dict[str, str]]:
        identity.cell_code.cache_clear()
        return [source_code(SETTINGS[name], RECIPES["structure"], JEPAConfig) for name in ("spring", "burgers", "fhn")]

    before = told()
    assert all("sprii_train.learners.jepa" in each for each in before)  # its own counts
    monkeypatch.setitem(LEARNERS, "other", (Other, dict))
    assert told() == before
    assert not {"sprii_train.learners.ad", "sprii_train.learners.coda"} & {m for each in before for m in each}
    identity.cell_code.cache_clear()


@dataclass
class Box:
    side: float

    @functools.cached_property
    def volume(self) -> float:
        return self.side**3


class Net(torch.nn.Module):
    def __init__(self, side: float) -> None:
        super().__init__()
        self.side = side

    volume = functools.cached_property(lambda self: self.side**3)


@pytest.mark.parametrize("kind", [Box, Net])
def test_what_an_object_has_kept_of_itself_is_no_other_run(kind: type):
    """A cell is compared before it runs by one process, and after it by another."""
    box = kind(2.0)

    def act() -> float:
        return 2 * box.volume

    before = code_of(act)
    assert act() == 16.0
    assert "volume" in vars(box)
    assert code_of(act) == before
    box.side = 3.0
    assert code_of(act) != before


def test_physics_that_has_been_stepped_is_the_same_code():
    """PokeWorld keeps its scene when it is first stepped; the rows of known equations were then of other code."""
    before = code_of(push.step)
    vars(push.WORLD).pop("_scene", None)
    push.step(torch.zeros(2, 8), torch.zeros(2, 2), push.nominal_context(2))
    assert "_scene" in vars(push.WORLD)
    assert code_of(push.step) == before
