"""The blocks of docs/evaluate.md run and give what the page says; so does the example."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from sprii_train.evaluation import Evaluation

ROOT = Path(__file__).parents[3]


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluate.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    alone: list[dict] = [{} for _ in blocks]
    for block, names in zip(blocks, alone, strict=True):
        exec(block, names)
    told = {name: value for names in alone for name, value in names.items()}
    (row,) = told["puck"].by_group()
    assert row["systems"] == 5
    assert row["success"] > 0.9
    assert row["return_low"] is not None
    assert told["again"].by_group() == told["ppo"].by_group()
    assert set(told["verdicts"]) == {"ID", "OOD_c3"}
    assert told["total"] == pytest.approx(told["own"].returns[1])
    assert told["kept"].rows() == told["found"].rows()
    assert told["beside"].references["oracle"].told
    printed = capsys.readouterr().out
    assert "paper: SPRII (R7)" in printed
    assert "* is told the systems" in printed


def test_the_example(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    path = ROOT / "examples" / "evaluate_agents.py"
    assert len(path.read_text().splitlines()) < 60
    spec = importlib.util.spec_from_file_location("evaluate_agents", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["evaluate_agents.py", "--steps", "3200", "--episodes", "4"])
    module.main()
    found = Evaluation.from_json(tmp_path / "ppo.json")
    assert len(found.by_group()) == 5
    printed = capsys.readouterr().out
    assert "ID: PPO − oracle = -" in printed
    assert "ID: PPO − oracle" in printed.split("ID: PPO − rule")[1]
