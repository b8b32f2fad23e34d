"""Layers in C against float64 and against torch under autocast, and what they leave to torch."""

import copy

import pytest
import torch
from torch import Tensor, nn

from sprii_train import distributed, kernels
from sprii_train.layers import Perceptron, multiplies, product, through
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.objectives import sigreg, sigreg_directions

needs_products = pytest.mark.skipif(not multiplies(), reason="no compiler, or no products of bfloat16")
WIDTHS = [
    (4, 192, 192, 128),
    (208, 256, 256, 128),
    (2, 32, 32),
    (160, 64),
    (64, 256, 64),
    (5, 16, 48),
    (33, 80, 112, 16),
]


def gradients(network: nn.Module, x: Tensor, slope: Tensor, autocast: bool = True) -> list[Tensor]:
    """Output, and gradients of the input and of every parameter."""
    network.zero_grad()
    x = x.detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = network(x)
    y.backward(slope.to(y.dtype))
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


def error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).norm() / right.double().norm())


@needs_products
@pytest.mark.parametrize("rows", [1, 7, 96, 205])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_are_as_close_to_float64_as_torchs(
    widths: tuple[int, ...], rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    """Widths that fill no vector, rows that fill no block or tile; torch's own error is the measure."""
    torch.manual_seed(rows)
    network, x = Perceptron(*widths), torch.randn(rows, widths[0]).to(dtype)
    slope = torch.randn(rows, widths[-1]).bfloat16()
    exact = gradients(copy.deepcopy(network).double(), x.double(), slope, autocast=False)
    found = gradients(network, x, slope)
    monkeypatch.setattr(kernels, "library", lambda: None)
    plain = gradients(network, x, slope)
    assert [(a.dtype, a.shape) for a in found] == [(a.dtype, a.shape) for a in plain]
    for mine, torchs, right in zip(found, plain, exact, strict=True):
        assert error(mine, right) < max(5e-3, 1.3 * error(torchs, right))


@needs_products
def test_large_small_and_not_finite_inputs_go_through_gelu_as_in_torch(monkeypatch: pytest.MonkeyPatch):
    eye = [(torch.eye(16), torch.zeros(16))] * 2
    x = torch.tensor([-1e30, -80.0, -5.0, -4.5, -1.0, -1e-3, 0.0, 1e-3, 1.0, 4.5, 5.0, 80.0, 1e30, 2.0, -2.0, 0.5])
    with torch.autocast("cpu", torch.bfloat16):
        found = through(x, eye)
        spoilt = through(torch.where(x == 1.0, float("nan"), x).repeat(2, 1) * torch.tensor([[1.0], [0.0]]), eye)
        monkeypatch.setattr(kernels, "library", lambda: None)
        plain = through(x, eye)
    torch.testing.assert_close(found, plain, rtol=1e-2, atol=3e-4)
    assert spoilt[0].isnan().all()  # by the products with zero


@needs_products
def test_threads_share_rows(monkeypatch: pytest.MonkeyPatch):
    network, x, threads = Perceptron(20, 32, 16), torch.randn(500, 20), torch.get_num_threads()
    slope = torch.randn(500, 16)
    try:
        torch.set_num_threads(1)
        one = gradients(network, x, slope)
        torch.set_num_threads(3)
        several = gradients(network, x, slope)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one[0], several[0])
    for a, b in zip(one, several, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", ["float32", "float64", "odd width", "no kernels"])
def test_what_is_left_to_torch(what: str, monkeypatch: pytest.MonkeyPatch):
    """The same bits as a sequence of torch's modules."""
    if what == "no kernels":
        monkeypatch.setattr(kernels, "library", lambda: None)
    network, x = Perceptron(6, 32, 15 if what == "odd width" else 16), torch.randn(4, 5, 6)
    if what == "float64":
        network, x = network.double(), x.double()
    with torch.autocast("cpu", torch.bfloat16, enabled=what in ("odd width", "no kernels")):
        assert torch.equal(network(x), nn.Sequential.forward(network, x))


@pytest.mark.parametrize("width", [5, 7])
def test_inputs_of_another_width_are_refused_by_torch(width: int):
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="cannot be multiplied"):
        Perceptron(6, 32, 16)(torch.randn(4, width))


def test_no_rows_are_no_rows():
    network = Perceptron(6, 32, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = network(torch.randn(0, 6))
    y.sum().backward()
    assert y.shape == (0, 16)
    assert all(p.grad is not None and not p.grad.any() for p in network.parameters())


def test_names_are_those_of_a_sequence():
    assert list(Perceptron(3, 5, 2).state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


@needs_products
def test_a_product_is_of_rounded_factors_alone():
    a, b = torch.randn(101, 32), torch.randn(48, 32)
    right = a.bfloat16().double() @ b.bfloat16().double().T
    assert error(product(a, b, torch.float32), right) < 1e-6
    assert error(product(a, b, torch.bfloat16), right) < 2.5e-3


@needs_products
@pytest.mark.parametrize("shape", [(1, 500, 128), (7, 60, 32)], ids=str)
def test_sigreg_of_bfloat16_has_float64s_gradient_within_its_rounding(shape: tuple[int, ...]):
    z = (torch.randn(shape) * torch.linspace(0.3, 2.0, shape[-1]) + 0.1).bfloat16()
    directions = sigreg_directions(shape[-1], 128, seed=1, step=2)

    def run(z: Tensor, directions: Tensor) -> tuple[float, Tensor]:
        z = z.detach().requires_grad_()
        value = sigreg(z, directions, knots=9)
        value.backward()
        assert z.grad is not None
        return value.item(), z.grad

    (value, gradient), (expected, exact) = run(z, directions), run(z.double(), directions.double())
    assert gradient.dtype == torch.bfloat16
    assert value == pytest.approx(expected, rel=2e-3)
    assert error(gradient, exact) < 6e-3  # bfloat16 itself rounds it by 2e-3


def test_sigreg_of_bfloat16_elsewhere_is_float32s(monkeypatch: pytest.MonkeyPatch):
    assert distributed.world() == 1
    monkeypatch.setattr(kernels, "library", lambda: None)
    z, directions = torch.randn(40, 32).bfloat16(), sigreg_directions(32, 32, seed=0, step=0)
    assert torch.equal(sigreg(z, directions), sigreg(z.float(), directions))


@needs_products
def test_a_narrow_learner_has_torchs_embeddings(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    learner, states = JEPA(JEPAConfig(width=32, layers=2, heads=4)).eval(), torch.randn(6, 24, 4)
    actions = torch.randn(6, 23, 2)

    def run() -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            e = learner.embed(states, states[:, :0])
            return learner.encode_history((e, actions)).float()

    found = run()
    monkeypatch.setattr(kernels, "library", lambda: None)
    assert error(found, run()) < 2e-2
