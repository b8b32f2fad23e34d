"""Updates on a CUDA device that is not there: the host waits for it once an update, and devices are never mixed.

The device has shapes and no numbers (`fake_cuda`). Autograd's engine and cuDNN's recurrent kernels are not walked.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import CUDA, Wait, backward, fake_cuda, on_cuda
from test_every_learner import CONFIGS, windows_of
from torch import Tensor, nn

from sprii_envs.banks import Bank
from sprii_train.benchmarks import steps
from sprii_train.control import training as control
from sprii_train.control.relations import RelatedAnchors
from sprii_train.control.tables import Tables
from sprii_train.cophy import losses, towers
from sprii_train.devices import demand, moved
from sprii_train.fit import TrainConfig, train_step
from sprii_train.learners import ad, learner_of
from sprii_train.microbatches import chunked_loss
from sprii_train.protocol import Objective, each, training_loss
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import SETTINGS

KNOWN = {
    ("learners/object_jepa.py", "regularizer"): "how many rows each slot's SIGReg is of",
}
"""Places that wait besides the update itself, and for what."""
SMOKE = {", ".join(names): (setting, budget) for names, setting, _, budget in steps._distinct(SETTINGS, ("smoke",))}


def update_of(learner: nn.Module, windows: Any, objective: Objective, train: TrainConfig) -> Counter[Wait]:
    """What waits in one update, in the precision that `auto` takes on a GPU."""
    compute = partial(chunked_loss, pairs=train.microbatch) if train.microbatch else training_loss
    with fake_cuda() as watch:
        there = on_cuda(learner).train()
        told = train_step(there, windows.to(CUDA), objective, train.optimizer(there), train, 0, "bf16", compute)
    assert set(told) >= {"loss", "gradient_norm"}
    return watch.waits


def once_but_for_known(waits: Iterable[Wait], file: str, function: str) -> None:
    """The lines that wait are one of the update, where the loss is read, and known ones."""
    asked = {(wait.file, wait.line, wait.function) for wait in waits}
    assert len([line for line in asked if (line[0], line[2]) == (file, function)]) == 1
    assert {(name, where) for name, _, where in asked} - KNOWN.keys() == {(file, function)}


def relational(learner: nn.Module) -> Objective:
    """Align + Cross, without what the learner has no place for."""
    objective = EVERY_RECIPE["align-cross"].objective
    return replace(objective, lambda_x=0.0) if getattr(learner, "without_cross", "") else objective


@pytest.mark.parametrize("names", SMOKE)
def test_an_update_of_a_settings_smoke_preset_waits_once(names: str):
    setting, budget = SMOKE[names]
    config = setting.learner_config(budget.learner, EVERY_RECIPE["align-cross"])
    learner, windows = learner_of(config)[1](config), steps.random_windows(setting, config, 2)
    if callable(fit_statistics := getattr(learner, "fit_statistics", None)):
        fit_statistics(windows)
    train = budget.train if isinstance(budget.train, TrainConfig) else TrainConfig(pairs=2)
    once_but_for_known(update_of(learner, windows, relational(learner), train), "fit.py", "train_step")


def every_case() -> Iterator[tuple[str, str]]:
    """Every learner under arms of all the contexts that it has."""
    for name, arm in product(CONFIGS, ("align-cross", "native", "supervised")):
        with contextlib.suppress(ValueError):  # of a context that it does not have
            SETTINGS["poke"].learner_config(CONFIGS[name], EVERY_RECIPE[arm])
            yield name, arm


@pytest.mark.slow  # the settings' own, above, are the default run's
@pytest.mark.parametrize(("name", "arm"), [*every_case()])
def test_an_update_of_every_learner_waits_once(poke_bank: Bank, name: str, arm: str):
    recipe = EVERY_RECIPE[arm]
    config = SETTINGS["poke"].learner_config(CONFIGS[name], recipe)
    learner: Any = learner_of(config)[1](config)
    windows = windows_of(config, recipe, poke_bank)
    if name == "object-rssm":
        learner.fit_statistics(windows.query_features)
    elif callable(fit_statistics := getattr(learner, "fit_statistics", None)):
        fit_statistics(windows)
    waits = update_of(learner, windows, relational(learner), TrainConfig(pairs=6))
    once_but_for_known(waits, "fit.py", "train_step")


def test_a_fitted_context_has_float32_in_any_precision():
    """`linalg.solve` has no bfloat16: on a GPU, where `auto` takes it, this ended the run."""
    setting = SETTINGS["pendulum-context"]
    config = setting.budgets["smoke"].others["fitted"].learner
    learner: Any = learner_of(config)[1](config)
    windows = steps.random_windows(setting, config, 2)
    learner.fit_statistics(windows)
    waits = update_of(deepcopy(learner), windows, relational(learner), TrainConfig(pairs=2))
    once_but_for_known(waits, "fit.py", "train_step")
    with torch.autocast("cpu", torch.bfloat16):
        assert learner.encode_history(learner.prepare(windows).history).dtype == torch.float32


def test_an_update_of_the_pendulums_loop_waits_once():
    config = CONFIGS["cadm"]
    learner: Any = learner_of(config)[1](config)
    draw = torch.Generator().manual_seed(0)
    anchors, rows, ahead, dim = 7, 5, 20, config.observation_dim
    width = config.history * (dim + config.action_dim)
    tables = Tables(
        torch.randn(anchors, width, generator=draw), torch.randn(2, ahead, 2 * dim + config.action_dim, generator=draw)
    )
    anchor = torch.randint(0, anchors, (config.members, rows), generator=draw)
    transition = torch.randint(0, ahead, (config.members, rows), generator=draw)
    pairs = RelatedAnchors(np.array([0, 1, 2]), np.array([3, 4, 5]))
    objective, optimizer = EVERY_RECIPE["align-cross"].objective, control.build_optimizer
    control.update(
        deepcopy(learner), optimizer(learner, control.ControlTraining()), tables, anchor, transition, pairs, objective
    )
    with fake_cuda() as watch:
        on_cuda(learner).train()
        tables, anchor, transition = each((tables, anchor, transition), lambda tensor: moved(tensor, CUDA))
        updates = optimizer(learner, control.ControlTraining())
        control.update(learner, updates, tables, anchor, transition, pairs, objective)
    once_but_for_known(watch.waits, "control/training.py", "update")


# The watch itself


def numbers() -> Tensor:
    return torch.ones(3, 4, device=CUDA)


WAITING = {
    "a number": lambda x: x.sum().item(),
    "a truth": lambda x: bool((x > 0).any()),
    "a list": lambda x: x[0].tolist(),
    "a copy back": lambda x: x.cpu(),
    "a copy into the CPU's": lambda x: torch.zeros(3, 4).copy_(x),
    "a mask": lambda x: x[x > 0],
    "places": lambda x: (x > 0).nonzero(),
    "a masked write": lambda x: x.index_put_((x > 0,), torch.ones(12, device=CUDA)),
    "a number at an index": lambda x: x.index_put_((torch.arange(2, device=CUDA),), torch.tensor(1.0)),
    "a number in one place": lambda x: x[0].__setitem__(0, 1.0),
    "an inverse": lambda x: torch.linalg.inv(x[:, :3]),
    "different ones": lambda x: x.unique(),
    "equality": lambda x: torch.equal(x, x),
    "a plain copy": lambda x: x + torch.ones(3, 4).to(CUDA),
    "a list of the CPU's": lambda x: x[0] + torch.tensor([1.0, 2.0, 3.0, 4.0], device=CUDA),
    "an index of the CPU's": lambda x: x[torch.tensor([0, 2])],
    "an index in a list": lambda x: x[[0, 2]],
}


@pytest.mark.parametrize("what", WAITING)
def test_the_watch_sees_what_waits(what: str):
    with fake_cuda() as watch:
        x = numbers()
        assert not watch.waits
        try:
            WAITING[what](x)
        except (RuntimeError, NotImplementedError):  # the device has no numbers to go on with
            assert what in ("a mask", "places", "different ones", "equality")
        assert watch.waits


def test_the_watch_lets_pass_what_does_not_wait():
    with fake_cuda() as watch:
        x = numbers()
        x = x * 2.0 + moved(torch.ones(3, 4), CUDA) + x.new_zeros(3, 4) * torch.tensor(2.0)
        x[x > 2] = 0.0
        x = x[torch.arange(2, device=CUDA)].masked_fill(x[:2] > 1, 0.0)
        demand(x >= 0, "numbers", lambda: pytest.fail("the host asked"))
        assert torch.randn(3).tolist() == pytest.approx(torch.randn(3).tolist(), abs=20)  # the CPU's are real
        with pytest.raises(RuntimeError, match="device"):
            _ = x + torch.ones(2, 4)
    watch.waits = Counter({wait: n for wait, n in watch.waits.items() if wait.operation != "add"})
    assert not watch.waits


def test_the_fake_backward_pass_is_autograds():
    config = CONFIGS["jepa"]
    setting = SETTINGS["d-clean"]
    torch.manual_seed(0)
    learner: Any = learner_of(config)[1](config).eval()
    windows = steps.random_windows(replace(setting, history=config.history), config, 6)
    found = []
    for way in (Tensor.backward, backward):
        learner.zero_grad(set_to_none=True)
        loss, _ = training_loss(learner, windows, EVERY_RECIPE["align-cross"].objective)
        way(loss)
        found.append([p.grad.clone() for p in learner.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 0
    torch.testing.assert_close(found[1], found[0])


# What a device computes in another way than the CPU, by the CPU


PACKING = [*product(("object-jepa", "object-cpc", "object-rssm", "cophynet"), ("split", "monolithic")), ("ad", "split")]


@pytest.mark.parametrize(("name", "context"), PACKING)
def test_rows_that_a_device_does_not_leave_out_change_nothing(
    monkeypatch: pytest.MonkeyPatch, poke_bank: Bank, name: str, context: str
):
    config = CONFIGS[name] if name == "ad" else replace(CONFIGS[name], context=context)
    torch.manual_seed(0)
    learner: Any = learner_of(config)[1](config)
    windows = windows_of(config, EVERY_RECIPE["align-cross"], poke_bank)
    if name == "object-rssm":
        learner.fit_statistics(windows.query_features)
        monkeypatch.setattr(learner, "noise", lambda *shape: torch.zeros(*shape, config.latent))
    found = []
    for here in (True, False):
        for module in (towers, losses, ad):
            monkeypatch.setattr(module, "on_host", lambda tensor, here=here: here)
        learner.zero_grad(set_to_none=True)
        loss, parts = training_loss(learner.train(), windows, EVERY_RECIPE["align-cross"].objective)
        loss.backward()
        gradients = [p.grad.clone() for p in learner.parameters() if p.grad is not None]
        found.append((loss.detach(), parts, gradients))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_an_illegal_number_is_told_on_the_cpu():
    demand(torch.tensor([True]), "numbers", lambda: pytest.fail("nothing is wrong"))
    with pytest.raises(ValueError, match=r"^numbers are 1 of 2$"):
        demand(torch.tensor([True, False]), "numbers", lambda: "numbers are 1 of 2")
    x = torch.ones(3)
    assert moved(x, "cpu") is x
