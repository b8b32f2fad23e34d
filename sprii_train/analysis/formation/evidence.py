"""Privileged evidence: what numerical histories tell of the factors, as features for probes (`app:matched-control`).

The factors are coefficients of a world's equations of motion, and the features are their least-squares estimates with
the information behind each. The sums behind them add up over histories, so any number of histories of a system gives
one row. Rendered histories need no counterpart: the features of an encoder trained on what a learner sees are the codes
of a `Sample` (`sample_of`), read by the same probes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.envs.poke_world import PokeWorld
from sprii_envs.envs.spring_world import SpringWorld
from sprii_envs.world import World
from sprii_train.analysis.formation.arrangement import group_sums

Array = NDArray[np.float64]

FEATURES = (
    "log mass", "log drag", "log stiffness",
    "log mass information", "log drag information", "log stiffness information",
    "mass known", "drag known", "stiffness known",
)  # fmt: skip
"""Log estimates, log information, and the share of an estimate that is data and not the nominal value."""

_TINY = 1e-12
_MOMENTS = np.linspace(0.0, 1.0, 9)
"""Fractions of a control step at which the vector between the bodies is interpolated."""


class _Motion(NamedTuple):
    """What happens in each of the n × (T − 1) steps: two bodies a and b, and the impulse of the actuator on a."""

    a: Array  # (n, T, 2) positions
    b: Array
    a_velocity: Array  # (n, T, 2)
    b_velocity: Array
    impulse: Array  # (n, T − 1, 2) newton seconds
    between: Array  # (9, n, T − 1, 2) from a to b, inside the step


def poke_evidence(
    states: NDArray, actions: NDArray, groups: NDArray | None = None, world: PokeWorld | None = None
) -> Array:
    """Mass, drag and contact stiffness of PokeWorld histories, by least squares.

    The momentum that the finger lacks after a step is what the object received; it equals m·(Δv + γ·Δx) of the object,
    and its mean force is k·overlap^1.5 up to damping. Drag is read where it is zero: Δv = −γ·Δx. Steps in which a
    body may meet a wall are left out.

    Args:
        states: (n, T, 8).
        actions: (n, T − 1, 2).
        groups: (n,) ids of histories to be read together, such as systems; None reads each by itself.
        world: the physical constants; None for the defaults.

    Returns:
        (g, 9) `FEATURES`, in the order of the ids.

    Raises:
        ValueError: for histories of other shapes.
    """
    world = PokeWorld() if world is None else world
    m = _motion(states, actions, (slice(0, 2), slice(4, 6)), (slice(2, 4), slice(6, 8)), world)
    clear = _clear(m.a, m.a_velocity, world.arena - world.finger_radius, world.dt)
    clear &= _clear(m.b, m.b_velocity, world.arena - world.object_radius, world.dt)
    received = m.impulse - world.finger_mass * np.diff(m.a_velocity, axis=1)
    size = np.linalg.norm(received, axis=-1)
    contact = size > 1e-4  # newton seconds; float32 states round below 1e-6
    dv, dx = np.diff(m.b_velocity, axis=1), np.diff(m.b, axis=1)
    depth = world.finger_radius + world.object_radius - np.linalg.norm(m.between, axis=-1)
    overlap = np.trapezoid(np.maximum(depth, 0.0) ** 1.5, _MOMENTS, axis=0)
    free, touch = (clear & ~contact)[..., None], (clear & contact)[..., None]
    force, overlap = size[..., None] / world.dt, overlap[..., None]
    terms = (
        -dv * dx * free, dx * dx * free,
        received * dv * touch, received * dx * touch, dv * dv * touch, dv * dx * touch, dx * dx * touch,
        force * overlap * touch, overlap * overlap * touch,
    )  # fmt: skip
    loss, travel, rv, rx, vv, vx, xx, fo, oo = _sums(terms, groups)
    mass, drag, stiffness = world.properties.nominal
    drag = _estimate(loss, travel, drag, 1e-6)
    mass = _estimate(rv + drag.value * rx, vv + 2.0 * drag.value * vx + drag.value**2 * xx, mass, 1e-4)
    return _features(mass, drag, _estimate(fo, oo, stiffness, 1e-7))


def spring_evidence(
    states: NDArray, actions: NDArray, groups: NDArray | None = None, world: SpringWorld | None = None
) -> Array:
    """Mass, drag and stiffness of SpringWorld histories, by least squares.

    The centre obeys Δv = −γ·Δx + F·dt/2m in every step, without error; what the separation's velocity gains beyond
    −γ·Δr − F·dt/m is 2k/m times the integral of (L/d − 1)·r.

    Args:
        states: (n, T, 8).
        actions: (n, T − 1, 2).
        groups: (n,) ids of histories to be read together, such as systems; None reads each by itself.
        world: the physical constants; None for the defaults.

    Returns:
        (g, 9) `FEATURES`, in the order of the ids.

    Raises:
        ValueError: for histories of other shapes.
    """
    world = SpringWorld() if world is None else world
    m = _motion(states, actions, (slice(0, 2), slice(2, 4)), (slice(4, 6), slice(6, 8)), world)
    push = 0.5 * m.impulse
    dv, dx = (0.5 * np.diff(a + b, axis=1) for a, b in ((m.a_velocity, m.b_velocity), (m.a, m.b)))
    gained, dr = np.diff(m.b_velocity - m.a_velocity, axis=1), np.diff(m.b - m.a, axis=1)
    distance = np.maximum(np.linalg.norm(m.between, axis=-1, keepdims=True), 1e-9)
    pull = np.trapezoid((world.rest_length / distance - 1.0) * m.between, _MOMENTS * world.dt, axis=0)
    terms = (
        dx * dx, dx * push, push * push, -dx * dv, push * dv,
        pull * gained, pull * dr, pull * m.impulse, pull * pull,
    )  # fmt: skip
    xx, xp, pp, xv, pv, qv, qr, qi, qq = _sums(terms, groups)
    mass, drag, stiffness = world.properties.nominal
    # Two unknowns, γ and 1/m: each is read with the other's part of the motion taken out.
    ok = xx * pp - xp * xp
    inverse_mass = _estimate((pv * xx + xp * xv) / (xx + _TINY), ok / (xx + _TINY), 1.0 / mass, 1e-6)
    drag = _estimate(xv + inverse_mass.value * xp, xx, drag, 1e-6)
    ratio = _estimate(qv + drag.value * qr + inverse_mass.value * qi, qq, 2.0 * stiffness / mass, 1e-8)
    mass = inverse_mass._replace(value=1.0 / inverse_mass.value)
    return _features(mass, drag, ratio._replace(value=0.5 * ratio.value * mass.value))


class _Estimate(NamedTuple):
    value: Array  # (g,)
    information: Array  # (g,) sum of squares of the regressor
    known: Array  # (g,) 0 … 1, what data are of the estimate


def _estimate(product: Array, information: Array, nominal: float, slack: float) -> _Estimate:
    """Least squares of one coefficient, drawn to its nominal value by `slack`, and within a factor of 20 of it."""
    value = (product + slack * nominal) / (information + slack)
    return _Estimate(np.clip(value, nominal / 20.0, nominal * 20.0), information, information / (information + slack))


def _features(*estimates: _Estimate) -> Array:
    logs = [np.log(e.value) for e in estimates]
    information = [np.log(e.information + _TINY) for e in estimates]
    return np.stack([*logs, *information, *(e.known for e in estimates)], axis=1)


def _sums(terms: Sequence[Array], groups: NDArray | None) -> tuple[Array, ...]:
    """Terms (n, T − 1, k) summed over steps and components, and over the histories of a group: (g,) each."""
    sums = np.stack([term.sum(axis=(1, 2)) for term in terms], axis=1)
    return tuple((sums if groups is None else group_sums(sums, groups)[0]).T)


def _motion(
    states: NDArray, actions: NDArray, position: tuple[slice, slice], velocity: tuple[slice, slice], world: World
) -> _Motion:
    if states.ndim != 3 or states.shape[2] != 8 or actions.shape != (len(states), states.shape[1] - 1, 2):
        raise ValueError(
            f"evidence needs states (n, T, 8) and actions (n, T - 1, 2), got {states.shape} and {actions.shape}"
        )
    states = states.astype(np.float64)
    force = world.force(np.asarray(actions, np.float32).reshape(-1, 2)).reshape(actions.shape)
    a, b = (states[:, :, columns] for columns in position)
    a_velocity, b_velocity = (states[:, :, columns] for columns in velocity)
    between = _inside(b - a, (b_velocity - a_velocity) * world.dt)
    return _Motion(a, b, a_velocity, b_velocity, force * world.dt, between)


def _inside(x: Array, v: Array) -> Array:
    """Cubic Hermite interpolation at `_MOMENTS` of each step of x (n, T, 2), v in units of x a step."""
    t = _MOMENTS[:, None, None, None]
    ends = (1.0 + 2.0 * t) * (1.0 - t) ** 2 * x[:, :-1] + t * t * (3.0 - 2.0 * t) * x[:, 1:]
    return ends + t * (1.0 - t) ** 2 * v[:, :-1] + t * t * (t - 1.0) * v[:, 1:]


def _clear(x: Array, v: Array, limit: float, dt: float) -> NDArray[np.bool_]:
    """Steps (n, T − 1) at whose ends (n, T, 2) a wall at ±limit is farther than the way made in a step."""
    far = (np.abs(x) + np.abs(v) * dt).max(axis=2) < limit
    return far[:, :-1] & far[:, 1:]
