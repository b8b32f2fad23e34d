"""Stacked layers and their fit against plain `torch.nn` modules and loops."""

import numpy as np
import pytest
import torch
from torch import nn

from sprii_train.analysis.value import FitConfig
from sprii_train.analysis.value.fitting import Selection, clip_each, fit_stack
from sprii_train.analysis.value.stacked import (
    StackedGRU,
    StackedLinear,
    horizon_masks,
    masked_actions,
    member,
    predict_stack,
    stacked,
)

SEEDS = (3, 5)


def plain(layer: StackedLinear, r: int) -> nn.Linear:
    linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2], bias=layer.bias is not None)
    linear.weight.data = layer.weight.data[r].T.clone()
    if layer.bias is not None:
        linear.bias.data = layer.bias.data[r, 0].clone()
    return linear


@pytest.mark.parametrize("bias", [True, False])
def test_linear_equals_torch(bias: bool):
    layer, x = StackedLinear(SEEDS, "layer", 5, 3, bias=bias), torch.randn(2, 7, 5)
    for r in range(2):
        torch.testing.assert_close(layer(x)[r], plain(layer, r)(x[r]))
    assert layer.weight.abs().max() <= 5**-0.5


def test_gru_equals_torch():
    layer, x = StackedGRU(SEEDS, "gru", 5, 4), torch.randn(2, 7, 6, 5)
    for r in range(2):
        gru = nn.GRU(5, 4, batch_first=True)
        gru.weight_ih_l0.data = layer.input_weight.data[r].T.clone()
        gru.weight_hh_l0.data = layer.state_weight.data[r].T.clone()
        gru.bias_ih_l0.data = layer.input_bias.data[r, 0].clone()
        gru.bias_hh_l0.data = layer.state_bias.data[r, 0].clone()
        torch.testing.assert_close(layer(x)[r], gru(x[r])[1][0])


def test_initial_weights_depend_on_seed_and_name_alone():
    both, one = StackedLinear(SEEDS, "layer", 5, 3), StackedLinear((5,), "layer", 5, 3)
    torch.testing.assert_close(both.weight[1:], one.weight, rtol=0, atol=0)
    assert not torch.equal(both.weight[0], both.weight[1])
    assert not torch.equal(one.weight, StackedLinear((5,), "other", 5, 3).weight)
    # A part of a wider layer starts as the wider layer would.
    assert StackedLinear((5,), "layer", 5, 3, fan_in=500).weight.abs().max() <= 500**-0.5


def test_members_come_apart_and_together():
    layer = StackedLinear(SEEDS, "layer", 5, 3)
    parts = [member(layer, r) for r in range(2)]
    joined = stacked(parts)
    torch.testing.assert_close(joined.weight, layer.weight, rtol=0, atol=0)
    assert not joined.weight.requires_grad
    parts[0].weight.data.zero_()
    assert layer.weight[0].abs().sum() > 0
    assert joined.weight[0].abs().sum() > 0


def test_actions_beyond_a_horizon_are_padded():
    actions, masks = torch.randn(2, 4, 3, 2), horizon_masks((1, 3))
    found = masked_actions(actions, masks)
    assert masks.tolist() == [[1, 0, 0], [1, 1, 1]]
    for k, h in enumerate((1, 3)):
        expected = torch.zeros(2, 4, 3, 2)
        expected[:, :, :h] = actions[:, :, :h]
        torch.testing.assert_close(found[:, :, k], expected.flatten(-2), rtol=0, atol=0)


def test_chunks_do_not_change_a_prediction():
    layer, x = StackedLinear(SEEDS, "layer", 5, 3), torch.randn(10, 5)
    whole = predict_stack(layer, (x,), 2, "cpu")
    torch.testing.assert_close(predict_stack(layer, (x,), 2, "cpu", chunk=4), whole)
    torch.testing.assert_close(whole[1], plain(layer, 1)(x))


def test_each_network_has_its_own_clip():
    layer = StackedLinear(SEEDS, "layer", 5, 3)
    gradients = [torch.randn(2, 5, 3) * torch.tensor([0.01, 10.0]).view(2, 1, 1), torch.zeros(2, 1, 3)]
    layer.weight.grad, layer.bias.grad = gradients[0].clone(), gradients[1].clone()  # type: ignore[union-attr]
    clip_each(list(layer.parameters()), 1.0)
    for r in range(2):
        linear = plain(layer, r)
        linear.weight.grad, linear.bias.grad = gradients[0][r].T.clone(), gradients[1][r, 0].clone()
        nn.utils.clip_grad_norm_(linear.parameters(), 1.0)
        torch.testing.assert_close(layer.weight.grad[r], linear.weight.grad.T)
    assert layer.weight.grad[0].norm() == gradients[0][0].norm()
    assert abs(layer.weight.grad[1].norm() - 1) < 1e-5


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_fit_equals_a_plain_loop(schedule):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((40, 5)), dtype=torch.float32)
    y = 20 * x @ torch.tensor(rng.standard_normal((5, 3)), dtype=torch.float32)
    config = FitConfig(updates=15, batch=8, learning_rate=0.1, schedule=schedule)
    layer = StackedLinear(SEEDS, "layer", 5, 3)
    alone = [plain(layer, r) for r in range(2)]
    drawn = []

    def losses(rows: torch.Tensor) -> torch.Tensor:
        drawn.append(rows)
        return (layer(x[rows]) - y[rows]).square().mean((1, 2))

    fit_stack(layer, losses, 40, SEEDS, config)
    for r, linear in enumerate(alone):
        optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 15)
        for rows in drawn:
            optimizer.zero_grad()
            (linear(x[rows[r]]) - y[rows[r]]).square().mean().backward()
            nn.utils.clip_grad_norm_(linear.parameters(), 1.0)
            optimizer.step()
            if schedule == "cosine":
                scheduler.step()
        torch.testing.assert_close(layer.weight[r], linear.weight.T, rtol=1e-4, atol=1e-5)
    assert len(drawn) == 15
    assert torch.stack(drawn).unique().numel() == 40
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_the_best_checkpoint_of_each_network_is_kept():
    layer = StackedLinear(SEEDS, "layer", 1, 1, bias=False)
    seen, script = [], iter([[3.0, 1.0], [float("nan"), 2.0], [2.0, 5.0], [2.0, 0.5]])

    def errors() -> torch.Tensor:
        seen.append(layer.weight.detach().clone())
        return torch.tensor(next(script))

    config = FitConfig(updates=10, batch=2, learning_rate=0.1)
    fit_stack(
        layer, lambda rows: layer(torch.ones(2, 2, 1)).square().mean((1, 2)), 4, SEEDS, config, Selection(errors, 3)
    )
    assert len(seen) == 4  # after updates 3, 6, 9 and the last one
    torch.testing.assert_close(layer.weight[0], seen[2][0], rtol=0, atol=0)
    torch.testing.assert_close(layer.weight[1], seen[3][1], rtol=0, atol=0)


def test_a_diverged_fit_is_named():
    layer = StackedLinear(SEEDS, "layer", 1, 1)
    with pytest.raises(RuntimeError, match=r"seeds \[5\] diverged"):
        fit_stack(
            layer,
            lambda rows: (layer(torch.ones(2, 1, 1)) * torch.tensor([1.0, float("nan")]).view(2, 1, 1)).sum((1, 2)),
            4,
            SEEDS,
            FitConfig(updates=2, batch=1),
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"updates": 0},
        {"batch": 0},
        {"stack": 0},
        {"clip": 0.0},
        {"learning_rate": float("nan")},
        {"weight_decay": -1.0},
    ],
)
def test_illegal_budgets_are_refused(changes):
    with pytest.raises(ValueError, match=f"FitConfig.{next(iter(changes))}"):
        FitConfig(**changes)
    with pytest.raises(ValueError, match="legal: constant, cosine"):
        FitConfig(schedule="linear")  # type: ignore[arg-type]
