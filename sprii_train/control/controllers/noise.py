"""Random numbers that controllers draw, each a pure function of the generator's state.

They are drawn on the generator's device and moved: a CPU generator gives every device the same plans, a generator on
the device that plans saves the transfer.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

Shape = tuple[int, ...]
Draw = Callable[[Shape, torch.Generator, torch.device], Tensor]
"""Noise of a shape, drawn on the generator's device and moved."""


def uniform(shape: Shape, generator: torch.Generator, device: torch.device) -> Tensor:
    """Uniform in [−1, 1), float32."""
    return torch.rand(shape, generator=generator, device=generator.device).mul_(2).sub_(1).to(device)


def normal(shape: Shape, generator: torch.Generator, device: torch.device) -> Tensor:
    """Standard normal, float32."""
    return torch.randn(shape, generator=generator, device=generator.device).to(device)


def truncated_normal(shape: Shape, generator: torch.Generator, device: torch.device, limit: float = 2.0) -> Tensor:
    """Standard normal conditioned on ±`limit`, float32, by the inverse CDF: one uniform a number, none rejected.

    Its variance is below 1: 0.7737 at ±2.
    """
    return truncated_quantile(uniform(shape, generator, device), limit)


def truncated_quantile(uniform: Tensor, limit: float = 2.0) -> Tensor:
    """Numbers of the truncated normal law at which its CDF is (1 + `uniform`)/2; in place."""
    # erf⁻¹ of a uniform on ±erf(limit/√2) is the inverse CDF of the truncated law, over √2.
    return uniform.mul_(math.erf(limit / math.sqrt(2.0))).erfinv_().mul_(math.sqrt(2.0))


def coloured(shape: Shape, generator: torch.Generator, device: torch.device, beta: float) -> Tensor:
    """Gaussian noise along the second-to-last axis with power 1/f^`beta`, of mean 0 and variance 1 at every time.

    Real and imaginary parts of the spectrum are normal (Timmer and König, "On generating power law noise", 1995). The
    frequency 0 has the power of the lowest other one, so that whole sequences shift too. `beta` = 0 is white.

    Args:
        shape: (..., H, A): H times of A components, which are independent of each other.
    """
    *leading, times, components = shape
    amplitude = _amplitudes(times, beta).to(device)
    real, imaginary = normal((2, *leading, len(amplitude[0]), components), generator, device)
    spectrum = torch.complex(real * amplitude[0][:, None], imaginary * amplitude[1][:, None])
    return torch.fft.irfft(spectrum, n=times, dim=-2)


@lru_cache(maxsize=16)
def _amplitudes(times: int, beta: float) -> Tensor:
    """SDs of the real and imaginary parts of every frequency, (2, times // 2 + 1), for unit variance in time."""
    frequency = torch.fft.rfftfreq(times, dtype=torch.float64).clamp_min(1.0 / times)
    scale = frequency ** (-beta / 2.0)
    # Frequency 0, and the highest one of an even number of times, are real: all their power is in one part.
    alone = torch.zeros(len(scale), dtype=torch.bool)
    alone[0] = True
    alone[times // 2] |= times % 2 == 0
    power = (torch.where(alone, 1.0, 2.0) * scale.square()).sum() / times**2
    scale = scale / power.sqrt()
    return torch.stack(
        (torch.where(alone, scale, scale / math.sqrt(2.0)), torch.where(alone, 0.0, scale / math.sqrt(2.0)))
    ).float()
