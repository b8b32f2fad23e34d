"""Networks on a ring against torch's convolutions, and rollouts against the exponential and a loop by hand."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sprii_train.fields.rings import RingWeights, ring_network
from sprii_train.fields.rolling import Solver, euler, restarts, rk4, rolled


@pytest.mark.parametrize("width", [1, 3, 7])
def test_every_row_goes_through_its_own_convolutions(width: int):
    rows, channels = 3, (1, 5, 4, 1)
    shapes = [(b, a, width) for a, b in pairwise(channels)]
    weights = RingWeights(
        [torch.randn(rows, *shape) for shape in shapes],
        [torch.randn(rows, shape[0]) for shape in shapes],
        torch.randn(rows, 2),
    )
    fields = torch.randn(rows, 6, 12)
    found = ring_network(weights, fields)
    for row in range(rows):
        x, side = fields[row, :, None], width // 2
        for i in range(3):
            padded = F.pad(x, (side, side), mode="circular")
            x = F.conv1d(padded, weights.kernels[i][row], weights.biases[i][row])
            if i < 2:
                x = x * torch.sigmoid(x * F.softplus(weights.slopes[row, i])) / 1.1
        torch.testing.assert_close(found[row], x[:, 0], rtol=1e-4, atol=1e-4)
    grouped = fields.transpose(0, 1)  # the published forward: rows as groups of one convolution
    for i, (out, _, _) in enumerate(shapes):
        padded = F.pad(grouped, (width // 2, width // 2), mode="circular")
        grouped = F.conv1d(padded, weights.kernels[i].flatten(0, 1), weights.biases[i].flatten(), groups=rows)
        if i < 2:
            slope = F.softplus(weights.slopes[:, i]).repeat_interleave(out)[:, None]
            grouped = grouped * torch.sigmoid(grouped * slope) / 1.1
    torch.testing.assert_close(found, grouped.transpose(0, 1), rtol=1e-4, atol=1e-4)


def test_a_ring_has_no_ends():
    """Turning the field turns the result."""
    shapes = [(4, 1, 3), (1, 4, 3)]
    weights = RingWeights(
        [torch.randn(1, *shape) for shape in shapes], [torch.randn(1, s[0]) for s in shapes], torch.zeros(1, 1)
    )
    fields = torch.randn(1, 2, 9)
    torch.testing.assert_close(ring_network(weights, fields.roll(4, -1)), ring_network(weights, fields).roll(4, -1))


@pytest.mark.parametrize(("solver", "order"), [(euler, 1), (rk4, 4)])
def test_the_order_of_a_solver(solver: Solver, order: int):
    """y' = a·y from 1 in unit time is exp(a); half the step leaves 2^-order of the error."""
    rates = torch.tensor([[-2.0, 0.5, 1.5]], dtype=torch.float64)

    def error(frames: int) -> Tensor:
        begin = torch.ones(1, 1, 3, dtype=torch.float64)
        path = rolled(lambda y: rates * y, begin, torch.tensor([0]), frames, solver)
        assert path.shape == (1, frames, 3)
        return (path[0, -1] - rates[0].exp()).abs()

    fell = (error(21) / error(41)).log2()
    assert (fell - order).abs().max() < 0.15, fell
    assert error(101).max() < (0.1 if order == 1 else 1e-7)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_stretches_side_by_side_are_the_loop_frame_by_frame(share: float):
    frames, truth = 11, torch.randn(2, 11, 4, dtype=torch.float64)

    def flow(y: Tensor) -> Tensor:
        return torch.sin(y) + y.roll(1, -1)

    starts = restarts(frames, share, 3, 7)
    expected, y = [truth[:, 0]], truth[:, 0]
    for frame in range(frames - 1):
        if frame in starts.tolist():
            y = truth[:, frame]
        y = rk4(flow, y, 0.1)
        expected.append(y)
    torch.testing.assert_close(rolled(flow, truth, starts, frames, rk4), torch.stack(expected, 1))


def test_restarts_are_a_share_of_inner_frames_by_seed_and_step():
    assert restarts(9, 0.0, 0, 0).tolist() == [0]
    assert restarts(9, 1.0, 0, 0).tolist() == list(range(8))  # nothing is predicted from the last
    drawn = [restarts(101, 0.3, 5, step) for step in range(200)]
    mean = sum(len(d) - 1 for d in drawn) / len(drawn)
    assert abs(mean - 0.3 * 99) < 4 * math.sqrt(0.3 * 0.7 * 99 / len(drawn))
    assert torch.equal(drawn[3], restarts(101, 0.3, 5, 3))
    assert not torch.equal(drawn[3], drawn[4])
