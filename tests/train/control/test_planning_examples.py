"""The examples that plan with a JEPA and a GRU, at a size for tests; the command opens what they save."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from sprii_train.checkpoints import load
from sprii_train.cli import main
from sprii_train.control.models import MODELS
from sprii_train.evaluation import Evaluation

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(("name", "own"), [("plan_jepa", "JEPA"), ("plan_gru", "GRU")])
def test_rows_are_printed_and_the_command_opens_the_model(name: str, own: str, monkeypatch, capsys, tmp_path: Path):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    size = ["--steps", "3", "--each", "2", "--episodes", "2", "--horizon", "2", "--groups", "ID,OOD_c3"]
    found = example.main([*size, *({"JEPA": ["--chains", "3"]}.get(own, [])), "--out", str(tmp_path / "model")])
    printed = capsys.readouterr().out
    assert all(word in printed for word in (own, "random", "nominal", "oracle*", "OOD_c3"))
    assert found.by_group()[0]["return"] < -500.0  # two steps ahead, nobody swings up
    model = load(tmp_path / "model", also=MODELS)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    command = ["pendulum", "evaluate", str(tmp_path / "model"), "--horizon", "2", "--episodes", "2", "--alone"]
    rows = ["--groups", "ID,OOD_c3", "--json", str(tmp_path / "rows.json")]
    monkeypatch.setattr(sys, "argv", ["sprii", *command, *rows])
    main()
    again = Evaluation.from_json(tmp_path / "rows.json")
    assert again.by_group() == found.by_group()
