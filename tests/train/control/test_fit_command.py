"""`sprii pendulum evaluate --fit`: what it prints is what the planner with a calibrated fit does."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sprii_envs.envs.pendulum import GROUPS
from sprii_train.checkpoints import save
from sprii_train.cli import main
from sprii_train.control.context_fit import ContextFit, calibrated
from sprii_train.control.controllers import named_controller
from sprii_train.control.models import MODELS
from sprii_train.control.offline import excited, fit_by, log_of
from sprii_train.control.pendulum_agents import ENV_ID, learned
from sprii_train.control.recurrent import RecurrentConfig, RecurrentModel
from sprii_train.evaluation import Evaluation, evaluate_agent
from sprii_train.learners import Contextual, ContextualConfig
from sprii_train.learners.histories import History, append, empty_history

CONFIG = ContextualConfig(contexts="encoded", hidden=(8,), encoder=(8,), history=4)
MODEL = Contextual(CONFIG, seed=0).eval().requires_grad_(False)
FEW = excited(GROUPS["ID"], 6, 2, steps=20)


def command(monkeypatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", "evaluate", *map(str, arguments)])
    main()


def one_by_one(starts: np.ndarray, episodes: np.ndarray) -> History:
    """Histories of 4 transitions, appended as an episode runs."""
    before, action, after = (torch.from_numpy(each) for each in FEW.transitions())
    history = empty_history(len(starts), 4, 3, 1)
    for i in range(4):
        rows = FEW.first[episodes] + starts + i
        history = append(history, before[rows], action[rows], after[rows])
    return history


def test_the_command_plans_with_a_fit_of_what_the_run_collected(monkeypatch, capsys, tmp_path: Path):
    save(MODEL, tmp_path / "model")
    excited(GROUPS["ID"], 4, 2, seed=9, steps=20).save(tmp_path / "experience-2")
    FEW.save(tmp_path / "experience-10")  # the last
    size = ["--controller", "mppi", "--horizon", "2", "--episodes", "2", "--groups", "OOD_c3"]
    command(monkeypatch, tmp_path / "model", *size, "--fit", "newton", "--transitions", "7", "--json", tmp_path / "f")
    assert "+ fit" in capsys.readouterr().out
    found = Evaluation.from_json(tmp_path / "f")
    command(monkeypatch, tmp_path / "model", *size, "--alone", "--json", tmp_path / "plain")
    controller = named_controller("mppi", horizon=2)
    rng = np.random.default_rng(0)
    episodes = rng.choice(6, 3_000)
    fit = ContextFit(calibrated(MODEL, one_by_one(rng.integers(17, size=3_000), episodes)), transitions=7)
    own = evaluate_agent(
        learned(MODEL, controller, seed=0, fit=fit), ENV_ID, groups=["OOD_c3"], episodes=2, progress=False
    )
    assert found.by_group()[0]["return"] == own.by_group()[0]["return"]
    assert set(found.references) >= {"own context", "oracle", "random"}
    plain = Evaluation.from_json(tmp_path / "plain").by_group()
    beside = found.references["own context"].by_group()
    assert beside == plain
    assert found.by_group()[0]["return"] != plain[0]["return"]


def test_a_model_without_a_run_is_calibrated_by_new_episodes_of_id(tmp_path: Path):
    log = log_of(tmp_path / "model")
    systems = {tuple(each) for each in GROUPS["ID"].combinations().values}
    assert {tuple(each) for each in log.properties} == systems
    assert len(log) == 2 * len(systems)


def test_what_cannot_be_fitted_is_one_line(monkeypatch, capsys, tmp_path: Path):
    save(RecurrentModel(RecurrentConfig(width=4)), tmp_path / "gru", also=MODELS)
    for arguments, told in (
        ([tmp_path / "gru", "--fit", "newton"], "RecurrentModel steps its context; legal with a fit"),
        ([tmp_path / "gru", "--log", tmp_path], "--log calibrates --fit, which is not given"),
        ([tmp_path / "gru", "--fit", "cem", "--transitions", "0"], "--transitions is 0; legal: an integer >= 1"),
    ):
        with pytest.raises(SystemExit):
            command(monkeypatch, *arguments, "--groups", "ID", "--episodes", "1")
        assert told in capsys.readouterr().err


def test_a_log_of_short_episodes_is_refused():
    with pytest.raises(ValueError, match="no episode of 4 transitions, a whole history of Contextual"):
        fit_by(MODEL, excited(GROUPS["ID"], 2, 2, steps=3))
