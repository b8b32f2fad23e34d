"""Align, Cross, the relational InfoNCE and SIGReg against golden values, NumPy and the textbook formulas."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_train.objectives import align, cross, relational_info_nce, sigreg, sigreg_directions


def pair(n: int = 12, d: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    a = torch.randn(n, d, generator=g, dtype=torch.float64)
    return a.to(dtype), (0.7 * a + 0.4 * torch.randn(n, d, generator=g, dtype=torch.float64)).to(dtype)


def numpy_align(a: np.ndarray, b: np.ndarray, target: float = 1.0, eps: float = 1e-4) -> tuple[float, float, float]:
    n, d = a.shape
    invariance = sum((a[i, j] - b[i, j]) ** 2 for i in range(n) for j in range(d)) / (n * d)
    variance = covariance = 0.0
    for codes in (a, b):
        c = np.cov(codes, rowvar=False, ddof=1)
        variance += np.maximum(0.0, target - np.sqrt(np.diag(c) + eps)).mean() / 2
        covariance += (np.sum(c**2) - np.sum(np.diag(c) ** 2)) / d
    return invariance, variance, covariance


# Align


def test_align_golden():
    i = torch.arange(24, dtype=torch.float64)
    terms = align(torch.sin(i).view(6, 4), torch.cos(1.3 * i).view(6, 4))
    expected = (31.517357479683486, 0.9976609313873513, 0.23278374686264247, 0.7562405234336439)
    for value, golden in zip(terms, expected, strict=True):
        assert value.dtype == torch.float64
        assert float(value) == pytest.approx(golden, rel=1e-13)


@pytest.mark.parametrize(("n", "d", "target"), [(2, 1, 1.0), (7, 3, 1.0), (20, 6, 0.1), (9, 4, 3.0)])
def test_align_equals_numpy(n: int, d: int, target: float):
    a, b = pair(n, d)
    terms = align(a, b, target_std=target)
    expected = numpy_align(a.numpy(), b.numpy(), target) if d > 1 else None
    if expected is None:  # np.cov of one column is a scalar
        sd = [math.sqrt(float(x.var()) + 1e-4) for x in (a, b)]
        expected = (float((a - b).square().mean()), sum(max(0.0, target - s) for s in sd) / 2, 0.0)
    np.testing.assert_allclose([float(t) for t in terms[1:]], expected, rtol=1e-12, atol=1e-15)
    assert float(terms.total) == pytest.approx(25 * expected[0] + 25 * expected[1] + expected[2], rel=1e-12)


def test_align_invariances():
    a, b = pair()
    order = torch.tensor([5, 3, 1, 0, 2, 4, 11, 10, 9, 8, 7, 6])
    base, swapped = align(a, b), align(b, a)
    together, alone = align(a[order], b[order]), align(a[order], b)
    torch.testing.assert_close(tuple(base), tuple(swapped), rtol=1e-13, atol=0)
    torch.testing.assert_close(tuple(base), tuple(together), rtol=1e-12, atol=0)
    torch.testing.assert_close(base[2:], alone[2:], rtol=1e-12, atol=0)
    assert alone.invariance > 2 * base.invariance  # only I sees who is paired with whom
    shifted = align(a + 3.0, b + 3.0)
    torch.testing.assert_close(tuple(base), tuple(shifted), rtol=1e-11, atol=0)


def test_align_switches_and_weights():
    a, b = pair()
    _, i, v, c = align(a, b)
    for weights, expected in (
        ((25.0, 0.0, 0.0), 25 * i),
        ((0.0, 25.0, 0.0), 25 * v),
        ((0.0, 0.0, 1.0), c),
        ((0.0, 0.003, 2.0), 0.003 * v + 2 * c),
    ):
        total = align(a, b, invariance=weights[0], variance=weights[1], covariance=weights[2]).total
        assert float(total) == pytest.approx(float(expected), rel=1e-14)


def test_align_covariance_floor():
    """E C = 2(d−1)/(n−1) for independent N(0, 1) codes, within 5 standard errors of 300 draws."""
    n, d, draws = 96, 16, 300
    g = torch.Generator().manual_seed(0)
    c = torch.stack([align(*torch.randn(2, n, d, generator=g)).covariance for _ in range(draws)]).double()
    error = 5 * float(c.std()) / math.sqrt(draws)
    assert error < 0.02
    assert float(c.mean()) == pytest.approx(2 * (d - 1) / (n - 1), abs=error)


def test_align_at_collapse():
    """Equal codes: V = 1 − √ε = 0.99, everything else 0, and no gradient to escape by."""
    a = torch.full((8, 3), 0.7, dtype=torch.float64, requires_grad=True)
    b = torch.full((8, 3), 0.7, dtype=torch.float64, requires_grad=True)
    terms = align(a, b)
    assert float(terms.variance.detach()) == pytest.approx(0.99, abs=1e-12)
    assert terms.invariance.item() == terms.covariance.item() == 0.0
    terms.total.backward()
    assert not a.grad.any()
    assert not b.grad.any()


def test_align_gradient():
    a, b = (x.requires_grad_() for x in pair(5, 3))
    assert torch.autograd.gradcheck(lambda x, y: align(x, y, target_std=2.0).total, (a, b))
    grads = torch.autograd.grad(align(a, b).total, (a, b))
    assert all(g.abs().min() > 0 for g in grads)  # no side is detached


def test_align_in_float32_under_autocast():
    a, b = pair(48, 16, torch.float32)
    outside = align(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        inside, from_half = align(a, b), align(a.bfloat16(), b.bfloat16())
    assert tuple(inside) == tuple(outside)
    assert all(t.dtype == torch.float32 for t in (*inside, *from_half))
    assert tuple(from_half) == tuple(align(a.bfloat16().float(), b.bfloat16().float()))


def test_align_refuses():
    a, b = pair(1)
    with pytest.raises(ValueError, match=r"n >= 2 pairs.*n = 1"):
        align(a, b)
    with pytest.raises(ValueError, match=r"\(4, 3\) and \(4, 2\)"):
        align(torch.zeros(4, 3), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="of one shape"):
        align(torch.zeros(2, 4, 3), torch.zeros(2, 4, 3))


# Cross


def test_cross_is_the_mean_recipient_loss():
    z_s, z_p, u, y = torch.randn(4, 6, 2)
    got = cross(lambda s, p, c: s * p + c, lambda q, t: (q - t).square().sum(1), z_s, z_p, u, y)
    by_hand = sum(float(((z_s[i] * z_p[i] + u[i] - y[i]) ** 2).sum()) for i in range(6)) / 6
    assert float(got) == pytest.approx(by_hand, rel=1e-6)


# SIGReg

KNOTS, H = 17, 3.0 / 16


def constants() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t = np.arange(KNOTS) * H
    w = np.full(KNOTS, 2 * H)
    w[[0, -1]] = H
    return t, w, np.exp(-0.5 * t**2)


def textbook(z: Tensor, directions: Tensor) -> Tensor:
    """The eager formula, in z's precision, knots as an axis."""
    t, w, phi = (torch.from_numpy(c).to(z.dtype) for c in constants())
    y = (z @ directions.to(z.dtype))[..., None] * t  # (..., N, K, knots)
    real, imag = y.cos().mean(-3) - phi, y.sin().mean(-3)
    return (z.shape[-2] * (w * phi * (real.square() + imag.square())).sum(-1)).mean()


@pytest.mark.parametrize("shape", [(9, 4), (5, 12, 6), (2, 3, 7, 4)])
def test_sigreg_equals_the_textbook_in_float64(shape: tuple[int, ...]):
    z = torch.randn(shape, dtype=torch.float64) * 0.8 + 0.3
    directions = sigreg_directions(shape[-1], 32, seed=1, step=2)
    one, two = z.clone().requires_grad_(), z.clone().requires_grad_()
    value, expected = sigreg(one, directions), textbook(two, directions)
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    (3.0 * value).backward()
    (3.0 * expected).backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-13)


def test_sigreg_in_blocks_of_directions():
    """70 directions of so many rows in blocks of 64 and 6: the same statistic and gradient."""
    z, directions = torch.randn(2, 4000, 4, dtype=torch.float64), sigreg_directions(4, 70, seed=1, step=2)
    one, two = z.clone().requires_grad_(), z.clone().requires_grad_()
    value, expected = sigreg(one, directions), textbook(two, directions)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    value.backward()
    expected.backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("rank", [2, 4, 24])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_every_second_knot_gives_the_same_gradient(rank: int, scale: float):
    """Of batch-normalised embeddings of low and full rank and of collapsed ones: within 1 %, value within 0.2 %."""
    z = torch.randn(1000, rank, dtype=torch.float64) @ torch.randn(rank, 24, dtype=torch.float64)
    z = scale * (z - z.mean(0)) / z.std(0)
    directions = sigreg_directions(24, 64, seed=1, step=2)
    coarse, fine = z.clone().requires_grad_(), z.clone().requires_grad_()
    value, expected = sigreg(coarse, directions, knots=9), textbook(fine, directions)
    value.backward()
    expected.backward()
    assert coarse.grad is not None
    assert fine.grad is not None
    assert value.item() == pytest.approx(expected.item(), rel=2e-3)
    assert float((coarse.grad - fine.grad).norm() / fine.grad.norm()) < 0.01


def test_sigreg_gradcheck():
    z = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sigreg, (z, sigreg_directions(3, 8, seed=0, step=0)))


def test_sigreg_float32_is_close_to_float64():
    """Measured at this size: value 4e-7 relative, gradient 5e-7 of its norm; asserted at ten times that."""
    z = torch.randn(7, 96, 16, dtype=torch.float64) * 1.3
    directions = sigreg_directions(16, 128, seed=0, step=0)
    exact, single = z.clone().requires_grad_(), z.float().requires_grad_()
    a, b = sigreg(exact, directions), sigreg(single, directions)
    a.backward()
    b.backward()
    assert b.dtype == torch.float32
    assert b.item() == pytest.approx(a.item(), rel=3e-6)
    assert float((single.grad.double() - exact.grad).norm() / exact.grad.norm()) < 5e-6


def test_sigreg_ignores_autocast():
    z, directions = torch.randn(3, 20, 8), sigreg_directions(8, 16, seed=0, step=0)
    outside = sigreg(z, directions), sigreg(z.bfloat16().float(), directions)
    with torch.autocast("cpu", torch.bfloat16):
        inside, half = sigreg(z, directions), sigreg(z.bfloat16(), directions)
    assert torch.equal(inside, outside[0])
    assert torch.equal(half, outside[1])
    assert half.dtype == torch.float32
    assert torch.equal(sigreg(z, directions), sigreg(z.requires_grad_(), directions))


@pytest.mark.parametrize(("n", "d"), [(16, 4), (96, 24)])
def test_sigreg_null_floor(n: int, d: int):
    """Σ w_j φ_j (1 − φ_j²) = 1.0525 at any N and D, within 5 standard errors of 400 batches."""
    _, w, phi = constants()
    floor = float((w * phi * (1 - phi**2)).sum())
    assert floor == pytest.approx(1.0525, abs=5e-5)
    g = torch.Generator().manual_seed(5)
    draws = torch.stack(
        [sigreg(torch.randn(n, d, generator=g), sigreg_directions(d, 8, seed=9, step=s)).double() for s in range(400)]
    )
    error = 5 * float(draws.std()) / 20
    assert error < 0.25
    assert float(draws.mean()) == pytest.approx(floor, abs=error)


def test_sigreg_at_collapse():
    """0.40205·N at z = 0, with zero gradient: collapse is a stationary point of the statistic."""
    for n in (8, 40):
        z = torch.zeros(n, 6, dtype=torch.float64, requires_grad=True)
        value = sigreg(z, sigreg_directions(6, 64, seed=0, step=0))
        assert float(value.detach()) == pytest.approx(0.40205 * n, rel=2e-5)
        value.backward()
        assert float(z.grad.abs().max()) < 1e-14


def test_sigreg_of_far_spread_samples():
    """E T → N·Σ_{j≥1} w_j φ_j³ + Σ_{j≥1} w_j φ_j = 1.25970·N + 2.31217 for samples spread very wide.

    There both means vanish at t_j > 0, up to E(|mean|²) = 1/N, which is the second sum. At t = 0 both
    characteristic functions are 1 whatever the sample, so that knot adds nothing. The limit 1.44720·N that
    one also meets counts it as if it did: the difference is w_0 = 3/16 to the digit.
    """
    _, w, phi = constants()
    slope, rest = float((w * phi**3)[1:].sum()), float((w * phi)[1:].sum())
    assert slope == pytest.approx(1.25970, abs=5e-6)
    assert slope + H == pytest.approx(1.44720, abs=5e-6)
    n, g = 200, torch.Generator().manual_seed(1)
    draws = torch.stack(
        [
            sigreg(
                1e4 * torch.randn(n, 3, generator=g, dtype=torch.float64),
                sigreg_directions(3, 8, seed=0, step=s),
            )
            for s in range(300)
        ]
    )
    error = 5 * float(draws.std()) / math.sqrt(300)
    assert error < 4.0
    assert float(draws.mean()) == pytest.approx(slope * n + rest, abs=error)
    assert abs(float(draws.mean()) - (slope + H) * n) > 20.0


def test_sigreg_directions_are_pure():
    torch.manual_seed(1)
    a = sigreg_directions(6, 32, seed=4, step=7)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    b = sigreg_directions(6, 32, seed=4, step=7)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a, b)
    assert a.shape == (6, 32)
    torch.testing.assert_close(a.norm(dim=0), torch.ones(32), rtol=1e-6, atol=0)
    seen = {
        tuple(sigreg_directions(6, 4, seed=seed, step=step).flatten().tolist())
        for seed in range(5)
        for step in range(20)
    }
    assert len(seen) == 100
    isotropic = sigreg_directions(3, 20_000, seed=0, step=0)
    torch.testing.assert_close(isotropic @ isotropic.T / 20_000, torch.eye(3) / 3, rtol=0, atol=0.012)  # 5 SE


def test_sigreg_refuses():
    with pytest.raises(ValueError, match=r"5 features.*6"):
        sigreg(torch.zeros(4, 5), torch.zeros(6, 3))


# Relational InfoNCE


def info_nce_by_hand(a: np.ndarray, b: np.ndarray, temperature: float) -> float:
    """Anchor by anchor: −log of the positive's share among all the others."""
    codes, n, total = np.concatenate([a, b]), len(a), 0.0
    for i in range(2 * n):
        terms = {}
        for j in range(2 * n):
            if j != i:
                cosine = codes[i] @ codes[j] / (np.linalg.norm(codes[i]) * np.linalg.norm(codes[j]))
                terms[j] = math.exp(cosine / temperature)
        assert len(terms) == 2 * n - 1
        total -= math.log(terms[(i + n) % (2 * n)] / sum(terms.values()))
    return total / (2 * n)


@pytest.mark.parametrize(("n", "d", "temperature"), [(2, 3, 0.1), (7, 4, 0.07), (12, 5, 1.0)])
def test_info_nce_equals_the_double_loop(n: int, d: int, temperature: float):
    a, b = pair(n, d)
    got = relational_info_nce(a, b, temperature=temperature)
    assert got.dtype == torch.float64
    assert float(got) == pytest.approx(info_nce_by_hand(a.numpy(), b.numpy(), temperature), rel=1e-10)
    assert float(relational_info_nce(b, 3.0 * a, temperature=temperature)) == pytest.approx(float(got), rel=1e-10)


@pytest.mark.parametrize("temperature", [0.07, 0.2])
def test_info_nce_of_48_pairs_has_94_negatives(temperature: float):
    """log(2n − 1) for orthogonal codes at any temperature; log(1 + 94·e^{−1/τ}) for equal pairs, else orthogonal."""
    apart = torch.eye(96, dtype=torch.float64)
    assert float(relational_info_nce(apart[:48], apart[48:], temperature=temperature)) == pytest.approx(math.log(95))
    equal = torch.eye(48, dtype=torch.float64)
    wanted = math.log1p(94 * math.exp(-1.0 / temperature))
    assert float(relational_info_nce(equal, equal, temperature=temperature)) == pytest.approx(wanted, rel=1e-6)


def test_info_nce_pulls_pairs_together_and_keeps_its_precision():
    a, b = (x.requires_grad_() for x in pair(8, 5, torch.float32))
    loss = relational_info_nce(a, b, temperature=0.2)
    grad_a, grad_b = torch.autograd.grad(loss, (a, b))
    assert (grad_a.abs().sum(1) > 0).all()
    moved = relational_info_nce(a - 0.05 * grad_a, b - 0.05 * grad_b, temperature=0.2)
    assert moved < loss
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(relational_info_nce(a, b, temperature=0.2), loss)


@pytest.mark.parametrize(
    ("shapes", "temperature", "message"),
    [
        (((4, 3), (5, 3)), 0.1, r"needs two \(n >= 2, d\) matrices, got \(4, 3\) and \(5, 3\)"),
        (((1, 3), (1, 3)), 0.1, "n >= 2"),
        (((4,), (4,)), 0.1, r"got \(4,\)"),
        (((4, 3), (4, 3)), 0.0, r"temperature is 0\.0; legal"),
        (((4, 3), (4, 3)), float("nan"), "temperature is nan; legal"),
    ],
)
def test_info_nce_refuses(shapes: tuple, temperature: float, message: str):
    with pytest.raises(ValueError, match=message):
        relational_info_nce(*(torch.ones(shape) for shape in shapes), temperature=temperature)
