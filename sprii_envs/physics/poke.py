"""Two discs in a walled plane, a driven finger and a passive object, in damped Hertzian contact (`app:poke-profile`).

    finger:  M·a = F − f·n,     object:  m·a = f·n − m·γ·v,     n the unit vector from finger to object
    f = max(0, k·δ^1.5 − 2ζ·√(k_loc·m_eff)·v_n) while the discs overlap by δ > 0, else 0
    k_loc = 1.5·k·√δ,   m_eff = m·M/(m + M),   v_n = (v_object − v_finger)·n, positive when they separate

A control step is `substeps` steps of semi-implicit Euler: velocities from the forces, then positions from the new
velocities, then the walls. Where neither contact nor a wall can be reached within a control step, its outcome is a
closed form, the sum of the same recursion; a row's own state alone decides which path it takes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


def step_one(
    state: Sequence[float], force: tuple[float, float], c: Sequence[Any], scene: Scene
) -> tuple[tuple[float, ...], bool, float]:
    """`step` of one system, bit for bit: state (8,), force (2,), its coefficients as numbers."""
    dt, limits = scene.dt, (scene.finger_limit, scene.object_limit)
    keep, (finger_travel, travel), (finger_decay, decay), slowing = c[:4]
    x, y, vx, vy, ox, oy, ovx, ovy = state
    push_x, push_y = force[0] * (1.0 / scene.finger_mass), force[1] * (1.0 / scene.finger_mass)
    gain = 0.5 * dt * dt * (1.0 + 1.0 / scene.substeps)
    after = (
        vx * finger_travel + x + push_x * gain,
        vy * finger_travel + y + push_y * gain,
        vx * finger_decay + push_x * dt,
        vy * finger_decay + push_y * dt,
        ovx * travel + ox,
        ovy * travel + oy,
        ovx * decay,
        ovy * decay,
    )
    # As in `eventful`, whose names these are.
    bend = 0.125 * dt * dt
    bend_x, bend_y = abs(push_x) * bend, abs(push_y) * bend
    free = (
        max(abs(x), abs(after[0])) + bend_x - limits[0] <= -_SLACK
        and max(abs(y), abs(after[1])) + bend_y - limits[0] <= -_SLACK
        and max(abs(ox), abs(after[4])) - limits[1] <= -_SLACK
        and max(abs(oy), abs(after[5])) - limits[1] <= -_SLACK
    )
    if free:
        gap_x, gap_y = ox - x, oy - y
        chord_x, chord_y = after[4] - after[0] - gap_x, after[5] - after[1] - gap_y
        nearest = -((gap_x * chord_x + gap_y * chord_y) / max(chord_x * chord_x + chord_y * chord_y, 1e-300))
        nearest = 0.0 if nearest < 0.0 else 1.0 if nearest > 1.0 else nearest
        gap_x, gap_y = gap_x + chord_x * nearest, gap_y + chord_y * nearest
        bend *= slowing
        reach = bend_x + abs(ovx) * bend + (bend_y + abs(ovy) * bend) + (scene.reach + _SLACK)
        if not gap_x * gap_x + gap_y * gap_y < reach * reach:
            return after, False, 0.0
    return _substeps_one(state, (push_x, push_y), keep, c[4:], scene)


def _substeps_one(
    state: Sequence[float], push: tuple[float, float], keep: float, c: Sequence[float], scene: Scene
) -> tuple[tuple[float, ...], bool, float]:
    """`_substeps` of one system, bit for bit."""
    h, sqrt, wide, far, reach = (
        scene.dt / scene.substeps,
        math.sqrt,
        scene.finger_limit,
        scene.object_limit,
        scene.reach,
    )
    stiffness, damping, inverse_mass = c
    damping, gain, finger_gain = damping / h, h * h * inverse_mass, -h * h / scene.finger_mass
    x, y, ox, oy = state[0], state[1], state[4], state[5]
    vx, vy, ovx, ovy = state[2] * h, state[3] * h, state[6] * h, state[7] * h
    kick_x, kick_y, back = push[0] * (h * h), push[1] * (h * h), -scene.restitution
    if abs(x) > wide:
        x, vx = math.copysign(wide, x), vx * (back if x * vx > 0.0 else 1.0)
    if abs(y) > wide:
        y, vy = math.copysign(wide, y), vy * (back if y * vy > 0.0 else 1.0)
    if abs(ox) > far:
        ox, ovx = math.copysign(far, ox), ovx * (back if ox * ovx > 0.0 else 1.0)
    if abs(oy) > far:
        oy, ovy = math.copysign(far, oy), ovy * (back if oy * ovy > 0.0 else 1.0)
    touched, total = False, 0.0
    for _ in range(scene.substeps):
        normal_x, normal_y = ox - x, oy - y
        distance = sqrt(normal_x * normal_x + normal_y * normal_y)
        depth = reach - distance
        if depth > 0.0:
            touched = True
            distance = max(distance, 1e-150)
            normal_x /= distance
            normal_y /= distance
            speed = (ovx - vx) * normal_x + (ovy - vy) * normal_y
            root = sqrt(depth)
            force = max(depth * root * stiffness - sqrt(root) * damping * speed, 0.0)
            total += force
            normal_x *= force
            normal_y *= force
            vx, vy = vx + kick_x + normal_x * finger_gain, vy + kick_y + normal_y * finger_gain
            ovx, ovy = ovx * keep + normal_x * gain, ovy * keep + normal_y * gain
        else:
            vx, vy, ovx, ovy = vx + kick_x, vy + kick_y, ovx * keep, ovy * keep
        x, y, ox, oy = x + vx, y + vy, ox + ovx, oy + ovy
        if abs(x) > wide:
            x, vx = math.copysign(wide, x), vx * back
        if abs(y) > wide:
            y, vy = math.copysign(wide, y), vy * back
        if abs(ox) > far:
            ox, ovx = math.copysign(far, ox), ovx * back
        if abs(oy) > far:
            oy, ovy = math.copysign(far, oy), ovy * back
    return (x, y, vx / h, vy / h, ox, oy, ovx / h, ovy / h), touched, total / scene.substeps


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
