"""FitzHugh–Nagumo: two solvers beside each other, closed forms and scipy."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from sprii_envs.fields import FHNProtocol, fhn

PAIR = (0.03, 0.20)


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def test_the_stencil_is_its_symbol():
    field = np.random.default_rng(0).standard_normal((2, 16, 16))
    np.testing.assert_allclose(
        np.fft.irfft2(fhn.symbol(16) * np.fft.rfft2(field), s=(16, 16)), fhn.laplacian(field), atol=1e-9
    )
    x = np.arange(64) / 64
    wave = np.sin(2 * np.pi * (x[:, None] + 2 * x))
    np.testing.assert_allclose(fhn.laplacian(wave), -4 * np.pi**2 * 5 * wave, atol=4e-5 * 4 * np.pi**2 * 5)


def test_both_solvers_agree_on_a_coarse_square():
    first = fhn.initial(3, [0, 1], 32)
    told = np.array([PAIR, (0.05, 0.10)])
    exact = fhn.solve(first, told, frames=3, duration=4.0, solver="rk4", step=0.01)
    found = fhn.solve(first, told, frames=3, duration=4.0)
    assert relative(found[:, -1], exact[:, -1]) < 3e-4  # measured 1.2e-04
    assert relative(found[:, -1], first) > 0.5


@pytest.mark.slow
def test_both_solvers_agree_on_the_whole_square():
    first = fhn.initial(0, [15])
    exact = fhn.solve(first, PAIR, solver="rk4", step=0.002)
    assert relative(fhn.solve(first, PAIR)[:, -1], exact[:, -1]) < 5e-4  # measured 2.0e-4


@pytest.mark.parametrize(("solver", "step", "ratio"), [("split", 0.1, 4.0), ("rk4", 0.02, 16.0)])
def test_halved_steps_divide_the_error_by_the_order(solver, step, ratio):
    first = fhn.initial(1, [7], 32)

    def solved(step):
        return fhn.solve(first, PAIR, frames=2, duration=1.0, solver=solver, step=step)[:, -1]

    exact = solved(step / 16)
    errors = [np.linalg.norm(solved(step / each) - exact) for each in (1, 2, 4)]
    assert errors[0] / errors[1] == pytest.approx(ratio, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(ratio, rel=0.2)


@pytest.mark.parametrize(("solver", "step"), [("split", 0.005), ("rk4", 0.002)])
@pytest.mark.parametrize("wave", [(1, 0), (3, 2)])
def test_a_small_wave_grows_as_the_linearised_equations_say(solver, step, wave):
    k, beta = PAIR
    side, u, t = 32, k ** (1 / 3), 1.0
    x = np.arange(side) / side
    shape = np.cos(2 * np.pi * (wave[0] * x[:, None] + wave[1] * x))
    first = np.full((1, 2, side, side), u) + 1e-6 * np.array([1.0, 0.5])[:, None, None] * shape
    s = sum(-2.5 + 8 / 3 * np.cos(a) - np.cos(2 * a) / 6 for a in 2 * np.pi * np.array(wave) / side) * side**2
    du, dv = fhn.DIFFUSION
    linear = expm(t * np.array([[1 - 3 * u**2 + du * s, -1.0], [beta, -beta + dv * s]])) @ [1.0, 0.5]
    found = fhn.solve(first, PAIR, frames=2, duration=t, solver=solver, step=step)[0, -1] - u
    amplitude = 2 * (found * shape).mean(axis=(1, 2)) / 1e-6
    np.testing.assert_allclose(amplitude, linear, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("solver", "step"), [("split", 0.005), ("rk4", 0.005)])
def test_uniform_fields_follow_the_two_ordinary_equations(solver, step):
    k, beta = PAIR
    first = np.empty((1, 2, 8, 8))
    first[:, 0], first[:, 1] = 0.8, -0.3

    def change(_, y):
        return [y[0] - y[0] ** 3 + k - y[1], beta * (y[0] - y[1])]

    exact = solve_ivp(change, (0.0, 10.0), [0.8, -0.3], method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    found = fhn.solve(first, PAIR, frames=2, solver=solver, step=step)[0, -1]
    np.testing.assert_allclose(found, np.broadcast_to(exact[:, None, None], found.shape), atol=1e-10)


def test_initial_fields_have_the_spectrum_that_is_told():
    side, count = 16, 600
    waves = np.fft.fft2(fhn.initial(0, np.arange(count), side))
    wave = np.fft.fftfreq(side, 1 / side)
    power = 2.0 * 25.0 * side**4 * (4 * np.pi**2 * (wave[:, None] ** 2 + wave**2) + 25.0) ** -2.0
    power[0, 0] = 0.0
    found = (np.abs(waves) ** 2).mean(axis=0)
    assert found[:, 0, 0].max() < 1e-20
    ratio = (found / np.where(power, power, 1.0))[:, power > 0]
    assert ratio.mean() == pytest.approx(1.0, abs=0.01)
    assert np.abs(ratio - 1.0).max() < 5 * np.sqrt(2 / count)
    assert np.abs(np.corrcoef(waves[:, 0, 1, 2].real, waves[:, 1, 1, 2].real)[0, 1]) < 5 / np.sqrt(count)


def test_initial_fields_depend_on_seed_and_case_only_and_coarse_ones_share_their_waves():
    fields = fhn.initial(4, [9, 2], 64)
    np.testing.assert_array_equal(fhn.initial(4, [2], 64)[0], fields[1])
    assert np.abs(fhn.initial(5, [2], 64)[0] - fields[1]).max() > 0.1
    fine, coarse = np.fft.fft2(fhn.initial(4, [2]))[0] / 128**2, np.fft.fft2(fields[1]) / 64**2
    np.testing.assert_allclose(coarse[:, :30, :30], fine[:, :30, :30], atol=1e-12)


@pytest.mark.parametrize("solver", ["split", "rk4"])
def test_a_row_does_not_depend_on_the_others(solver):
    first = fhn.initial(0, np.arange(6), 16)
    told = np.array([(0.01 * (1 + i % 5), 0.1 + 0.02 * i) for i in range(6)])
    whole = fhn.solve(first, told, frames=3, duration=0.4, solver=solver, step=0.02)
    for rows in ([0], [5, 1], [4, 3, 2, 1, 0]):
        np.testing.assert_array_equal(
            fhn.solve(first[rows], told[rows], frames=3, duration=0.4, solver=solver, step=0.02), whole[rows]
        )


def test_shifted_and_transposed_fields_have_shifted_and_transposed_solutions():
    first = fhn.initial(2, [0], 16)
    for solver in fhn.STEPS:
        whole = fhn.solve(first, PAIR, frames=2, duration=1.0, solver=solver, step=0.02)
        for change in (
            lambda f: np.roll(f, (3, 5), (-2, -1)),
            lambda f: f.swapaxes(-1, -2),
            lambda f: np.rot90(f, 1, (-2, -1)),
        ):
            found = fhn.solve(change(first), PAIR, frames=2, duration=1.0, solver=solver, step=0.02)
            np.testing.assert_allclose(found, change(whole), atol=1e-12)


def test_the_systems_are_a_grid_of_25():
    everything = {*fhn.TRAIN, *fhn.INSIDE, *fhn.OUTSIDE}
    assert (len(fhn.TRAIN), len(fhn.INSIDE), len(fhn.OUTSIDE), len(everything)) == (9, 4, 12, 25)
    steps = {s: round(abs(s[0] - 0.03) / 0.01) + round(abs(s[1] - 0.2) / 0.05) for s in everything}
    assert {steps[s] for s in fhn.TRAIN} == {0, 2}
    assert {steps[s] for s in fhn.INSIDE} == {1}
    assert {steps[s] for s in fhn.OUTSIDE} == {3, 4}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": np.zeros((2, 8, 8))}, "start has shape"),
        ({"start": np.full((1, 2, 8, 8), np.inf)}, "start is not finite"),
        ({"solver": "euler"}, "solver is 'euler'"),
        ({"step": -0.1}, "step is -0.1"),
        ({"parameters": (np.nan, 0.1)}, r"parameters is \(nan, 0.1\); legal: finite numbers"),
        ({"parameters": ("0.03", "0.1")}, "parameters is .*; legal: finite numbers"),
        ({"parameters": (0.03, -0.1)}, "beta >= 0"),
        ({"parameters": 0.03}, r"parameters have shape \(\); legal: pairs \(k, beta\), shape \(2,\) or \(1, 2\)"),
        ({"parameters": [[0.03]]}, r"parameters have shape \(1, 1\)"),
        ({"parameters": [PAIR] * 2}, r"parameters have shape \(2, 2\)"),
        ({"start": np.zeros((2, 2, 8, 8)), "parameters": [PAIR]}, r"parameters have shape \(1, 2\)"),
        ({"diffusion": (1e-4, -1e-4)}, r"diffusion\[1\] is -0.0001"),
        ({"diffusion": (1e-4,)}, "legal: D_u and D_v"),
    ],
)
def test_what_cannot_be_solved_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        fhn.solve(**{"start": np.zeros((1, 2, 8, 8)), "parameters": PAIR} | change)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_fields_that_run_away_are_told_of():
    with pytest.raises(FloatingPointError, match="ran away before frame"):
        fhn.solve(fhn.initial(0, [0], 64), PAIR, frames=3, duration=5.0, solver="rk4", step=0.05)


def test_a_step_is_told_as_it_is_taken():
    """It is shortened to what divides the time between frames, and cases are integers."""
    assert fhn.step_of(0.1, "split") == pytest.approx(0.1 / np.ceil(0.1 / fhn.STEPS["split"]))
    protocol = FHNProtocol(side=8, frames=70)
    between = protocol.duration / 69
    taken = between / np.ceil(between / fhn.STEPS["split"])
    assert taken < fhn.STEPS["split"]
    assert f"step {taken:.4g}," in protocol.origin["solver"]
    with pytest.raises(ValueError, match=r"case is \[15.9\]; legal: integers >= 0"):
        fhn.initial(0, [15.9], 8)
