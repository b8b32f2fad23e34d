"""The objectives as pure functions (`app:training-update`): no module state, no global randomness, no logging.

Statistics are taken in float32 whatever the autocast state (float64 inputs stay float64), because bfloat16
loses three of the digits that variances and characteristic functions need.

In a process group, Align, InfoNCE and SIGReg are of the rows of all ranks (`sprii_train.distributed`): call them on
every rank, with as many rows.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sprii_envs.arguments import instance, integer, number
from sprii_train import distributed, kernels
from sprii_train.devices import moved
from sprii_train.layers import LANES, multiplies, product


class AlignTerms(NamedTuple):
    """VICReg's three terms and their weighted sum; scalars."""

    total: Tensor
    invariance: Tensor
    variance: Tensor
    covariance: Tensor


def align(
    a: Tensor,
    b: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    target_std: float = 1.0,
    eps: float = 1e-4,
) -> AlignTerms:
    """VICReg on paired context codes, Align = 25·I + 25·V + C (`app:training-update`).

    I = ‖A−B‖²_F/(n·d); V = mean over the two branches of mean_j max(0, target_std − √(Var_j + ε));
    C = (1/d)·Σ_{i≠j}(Cov(A)²_ij + Cov(B)²_ij), not halved; variances and covariances divide by n − 1.
    No gradient is stopped. A weight of 0 switches a term off. For independent N(0, 1) codes C has the
    sampling floor 2(d−1)/(n−1); n counts families, so a batch with few systems raises it.

    Args:
        a: codes of the donors, (n, d).
        b: codes of the recipients, (n, d); row i is related to row i of `a`.
        target_std: standard deviation below which the variance hinge pushes.

    Raises:
        ValueError: if the shapes differ, are not two-dimensional, or n < 2, or for a weight or SD that is no number.
    """
    invariance, variance = float(number("invariance", invariance)), float(number("variance", variance))
    covariance, target_std = float(number("covariance", covariance)), float(number("target_std", target_std))
    eps = float(number("eps", eps, least=0))
    _codes(a=a, b=b)
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(
            f"align needs two (n, d) code matrices of one shape, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    a, b = distributed.gather(a), distributed.gather(b)
    n, d = a.shape
    if n < 2:
        raise ValueError(f"align needs n >= 2 pairs for a sample variance, got n = {n}")
    with torch.autocast(a.device.type, enabled=False):
        codes = torch.stack([_full(a), _full(b)])
        invariance_term = (codes[0] - codes[1]).square().sum() / (n * d)
        centred = codes - codes.mean(dim=1, keepdim=True)
        cov = centred.transpose(1, 2) @ centred / (n - 1)
        var = torch.diagonal(cov, dim1=1, dim2=2)
        variance_term = torch.relu(target_std - torch.sqrt(var + eps)).sum() / (2 * d)
        off_diagonal = cov - torch.diag_embed(var)
        covariance_term = off_diagonal.square().sum() / d
        total = invariance * invariance_term + variance * variance_term + covariance * covariance_term
    return AlignTerms(total, invariance_term, variance_term, covariance_term)


def _codes(**codes: Tensor) -> None:
    for name, each in codes.items():
        instance(name, each, of=Tensor)


def relational_info_nce(a: Tensor, b: Tensor, *, temperature: float) -> Tensor:
    """InfoNCE over related pairs (`app:poke-formation`): cosine similarities, one positive, 2n − 2 negatives an anchor.

    Every one of the 2n codes is an anchor, its related code the positive, and all the others the negatives (94 for
    48 pairs).

    Args:
        a, b: paired codes (n, d).

    Raises:
        ValueError: for unlike shapes, fewer than two pairs, or a temperature that is not positive.
    """
    _codes(a=a, b=b)
    if a.shape != b.shape or a.ndim != 2 or a.shape[0] * distributed.world() < 2:
        raise ValueError(
            f"relational_info_nce needs two (n >= 2, d) matrices, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    temperature = float(number("temperature", temperature, above=0))
    a, b = distributed.gather(a), distributed.gather(b)
    with torch.autocast(a.device.type, enabled=False):
        n = a.shape[0]
        codes = torch.nn.functional.normalize(torch.cat([_full(a), _full(b)]), dim=1)
        scores = codes @ codes.T / temperature
        itself = torch.eye(2 * n, dtype=torch.bool, device=a.device)
        positive = torch.arange(2 * n, device=a.device).roll(n)
        return torch.nn.functional.cross_entropy(scores.masked_fill(itself, float("-inf")), positive)


def cross(
    predict: Callable[[Tensor, Tensor, object], Tensor],
    task_loss: Callable[[Tensor, Tensor], Tensor],
    z_s: Tensor,
    z_p: Tensor,
    u: object,
    y: Tensor,
) -> Tensor:
    """Mean recipient loss ℓ_task(q(z_s, z_p, u), y) (Equation `eq:cross-prediction`).

    With the recipient's own z_p this is the self loss; with the donor's it is Cross. Nothing else differs.

    Args:
        predict: the learner's q.
        task_loss: (prediction, target) → per-recipient losses (n,).
        z_s: the recipients' current features (n, d_s).
        z_p: persistent contexts (n, d_p), own or donor's.
        u: permitted conditioning of the recipients.
        y: the recipients' targets.
    """
    return task_loss(predict(z_s, z_p, u), y).mean()


def sigreg_directions(
    dim: int, slices: int = 1024, *, seed: int, step: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Unit directions (dim, slices), a pure function of (seed, step), drawn on the CPU so that devices agree."""
    dim, slices = integer("dim", dim, least=1), integer("slices", slices, least=1)
    generator = torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) % 2**63)
    directions = torch.randn(dim, slices, generator=generator)
    return moved(directions / directions.norm(dim=0, keepdim=True).clamp_min(1e-12), device)


def sigreg(z: Tensor, directions: Tensor, *, knots: int = 17, extent: float = 3.0, gathered: bool = False) -> Tensor:
    """Sliced Epps–Pulley distance of z to an isotropic standard normal (LeJEPA's SIGReg).

    For each unit direction, with y its projection of the N samples,
    T = N·Σ_j w_j φ_j[(mean cos t_j y − φ_j)² + (mean sin t_j y)²], φ_j = exp(−t_j²/2), t_j equally spaced on
    [0, extent] and w_j = 2h inside, h at both ends. Returned is the mean of T over directions and leading axes.

    Public versions differ in the sample axis, the number of slices and the factor N, so weights do not carry
    over. Here samples are the second-to-last axis: for embeddings arranged (time, windows, features) the test
    is made over the windows of each time step, N is their number, and the steps are averaged. Expected values:
    1.0525 for standard normal z at any N; 0.40205·N (with zero gradient) for a collapsed z.

    In a process group each rank tests the samples of all ranks along its own share of the directions: the statistic is
    the mean of the ranks' values.

    Args:
        z: samples (..., N, D).
        directions: unit columns (D, K), see `sigreg_directions`.
        gathered: whether z has the samples of all ranks already (`distributed.gather`), as it must where ranks have
            unlike numbers of them.

    Raises:
        ValueError: if the feature sizes differ, or for fewer directions than ranks.
    """
    if z.shape[-1] != directions.shape[0]:
        raise ValueError(f"sigreg: z has {z.shape[-1]} features but the directions have {directions.shape[0]}")
    knots, extent = integer("knots", knots, least=2), number("extent", extent, above=0)
    ranks, slices = distributed.world(), directions.shape[1]
    if slices < ranks:
        raise ValueError(f"sigreg needs a direction for each of {ranks} ranks, got {slices}")
    z, own = z if gathered else distributed.gather(z, dim=-2), directions[:, distributed.rank() :: ranks]
    with torch.autocast(z.device.type, enabled=False):
        z = z if _halved(z, own) else _full(z)
        own = own.to(torch.promote_types(z.dtype, torch.float32))
        tested: Tensor = _SigReg.apply(z.reshape(-1, *z.shape[-2:]), own, knots, extent)  # type: ignore[assignment]
        return tested if ranks == 1 else tested * (own.shape[1] * ranks / slices)


_BLOCK = 250_000
"""Elements of a block of projections: a handful of such buffers stay near the cache."""
_FUSED_BLOCK = 500_000
"""The same of the compiled loop, which has one buffer; products of fewer rows are slower."""


class _SigReg(torch.autograd.Function):
    """One pass over the knots by angle addition; dT/dy is accumulated on the way, so backward is free.

    The textbook form keeps a tensor `knots` times larger than y for its backward pass. Here one block of projections is
    in cache at a time and only the gradient with respect to z is kept.
    """

    @staticmethod
    def forward(ctx, z: Tensor, directions: Tensor, knots: int, extent: float) -> Tensor:
        leading, n, _ = z.shape
        slices = directions.shape[1]
        h = extent / (knots - 1)
        t = torch.arange(knots, dtype=directions.dtype) * h  # on the CPU, where they are read
        phi = torch.exp(-0.5 * t * t)
        weights = torch.full_like(t, 2 * h)
        weights[0] = weights[-1] = h
        tested = _fused if z.dtype == torch.bfloat16 or kernels.fits(z) else _plain
        total, grad = tested(z, directions, h, weights * phi / n, phi * n)
        if z.requires_grad:
            ctx.save_for_backward(grad.mul_(2.0 / (slices * leading)))
        return total / (slices * leading)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = ctx.saved_tensors
        return grad * grad_outputs[0], None, None, None


def _fused(z: Tensor, directions: Tensor, h: float, weights: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of T over slices and half of its gradient, by the compiled loop; factors of bfloat16 where z is."""
    leading, n, _ = z.shape
    half, grad = z.dtype == torch.bfloat16, torch.zeros_like(z)
    total, block = 0.0, min(directions.shape[1], max(64, _FUSED_BLOCK // n // 64 * 64))
    together = max(1, _FUSED_BLOCK // (n * block))
    for first in range(0, directions.shape[1], block):
        columns = directions[:, first : first + block]
        for start in range(0, leading, together):
            rows = z[start : start + together].flatten(0, 1)
            y = product(rows, columns.T, torch.float32) if half else _product(rows, columns)
            part = kernels.sigreg(y.view(-1, n, columns.shape[1]), h, weights, phi, z.requires_grad)
            if part is None:
                return _plain(_full(z), directions, h, weights, phi)
            total += part
            if z.requires_grad:
                slope = product(y, columns, torch.bfloat16) if half else _product(y, columns.T)
                grad[start : start + together].add_(slope.view(-1, *z.shape[1:]))
    return weights.new_tensor(total), grad


def _plain(z: Tensor, directions: Tensor, h: float, weights: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch."""
    leading, n, _ = z.shape
    slices = directions.shape[1]
    grad, total = torch.zeros_like(z), z.new_zeros(())
    w, p = weights.tolist(), phi.tolist()
    block = min(slices, max(64, _BLOCK // n // 64 * 64))
    buffers = z.new_empty(6, n * block)
    for i, first in itertools.product(range(leading), range(0, slices, block)):
        columns = directions[:, first : first + block]
        held = buffers[:, : n * columns.shape[1]].view(6, n, -1)
        twice, slope, before, waves = held[0], held[1], held[2:4], held[4:]  # waves are cos and sin of j·h·y
        angle = _product(z[i], columns).mul_(h)
        torch.cos(angle, out=waves[0])
        torch.sin(angle, out=waves[1])
        torch.mul(waves[0], 2, out=twice)
        # Chebyshev: f_{j+1} = 2·cos(h·y)·f_j − f_{j−1} for cos(j·h·y) and sin(j·h·y) alike. Keeping f_j with the
        # signs + + − − + + … turns the subtraction into one fused in-place addition.
        before[0].fill_(1)
        before[1].zero_()
        slope.zero_()
        per_slice = z.new_zeros(columns.shape[1])
        for j in range(1, len(w)):  # at t = 0 both characteristic functions are 1
            real, imag = waves.sum(1)
            real.sub_((1.0 if j % 4 < 2 else -1.0) * p[j])
            per_slice.addcmul_(real, real, value=w[j]).addcmul_(imag, imag, value=w[j])
            if z.requires_grad:
                slope.addcmul_(waves[0], imag, value=w[j] * j * h)
                slope.addcmul_(waves[1], real, value=-w[j] * j * h)
            if j + 1 < len(w):
                before.addcmul_(twice, waves, value=-1.0 if j % 2 else 1.0)
                before, waves = waves, before
        total += per_slice.sum()
        if z.requires_grad:
            grad[i].add_(_product(slope, columns.T))
    return total, grad


def _halved(z: Tensor, directions: Tensor) -> bool:
    """Whether z, of an autocast network, is multiplied as it is: its gradient is rounded to bfloat16 anyway."""
    whole = not (z.shape[-1] % LANES or directions.shape[1] % LANES)
    return z.device.type == "cpu" and z.dtype == torch.bfloat16 and whole and multiplies()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b; on CPUs in float32 by oneDNN, which is twice as fast as MKL on AMD's (and 2,000 times slower on views)."""
    if a.device.type == "cpu" and a.dtype == torch.float32 and _ONEDNN:
        return torch.ops.mkldnn._linear_pointwise(a.contiguous(), b.T.contiguous(), None, "none", [], "")
    return a @ b


_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
