"""The compiled loops against float64, against torch, and where there is no compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sprii_train import kernels
from sprii_train.modules import CausalBlock
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


# Attention


def explicit(q: Tensor, k: Tensor, v: Tensor, kept: Tensor, p: float) -> Tensor:
    """Each query with its keys alone, (B, T, heads, d) in float64; the last query sees every key."""
    past, rows = k.shape[1] - q.shape[1], []
    for i in range(q.shape[1]):
        seen = past + i + 1
        scores = torch.einsum("bhd,bjhd->bhj", q[:, i], k[:, :seen]) / q.shape[-1] ** 0.5
        weights = scores.softmax(-1) * kept[:, :, i, :seen] / (1 - p)
        rows.append(torch.einsum("bhj,bjhd->bhd", weights, v[:, :seen]))
    return torch.stack(rows, 1)


@needs_compiler
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "d"),
    [
        (24, 24, 4, 16),
        (24, 24, 8, 24),
        (1, 24, 4, 16),
        (5, 9, 3, 7),
        (1, 1, 2, 4),
        (64, 64, 1, 64),
        (33, 37, 2, 40),
        (96, 96, 2, 16),
        (70, 81, 2, 96),
    ],
)
def test_attention_equals_float64(queries: int, keys: int, heads: int, d: int, dtype: torch.dtype, p: float):
    generator = torch.Generator().manual_seed(queries + keys)
    q, k, v, slope = (
        torch.randn(3, t, heads, d, generator=generator).mul_(s).to(dtype)
        for t, s in ((queries, 3.0), (keys, 1.0), (keys, 1.0), (queries, 1.0))
    )
    bits = torch.randint(-32768, 32768, (3, heads, queries, keys), generator=generator).to(torch.int16)
    assert kernels.attends(q, k)
    a, b, c = exact = [x.double().requires_grad_() for x in (q, k, v)]
    expected = explicit(a, b, c, (bits >= (p - 0.5) * 65536) if p else torch.ones_like(bits), p)
    expected.backward(slope.double())
    together = queries == keys
    first = (torch.stack([q, k, v], 2) if together else q).requires_grad_()
    second = None if together else torch.stack([k, v], 2).requires_grad_()
    got = kernels.attention(first, second, bits if p else None, p)
    got.backward(slope)
    found = [x.grad for x in (first, second) if x is not None and x.grad is not None]
    gradients = found[0].unbind(2) if together else (found[0], *found[1].unbind(2))
    tolerance = 2e-6 if dtype == torch.float32 else 5e-3
    assert got.dtype == dtype
    rights = [x.grad for x in exact if x.grad is not None]
    for mine, right in zip((got.detach(), *gradients), (expected.detach(), *rights), strict=True):
        assert float((mine.double() - right).norm()) < tolerance * float(right.norm()) + 1e-12


@needs_compiler
def test_attention_that_is_not_finite_stays_so_and_is_of_its_own_row():
    qkv = torch.randn(3, 8, 3, 2, 4)
    qkv[1, 2, 0, 0, 0] = float("nan")
    finite = kernels.attention(qkv, None, None, 0.0).isfinite().all(-1)
    assert [tuple(at) for at in finite.logical_not().nonzero().tolist()] == [(1, 2, 0)]


@needs_compiler
@pytest.mark.parametrize("last", [None, "last"])
def test_a_block_is_the_same_by_the_loop_and_by_torch(last: str | None):
    """With the same masks of dropout; `last` is one query to all keys."""

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        block, x = CausalBlock(32, 4, 0.2).train(), torch.randn(5, 11, 32, requires_grad=True)
        y = block(x, last)  # type: ignore[arg-type]
        y.square().sum().backward()
        return [y, *(g.grad for g in (x, *block.parameters()) if g.grad is not None)]

    compiled = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "library", lambda: None)
        plain = run()
    assert len(compiled) == len(plain) == 14
    for mine, right in zip(compiled, plain, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)


def test_what_attention_does_not_take():
    q = torch.zeros(1, 8, 2, 4)
    assert not kernels.attends(q.double(), q.double())
    assert not kernels.attends(q, q.bfloat16())
    assert not kernels.attends(q, torch.zeros(1, 97, 2, 4))
    assert not kernels.attends(q, q[:, :4])
    assert not kernels.attends(torch.zeros(1, 8, 2, 97), torch.zeros(1, 8, 2, 97))
