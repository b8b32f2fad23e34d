"""Learners and training states on disk: exact, whole or absent, refused with the name of what is wrong."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import JEPA_CONFIG, Plain, jepa_config

import sprii_train.checkpoints as checkpoints
from sprii_train.checkpoints import (
    CheckpointError,
    load,
    load_training_state,
    save,
    save_training_state,
    training_states,
    write_json,
)
from sprii_train.fit import TrainConfig, build_optimizer, train_step
from sprii_train.learners import JEPA
from sprii_train.protocol import Objective, Windows, encode

CONFIG = TrainConfig(steps=5, warmup=0, precision="fp32")


@pytest.fixture(scope="module")
def trained(windows: Windows) -> tuple[JEPA, torch.optim.Optimizer]:
    learner = JEPA(JEPA_CONFIG)
    optimizer = build_optimizer(learner, CONFIG)
    for step in range(3):
        train_step(learner, windows, Objective(lambda_p=1.0), optimizer, CONFIG, step, "fp32")
    return learner, optimizer


def copy(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in module.state_dict().items()}


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype
        assert torch.equal(value, b[name]), name


@pytest.mark.parametrize("context", ["split", "monolithic", "supervised"])
def test_round_trip(tmp_path: Path, windows: Windows, context: str):
    learner = JEPA(jepa_config(context=context))
    learner.prepare(windows)  # moves the batch norm's statistics
    save(learner, tmp_path / "model")
    back = load(tmp_path / "model")
    assert isinstance(back, JEPA)
    assert back.config == learner.config
    assert not back.training
    assert_equal(copy(back), copy(learner))
    learner.eval()
    assert torch.equal(encode(back, back.prepare(windows)).z_p, encode(learner, learner.prepare(windows)).z_p)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_saving_replaces_the_older_one(tmp_path: Path):
    save(JEPA(jepa_config(embedding=4)), tmp_path / "model")
    learner = JEPA(JEPA_CONFIG)
    save(learner, tmp_path / "model")
    assert_equal(copy(load(tmp_path / "model")), copy(learner))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_unregistered_learner(tmp_path: Path):
    class Mine(JEPA):
        pass

    for learner, name in ((Plain(), "Plain"), (Mine(JEPA_CONFIG), "Mine")):
        with pytest.raises(ValueError, match=f"{name} is not a registered learner; legal: jepa"):
            save(learner, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_nothing_is_pickled(tmp_path: Path, trained):
    """A safetensors file is a little-endian header length and a JSON header; the rest is JSON text."""
    learner, optimizer = trained
    save(learner, tmp_path / "model")
    save_training_state(tmp_path / "checkpoints", learner, optimizer, 3)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 5
    for file in files:
        content = file.read_bytes()
        assert content[:2] not in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")
        if file.suffix == ".json":
            json.loads(content)
        else:
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            assert 8 + length + max(ends) == len(content)


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_save_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained, existing: bool):
    learner, optimizer = trained
    if existing:
        save(learner, tmp_path / "model")
        save_training_state(tmp_path / "checkpoints", learner, optimizer, 1)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    replace_file, failed = os.replace, []

    def full(source: Path, target: Path) -> None:
        if Path(target).suffix == ".json":
            failed.append(target)
            raise OSError(28, "No space left on device")
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        save(learner, tmp_path / "model")
    with pytest.raises(OSError, match="No space left"):
        save_training_state(tmp_path / "checkpoints", learner, optimizer, 3)
    monkeypatch.undo()
    assert {Path(target).name for target in failed} == {"config.json", "progress.json"}
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    if existing:
        assert load_training_state(tmp_path / "checkpoints", JEPA(JEPA_CONFIG), _optimizer()[1]) == 1
    else:
        assert not training_states(tmp_path / "checkpoints")


def _optimizer() -> tuple[JEPA, torch.optim.Optimizer]:
    learner = JEPA(JEPA_CONFIG)
    return learner, build_optimizer(learner, CONFIG)


def test_training_state_round_trip(tmp_path: Path, trained, windows: Windows):
    learner, optimizer = trained
    for step in (1, 2, 3):
        save_training_state(tmp_path, learner, optimizer, step)
    assert [p.name for p in training_states(tmp_path)] == ["step-00000003"]
    back, other = _optimizer()
    assert load_training_state(tmp_path, back, other) == 3
    assert_equal(copy(back), copy(learner))
    for a, b in zip(learner.parameters(), back.parameters(), strict=True):
        assert_equal(dict(optimizer.state[a]), dict(other.state[b]))
    assert load_training_state(tmp_path / "empty", *_optimizer()) == 0


def test_states_sort_by_step(tmp_path: Path):
    for step in (99_999_999, 9, 10):
        (tmp_path / f"step-{step:08d}").mkdir()
    assert [p.name for p in training_states(tmp_path)] == ["step-00000009", "step-00000010", "step-99999999"]


# Damage


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(JEPA(JEPA_CONFIG), tmp_path / "model")
    return tmp_path / "model"


def edit(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text())
    data["config"] |= changes.pop("config", {})  # type: ignore[operator]
    path.write_text(json.dumps(data | changes))


def flip(path: Path) -> None:
    """One bit of the last number, which stays finite."""
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(bytes(content))


def rewrite(path: Path, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    """The tensors of a file changed, those without which `change` returns None left out."""
    changed = {k: change(v) if v.is_floating_point() else v for k, v in checkpoints.read_tensors(path).items()}
    checkpoints.save_file({k: v for k, v in changed.items() if v is not None}, path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: truncate(m / "model.safetensors"), r"model\.safetensors is damaged or truncated"),
        (lambda m: (m / "model.safetensors").write_bytes(b""), r"model\.safetensors is damaged or truncated"),
        (lambda m: (m / "model.safetensors").unlink(), r"model\.safetensors does not exist"),
        (
            lambda m: (m / "config.json").write_text('{"learner": "jepa", '),
            r"config\.json is damaged: not JSON",
        ),
        (lambda m: (m / "config.json").write_bytes(b"\xff\xfe\x00"), r"config\.json is damaged: not text"),
        (lambda m: (m / "config.json").write_text("[]"), r"config\.json is damaged: list where an object"),
        (lambda m: (m / "config.json").write_text("[" * 200_000), r"config\.json is damaged: JSON nested without end"),
        (lambda m: (m / "config.json").write_text(""), r"config\.json is damaged: not JSON"),
        (lambda m: edit(m / "config.json", config={"heads": 0}), r"config\.json does not .*JEPAConfig\.heads is 0"),
        (lambda m: edit(m / "config.json", config={"history": -1}), r"config\.json does not .*history is -1"),
        (lambda m: edit(m / "config.json", config={"dropout": 0.25}), r"config\.json is damaged: the checksum"),
        (lambda m: edit(m / "config.json", files={}), r"model\.safetensors cannot be checked: no size and checksum"),
        (lambda m: flip(m / "model.safetensors"), r"model\.safetensors is damaged: its checksum"),
        (lambda m: rewrite(m / "model.safetensors", lambda x: x * torch.nan), r"damaged: tensor .* is not finite"),
        (lambda m: rewrite(m / "model.safetensors", lambda x: x.double()), r"float64, not torch\.float32"),
        (lambda m: (m / "config.json").write_text('{"learner": "jepa"}'), r"config\.json does not describe"),
        (
            lambda m: (m / "config.json").write_text('{"learner": "jepa", "config": 3}'),
            r"config\.json does not describe",
        ),
        (lambda m: (m / "config.json").unlink(), r"config\.json does not exist"),
        (lambda m: shutil.rmtree(m), r"config\.json does not exist"),
        (lambda m: edit(m / "config.json", learner="dreamer"), "names no known learner; legal: jepa"),
        (lambda m: edit(m / "config.json", learner=["jepa"]), "names no known learner"),
        (
            lambda m: edit(m / "config.json", config={"depth": 3}),
            r"unknown fields \['depth'\]; legal: .*'layers'",
        ),
        (
            lambda m: edit(m / "config.json", config={"context": "both"}),
            "does not describe a learner: .*context",
        ),
        (lambda m: edit(m / "config.json", config={"width": "8"}), "does not describe a learner"),
        (
            lambda m: edit(m / "config.json", config={"persistent": 9}),
            r"another architecture.*head.*\(4,\).*\(9,\)",
        ),
        (lambda m: edit(m / "config.json", config={"layers": 3}), r"another architecture.*blocks\.2.*absent"),
    ],
)
def test_damaged_models_are_refused(model: Path, damage, message: str):
    damage(model)
    with pytest.raises(CheckpointError, match=message):
        load(model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: truncate(s / "model.safetensors"), r"model\.safetensors is damaged or truncated"),
        (lambda s: truncate(s / "optimizer.safetensors"), r"optimizer\.safetensors is damaged or truncated"),
        (lambda s: (s / "optimizer.safetensors").unlink(), r"optimizer\.safetensors does not exist"),
        (lambda s: (s / "progress.json").write_text("{"), r"progress\.json is damaged"),
        (lambda s: (s / "progress.json").write_text("{}"), r"progress\.json is damaged"),
        (lambda s: (s / "progress.json").write_text("[3]"), r"progress\.json is damaged"),
        (lambda s: write_json(s / "progress.json", {"step": "3"}), r"progress\.json is damaged"),
        (lambda s: write_json(s / "progress.json", {"step": True, "run": ""}), r"progress\.json is damaged"),
        (lambda s: write_json(s / "progress.json", {"step": 4, "run": ""}), r"damaged: step 4 in the folder step-0+3"),
        (lambda s: (s / "progress.json").write_text("[" * 200_000), r"progress\.json is damaged: JSON nested"),
        (lambda s: write_json(s / "progress.json", {"step": 3, "run": ""}), r"cannot be checked: no size and checksum"),
        (lambda s: flip(s / "model.safetensors"), r"model\.safetensors is damaged: its checksum"),
        (lambda s: flip(s / "optimizer.safetensors"), r"optimizer\.safetensors is damaged: its checksum"),
        (lambda s: rewrite(s / "model.safetensors", lambda x: x * torch.inf), r"model\.saf.* is not finite"),
        (lambda s: rewrite(s / "optimizer.safetensors", lambda x: x * torch.nan), r"optim.* is not finite"),
        (lambda s: rewrite(s / "optimizer.safetensors", lambda x: x.half()), r"optim.*float16, not torch\.float32"),
        (lambda s: drop(s / "optimizer.safetensors", "exp_avg_sq"), r"optim.*it lacks exp_avg_sq of"),
        (lambda s: drop(s / "optimizer.safetensors", "horizon.weight"), r"optim.*damaged"),
        (
            lambda s: s.rename(s.with_name("step-99999999999")),
            r"progress\.json is damaged: step 3 in the folder step-9+",
        ),
        (
            lambda s: checkpoints.save_file({"other.weight|exp_avg": torch.zeros(2)}, s / "optimizer.safetensors"),
            r"optimizer\.safetensors is of another architecture.*other\.weight",
        ),
        (
            lambda s: checkpoints.save_file({"horizon.weight|exp_avg": torch.zeros(2)}, s / "optimizer.safetensors"),
            r"optimizer\.safetensors is of another architecture.*horizon\.weight",
        ),
    ],
)
def test_damaged_training_states_are_refused(tmp_path: Path, trained, damage, message: str):
    save_training_state(tmp_path, *trained, 3)
    damage(training_states(tmp_path)[-1])
    learner, optimizer = _optimizer()
    before = copy(learner)
    with pytest.raises(CheckpointError, match=message):
        load_training_state(tmp_path, learner, optimizer)
    assert_equal(copy(learner), before)
    assert not optimizer.state


def drop(path: Path, part: str) -> None:
    """Half of what a parameter, or one kind of moments, consists of."""
    tensors = checkpoints.read_tensors(path)
    lost = [name for name in tensors if part in name]
    checkpoints.save_file({k: v for k, v in tensors.items() if k not in lost[: max(1, len(lost) // 2)]}, path)


def test_a_step_beyond_the_run_and_the_checkpoint_before_it(tmp_path: Path, trained):
    """What a killed writer left of older checkpoints is offered, and gone once the newest is read."""
    save_training_state(tmp_path, *trained, 3)
    older = tmp_path / "step-00000003"
    shutil.copytree(older, tmp_path / "kept")
    save_training_state(tmp_path, *trained, 8)
    (tmp_path / "kept").rename(older)
    with pytest.raises(CheckpointError, match=r"damaged: step 8 .* of a run of 5; remove .*8, and .* from .*step-0+3"):
        load_training_state(tmp_path, *_optimizer(), steps=5)
    assert load_training_state(tmp_path, *_optimizer(), steps=8) == 8
    assert not older.exists()
    flip(tmp_path / "step-00000008" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"goes on from its start"):
        load_training_state(tmp_path, *_optimizer(), steps=8)


KILLED = """
import os, shutil, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from tiny import JEPA_CONFIG
from sprii_envs import files
from sprii_train import checkpoints
from sprii_train.fit import TrainConfig, build_optimizer
from sprii_train.learners import JEPA
learner = JEPA(JEPA_CONFIG)
with torch.no_grad():
    learner.horizon.weight.fill_(2.0)
optimizer = build_optimizer(learner, TrainConfig())
calls, at = 0, 0
if not {exchange}:
    files._exchange = lambda *_: False

def killing(event, arguments):
    # Called before whatever changes the disk.
    global calls
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"):
        calls += 1
        if calls == at:
            os._exit(9)

while True:
    at += 1
    folder = Path({folder!r}) / str(at)
    shutil.copytree(Path({folder!r}) / "before", folder)
    child = os.fork()
    if not child:
        sys.addaudithook(killing)
        checkpoints.save(learner, folder / "model")
        checkpoints.save_training_state(folder / "checkpoints", learner, optimizer, 8)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_kills_at_any_point_of_a_save_leave_a_whole_model_and_nothing_else(tmp_path: Path, trained, exchange: bool):
    learner, optimizer = _optimizer()
    save(learner, tmp_path / "before" / "model")
    save_training_state(tmp_path / "before" / "checkpoints", *trained, 4)
    old = learner.get_parameter("horizon.weight").clone()
    script = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path), exchange=exchange)
    subprocess.run([sys.executable, "-c", script], check=True)
    folders = [path for path in tmp_path.iterdir() if path.name != "before"]
    assert len(folders) > 20
    for folder in folders:
        weight = load(folder / "model").get_parameter("horizon.weight")  # the reader puts back what stood aside
        assert torch.equal(weight, old) or (weight == 2.0).all()
        assert load_training_state(folder / "checkpoints", learner, optimizer) in (4, 8)
        save(learner, folder / "model")
        save_training_state(folder / "checkpoints", learner, optimizer, 12)
        left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}
        assert left == {"model", "checkpoints", "checkpoints/step-00000012"}, folder
        assert not list(folder.rglob(".*")), folder


def test_state_of_another_architecture_leaves_the_learner(tmp_path: Path, trained):
    save_training_state(tmp_path, *trained, 3)
    for config in (jepa_config(width=12), jepa_config(layers=1), jepa_config(context="monolithic")):
        learner = JEPA(config)
        before = copy(learner)
        with pytest.raises(CheckpointError, match="another architecture"):
            load_training_state(tmp_path, learner, build_optimizer(learner, CONFIG))
        assert_equal(copy(learner), before)


def test_write_json_is_whole_or_absent(tmp_path: Path):
    write_json(tmp_path / "a" / "x.json", {"b": [1, 2.5, None]})
    assert json.loads((tmp_path / "a" / "x.json").read_text()) == {"b": [1, 2.5, None]}
    for bad, error in (({"b": float("nan")}, ValueError), ({"b": object()}, TypeError)):
        with pytest.raises(error):
            write_json(tmp_path / "a" / "x.json", bad)
    assert json.loads((tmp_path / "a" / "x.json").read_text()) == {"b": [1, 2.5, None]}
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x.json"]


def test_saving_over_a_learner_keeps_the_old_one_until_the_new_one_is_in_place(tmp_path: Path, monkeypatch):
    path = tmp_path / "model"
    old, new = JEPA(JEPA_CONFIG), JEPA(JEPA_CONFIG)
    save(old, path)
    replace_file = os.replace

    def fails_at_the_last_move(source, target):
        if Path(target) == path and "model.safetensors" in {f.name for f in Path(source).iterdir()} and not fails:
            fails.append(source)
            raise OSError("planned")
        replace_file(source, target)

    fails: list = []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: None)  # a system that cannot swap two names
    monkeypatch.setattr(os, "replace", fails_at_the_last_move)
    with pytest.raises(OSError, match="planned"):
        save(new, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    for name, value in load(path).state_dict().items():
        assert torch.equal(value, old.state_dict()[name])
    monkeypatch.undo()
    save(new, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    for name, value in load(path).state_dict().items():
        assert torch.equal(value, new.state_dict()[name])


def test_saved_folders_have_the_usual_permissions(tmp_path: Path):
    (tmp_path / "usual").mkdir()
    save(JEPA(JEPA_CONFIG), tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "usual").stat().st_mode
