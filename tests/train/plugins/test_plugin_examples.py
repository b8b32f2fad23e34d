"""The examples of the plug-ins, at a size for tests."""

import importlib.util
import multiprocessing
from pathlib import Path
from types import ModuleType

import pytest

from sprii_envs.banks import D_CLEAN, Bank, build

EXAMPLES = Path(__file__).parents[3] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    protocol = D_CLEAN.replace(systems={"train": 60}, rollouts=2)
    return build(protocol, tmp_path_factory.mktemp("banks") / "small")


def test_every_way_to_read_gives_one_stream(small: Bank, monkeypatch: pytest.MonkeyPatch):
    # torchrl, once imported, makes "spawn" the default, whose workers import torch anew
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context("fork")
    )
    found = load("torch_loader").run(small, length=6)
    assert len(found) == 5
    assert len(set(found.values())) == 1


def test_torchrl_pairs_are_related_and_slices_are_not(small: Bank):
    pytest.importorskip("torchrl")
    related, slices = load("torchrl_replay").run(small)
    assert related == 1.0
    assert slices < 0.2


def test_sac_with_related_pairs(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("stable_baselines3")
    found = load("sb3_replay").run(steps=600, envs=2)
    assert [sorted(r2) for r2 in found.values()] == [["length", "mass"]] * 2
    assert all(r2 <= 1.0 for each in found.values() for r2 in each.values())
    assert found["untrained"] != found["Align on SAC's buffer"]
    assert "100% are of one system, 0% of one episode" in capsys.readouterr().out


@pytest.mark.slow
def test_ppo_from_pixels_prints_returns(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("stable_baselines3")
    mean = load("ppo_poke_pixels").run(steps=600, envs=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" frames")[0].strip() for line in lines[:-1]] == ["256", "512", "768"]
    assert lines[-1].startswith(f"new systems: return {mean:.2f} ±")
    assert -200.0 < mean < 0.0


def test_ppo_swims_and_prints_metres(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("mujoco")
    found = load("ppo_swimmer").run(steps=256, fluid="bank", envs=2)
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()] == list(found)
    # What motors of 0.8 N·m add to coasting in the thin fluid is next to nothing, whatever they do.
    assert abs(found["centre, m"] - found["if it coasts, m"]).max() < 0.1
    assert abs(found["if it coasts, m"]).max() > 0.1
