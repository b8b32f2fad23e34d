"""FitzHugh–Nagumo on a periodic unit square, two fields u and v (`app:nod-fhn-profile`).

    u_t = D_u ∇²u + u − u³ + k − v,   v_t = D_v ∇²v + β (u − v),   D_u = 1/128², D_v = 100/128²

The Laplacian is the released fourth-order stencil of nine points. `rk4` is the published solver; `split` the same
stencil diffused exactly in Fourier space between half steps of the reaction, thirty times faster. Every row is
integrated by itself: its bits do not depend on which rows are solved with it.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import choice, integer, integer_array, number, numbers, real_array, shown

Array = NDArray[np.float64]
Change = Callable[[Array], Array]
Advance = Callable[[Array, int], Array]
"""Fields and a number of steps → the fields after them."""

SIDE = 128
DIFFUSION = (1.0 / SIDE**2, 100.0 / SIDE**2)
"""Of u and v, in squares of the unit square."""
SMOOTHNESS, SCALE = 2.0, 5.0
"""α and τ of the initial fields."""

TRAIN = (
    *((0.03, 0.10), (0.02, 0.15), (0.04, 0.15), (0.01, 0.20), (0.03, 0.20)),
    *((0.05, 0.20), (0.02, 0.25), (0.04, 0.25), (0.03, 0.30)),
)
"""(k, β): of the grid of 5 × 5, the points an even number of steps from its centre, no further than two."""
INSIDE = ((0.03, 0.15), (0.02, 0.20), (0.04, 0.20), (0.03, 0.25))
OUTSIDE = tuple(
    (k, beta)
    for beta in (0.10, 0.15, 0.20, 0.25, 0.30)
    for k in (0.01, 0.02, 0.03, 0.04, 0.05)
    if (k, beta) not in TRAIN + INSIDE
)

Solver = Literal["rk4", "split"]
STEPS = {"rk4": 0.001, "split": 0.02}
"""Time steps: the published one, and one at which splitting errs by 2e-4 at t = 10."""
_ROWS = 4
"""Trajectories solved at once: few enough for a core's cache."""


def initial(seed: int, case: ArrayLike, side: int = SIDE) -> Array:
    """Gaussian random fields (N, 2, side, side) of cases (N,): u and v independent, a pure function of (seed, case).

    The coefficient of wave n is N²·√2·σ·(4π²|n|² + τ²)^(−α/2)·z with α = 2, τ = 5, σ = τ^(α−1) and z complex normal;
    the mean is 0. A coarser field has the waves of the finer one that it can hold.
    """
    seed, side = integer("seed", seed, most=2**64 - 1), integer("side", side, least=8, most=4 * SIDE)
    if side % 2:
        raise ValueError(f"side is {side}; legal: even numbers")
    cases = np.atleast_1d(integer_array("case", case))
    most = max(side, SIDE)
    out = np.empty((len(cases), 2, side, side))
    wave = np.fft.fftfreq(side, 1.0 / side)
    square = wave[:, None] ** 2 + wave**2
    amplitude = np.sqrt(2.0) * SCALE ** (SMOOTHNESS - 1.0) * (4 * np.pi**2 * square + SCALE**2) ** (-SMOOTHNESS / 2)
    amplitude[0, 0] = 0.0
    kept = wave.astype(np.int64) % most
    for row, number_ in enumerate(cases.tolist()):
        key = np.array([seed, 0], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number_]))
        real, imaginary = rng.standard_normal((2, 2, most, most))[:, :, kept[:, None], kept]
        out[row] = np.fft.ifft2(side**2 * amplitude * (real + 1j * imaginary)).real
    return out


def step_of(each: float, solver: Solver, step: float | None = None) -> float:
    """What a solver steps by: the longest time up to `step`, by default its own, that divides `each` between frames."""
    longest = STEPS[choice("solver", solver, legal=STEPS)] if step is None else number("step", step, above=0.0)
    return each / int(np.ceil(each / longest - 1e-9))


def solve(
    start: Array,
    parameters: ArrayLike,
    *,
    frames: int = 101,
    duration: float = 10.0,
    solver: Solver = "split",
    step: float | None = None,
    diffusion: tuple[float, float] = DIFFUSION,
) -> Array:
    """Fields (N, frames, 2, side, side) at equal times 0 … `duration`, under parameters (k, β) (N, 2) or (2,).

    Args:
        start: (N, 2, side, side).
        step: of time; by default the solver's own. It is shortened to the longest that divides the time between frames.
        diffusion: D_u and D_v, not negative.

    Raises:
        ValueError: for other shapes, a start that is not finite, an unknown solver, a step that is not positive, or a
            negative β or diffusion, under which fields grow without bound; FloatingPointError where the fields run
            away, as those of rk4 do with too long a step.
    """
    frames, duration = integer("frames", frames, least=2), number("duration", duration, above=0.0)
    choice("solver", solver, legal=STEPS)
    fields = np.array(start, np.float64)
    if fields.ndim != 4 or fields.shape[1] != 2 or fields.shape[2] != fields.shape[3]:
        raise ValueError(f"start has shape {np.shape(start)}; legal: (N, 2, side, side)")
    if not np.isfinite(fields).all():
        raise ValueError("start is not finite: it holds NaN or infinity; legal: finite numbers")
    told = real_array("parameters", parameters)
    if told.shape not in ((2,), (len(fields), 2)):
        raise ValueError(
            f"parameters have shape {told.shape}; legal: pairs (k, beta), shape (2,) or ({len(fields)}, 2), one for "
            "each start"
        )
    if (told[..., 1] < 0.0).any():
        raise ValueError(f"parameters are {shown(parameters)}; legal: finite pairs (k, beta), beta >= 0")
    told = np.broadcast_to(told, (len(fields), 2))
    if len(numbers("diffusion", diffusion, least=0.0)) != 2:
        raise ValueError(f"diffusion is {diffusion}; legal: D_u and D_v")
    dt = step_of(duration / (frames - 1), solver, step)
    count = round(duration / (frames - 1) / dt)
    out = np.empty((len(fields), frames, *fields.shape[1:]))
    out[:, 0] = fields
    for first in range(0, len(fields), _ROWS):
        rows = slice(first, first + _ROWS)
        now, k, beta = fields[rows], told[rows, 0, None, None], told[rows, 1, None, None]
        advance = SOLVERS[solver](fields.shape[-1], k, beta, dt, diffusion)
        for frame in range(1, frames):
            now = advance(now, count)
            if not np.isfinite(now).all():
                raise FloatingPointError(f"the fields ran away before frame {frame}; take a shorter step than {dt:.4g}")
            out[rows, frame] = now
    return out


def laplacian(field: Array) -> Array:
    """The released stencil of nine points on the unit square, periodic; the last two axes of `field`."""
    side = field.shape[-1]
    total = -5.0 * field
    for axis in (-2, -1):
        total += 4.0 / 3.0 * (np.roll(field, 1, axis) + np.roll(field, -1, axis))
        total -= 1.0 / 12.0 * (np.roll(field, 2, axis) + np.roll(field, -2, axis))
    total *= side**2
    return total


def symbol(side: int) -> Array:
    """What `laplacian` multiplies the waves of `rfft2` by, (side, side // 2 + 1)."""
    angle = 2.0 * np.pi * np.fft.fftfreq(side)
    along = -2.5 + 8.0 / 3.0 * np.cos(angle) - 1.0 / 6.0 * np.cos(2.0 * angle)
    return side**2 * (along[:, None] + along[: side // 2 + 1])


def reaction(fields: Array, k: Array, beta: Array) -> Array:
    """The right side without diffusion, of fields (N, 2, side, side)."""
    u, v = fields[:, 0], fields[:, 1]
    out = np.empty_like(fields)
    du, dv = out[:, 0], out[:, 1]
    np.multiply(u, u, out=du)
    np.subtract(1.0, du, out=du)
    du *= u
    du += k
    du -= v
    np.subtract(u, v, out=dv)
    dv *= beta
    return out


def _runge_kutta(change: Change, now: Array, dt: float) -> Array:
    first = change(now)
    second = change(now + 0.5 * dt * first)
    third = change(now + 0.5 * dt * second)
    first += 2.0 * (second + third) + change(now + dt * third)
    return now + dt / 6.0 * first


def _published(side: int, k: Array, beta: Array, dt: float, diffusion: tuple[float, float]) -> Advance:
    rates = np.array(diffusion)[:, None, None]

    def change(fields: Array) -> Array:
        return reaction(fields, k, beta) + rates * laplacian(fields)

    def advance(fields: Array, count: int) -> Array:
        for _ in range(count):
            fields = _runge_kutta(change, fields, dt)
        return fields

    return advance


def _split(side: int, k: Array, beta: Array, dt: float, diffusion: tuple[float, float]) -> Advance:
    rates = symbol(side) * np.array(diffusion)[:, None, None]
    half, whole = np.exp(0.5 * dt * rates), np.exp(dt * rates)

    def diffused(fields: Array, decay: Array) -> Array:
        return np.fft.irfft2(decay * np.fft.rfft2(fields), s=(side, side))

    def advance(fields: Array, count: int) -> Array:
        fields = diffused(fields, half)
        for i in range(count):
            fields = _runge_kutta(lambda now: reaction(now, k, beta), fields, dt)
            fields = diffused(fields, whole if i + 1 < count else half)
        return fields

    return advance


SOLVERS = {"rk4": _published, "split": _split}
