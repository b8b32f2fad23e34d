"""Stairs of RMSprop by its formula, and Adam against torch's."""

import math

import pytest
import torch

from sprii_train.fit import what_matters
from sprii_train.schedules import Stairs, adam


def test_rmsprop_by_hand():
    layer = torch.nn.Linear(3, 2)
    config = Stairs(share=0.5, every=2)
    optimizer = config.optimizer(layer)
    initial = optimizer.defaults["lr"]
    assert initial == pytest.approx(0.5 / math.sqrt(8))
    weight, square = layer.weight.detach().double().clone(), torch.zeros(2, 3, dtype=torch.float64)
    for step in range(5):
        rate = config.rate(step, initial)
        assert rate == pytest.approx(initial * 0.95 ** [0, 0, 1, 1, 2][step])
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        layer(torch.ones(1, 3)).square().sum().backward()
        gradient = layer.weight.grad.double()  # pyright: ignore[reportOptionalMemberAccess]
        square = 0.99 * square + 0.01 * gradient**2
        weight -= rate * gradient / (square.sqrt() + 1e-8)
        optimizer.step()
        torch.testing.assert_close(layer.weight.double(), weight, atol=1e-5, rtol=1e-4)


def test_adamw_without_decay_is_adam():
    config, layers = adam(1e-2, 10), [torch.nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    optimizers = config.optimizer(layers[0]), torch.optim.Adam(layers[1].parameters(), lr=1e-2)
    assert {config.rate(step, 1.0) for step in range(10)} == {1e-2}
    for _ in range(4):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(layers[0].weight, layers[1].weight)


def test_what_a_run_is():
    assert what_matters(Stairs(every=3)) != what_matters(Stairs(every=4))
    with pytest.raises(ValueError, match=r"Stairs\.share is 0"):
        Stairs(share=0.0)
    with pytest.raises(ValueError, match=r"Stairs\.decay is 2"):
        Stairs(decay=2.0)
