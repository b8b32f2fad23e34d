"""Noise of controllers against its closed forms: truncated normal moments and law, coloured spectra."""

import numpy as np
import pytest
import torch
from scipy import stats

from sprii_train.control.controllers.noise import coloured, normal, truncated_normal, truncated_quantile, uniform

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("limit", [0.5, 2.0, 3.0])
def test_truncated_normal_has_the_moments_and_the_law_of_scipys(limit: float):
    drawn = truncated_normal((200_000,), generator(), CPU, limit).double().numpy()
    law = stats.truncnorm(-limit, limit)
    n = len(drawn)
    assert drawn.mean() == pytest.approx(0.0, abs=4 * law.std() / n**0.5)
    for power in (2, 4):
        noise = np.sqrt((law.moment(2 * power) - law.moment(power) ** 2) / n)
        assert (drawn**power).mean() == pytest.approx(law.moment(power), abs=4 * noise)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3
    assert np.abs(drawn).max() <= limit * (1 + 1e-6)


def test_truncated_normal_is_finite_at_the_ends_of_the_uniform():
    ends = torch.tensor([-1.0, 0.0, 1.0 - 2**-24])
    assert truncated_quantile(ends).tolist() == pytest.approx([-2.0, 0.0, 2.0], abs=1e-5)


def periodogram(beta: float, times: int, n: int = 4000) -> np.ndarray:
    """Mean power at each frequency of the discrete Fourier transform."""
    drawn = coloured((n, times, 2), generator(1), CPU, beta).double().numpy()
    return (np.abs(np.fft.rfft(drawn, axis=1)) ** 2).mean((0, 2))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0, 3.5])
@pytest.mark.parametrize("times", [30, 31])
def test_coloured_noise_has_the_exponent_of_its_spectrum(beta: float, times: int):
    power = periodogram(beta, times)[1:]
    frequency = np.arange(1, len(power) + 1) / times
    slope = np.polyfit(np.log(frequency), np.log(power), 1)[0]
    assert -slope == pytest.approx(beta, abs=0.05)
    expected = frequency**-beta
    assert power / power.sum() == pytest.approx(expected / expected.sum(), rel=0.12)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("times", [1, 2, 5, 30])
def test_coloured_noise_is_standard_at_every_time(beta: float, times: int):
    drawn = coloured((30_000, times, 2), generator(), CPU, beta)
    assert drawn.shape == (30_000, times, 2)
    assert drawn.mean(0).abs().max() < 0.03
    assert drawn.var(0) == pytest.approx(torch.ones(times, 2), abs=0.05)
    between = (drawn[:, :, 0] * drawn[:, :, 1]).mean()
    assert float(between) == pytest.approx(0.0, abs=0.03)
    if times > 1:
        assert stats.kstest(drawn[:, 1, 0].numpy(), "norm").pvalue > 1e-3


def test_without_colour_times_are_independent():
    drawn = coloured((50_000, 6, 1), generator(), CPU, 0.0)[:, :, 0]
    assert torch.corrcoef(drawn.T) == pytest.approx(torch.eye(6), abs=0.02)
    smooth = coloured((50_000, 6, 1), generator(), CPU, 2.0)[:, :, 0]
    # Of neighbours: frequencies 0, 1, 2, 3 sixths have power 36 + 2·36 + 2·9 + 4, times cosines 1, ½, −½, −1.
    assert float(torch.corrcoef(smooth.T)[2, 3]) == pytest.approx(59 / 130, abs=0.02)


@pytest.mark.parametrize("draw", [uniform, normal, truncated_normal])
def test_noise_is_a_function_of_the_generator(draw):
    a, b, c = (draw((4, 3), generator(seed), CPU) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert a.dtype == torch.float32
