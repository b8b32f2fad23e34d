"""The supervised variant: its loss by hand, what the reader tells it, and that other systems' codes tell it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from controlled_windows import Carts, windows_of
from tiny_worlds import POKE_LEARNER
from torch import Tensor

from sprii_envs.banks import Bank
from sprii_train.learners import JEPA, JEPAConfig, SupervisedJEPA, SupervisedJEPAConfig
from sprii_train.protocol import Codes, Objective, encode, training_loss
from sprii_train.recipes import POKE_RECIPES
from sprii_train.settings import POKE, SETTINGS

STATES = SupervisedJEPAConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8))


def test_the_loss_is_the_jepas_and_ten_squared_errors() -> None:
    torch.manual_seed(0)
    learner = SupervisedJEPA(STATES).eval()
    jepa = JEPA(replace(POKE_LEARNER, image=0, observation_dim=8)).eval()
    jepa.load_state_dict({name: value for name, value in learner.state_dict().items() if not name.startswith("head.")})
    labels = torch.randn(8, 1)
    batch = learner.prepare(windows_of(STATES)._replace(labels=labels))
    codes: Codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    own, _ = jepa.native_loss(batch, codes)
    layers: Any = learner.head
    first, _, last = layers
    weights = [np.asarray(p.detach().double()) for p in (first.weight, first.bias, last.weight, last.bias)]
    z = np.asarray(codes.z_p.detach().double())
    h = torch.nn.functional.gelu(torch.from_numpy(z @ weights[0].T + weights[1])).numpy()
    errors = (h @ weights[2].T + weights[3] - labels.double().numpy()) ** 2
    assert parts["supervised"].item() == pytest.approx(errors.mean(), rel=1e-5)
    assert (loss - own).item() == pytest.approx(10 * errors.mean(), rel=1e-4)
    with pytest.raises(ValueError, match="SupervisedJEPA needs labels in its windows"):
        learner.native_loss(batch._replace(labels=None), codes)


def test_its_size_is_the_jepas_and_a_head_of_one_hidden_layer() -> None:
    paper = JEPAConfig(image=64)
    with torch.device("meta"):
        learner, jepa = SupervisedJEPA(SupervisedJEPAConfig.like(paper)), JEPA(paper)
    sizes = [sum(p.numel() for p in one.parameters()) for one in (learner, jepa)]
    assert sizes[1] == 2_938_944
    assert sizes[0] - sizes[1] == 64 * 64 + 64 + 64 + 1


def test_pokeworlds_arm_is_told_the_drag_of_each_window(poke_bank: Bank) -> None:
    recipe = POKE_RECIPES["supervised-drag"]
    windows = POKE.data(poke_bank, POKE.learner_config(STATES, recipe), recipe, pairs=4, seed=0)(0)
    train = poke_bank.split("train")
    drag = {system: value for system, value in zip(train["system"], train["drag"], strict=True)}
    every = np.asarray([*drag.values()])
    standard = (every - every.mean()) / every.std()
    assert windows.labels is not None
    assert windows.labels.shape == (8, 1)
    assert {round(float(x), 4) for x in windows.labels[:, 0]} <= {round(float(x), 4) for x in standard}
    assert torch.equal(windows.labels[:4], windows.labels[4:])  # a pair is of one system
    for name in ("poke", "poke-r4"):
        for budget in SETTINGS[name].budgets.values():
            other = budget.others["supervised-drag"]
            assert other.learner == SupervisedJEPAConfig.like(budget.learner)
            assert (other.learner.labels, other.learner.label_weight, other.train) == (("drag",), 10.0, budget.train)


def test_codes_of_other_carts_tell_their_drag() -> None:
    """Below the error of the constant, which is 1 in these units, where the untrained head is not."""
    torch.manual_seed(0)
    config = SupervisedJEPAConfig(
        observation_dim=1, action_dim=1, history=9, horizons=(1, 4), embedding=16, persistent=6, current=4, width=16,
        layers=1, heads=2, head_width=16, observation_width=16, predictor_width=16, dropout=0.0, sigreg_slices=8,
        sigreg_samples="pooled",
    )  # fmt: skip
    learner = SupervisedJEPA(config)
    before = _error(learner)
    steps = torch.optim.AdamW(learner.parameters(), 3e-3)
    for step in range(150):
        loss, _ = training_loss(learner.train(), _with_drag(1, step), Objective())
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert _error(learner) < 0.75 < 0.95 < before


def _error(learner: SupervisedJEPA) -> float:
    windows = _with_drag(2, 0, 200)
    found = learner.eval().told(encode(learner, learner.prepare(windows)).z_p)
    assert windows.labels is not None
    return (found - windows.labels).square().mean().item()


def _with_drag(seed: int, step: int, pairs: int = 24):
    """Carts with their drag, which is the first that the stream of a step draws, standardised by its law."""
    drag = np.random.default_rng([seed, step]).uniform(0.2, 3.0, (pairs, 1))
    labels: Tensor = torch.from_numpy(np.tile((drag - 1.6) / (2.8 / 12**0.5), (2, 1)).astype(np.float32))
    return Carts(seed)(step, pairs)._replace(labels=labels)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("labels", (), r"SupervisedJEPAConfig\.labels is \(\); legal: names of properties"),
        ("label_weight", 0.0, r"SupervisedJEPAConfig\.label_weight is 0\.0; legal: .*"),
        ("context", "monolithic", r"SupervisedJEPAConfig\.context is 'monolithic'; legal: split"),
        ("persistent", 0, r"SupervisedJEPAConfig\.persistent is 0; legal: .*"),
    ],
)
def test_illegal_fields_are_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(STATES, **{field: value})  # pyright: ignore[reportArgumentType]
