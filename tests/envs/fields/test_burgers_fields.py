"""Burgers' solver beside exact solutions, and what the equation keeps."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from sprii_envs.fields import burgers
from sprii_envs.fields.protocols import OUTER_VISCOSITIES, VISCOSITIES

ALL = (0.0, *sorted(VISCOSITIES + OUTER_VISCOSITIES))


def start(nu, case, cells: int, seed: int = 0):
    modes = burgers.modes(seed, nu, case)
    return modes, burgers.field(*modes, burgers.grid(cells))


@pytest.fixture(scope="module")
def solved():
    """Every viscosity of the protocol from one case each, 1,600 cells, to t = 1."""
    nu = np.array(ALL)
    modes, first = start(nu, np.zeros(len(nu), int), 1600)
    return modes, burgers.solve(first, nu, frames=5, duration=1.0)


@pytest.mark.parametrize("row", range(len(ALL)), ids=[f"{nu:g}" for nu in ALL])
def test_every_viscosity_agrees_with_its_exact_solution(solved, row):
    # Measured, at most: 3.0e-3 below 1e-3, where a cell decides about a shock; then 1.2e-3, 1.6e-4, 5.4e-5, 9.9e-6.
    limits = ((2e-2, 3e-5), (1e-2, 1.6e-4), (5e-3, 5e-4), (1e-3, 3e-3), (0.0, 8e-3))
    nu = ALL[row]
    limit = next(limit for least, limit in limits if nu >= least)
    (amplitude, phase), fields = solved
    modes = amplitude[row : row + 1], phase[row : row + 1]
    places = np.arange(0, 1600, 64)
    x = burgers.grid(1600)[places]
    for frame, t in ((1, 0.25), (4, 1.0)):
        exact = burgers.cole_hopf(*modes, nu, t, x, places=20_001) if nu else burgers.lax_oleinik(*modes, t, x)
        error = np.linalg.norm(fields[row, frame, places] - exact[0]) / np.linalg.norm(exact)
        assert error < limit


def test_the_exact_viscous_solution_is_that_of_a_spectral_method():
    nu, cells = 0.05, 128
    modes, first = start(nu, [3], cells)
    wave = 1j * np.pi * np.fft.rfftfreq(cells, 1.0 / cells)

    def change(_, u):
        spectrum = np.fft.rfft(u)
        return np.fft.irfft(-wave * np.fft.rfft(u * u / 2) + nu * wave**2 * spectrum, cells)

    found = solve_ivp(change, (0.0, 0.7), first[0], method="BDF", rtol=1e-9, atol=1e-11).y[:, -1]
    exact = burgers.cole_hopf(*modes, nu, 0.7, burgers.grid(cells))[0]
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_the_exact_inviscid_solution_follows_characteristics_until_they_cross():
    modes, _ = start(0.0, [1], 8)
    x = burgers.grid(40)
    slope = np.gradient(burgers.field(*modes, burgers.grid(4000))[0], 2 / 4000).min()
    t = 0.7 / -slope

    def at(place):
        return brentq(lambda u: u - burgers.field(*modes, np.array([place - u * t]))[0, 0], -1.1, 1.1, xtol=1e-13)

    found = burgers.lax_oleinik(*modes, t, x, places=200_001)[0]
    np.testing.assert_allclose(found, [at(place) for place in x], atol=2e-5)
    viscous = burgers.cole_hopf(*modes, 1e-6, t, x, places=200_001)[0]
    np.testing.assert_allclose(viscous, found, atol=1e-3)


def test_mean_energy_and_greatest_value(solved):
    fields = solved[1]
    assert np.abs(fields.mean(axis=2)).max() < 1e-14
    assert (np.diff((fields**2).mean(axis=2), axis=1) < 0).all()
    assert (np.diff(np.abs(fields).max(axis=2), axis=1) < 0).all()


def test_a_constant_stays_and_moves_what_it_carries():
    ones = np.full((1, 64), 0.3)
    np.testing.assert_allclose(burgers.solve(ones, 1e-2, frames=3, duration=1.0)[0, -1], 0.3, rtol=1e-12)
    # A frame of reference that moves by a whole number of cells.
    _, first = start(1e-2, [0], 800)
    still, moved = burgers.solve(np.concatenate((first, first + 0.5)), 1e-2, frames=2, duration=0.5)[:, -1]
    np.testing.assert_allclose(np.roll(still, 100) + 0.5, moved, atol=4e-3)


@pytest.mark.parametrize("nu", [0.0, 1e-3])
def test_mirrored_and_shifted_fields_have_mirrored_and_shifted_solutions(nu):
    _, first = start(nu, [2], 400)
    whole = burgers.solve(first, nu, frames=3, duration=1.0)
    np.testing.assert_allclose(
        burgers.solve(np.roll(first, 37, 1), nu, frames=3, duration=1.0), np.roll(whole, 37, 2), atol=1e-12
    )
    np.testing.assert_allclose(
        burgers.solve(-first[:, ::-1], nu, frames=3, duration=1.0), -whole[:, :, ::-1], atol=1e-12
    )


def test_errors_fall_with_the_square_of_the_cells_where_fields_are_smooth():
    errors = []
    for cells in (200, 400, 800):
        modes, first = start(2e-2, [0], cells)
        places = np.arange(0, cells, cells // 25)
        exact = burgers.cole_hopf(*modes, 2e-2, 0.5, burgers.grid(cells)[places], places=10_001)
        errors.append(np.linalg.norm(burgers.solve(first, 2e-2, frames=2, duration=0.5)[:, -1, places] - exact))
    assert errors[0] / errors[1] > 3.0
    assert errors[1] / errors[2] > 3.0


def test_a_row_does_not_depend_on_the_others():
    nu = np.array([0.0, 5e-2, 1e-4, 1e-3])
    _, first = start(nu, np.arange(4), 200)
    first[1] *= 0.2
    whole = burgers.solve(first, nu, frames=4, duration=1.0)
    for rows in ([0], [1], [3, 2], [2, 0, 1]):
        np.testing.assert_array_equal(burgers.solve(first[rows], nu[rows], frames=4, duration=1.0), whole[rows])


def test_initial_fields_depend_on_seed_viscosity_and_case_only():
    modes, first = start([1e-3, 1e-3, 2e-3], [4, 5, 4], 4096)
    np.testing.assert_allclose(np.abs(first).max(axis=1), 1.0)
    np.testing.assert_allclose(first.mean(axis=1), 0.0, atol=1e-15)
    np.testing.assert_array_equal(start(1e-3, [5], 4096)[1][0], first[1])
    assert len(np.unique(np.round(first[:, 0], 12))) == 3
    assert np.abs(start(1e-3, [4], 4096, seed=1)[1] - first[0]).max() > 0.1
    waves = np.abs(np.fft.rfft(first))[:, 1:]
    assert (waves[:, burgers.MODES :] < 1e-9).all()
    x, step = burgers.grid(50), 1e-6
    slope = (burgers.potential(*modes, x + step) - burgers.potential(*modes, x - step)) / (2 * step)
    np.testing.assert_allclose(slope, burgers.field(*modes, x), atol=1e-8)


def test_what_is_stored_has_both_ends_of_the_ring():
    fields = np.arange(2 * 3 * 16, dtype=float).reshape(2, 3, 16)
    kept = burgers.stored(fields, 5)
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept[0, 0], [0, 4, 8, 12, 0])
    for points in (7, 1, 0):
        with pytest.raises(ValueError, match=f"points is {points}; legal"):
            burgers.stored(fields, points)


def test_viscosities_and_cases_are_one_a_row_or_one_of_all():
    one, rows = burgers.modes(0, 0.1, [3, 4]), burgers.modes(0, [0.1, 0.1], [3, 4])
    assert all((a == b).all() and a.shape == (2, burgers.MODES) for a, b in zip(one, rows, strict=True))
    for nu, case, said in (
        ([0.1, 0.2], [1, 2, 3], r"viscosity has shape \(2,\) and case \(3,\); legal: numbers, or one of each a row"),
        ([[0.1]], 1, r"viscosity has shape \(1, 1\) and case \(\)"),
        (0.1, [[1, 2]], r"case \(1, 2\)"),
        (0.1, [1.7], r"case is \[1.7\]; legal: integers >= 0"),
        (0.1, -1, "case is -1; legal: integers >= 0"),
        ("0.1", 1, "viscosity is '0.1'; legal: finite numbers >= 0"),
        (np.nan, 1, "viscosity is nan"),
        (True, 1, "viscosity is True"),
    ):
        with pytest.raises(ValueError, match=said):
            burgers.modes(0, nu, case)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": np.full((1, 16), np.nan)}, "start is not finite"),
        ({"viscosity": [0.1, 0.2]}, r"viscosity has shape \(2,\); legal: a number, or one for each of 1 fields"),
        ({"viscosity": [[0.1]]}, r"viscosity has shape \(1, 1\)"),
        ({"start": np.zeros((1, 4))}, "8 cells at least"),
        ({"viscosity": -1.0}, "viscosity is -1.0"),
        ({"viscosity": "0.1"}, "viscosity is '0.1'"),
        ({"frames": 1}, "frames is 1"),
        ({"duration": 0.0}, "duration is 0.0"),
    ],
)
def test_what_cannot_be_solved_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        burgers.solve(**{"start": np.zeros((1, 16)), "viscosity": 0.1} | change)
