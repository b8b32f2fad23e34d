"""Every config of the library, field by field, given what is no value of that field."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.banks import D_CLEAN
from sprii_envs.banks.behaviours import KINDS
from sprii_envs.banks.populations import Combinations, FactorialBlocks, Interpolated, Uniform
from sprii_train.analysis.gradients import GradientDiagnostic
from sprii_train.analysis.value.bases import RouteConfig
from sprii_train.analysis.value.fitting import FitConfig
from sprii_train.analysis.value.readers import ReaderConfig
from sprii_train.control.controllers import CONTROLLERS
from sprii_train.control.latent import LatentConfig
from sprii_train.control.loop import ControlRun
from sprii_train.control.recurrent import RecurrentConfig
from sprii_train.control.training import ControlTraining
from sprii_train.experiments.sources import ReaderBudget
from sprii_train.fit import TrainConfig
from sprii_train.learners.ad import ADConfig
from sprii_train.learners.cadm import CaDMConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.protocol import Objective
from sprii_train.recipes import RECIPES, Recipe
from sprii_train.settings import PENDULUM, POKE, Trials

LEVELS = {"mass": 3, "drag": (0.5, 1.0)}
CONFIGS: list[Any] = [
    TrainConfig(), JEPAConfig(), CaDMConfig(), ADConfig(), Objective(), ControlTraining(early_stop=0.9), ControlRun(),
    LatentConfig(), RecurrentConfig(),
    FitConfig(), ReaderConfig(prefix=1), RouteConfig(), GradientDiagnostic(), ReaderBudget(),
    Recipe("a", "A", Objective(), alpha=0.5), RECIPES["align"], Trials(2), D_CLEAN,
    PENDULUM.budget("smoke"), POKE.budget("smoke"),
    Uniform(2), Combinations(LEVELS), Interpolated(LEVELS), FactorialBlocks(LEVELS, 0, 1),
    *CONTROLLERS.values(), *(kind() for kind in KINDS.values() if kind.__module__.startswith("sprii_envs.")),
]  # fmt: skip
WRONG = [torch.tensor(2.0, requires_grad=True), torch.tensor([1, 2]), np.array(1), "1", b"1", float("nan"), 1j]
WRONG += [10**40, 10**5000, np.True_, object()]
HELD = [(config, field.name, getattr(config, field.name)) for config in CONFIGS for field in fields(config)]
NUMBERS = [(config, name) for config, name, value in HELD if type(value) in (int, float)]
FLAGS = [(config, name) for config, name, value in HELD if type(value) is bool]
SEQUENCES = [
    (config, name) for config, name, value in HELD
    if isinstance(value, tuple) and value and type(value[0]) in (int, float)
]  # fmt: skip


def named(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("config", "name"), NUMBERS, ids=named)
def test_coercion_in_a_number_of_a_config(config: Any, name: str):
    for value in (*WRONG, True, False, [1]):
        with pytest.raises(ValueError, match=rf"{type(config).__name__}\.{name} is .*; legal: "):
            replace(config, **{name: value})


@pytest.mark.parametrize(("config", "name"), SEQUENCES, ids=named)
def test_coercion_in_a_sequence_of_a_config(config: Any, name: str):
    for value in (*WRONG, True, None, *([wrong] for wrong in WRONG)):
        with pytest.raises(ValueError, match=rf"{type(config).__name__}\.{name}(\[0\])? is .*; legal: "):
            replace(config, **{name: value})
    assert replace(config, **{name: list(getattr(config, name))}) == config


@pytest.mark.parametrize(("config", "name"), FLAGS, ids=named)
def test_coercion_in_a_flag_of_a_config(config: Any, name: str):
    for value in (0, 1, "False", None, torch.tensor(True), 10**40):
        with pytest.raises(ValueError, match=rf"{type(config).__name__}\.{name} is .*; legal: True, False"):
            replace(config, **{name: value})


@pytest.mark.parametrize(("config", "name"), NUMBERS, ids=named)
def test_numbers_of_numpy_make_the_same_config(config: Any, name: str):
    value = getattr(config, name)
    again = replace(config, **{name: (np.int64 if type(value) is int else np.float64)(value)})
    assert again == config
    assert type(getattr(again, name)) is type(value)
