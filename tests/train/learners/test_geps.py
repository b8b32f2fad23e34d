"""GEPS: its low-rank weights by hand, its loss, and adaptation from the mean of the training codes."""

from dataclasses import replace

import torch

from sprii_envs.banks import Store
from sprii_train.fields.environments import EnvironmentFields
from sprii_train.fields.windows import PairedFields
from sprii_train.learners import GEPS, GEPSConfig
from sprii_train.protocol import Objective, check_learner, training_loss

SMALL = GEPSConfig(points=17, frames=9, width=6, adapt_steps=3)


def new_learner(config: GEPSConfig = SMALL) -> GEPS:
    torch.manual_seed(5)
    return GEPS(config)


def test_the_papers_sizes():
    c = GEPSConfig()
    assert (c.code, c.kernel, c.width, c.layers, c.adapt_rate, c.adapt_steps) == (4, 7, 64, 4, 0.01, 50)


def test_a_code_changes_every_layer_by_a_low_rank():
    decoder, codes = new_learner().decoder, torch.randn(3, 4)
    for moves in (*decoder.bias_maps, decoder.slope_map):
        moves.data.normal_()
    found = decoder.weights(codes)
    for i, kernel in enumerate(found.kernels):
        for row, code in enumerate(codes):
            expected = decoder.kernels[i] + decoder.left[i] @ torch.diag(code) @ decoder.right[i]
            torch.testing.assert_close(kernel[row].flatten(1), expected)
            torch.testing.assert_close(found.biases[i][row], decoder.biases[i] + code @ decoder.bias_maps[i])
    torch.testing.assert_close(found.slopes, decoder.slopes + codes @ decoder.slope_map)


def test_codes_of_zero_are_one_network_and_the_slopes_map_begins_at_zero():
    decoder = new_learner().decoder
    assert decoder.slope_map.abs().sum() == 0.0
    found = decoder.weights(torch.zeros(2, 4))
    for kernel, own in zip(found.kernels, decoder.kernels, strict=True):
        torch.testing.assert_close(kernel[0].flatten(1), own.data)
        assert torch.equal(kernel[0], kernel[1])
    shape = decoder.kernels[1].shape
    assert shape == (6, 42)
    torch.testing.assert_close(decoder.kernels[1] @ decoder.kernels[1].T, torch.eye(6))  # orthogonal


def test_the_operations_and_the_relative_error(field_bank: Store):
    paired = PairedFields(field_bank, field_bank.split("train"), pairs=4, seed=1, condition="self")
    windows, learner = EnvironmentFields(paired)(0), new_learner()
    check_learner(learner, windows)  # type: ignore[arg-type]
    learner.train().at_step(1, 9)
    loss, _ = training_loss(learner, windows, Objective(native_on="recipients"))  # type: ignore[arg-type]
    starts = learner.prepare(windows).u[1][0].nonzero().flatten()
    own = windows.fields[4:]
    error = learner.forecast(own, learner.codes[windows.systems[4:]], starts) - own
    torch.testing.assert_close(loss, (error.flatten(1).norm(dim=1) / own.flatten(1).norm(dim=1)).mean())


def test_adaptation_begins_at_the_mean_code_and_lowers_the_squared_error():
    learner = new_learner(replace(SMALL, adapt_steps=300)).eval()
    learner.codes.data.normal_(0.3, 0.1)
    mean, first = learner.codes.data.mean(0), torch.randn(2, 1, 17)
    first[..., -1] = first[..., 0]
    planted = mean + torch.tensor([[0.3, 0.0, -0.3, 0.2], [0.0, -0.3, 0.2, 0.0]])
    fields = learner.forecast(first, planted).detach()
    torch.testing.assert_close(learner.start.data, mean)
    with torch.no_grad():
        found = learner.encode_history(fields)
        start, end = (
            (learner.forecast(first, code) - fields).square().mean((1, 2)) for code in (mean.expand(2, -1), found)
        )
    assert (end < 0.01 * start).all(), (start, end)
    one = learner.adapt(fields, mean.expand(2, -1), steps=1)
    torch.testing.assert_close((one - mean).abs(), torch.full((2, 4), 0.01), rtol=1e-3, atol=1e-5)  # a step of Adam
