"""A rod that turns about one end, driven by a torque, in the published discrete form (`app:pendulum-profile`).

    θ̈ = 3g/(2l)·sin θ + 3·torque/(m·l²),   θ = 0 upright

One step is semi-implicit Euler: the angle advances with the new velocity, which is clipped only afterwards. This map is
the environment's definition, not an approximation to be refined.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Coefficients(NamedTuple):
    """Per-system constants of one step, each of shape (N,) and float64."""

    gravity: Array  # dt·3g/(2l), 1/s: velocity gained at sin θ = 1
    torque: Array  # dt·3/(m·l²), 1/(N·m·s): velocity gained per newton metre


def coefficients(mass: Array, length: Array, gravity: float, dt: float) -> Coefficients:
    """Step constants for masses (N,) in kg and lengths (N,) in m."""
    # Divided one by one, because m·l² underflows long before m or l does.
    return Coefficients(1.5 * gravity * dt / length, 3.0 * dt / mass / length / length)


def step(state: Array, torque: Array, c: Coefficients, dt: float, speed_limit: float) -> Array:
    """Advance states (N, 2) = (θ, θ̇), rad and rad/s, by one step under torques (N,) in N·m."""
    velocity = np.sin(state[:, 0])
    velocity *= c.gravity
    velocity += c.torque * torque
    velocity += state[:, 1]
    after = np.empty_like(state)
    angle = np.multiply(velocity, dt, out=after[:, 0])
    angle += state[:, 0]
    np.maximum(velocity, -speed_limit, out=velocity)
    np.minimum(velocity, speed_limit, out=after[:, 1])
    return after


def step_one(
    angle: float, velocity: float, torque: float, c: tuple[float, float], dt: float, speed_limit: float
) -> tuple[float, float]:
    """`step` of one system, bit for bit, with its coefficients as numbers."""
    # NumPy's sine: that of `math` may differ from it in the last bit.
    faster = float(np.sin(angle)) * c[0] + c[1] * torque + velocity
    clipped = -speed_limit if faster < -speed_limit else speed_limit if faster > speed_limit else faster
    return faster * dt + angle, clipped


def wrap(angle: Array) -> Array:
    """Angles brought into (−π, π]."""
    turns = angle * (0.5 / np.pi)
    turns -= 0.5
    np.ceil(turns, out=turns)
    turns *= -2.0 * np.pi
    turns += angle
    return turns


def wrap_one(angle: float) -> float:
    """`wrap` of one angle, bit for bit."""
    return math.ceil(angle * (0.5 / math.pi) - 0.5) * (-2.0 * math.pi) + angle


def success(states: Array, last: int = 100) -> NDArray[np.bool_]:
    """Whether the `last` states reached are all within 60° of upright: (…,) bool from trajectories (…, T+1, 2).

    The state a trajectory starts in was not reached by an action and does not count: ValueError if T < `last`.
    """
    if states.shape[-2] <= last:
        raise ValueError(f"success needs a start and {last} states after actions, got {states.shape[-2]} states in all")
    return np.all(np.abs(wrap(states[..., -last:, 0])) <= np.pi / 3.0, axis=-1)
