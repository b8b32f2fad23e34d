"""Layers whose activation is fused into the product: what torch's own path gives, and where they are not taken."""

import pytest
import torch
import torch.nn.functional as F

from sprii_train.learners import CaDM, CaDMConfig, products
from sprii_train.learners.products import fused_layer, fusible

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@needs_onednn
@pytest.mark.parametrize(("activation", "function"), [("swish", F.silu), ("relu", F.relu), ("none", lambda x: x)])
@pytest.mark.parametrize("rows", [1, 7, 512])
def test_a_layer_against_its_formula_in_float64(rows, activation, function):
    drawn = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows, 14, generator=drawn), torch.randn(14, 200, generator=drawn) / 4
    bias = torch.randn(200, generator=drawn)
    with torch.inference_mode():
        found = fused_layer(x, weight, bias, activation)
    assert found.dtype == torch.float32  # no smaller type inside: the error is that of float32 sums of 14
    torch.testing.assert_close(
        found.double(), function(x.double() @ weight.double() + bias.double()), atol=2e-6, rtol=0
    )


@needs_onednn
@pytest.mark.parametrize("members", [1, 3])
def test_planning_and_training_compute_the_same(members, monkeypatch):
    """CaDM steps and infers contexts alike with and without the fused layers; with gradients there are none."""
    learner = CaDM(CaDMConfig(members=members), seed=0)
    drawn = torch.Generator().manual_seed(1)
    observation, action, context = (torch.randn(9, n, generator=drawn) for n in (3, 1, 10 * members))
    inputs = torch.randn(9, 40, generator=drawn)

    def found():
        return learner.step(observation, action, context), learner.encode(inputs)

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    calls, real = [], products._LINEAR
    if real is not None:
        monkeypatch.setattr(products, "_LINEAR", lambda *args: calls.append(1) or real(*args))
    recorded = found()
    assert not calls
    assert all(each.requires_grad for each in recorded)
    with torch.no_grad():
        for fused, own in zip(found(), recorded, strict=True):
            torch.testing.assert_close(fused, own.detach(), atol=1e-6, rtol=1e-5)
    assert len(calls) == (0 if real is None else members * 9)  # five layers of each forward model, four of each encoder


def test_what_is_not_fused(monkeypatch):
    x = torch.zeros(2, 3)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert not fusible(x)  # a gradient may be wanted
    with torch.no_grad():
        assert not fusible(x.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not fusible(x)
        assert fusible(x) == (products._LINEAR is not None and torch.backends.mkldnn.is_available())
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not fusible(x)  # there oneDNN's activations are slow
