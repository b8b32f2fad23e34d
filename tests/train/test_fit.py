"""The training engine: exact resume, schedule, update by hand, guards and records."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import HISTORY, HORIZONS, JEPA_CONFIG, Plain
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_ROLLOUT
from sprii_train.benchmarks.steps import random_windows
from sprii_train.checkpoints import CheckpointError, read_tensors, training_states
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import (
    Interrupted,
    NonFiniteLoss,
    TrainConfig,
    build_optimizer,
    fit,
    learning_rate,
    resolve_precision,
    train_step,
)
from sprii_train.learners import JEPA, learner_of
from sprii_train.protocol import Objective, Windows, training_loss
from sprii_train.randomness import torch_seed
from sprii_train.recipes import RECIPES
from sprii_train.settings import SETTINGS

CONFIG = TrainConfig(steps=10, pairs=8, warmup=3, checkpoint_every=4, log_every=2, precision="fp32", learning_rate=1e-2)
OBJECTIVE = Objective(lambda_p=1.0, lambda_x=0.1)

Progress = Callable[[int, dict[str, float]], None]


@pytest.fixture(scope="module")
def data(bank: Bank) -> PairedWindows:
    return PairedWindows(WindowReader(bank, HISTORY, HORIZONS), pairs=8, seed=0)


def new_learner() -> JEPA:
    torch.manual_seed(7)
    return JEPA(JEPA_CONFIG)


def train(data, folder: Path, progress: Progress | None = None, config: TrainConfig = CONFIG) -> dict:
    learner = fit(new_learner(), data, OBJECTIVE, config, folder, progress=progress, tensorboard=False)
    return {k: v.clone() for k, v in learner.state_dict().items()}


def metrics(folder: Path) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row.pop("steps_per_second") > 0
    return rows


@pytest.fixture(scope="module")
def whole(data: PairedWindows, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list[dict]]:
    """Weights and metrics of the uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    return train(data, folder), metrics(folder)


def assert_same(weights: dict, folder: Path, whole: tuple[dict, list[dict]]) -> None:
    assert weights.keys() == whole[0].keys()
    for name, value in weights.items():
        assert torch.equal(value, whole[0][name]), name
    assert metrics(folder) == whole[1]


def test_runs_repeat(data: PairedWindows, tmp_path: Path, whole):
    assert_same(train(data, tmp_path / "again"), tmp_path / "again", whole)
    assert [row["step"] for row in whole[1]] == [2, 4, 6, 8, 10]
    other = train(data, tmp_path / "seed", config=replace(CONFIG, seed=1))
    assert any(not torch.equal(v, whole[0][k]) for k, v in other.items())


@pytest.mark.parametrize("at", [1, 4, 7, 9])
def test_resume_after_an_exception(data: PairedWindows, tmp_path: Path, whole, at: int):
    def crash(step: int, values: dict[str, float]) -> None:
        if step == at:
            raise RuntimeError("planned")

    with pytest.raises(RuntimeError, match="planned"):
        train(data, tmp_path, crash)
    # The checkpoint of step 4 is written after `progress`, so a crash in it at 4 has none.
    assert [s.name for s in training_states(tmp_path / "checkpoints")] == (
        [] if at <= 4 else ["step-00000008"] if at > 8 else ["step-00000004"]
    )
    seen: list[int] = []
    weights = train(data, tmp_path, lambda step, _: seen.append(step))
    assert seen == list(range(1 + {1: 0, 4: 0, 7: 4, 9: 8}[at], 11))
    assert_same(weights, tmp_path, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_resume_after_a_signal(data: PairedWindows, tmp_path: Path, whole, number: signal.Signals):
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Interrupted, match="stopped at step 3 of 10; the same command resumes"):
        train(data, tmp_path, lambda step, _: os.kill(os.getpid(), number) if step == 3 else None)
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert [s.name for s in training_states(tmp_path / "checkpoints")] == ["step-00000003"]
    assert_same(train(data, tmp_path), tmp_path, whole)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
import test_fit
from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_ROLLOUT
from sprii_train.data import PairedWindows, WindowReader
data = PairedWindows(WindowReader(Bank.open({bank!r}), test_fit.HISTORY, test_fit.HORIZONS), pairs=8, seed=0)
def die(step, _):
    if step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
test_fit.train(data, Path({folder!r}), die)
"""


def test_resume_after_sigkill(bank: Bank, data: PairedWindows, tmp_path: Path, whole):
    script = KILLED.format(tests=str(Path(__file__).parent), bank=str(bank.path), folder=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')  # a line that was being written
    assert_same(train(data, tmp_path), tmp_path, whole)


def test_finished_run_is_not_trained_again(
    data: PairedWindows, tmp_path: Path, whole, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    train(data, tmp_path)

    def untouched(*_: object) -> Windows:
        raise AssertionError("no data is needed")

    monkeypatch.setattr(data.reader, "read", untouched)
    assert not capsys.readouterr().err
    learner = fit(new_learner(), data, OBJECTIVE, CONFIG, tmp_path, tensorboard=False)
    assert not learner.training
    assert_same(dict(learner.state_dict()), tmp_path, whole)
    assert capsys.readouterr().err == f"{tmp_path} holds this run, finished: its weights of step 10 are loaded\n"


def test_other_data_learner_or_batch_size_is_refused_without_being_told(
    bank: Bank, tmp_path: Path, data: PairedWindows
):
    train(data, tmp_path)
    reader = data.reader
    others = {
        "data.bank|data.sampler": PairedWindows(reader, "validation", pairs=4, seed=data.pairs.seed),
        "data.relation": PairedWindows(reader, relation=SAME_ROLLOUT, pairs=data.count, seed=data.pairs.seed),
        "data.seed": PairedWindows(reader, pairs=data.count, seed=data.pairs.seed + 1),
    }
    for named, other in others.items():
        with pytest.raises(CheckpointError, match=named):
            fit(new_learner(), other, OBJECTIVE, CONFIG, tmp_path, tensorboard=False)

    class Renamed(type(new_learner())):
        """The same tensors, another learner."""

    with pytest.raises(CheckpointError, match=r"learner\.class: there"):
        fit(Renamed(new_learner().config), data, OBJECTIVE, CONFIG, tmp_path, tensorboard=False)
    wrong = PairedWindows(reader, pairs=data.count - 1, seed=0)
    with pytest.raises(ValueError, match=r"TrainConfig\.pairs is 8"):
        fit(new_learner(), wrong, OBJECTIVE, CONFIG, tmp_path / "other", tensorboard=False)


def test_a_checkpoint_moved_from_another_run_is_refused(data: PairedWindows, tmp_path: Path):
    train(data, tmp_path / "a")
    with pytest.raises(CheckpointError, match="steps"):
        fit(new_learner(), data, OBJECTIVE, replace(CONFIG, steps=CONFIG.steps + 1), tmp_path / "a", tensorboard=False)
    shutil.copytree(tmp_path / "a" / "checkpoints", tmp_path / "b" / "checkpoints")
    with pytest.raises(CheckpointError, match="checkpoint of another run"):
        fit(new_learner(), data, Objective(), CONFIG, tmp_path / "b", tensorboard=False)


def test_another_run_is_refused(data: PairedWindows, tmp_path: Path):
    short = replace(CONFIG, steps=2)

    def run(config: TrainConfig = short, objective: Objective = OBJECTIVE, **identity: str) -> None:
        fit(new_learner(), data, objective, config, tmp_path, identity=identity, tensorboard=False)

    run(bank="a")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(
        CheckpointError, match=r"another run \(train\.learning_rate: there 0\.01, here 0\.5\).*another folder"
    ):
        run(replace(short, learning_rate=0.5), bank="a")
    with pytest.raises(CheckpointError, match=r"objective\.lambda_p: there 1\.0, here 0\.0"):
        run(objective=Objective(), bank="a")
    with pytest.raises(CheckpointError, match=r"bank: there 'a', here 'b'"):
        run(bank="b")
    with pytest.raises(CheckpointError, match=r"bank: there 'a', here None"):
        run()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        run(bank="a")


def test_global_randomness_is_left_alone(data: PairedWindows, tmp_path: Path):
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002 (the legacy global state is what must not move)
    random.seed(11)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    learner = JEPA(JEPA_CONFIG)
    torch.set_rng_state(states[0])
    fit(learner, data, OBJECTIVE, replace(CONFIG, steps=3), tmp_path, tensorboard=False)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert random.getstate() == states[2]


def test_the_folder_is_the_one_it_was_when_training_began(
    data: PairedWindows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    train(data, Path("run"), lambda step, _: os.chdir(elsewhere))
    assert [row["step"] for row in metrics(tmp_path / "run")] == [2, 4, 6, 8, 10]
    assert [s.name for s in training_states(tmp_path / "run" / "checkpoints")][-1] == "step-00000010"
    assert not list(elsewhere.iterdir())


def test_runs_outside_the_main_thread(data: PairedWindows, tmp_path: Path):
    done: list[dict] = []
    thread = threading.Thread(target=lambda: done.append(train(data, tmp_path, config=replace(CONFIG, steps=2))))
    thread.start()
    thread.join()
    assert len(done) == 1


# One update


def test_learning_rate_closed_form():
    config = TrainConfig(steps=100, warmup=10, learning_rate=3e-4)
    rates = [learning_rate(config, step) for step in range(100)]
    np.testing.assert_allclose(rates[:10], 3e-4 * np.arange(1, 11) / 10, rtol=1e-12)
    np.testing.assert_allclose(rates[10:], 3e-4 * np.cos(np.pi * np.arange(90) / 180) ** 2, rtol=1e-9)
    assert learning_rate(config, 100) == pytest.approx(0.0, abs=1e-20)
    assert learning_rate(TrainConfig(steps=4, warmup=0), 0) == 3e-4
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)
    for rate in rates[10:]:
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6, abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("clip", [0.01, 1e9])
def test_update_by_hand(windows: Windows, clip: float):
    """AdamW's first step moves by −lr·g/(|g| + ε) after decay, with g clipped by its global norm."""
    learner = Plain()
    config = replace(CONFIG, clip=clip, weight_decay=0.1, warmup=5)
    before = {k: v.detach().double().clone() for k, v in learner.named_parameters()}
    loss, _ = training_loss(learner, windows, OBJECTIVE)
    grads = dict(zip(before, torch.autograd.grad(loss, list(learner.parameters())), strict=True))
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))
    values = train_step(learner, windows, OBJECTIVE, build_optimizer(learner, config), config, 0, "fp32")
    assert values["loss"] == loss.item()
    assert values["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    assert values["learning_rate"] == pytest.approx(1e-2 / 5)
    for name, p in learner.named_parameters():
        g = grads[name].double() * min(1.0, clip / norm)
        assert p.grad is not None
        torch.testing.assert_close(p.grad.double(), g, rtol=1e-4, atol=1e-9)
        rate = 1e-2 / 5
        expected = before[name] * (1 - rate * 0.1) - rate * g / (g.abs() + 1e-8)
        torch.testing.assert_close(p.detach().double(), expected, rtol=1e-4, atol=1e-6)


def test_step_noise_is_keyed_by_seed_and_step(windows: Windows):
    def values(step: int, seed: int = 0) -> dict[str, float]:
        learner, config = new_learner(), replace(CONFIG, seed=seed)
        torch.manual_seed(random.randrange(1000))
        return train_step(learner, windows, OBJECTIVE, build_optimizer(learner, config), config, step, "fp32")

    assert values(3) == values(3)
    assert values(3)["sigreg"] != values(4)["sigreg"] != values(4, seed=1)["sigreg"]


def test_what_a_step_draws_is_of_its_seed_too(windows: Windows):
    """A generator of the CPU reads 32 bits of a seed: of a seed in the upper half it would see nothing."""

    def drawn(step: int, seed: int) -> list[float]:
        found: list[float] = []

        def compute(learner: nn.Module, *rest: Any) -> Any:
            found.extend(torch.rand(3).tolist())
            return training_loss(learner, *rest)  # type: ignore[arg-type]

        learner, config = new_learner(), replace(CONFIG, seed=seed)
        train_step(learner, windows, OBJECTIVE, build_optimizer(learner, config), config, step, "fp32", compute)
        return found

    every = [drawn(step, seed) for step in (0, 7) for seed in (0, 1, 2, 2**31 - 1)]
    assert len({tuple(one) for one in every}) == len(every)
    assert drawn(7, 1) == every[5]
    seeds = {torch_seed(seed, step) for seed in range(40) for step in range(500)}
    assert len(seeds) > 19_990  # of 20,000; by chance 0.05 pairs of them are one
    assert max(seeds) < 2**32


def test_a_diagnostic_may_leave_evaluation_mode(data: PairedWindows, tmp_path: Path):
    """Training goes on in training mode, and ends where a diagnostic says so."""
    modes: list[bool] = []

    class Quiet:
        name, every = "quiet", 1

        def __call__(self, learner: nn.Module, *_: Any) -> dict[str, Any]:
            modes.append(learner.training)
            learner.eval()
            return {"modules": len(list(learner.modules()))}

        def ends(self, step: int) -> bool:
            return step == 3

    learner = fit(new_learner(), data, OBJECTIVE, CONFIG, tmp_path, tensorboard=False, diagnostics=[Quiet()])
    assert modes == [True] * 3
    assert not learner.training
    assert len((tmp_path / "quiet.jsonl").read_text().splitlines()) == 3


class Growing(torch.optim.SGD):
    """Keeps what it has learnt of the run in its groups, as some optimisers do."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["momentum"] = group["momentum"] + 0.01
        super().step(closure)


@dataclass(frozen=True)
class Others(TrainConfig):
    kind: str = "Growing"

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        if self.kind == "Growing":
            return Growing(learner.parameters(), lr=1e-3, momentum=0.1)
        return getattr(torch.optim, self.kind)(learner.parameters(), lr=1e-3)


@pytest.mark.parametrize("kind", ["Growing", "NAdam", "ASGD", "Adafactor"])
def test_runs_of_other_optimisers_resume_exactly(data: PairedWindows, tmp_path: Path, kind: str):
    config = Others(kind=kind, steps=10, pairs=8, warmup=3, checkpoint_every=4, precision="fp32")
    whole = train(data, tmp_path / "whole", config=config)

    def crash(step: int, values: dict[str, float]) -> None:
        if step == 7:
            raise RuntimeError("planned")

    with pytest.raises(RuntimeError, match="planned"):
        train(data, tmp_path / "cut", crash, config)
    resumed = train(data, tmp_path / "cut", config=config)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_bfloat16_step(windows: Windows):
    learner = new_learner()
    values = train_step(learner, windows, OBJECTIVE, build_optimizer(learner, CONFIG), CONFIG, 0, "bf16")
    single = new_learner()
    reference = train_step(single, windows, OBJECTIVE, build_optimizer(single, CONFIG), CONFIG, 0, "fp32")
    assert values["loss"] == pytest.approx(reference["loss"], rel=0.05)
    assert values["loss"] != reference["loss"]
    assert all(p.dtype == torch.float32 for p in learner.parameters())


class Waits(TorchDispatchMode):
    """Counts what makes a GPU's host wait: operators whose result's value or size must be known."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2")
        self.count += func.overloadpacket.__name__ in waits
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["d-clean", "poke", "swimmer"])
def test_a_step_waits_for_its_device_once(name: str, monkeypatch: pytest.MonkeyPatch):
    setting, budget = SETTINGS[name], SETTINGS[name].budget("smoke")
    config = setting.learner_config(budget.learner, RECIPES["align-cross"])
    learner = learner_of(config)[1](config).train()
    windows, optimizer = random_windows(setting, config, 2), budget.train.optimizer(learner)
    if callable(fit_statistics := getattr(learner, "fit_statistics", None)):
        fit_statistics(windows)
    read, reads = torch.Tensor.tolist, []
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: reads.append(1) or read(tensor))
    with Waits() as waits:
        torch.zeros(1).item()
    assert waits.count == 1
    for step in range(2):
        with Waits() as waits:
            train_step(learner, windows, RECIPES["align-cross"].objective, optimizer, budget.train, step, "fp32")
        assert (len(reads), waits.count) == (step + 1, 0)


def test_precision():
    assert resolve_precision(TrainConfig(precision="fp32")) == "fp32"
    assert resolve_precision(TrainConfig(precision="bf16")) == "bf16"
    assert resolve_precision(TrainConfig()) in ("fp32", "bf16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"pairs": 0}, "pairs is 0"),
        ({"precision": "fp16"}, "legal: auto, fp32, bf16"),
    ],
)
def test_config_refuses(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changes)


# Guards


class Extra(Plain):
    """Adds a named part: NaN, or finite with an infinite gradient, as the batch's first number says."""

    def native_loss(self, batch, codes):
        loss, parts = super().native_loss(batch, codes)
        marker = batch.history[0, 0, 0]
        extra = self.current.weight.square().sum() * 0.1
        if marker == 1e3:
            extra = extra * float("nan")
        if marker == 1e4:
            extra = torch.sqrt(extra * 0.0) + extra
        return loss + extra, parts | {"extra": extra}


@pytest.mark.parametrize(
    ("marker", "message"),
    [(1e3, "step 6: extra is not finite"), (1e4, "step 6: the gradient norm is not finite")],
)
@pytest.mark.parametrize("every", [4, 100])
def test_nonfinite_guard(windows: Windows, tmp_path: Path, marker: float, message: str, every: int):
    bad = windows.observations.clone()
    bad[0, 0, 0] = marker
    learner, seen = Extra(), []

    def data(step: int) -> Windows:
        return windows._replace(observations=bad) if step == 6 else windows

    def remember(step: int, _: dict[str, float]) -> None:
        seen.append({k: v.clone() for k, v in learner.state_dict().items()})

    config = replace(CONFIG, checkpoint_every=every)
    good = str(tmp_path / "checkpoints" / "step-00000004") if every == 4 else "none"
    with pytest.raises(NonFiniteLoss, match=message) as error:
        fit(learner, data, OBJECTIVE, config, tmp_path, identity={"data": marker}, progress=remember, tensorboard=False)
    assert str(error.value).endswith(f"last good checkpoint: {good}")
    assert len(seen) == 6
    for name, value in learner.state_dict().items():
        assert torch.equal(value, seen[-1][name]), name
    if every == 4:
        saved = read_tensors(Path(good) / "model.safetensors")
        assert all(torch.equal(v, seen[3][k]) for k, v in saved.items())


# Records


def test_tensorboard_and_metrics(data: PairedWindows, tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(new_learner(), data, OBJECTIVE, replace(CONFIG, steps=4), tmp_path)
    (events,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    read = EventAccumulator(str(events)).Reload()
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows] == [2, 4]
    parts = {"self", "sigreg", "target_variance", "align", "invariance", "variance", "covariance", "cross"}
    assert set(rows[0]) == {"step", "loss", "gradient_norm", "learning_rate"} | parts
    for name in ("loss", "align", "cross", "learning_rate"):
        assert [(e.step, pytest.approx(e.value)) for e in read.Scalars(f"train/{name}")] == [
            (row["step"], row[name]) for row in rows
        ]
    assert [row["learning_rate"] for row in rows] == [learning_rate(replace(CONFIG, steps=4), s) for s in (1, 3)]
    assert not list(tmp_path.rglob(".*"))  # no temporary file is left
