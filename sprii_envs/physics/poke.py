"""Two discs in a walled plane, a driven finger and a passive object, in damped Hertzian contact (`app:poke-profile`).

    finger:  M·a = F − f·n,     object:  m·a = f·n − m·γ·v,     n the unit vector from finger to object
    f = max(0, k·δ^1.5 − 2ζ·√(k_loc·m_eff)·v_n) while the discs overlap by δ > 0, else 0
    k_loc = 1.5·k·√δ,   m_eff = m·M/(m + M),   v_n = (v_object − v_finger)·n, positive when they separate

A control step is `substeps` steps of semi-implicit Euler: velocities from the forces, then positions from the new
velocities, then the walls. Where neither contact nor a wall can be reached within a control step, its outcome is a
closed form, the sum of the same recursion; a row's own state alone decides which path it takes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Scene(NamedTuple):
    """What all systems share, in SI units."""

    dt: float
    substeps: int
    finger_mass: float
    reach: float  # sum of the radii: the discs overlap when their centres are closer
    finger_limit: float  # largest |coordinate| of the finger's centre
    object_limit: float
    restitution: float


class Coefficients(NamedTuple):
    """Per-system constants of one control step of n substeps of h seconds, float64."""

    keep: Array  # (N,) q = max(0, 1 − γh): the share of its velocity that drag leaves the object in a substep
    travel: Array  # (N, 2) seconds, finger and object: displacement in a step, per unit of initial velocity
    decay: Array  # (N, 2) share of the velocity left after a step
    slowing: Array  # (N,) 1/s, (1 − q)/h: γ, as far as a substep resolves it
    stiffness: Array  # (N,) k
    damping: Array  # (N,) 2ζ·√(1.5·k·m_eff): damping force per unit of v_n·δ^¼
    inverse_mass: Array  # (N,) 1/m


def coefficients(mass: Array, drag: Array, stiffness: Array, damping_ratio: float, scene: Scene) -> Coefficients:
    """Step constants of systems with mass (N,) kg, drag (N,) 1/s and contact stiffness (N,) N/m^1.5."""
    h = scene.dt / scene.substeps
    keep = np.maximum(1.0 - drag * h, 0.0)
    power, total = np.ones_like(keep), np.zeros_like(keep)
    for _ in range(scene.substeps):
        power *= keep
        total += power
    travel, decay = (np.empty((len(mass), 2), np.float64, order="F") for _ in range(2))
    travel[:, 0], travel[:, 1] = scene.dt, h * total
    decay[:, 0], decay[:, 1] = 1.0, power
    effective = scene.finger_mass / (1.0 + scene.finger_mass / mass)
    damping = 2.0 * damping_ratio * np.sqrt(1.5 * stiffness * effective)
    return Coefficients(keep, travel, decay, (1.0 - keep) / h, stiffness.copy(), damping, 1.0 / mass)


def stable_substep(mass: float, stiffness: float, damping_ratio: float, finger_mass: float, depth: float) -> float:
    """The longest stable substep, seconds, of a contact `depth` metres deep, linearised there."""
    effective = finger_mass / (1.0 + finger_mass / mass)
    frequency = (1.5 * stiffness * depth**0.5 / effective) ** 0.5
    return 2.0 * ((1.0 + damping_ratio**2) ** 0.5 - damping_ratio) / frequency


_SLACK = 1e-9
"""Metres; far above rounding, so that what counts as out of reach certainly is."""


def eventful(before: Array, after: Array, push: Array, c: Coefficients, scene: Scene) -> NDArray[np.bool_]:
    """Which rows (N,) might have a contact or meet a wall within a step whose free outcome is `after`.

    A path whose velocity changes by at most b·h in a substep stays within b·dt²/8 of its chord, point for point:
    b = |F|/M for the finger, γ·|v| for the object, and the sum of the two for the vector between them.
    """
    bend = np.abs(push)
    bend *= 0.125 * scene.dt * scene.dt
    # The object slows down along a straight line, so its own path never leaves its chord.
    far = np.maximum(np.abs(before[:, 0]), np.abs(after[:, 0]))
    far[0] += bend
    far[0] -= scene.finger_limit
    far[1] -= scene.object_limit
    eventful = far.reshape(4, -1).max(axis=0) > -_SLACK
    gap = before[1, 0] - before[0, 0]
    chord = after[1, 0] - after[0, 0]
    chord -= gap
    along, square = gap * chord, chord * chord
    nearest = along[0] + along[1]
    nearest /= np.maximum(square[0] + square[1], 1e-300)
    np.negative(nearest, out=nearest)
    np.maximum(nearest, 0.0, out=nearest)
    np.minimum(nearest, 1.0, out=nearest)
    chord *= nearest
    gap += chord
    gap *= gap
    turn = np.abs(before[1, 1])
    turn *= (0.125 * scene.dt * scene.dt) * c.slowing
    bend += turn
    reach = bend[0] + bend[1]  # at least the length of the vector
    reach += scene.reach + _SLACK
    reach *= reach
    eventful |= gap[0] + gap[1] < reach
    return eventful


def step(
    state: Array,
    force: Array,
    c: Coefficients,
    scene: Scene,
    substepped: Callable[[Array, Array, Array, Coefficients, Scene], NDArray[np.bool_]] = eventful,
) -> tuple[Array, NDArray[np.bool_], Array]:
    """Advance states (N, 8) one control step under constant forces (N, 2) on the finger, in newtons.

    A state is (x, y, vx, vy) of the finger, then of the object. Returns the new states, whether the discs
    overlapped in any substep (N,), and the contact's normal force averaged over the substeps (N,), in newtons:
    the impulse it gave, over dt. Rows that `substepped` does not name go the whole step by a closed form.
    """
    n = len(state)
    before = np.ascontiguousarray(state.T).reshape(2, 2, 2, n)  # body, position or velocity, axis, row
    push = np.multiply(force.T, 1.0 / scene.finger_mass, order="C")
    after = _free(before, push, c, scene)
    touched, impulse = np.zeros(n, np.bool_), np.zeros(n)
    rows = np.flatnonzero(substepped(before, after, push, c, scene))
    if len(rows):
        some = Coefficients(*(field[rows] for field in c))
        after[..., rows], touched[rows], impulse[rows] = _substeps(
            before.take(rows, axis=3), push.take(rows, axis=1), some, scene
        )
    return after.reshape(8, n).T, touched, impulse


def _free(before: Array, push: Array, c: Coefficients, scene: Scene) -> Array:
    """States (2, 2, 2, N) after a step without contact or walls, the sum of the substeps' recursion."""
    after = np.empty_like(before)
    np.multiply(before[:, 1], c.travel.T[:, None], out=after[:, 0])
    after[:, 0] += before[:, 0]
    np.multiply(before[:, 1], c.decay.T[:, None], out=after[:, 1])
    after[0, 0] += push * (0.5 * scene.dt * scene.dt * (1.0 + 1.0 / scene.substeps))
    after[0, 1] += push * scene.dt
    return after


def _substeps(state: Array, push: Array, c: Coefficients, scene: Scene) -> tuple[Array, NDArray[np.bool_], Array]:
    """States (2, 2, 2, n) after the substeps, with contact in any of them, and the mean force.

    Velocities are scaled to metres a substep, so that positions just add them. What is one number per row is
    kept twice, (2, n), once for each axis: on small batches broadcasting costs more than the arithmetic.
    """
    n, h = state.shape[-1], scene.dt / scene.substeps
    position, velocity = state[:, 0].copy(), state[:, 1] * h
    # A start beyond a wall is put there first, so that from here on whatever passes a wall moves into it.
    limit = np.empty((2, 2, n))
    limit[0], limit[1] = scene.finger_limit, scene.object_limit
    _bounce(position, velocity, limit, np.where(position * velocity > 0.0, -scene.restitution, 1.0))
    finger, thing = position
    finger_velocity, thing_velocity = velocity
    kick = push * (h * h)
    keep, stiffness, damping, thing_gain, finger_gain, reach, zero, tiny = (np.empty((2, n)) for _ in range(8))
    keep[:], stiffness[:], damping[:], thing_gain[:] = c.keep, c.stiffness, c.damping / h, h * h * c.inverse_mass
    # Coincident centres have no direction, so they feel no force; d² underflows below 1e-150.
    finger_gain[:], reach[:], zero[:], tiny[:] = -h * h / scene.finger_mass, scene.reach, 0.0, 1e-150
    back = np.full((2, 2, n), -scene.restitution)
    normal, distance, depth, root, force, speed = np.empty((6, 2, n))
    change = np.empty((2, 2, n))
    finger_change, thing_change = change
    touching, touched, total = np.empty((2, n), np.bool_), np.zeros((2, n), np.bool_), np.zeros((2, n))
    add, subtract, multiply, sqrt, maximum = np.add, np.subtract, np.multiply, np.sqrt, np.maximum
    for _ in range(scene.substeps):
        subtract(thing, finger, out=normal)
        multiply(normal, normal, out=root)
        add(root, root[::-1], out=distance)
        sqrt(distance, out=distance)
        subtract(reach, distance, out=depth)
        np.greater(depth, zero, out=touching)
        contact = np.count_nonzero(touching)
        if contact:
            touched |= touching
            maximum(depth, zero, out=depth)
            maximum(distance, tiny, out=distance)
            normal /= distance
            subtract(thing_velocity, finger_velocity, out=root)
            root *= normal
            add(root, root[::-1], out=speed)
            sqrt(depth, out=root)
            multiply(depth, root, out=force)
            force *= stiffness
            sqrt(root, out=root)
            root *= damping
            root *= speed
            force -= root
            maximum(force, zero, out=force)
            total += force
            normal *= force
            multiply(normal, finger_gain, out=finger_change)
            multiply(normal, thing_gain, out=thing_change)
        finger_velocity += kick
        thing_velocity *= keep
        if contact:
            velocity += change
        position += velocity
        _bounce(position, velocity, limit, back)
    velocity /= h
    total /= scene.substeps
    return np.stack((position, velocity), axis=1), touched[0], total[0]


def _bounce(position: Array, velocity: Array, limit: Array, factor: Array) -> None:
    """Put what is beyond ±limit back there and multiply its velocity by `factor`, in place; all (2, 2, n)."""
    size = np.abs(position)
    beyond = size > limit
    if np.count_nonzero(beyond):
        np.minimum(size, limit, out=size)
        np.copysign(size, position, out=position)
        np.multiply(velocity, factor, out=velocity, where=beyond)
