"""The compiled loops against float64, against torch, and where there is no compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sprii_train import kernels
from sprii_train.objectives import sigreg, sigreg_directions

needs_compiler = pytest.mark.skipif(kernels.library() is None, reason="no C compiler")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "library", lambda: None)


def value_and_gradient(z: Tensor, slices: int, knots: int = 17) -> tuple[float, Tensor]:
    z = z.clone().requires_grad_()
    value = sigreg(z, sigreg_directions(z.shape[-1], slices, seed=1, step=2), knots=knots)
    value.backward()
    assert z.grad is not None
    return value.item(), z.grad


SHAPES = [(27, 96, 128, 1024), (2592, 128, 130), (3, 5, 7, 37), (2, 4, 1), (3, 1, 4, 16), (9_000, 4, 70)]


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_sigreg_equals_float64(shape: tuple[int, ...], scale: float):
    """Off the null, of unlike scales, with rests of every block; float64 never goes by the compiled loop."""
    z = scale * torch.randn(shape[:-1]) * torch.linspace(0.2, 2.0, shape[-2]) + 0.1
    value, gradient = value_and_gradient(z, shape[-1])
    expected, exact = value_and_gradient(z.double(), shape[-1])
    assert value == pytest.approx(expected, rel=1e-5)
    assert float((gradient - exact).norm() / exact.norm()) < 3e-5


@needs_compiler
def test_projections_beyond_the_compiled_loop_are_torchs():
    z = torch.randn(8, 6)
    z[3] *= 1e6
    value, gradient = value_and_gradient(z, 40)
    assert torch.isfinite(gradient).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "library", lambda: None)
        expected, exact = value_and_gradient(z, 40)
    assert value == expected
    assert torch.equal(gradient, exact)


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(bad: float):
    z = torch.randn(8, 6)
    z[3, 2] = bad
    assert not torch.isfinite(torch.tensor(value_and_gradient(z, 40)[0]))


@needs_compiler
def test_threads_share_the_work_and_change_nothing():
    z, threads = torch.randn(3, 40, 16), torch.get_num_threads()
    one, gradient = value_and_gradient(z, 100)
    try:
        torch.set_num_threads(3)
        several, shared = value_and_gradient(z, 100)
    finally:
        torch.set_num_threads(threads)
    assert several == pytest.approx(one, rel=1e-6)
    torch.testing.assert_close(shared, gradient, rtol=1e-5, atol=1e-8)


def test_without_a_compiler_it_is_torchs(plain: None):
    z = torch.randn(3, 40, 16) * 1.3
    assert not kernels.fits(z)
    value, gradient = value_and_gradient(z, 100)
    expected, exact = value_and_gradient(z.double(), 100)
    assert value == pytest.approx(expected, rel=1e-5)
    assert float((gradient - exact).norm() / exact.norm()) < 3e-5


@pytest.mark.parametrize(
    ("setting", "there"),
    [({}, True), ({"CC": "no-such-compiler"}, False), ({"CC": "false"}, False), ({"SPRII_KERNELS": "off"}, False)],
    ids=["as it is", "no compiler", "one that fails", "switched off"],
)
def test_what_is_missing_is_said_by_nothing_but_none(setting: dict[str, str], there: bool, tmp_path: Path):
    """In a process of its own: quietly, and the compiled file is kept and used again."""
    if there and kernels.library() is None:
        pytest.skip("no C compiler")
    code = "from sprii_train import kernels; print(kernels.library() is not None)"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)} | setting
    for _ in range(1 + there):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout.strip(), done.stderr) == (str(there), "")
        written = sorted(p.name for p in tmp_path.glob("sprii/*"))
        assert len(written) == there
