"""The exact integrator against 60-digit arithmetic and an adaptive ODE solver."""

import warnings

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sprii_envs.physics import inertial

DT = 0.05


def test_coefficients_are_exact_to_1e_12_for_every_drag():
    drag = np.concatenate([[0.0], 10.0 ** np.linspace(-300, 300, 241), np.linspace(9.9, 10.1, 41)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c = inertial.coefficients(drag, np.full(len(drag), 2.0), DT)
    for i, gamma in enumerate(drag):
        with mp.workdps(60 if gamma == 0.0 or gamma > 1e-10 else 640):
            a, dt = mp.mpf(float(gamma)) * mp.mpf(DT), mp.mpf(DT)
            decay = mp.exp(-a)
            phi1 = dt if a == 0 else dt * (1 - decay) / a
            phi2 = dt * dt / 2 if a == 0 else dt * dt * (a - 1 + decay) / a**2
            for got, want in zip(c, (decay, phi1, phi1 / 2, phi2 / 2), strict=True):
                if want > mp.mpf("2.3e-308"):  # below, float64 itself has no relative accuracy
                    assert abs(mp.mpf(float(got[i, 0])) - want) <= mp.mpf("1e-12") * want, gamma


@pytest.mark.parametrize("drag", [0.0, 1e-9, 0.5, 1.7, 4.0, 40.0])
def test_a_trajectory_agrees_with_an_ode_solver(drag):
    rng = np.random.default_rng(3)
    state, mass = rng.normal(size=4), 1.3
    forces = rng.uniform(-4, 4, (20, 2))
    c = inertial.coefficients(np.array([drag]), np.array([mass]), DT)
    ours, theirs = state[None], state
    for force in forces:
        ours = inertial.step(ours, force[None], c)
        solution = solve_ivp(
            lambda t, s, f=force: np.concatenate([s[2:], f / mass - drag * s[2:]]),
            (0.0, DT),
            theirs,
            rtol=1e-12,
            atol=1e-14,
            method="DOP853",
        )
        theirs = solution.y[:, -1]
    assert np.allclose(ours[0], theirs, rtol=1e-10, atol=1e-12)


def test_one_long_step_equals_many_short_ones_under_a_constant_force():
    drag, mass = np.array([1.9]), np.array([0.7])
    state, force = np.array([[0.3, -0.2, 1.0, 0.4]]), np.array([[2.0, -3.0]])
    whole = inertial.step(state, force, inertial.coefficients(drag, mass, 1.0))
    short = inertial.coefficients(drag, mass, 0.01)
    for _ in range(100):
        state = inertial.step(state, force, short)
    assert np.allclose(state, whole, rtol=1e-12)


def test_results_do_not_depend_on_batch_size_or_memory_order():
    rng = np.random.default_rng(5)
    drag, mass = rng.uniform(0, 5, 67), rng.uniform(0.5, 2, 67)
    state, force = rng.normal(size=(67, 4)), rng.normal(size=(67, 2))
    c = inertial.coefficients(drag, mass, DT)
    together = inertial.step(state, force, c)
    fortran = inertial.step(np.asfortranarray(state), np.asfortranarray(force), c)
    assert np.array_equal(together, fortran)
    for i in range(67):
        one = inertial.coefficients(drag[i : i + 1], mass[i : i + 1], DT)
        assert np.array_equal(inertial.step(state[i : i + 1], force[i : i + 1], one)[0], together[i])
