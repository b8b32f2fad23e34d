"""Configs, learners, objectives, data and evaluation, given what no caller means: one clear error, or it is legal.

pytest -m slow -s tests/train/test_hostile_training.py     # prints the counts
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import HORIZONS, JEPA_CONFIG, PROTOCOL

import sprii_train
from sprii_envs.banks import Bank, build
from sprii_envs.relations import SAME_SYSTEM
from sprii_train import checkpoints, objectives
from sprii_train.control.agent import PlanningAgent
from sprii_train.control.controllers import named_controller
from sprii_train.control.pendulum_agents import learned
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.evaluation import RandomAgent, evaluate_agent
from sprii_train.fit import TrainConfig, fit
from sprii_train.increments import IncrementReader
from sprii_train.learners import JEPA, LEARNERS, CaDM, CaDMConfig
from sprii_train.protocol import Objective
from sprii_train.recipes import Recipe
from sprii_train.schedules import adam

sys.path.append(str(Path(__file__).parents[1] / "envs"))

from hostile import HOSTILE, attempts, constructors, parameters  # pyright: ignore[reportMissingImports]

pytestmark = pytest.mark.slow
TENSORS = (torch.tensor(2.0, requires_grad=True), torch.tensor([1, 2]), torch.tensor(float("nan")), torch.zeros(2, 0))
VALUES = (*HOSTILE, *TENSORS)
ELSEWHERE = ("sprii_train.cli.", "sprii_train.benchmarks.")
"""Options are tested as they are typed, in `test_hostile_commands.py`."""

CALLED = ("agent", "success", "wrap")
"""A function of the user's fails in its own words."""


def test_constructors_of_training_refuse_in_one_line_or_take_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts, wrong = Counter(), []
    for name, kind in constructors(sprii_train).items():
        if not name.startswith(ELSEWHERE):
            counts["constructors"] += 1
            wrong += [f"{name}({each})" for each in attempts(kind, parameters(kind), counts, VALUES)]
    print(f"\n{dict(counts)}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong)
    assert counts["constructors"] > 50
    assert not os.listdir(tmp_path)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(PROTOCOL, tmp_path_factory.mktemp("bank") / "bank")


def of_data(bank: Bank) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    reader = WindowReader(bank, 6, HORIZONS)
    return {
        "WindowReader": (WindowReader, {"bank": bank, "history": 6, "horizons": HORIZONS}),
        "IncrementReader": (IncrementReader, {"bank": bank, "history": 6, "horizons": HORIZONS}),
        "PairedWindows": (PairedWindows, {"reader": reader, "relation": SAME_SYSTEM, "pairs": 4, "episodes": "train"}),
        "a batch": (PairedWindows(reader, pairs=4), {"step": 0}),
    }


def of_learning(bank: Bank) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    a, b = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    data = PairedWindows(WindowReader(bank, 6, HORIZONS), pairs=4)
    config = TrainConfig(steps=1, pairs=4, warmup=0, precision="fp32")

    def fitted(**given: Any) -> None:
        torch.manual_seed(0)
        known: dict[str, Any] = dict(
            learner=JEPA(JEPA_CONFIG), data=data, objective=Objective(), config=config, directory="run"
        )
        fit(**(known | given), tensorboard=False)

    return {
        "align": (objectives.align, {"a": a, "b": b}),
        "relational_info_nce": (objectives.relational_info_nce, {"a": a, "b": b, "temperature": 0.1}),
        "Recipe": (Recipe, {"name": "a", "label": "A", "objective": Objective()}),
        "adam": (adam, {"rate": 1e-3, "steps": 5}),
        "fit": (fitted, dict.fromkeys(("learner", "data", "objective", "config", "directory", "identity"))),
        "checkpoints.save": (checkpoints.save, {"learner": JEPA(JEPA_CONFIG), "path": "model"}),
        "checkpoints.load": (checkpoints.load, {"path": "model"}),
    } | {f"learner {name}": (kind, {"config": config()}) for name, (kind, config) in LEARNERS.items() if small(config)}


def small(config: type) -> bool:
    """Whether a learner is made of its default config in a moment."""
    return config.__name__ in ("CaDMConfig", "ContextualConfig", "NODConfig", "CoDAConfig", "GEPSConfig", "TDSConfig")


def of_evaluation(bank: Bank) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    model = CaDM(CaDMConfig(observation_dim=3, history=10, encoder=(4,) * 3, dynamics=(4,) * 4))
    shooting = named_controller("shooting", horizon=2)
    known: dict[str, Any] = {"agent": RandomAgent(), "env_id": "sprii/Pendulum-v0", "groups": ["ID"], "episodes": 1}
    known |= {"env_kwargs": {"max_episode_steps": 3}}
    return {
        "evaluate_agent": (evaluate_agent, known),
        "RandomAgent": (RandomAgent, {}),
        "named_controller": (named_controller, {"name": "cem"}),
        "PlanningAgent": (PlanningAgent, {"model": model, "controller": shooting}),
        "learned": (learned, {"model": model, "controller": shooting, "seed": 0}),
    }


@pytest.mark.parametrize("entries", [of_data, of_learning, of_evaluation], ids=lambda f: f.__name__)
def test_entry_points_of_training_refuse_in_one_line_or_take_it(entries, bank, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    total, wrong = Counter(), []
    for name, (function, known) in entries(bank).items():
        counts, held = Counter(), {k: v for k, v in known.items() if v is not None}
        names = [*known] if name == "fit" else [n for n in parameters(function) if n not in ("args", "kwargs")]
        for argument in names:
            values = [v for v in VALUES if not callable(v)] if argument in CALLED else VALUES
            wrong += [f"{name}({each})" for each in attempts(partial(function, **held), [argument], counts, values)]
        print(f"\n{name}: {len(names)} arguments, {dict(counts)}", end="")
        total += counts
    print(f"\nall: {dict(total)}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong)
