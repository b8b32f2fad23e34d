"""Perceptrons in C: what torch's own layers give, on rows and widths that fill no tile, and where they are not taken."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sprii_train import kernels
from sprii_train.learners import CaDM, CaDMConfig, cadm
from sprii_train.learners.products import fusible, perceptron

needs_compiler = pytest.mark.skipif(kernels.library() is None, reason="no C compiler")
FUNCTIONS = {"none": lambda x: x, "relu": F.relu, "silu": F.silu}


def exact(x, layers, activation):
    x = x.double()
    for i, (weight, bias) in enumerate(layers):
        x = (FUNCTIONS[activation](x) if i else x) @ weight.double() + bias.double()
    return x


@needs_compiler
@settings(deadline=None, max_examples=150)
@given(
    rows=st.integers(0, 230),
    widths=st.lists(st.integers(1, 70), min_size=2, max_size=5),
    activation=st.sampled_from(sorted(FUNCTIONS)),
    seed=st.integers(0, 99),
)
def test_networks_against_their_formula_in_float64(rows, widths, activation, seed):
    drawn = torch.Generator().manual_seed(seed)
    layers = [
        (torch.randn(a, b, generator=drawn) / a**0.5, torch.randn(b, generator=drawn))
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]
    x = torch.randn(rows, widths[0], generator=drawn)
    with torch.inference_mode():
        found = perceptron(x, layers, activation)
    assert found.dtype == torch.float32  # no smaller type inside: the error is that of float32 sums
    torch.testing.assert_close(found.double(), exact(x, layers, activation), atol=2e-5, rtol=0)


@needs_compiler
@pytest.mark.parametrize("activation", sorted(FUNCTIONS))
def test_activations_far_from_zero_and_of_no_number(activation):
    """A layer of ones copies its inputs; the last layer has no activation, so that the first one's is what is seen."""
    inf = float("inf")
    x = torch.tensor([0.0, -0.0, 1e-30, -3.0, 3.0, 40.0, -40.0, 86.0, -86.0, -90.0, -2e4, 2e4, -3e38, 3e38, inf])
    one, zero = torch.ones(1, 1), torch.zeros(1)
    with torch.inference_mode():
        found = perceptron(x[:, None], [(one, zero)] * 2, activation)[:, 0]
        spoilt = perceptron(torch.full((9, 1), float("nan")), [(one, zero)] * 2, activation)
    torch.testing.assert_close(found.double(), FUNCTIONS[activation](x.double()), rtol=1e-6, atol=1e-35)
    assert spoilt.isnan().all()


@needs_compiler
def test_two_threads_compute_the_same_bits():
    drawn, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    layers = [(torch.randn(30, 30, generator=drawn), torch.randn(30, generator=drawn)) for _ in range(3)]
    x = torch.randn(1000, 30, generator=drawn)
    with torch.inference_mode():
        alone = perceptron(x, layers, "silu")
        try:
            torch.set_num_threads(2)
            assert torch.equal(perceptron(x, layers, "silu"), alone)
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("members", [1, 3])
def test_planning_and_training_compute_the_same(members, monkeypatch):
    """CaDM steps and infers contexts alike with and without the compiled networks; with gradients there are none."""
    learner = CaDM(CaDMConfig(members=members), seed=0)
    drawn = torch.Generator().manual_seed(1)
    observation, action, context = (torch.randn(9, n, generator=drawn) for n in (3, 1, 10 * members))
    inputs = torch.randn(9, 40, generator=drawn)

    def found():
        return learner.step(observation, action, context), learner.encode(inputs)

    calls = []
    monkeypatch.setattr(cadm, "perceptron", lambda *args: calls.append(1) or perceptron(*args))
    recorded = found()
    assert not calls
    assert all(each.requires_grad for each in recorded)
    with torch.no_grad():
        for fused, own in zip(found(), recorded, strict=True):
            torch.testing.assert_close(fused, own.detach(), atol=1e-6, rtol=1e-5)
    assert len(calls) == (0 if kernels.library() is None else 2 * members)  # forward models and encoders


def test_what_is_not_taken():
    x = torch.zeros(2, 3)
    assert not fusible(x)  # a gradient may be wanted
    with torch.no_grad():
        assert not fusible(x.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not fusible(x)
        assert fusible(x) == (kernels.library() is not None)
