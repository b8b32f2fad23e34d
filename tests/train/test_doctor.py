"""`sprii doctor`, with the CPU as two devices and one that fails."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sprii_envs import dependencies
from sprii_train.benchmarks import machine, steps
from sprii_train.cli import main
from sprii_train.experiments.costs import estimate
from sprii_train.experiments.targets import TARGETS
from sprii_train.fit import TrainConfig
from sprii_train.learners import learner_of
from sprii_train.recipes import RECIPES
from sprii_train.settings import SETTINGS

D_CLEAN = {"d-clean": SETTINGS["d-clean"]}


def test_every_setting_takes_a_step_of_its_smoke_preset():
    tried = steps.try_presets(SETTINGS, ["cpu"], presets=("smoke",))
    assert sorted(name for one in tried for name in one.settings) == sorted(SETTINGS)
    assert [(one.settings, update.error) for one in tried for update in one.updates if update.error] == []
    assert all(update.seconds and update.verdict == "the reference" for one in tried for update in one.updates)


def test_the_cpu_twice_is_equal_and_a_device_that_fails_is_told_in_a_line():
    (one,) = steps.try_presets(D_CLEAN, ["cpu", "cpu", "meta", "no-device"], presets=("smoke",))
    first, second, meta, none = one.updates
    assert (first.difference, second.difference) == (None, 0.0)
    assert second.verdict.startswith("equal")
    for failed in (meta, none):
        assert failed.seconds is failed.loss is None
        assert failed.error is not None
        assert "\n" not in failed.error
    learner = learner_of(SETTINGS["d-clean"].budget("smoke").learner)[1](SETTINGS["d-clean"].budget("smoke").learner)
    assert one.weights == sum(weight.numel() for weight in learner.parameters())


def test_a_device_that_computes_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch):
    """It has every gradient 1 % too long: so far is it from the first."""
    stepped = steps._stepped

    def off(learner: nn.Module, windows: Any, train: TrainConfig, device: str, precision: str) -> Any:
        loss, gradient, seconds = stepped(learner, windows, train, "cpu", precision)
        return loss, [1.01 * g for g in gradient] if device == "odd" else gradient, seconds

    monkeypatch.setattr(steps, "_stepped", off)
    monkeypatch.setattr(steps, "resolve_precision", lambda config: "fp32")
    (one,) = steps.try_presets(D_CLEAN, ["cpu", "odd"], presets=("smoke",))
    assert one.updates[1].difference == pytest.approx(0.01)
    assert one.updates[1].verdict.startswith("DIFFERS")


def test_gradients_are_compared_as_they_are_before_clipping():
    """Clipped, one that is twice as long would be the same."""
    setting, budget = SETTINGS["d-clean"], SETTINGS["d-clean"].budget("smoke")
    config = setting.learner_config(budget.learner, RECIPES["align-cross"])
    learner = learner_of(config)[1](config)
    windows = steps.random_windows(setting, config, budget.train.pairs)
    short, whole = (
        steps._stepped(learner, windows, replace(budget.train, clip=clip), "cpu", "fp32")[1] for clip in (1e-3, 1e9)
    )
    assert steps._apart(short, whole) < 1e-5
    assert steps._apart([2.0 * g for g in short], whole) == pytest.approx(1.0, abs=1e-5)


def test_memory_of_two_pairs_says_that_of_the_whole_batch():
    setting, budget = SETTINGS["d-clean"], SETTINGS["d-clean"].budget("smoke")
    config = setting.learner_config(budget.learner, RECIPES["align-cross"])
    learner = learner_of(config)[1](config)
    kept = steps._kept(learner, steps.random_windows(setting, config, budget.train.pairs), budget.train)
    (one,) = steps.try_presets(D_CLEAN, ["cpu"], presets=("smoke",))
    assert one.memory is not None
    assert one.memory - steps.BYTES_A_WEIGHT * one.weights == pytest.approx(kept, rel=0.25)
    (refused,) = steps.try_presets(D_CLEAN, ["cpu"], presets=("smoke",), room=1_000)
    assert str(refused.updates[0].error).startswith("not tried: a batch of 2 pairs takes")


def test_a_batch_of_its_own_pairs_is_that_of_the_preset():
    (one,) = steps.try_presets(D_CLEAN, ["cpu"], presets=("smoke",), pairs=None)
    assert one.tried == one.pairs == SETTINGS["d-clean"].budget("smoke").train.pairs


class Does:
    """Calls a function where it is unpickled."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def test_a_preset_that_takes_too_long_is_cut_and_the_next_is_tried():
    setting, child = D_CLEAN["d-clean"], steps._Child()
    given = setting, setting.budget("smoke"), ("cpu", "no-device"), 2, steps.Bounds(None)
    try:
        assert child.try_one((Does(time.sleep, 600),), 0.5, 60.0) == (
            [],
            "not tried: cut after 0 s; --limit widens its share",
        )
        assert child.try_one((Does(os._exit, 3),), 60.0, 60.0) == ([], "its process ended with exit status 3")
        said, why = child.try_one(given, 60.0, 60.0)
    finally:
        child.end()
    assert why == ""
    assert [one for one in said if isinstance(one, steps.About)][-1].memory
    here = [one for one in steps._try(*given) if isinstance(one, steps.Update)]
    there = [one for one in said if isinstance(one, steps.Update)]
    assert [(one.device, one.loss, one.error) for one in there] == [(one.device, one.loss, one.error) for one in here]


def test_what_there_is_no_time_for_is_told():
    (one,) = steps.try_presets(D_CLEAN, ["cpu", "meta"], presets=("smoke",), limit=0.5)
    assert [update.error for update in one.updates] == ["not tried: the 0.5 s are over; --limit widens them"] * 2
    setting = D_CLEAN["d-clean"]
    *_, cpu, none = steps._try(setting, setting.budget("smoke"), ["cpu", "no-device"], 2, steps.Bounds(None, 0.0))
    assert isinstance(cpu, steps.Update)
    assert cpu.error is not None
    assert cpu.error.startswith("not tried: an update takes about 0 s")
    assert isinstance(none, steps.Update)
    assert str(none.error).startswith("RuntimeError")  # a GPU is tried though the CPU is slow


def test_what_is_missing_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(dependencies, "is_absent", lambda package: package in ("mujoco", "jax"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # a driver that then fails
    found = machine.offers(tmp_path / "not" / "there")
    assert found["MuJoCo"] == "missing: pip install 'sprii[mujoco]'"
    assert found["JAX"] == "missing: pip install 'sprii[overcooked]'"
    assert found["Devices"].startswith("unknown: ")
    assert found["Disk"].endswith(str(tmp_path))
    assert not any("\n" in words for words in found.values())
    assert not (tmp_path / "not").exists()


def doctor(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sprii", "doctor", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.setattr(machine, "_mujoco", lambda: "here")  # it starts a process
    file = tmp_path / "doctor.json"
    asked = (
        "--devices",
        "cpu,meta",
        "--settings",
        "d-clean",
        "--presets",
        "smoke,quick",
        "--limit",
        "600",
        "--json",
        str(file),
    )
    assert doctor(monkeypatch, *asked) == 0
    said = capsys.readouterr().out
    print(said)
    assert "2 of 4 updates ran; 0 differ by more than 0.001" in said
    assert "d-clean, quick: jepa, " in said
    assert "No update ran on CUDA: it is untested here." in said
    told = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["settings"], row["preset"]) for row in told["presets"]] == [
        (["d-clean"], "smoke"),
        (["d-clean"], "quick"),
    ]
    assert isinstance(told["rates"]["cpu"], float)
    for label in ("tab:dclean-full", "tab:pendulum-r7"):
        expected = estimate(TARGETS[label], "quick", told["rates"]["cpu"])
        assert told["targets"][label]["quick"]["cpu"] == pytest.approx(expected)
    assert set(TARGETS) <= told["targets"].keys()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--presets", "huge"), "unknown preset 'huge'"),
        (("--settings", "pok"), "unknown setting 'pok'; did you mean 'poke'"),
        (("--pairs", "1"), "--pairs is 1"),
        (("--limit", "0"), "--limit is 0"),
        (("--json", "no-folder/doctor.json"), "there is no folder no-folder"),
    ],
)
def test_bad_options_are_one_line_before_anything_is_measured(
    arguments: Any, named: str, monkeypatch: Any, capsys: Any
):
    monkeypatch.setattr(machine, "offers", lambda folder: pytest.fail("measured"))
    assert doctor(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
