"""Burgers' equation u_t + (u²/2)_x = ν u_xx on a ring: solver, initial fields, exact solutions.

The setting of `app:nod-burgers-profile`. The released archive states neither domain, boundary, law of initial fields
nor solver. Ours: x in [−1, 1), periodic, and six sine modes; Strang splitting of exact diffusion in Fourier space and a
MUSCL scheme (van Leer's limiter, Godunov's flux, SSP-RK2), which with ν = 0 is the inviscid solver and converges to the
entropy solution.

Every row is integrated with steps of its own, so its bits do not depend on which rows are solved with it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer, integer_array, number, real_array

Array = NDArray[np.float64]

LENGTH = 2.0
"""Of the ring."""
MODES = 6
COURANT = 0.45
LONGEST = 0.01
"""Of a step, so that splitting errs less than the grid."""


def grid(cells: int) -> Array:
    """Places of the cells, −1 + 2i/cells, (cells,)."""
    return -1.0 + LENGTH * np.arange(cells) / cells


def modes(seed: int, viscosity: ArrayLike, case: ArrayLike) -> tuple[Array, Array]:
    """Amplitudes and phases (N, 6) of initial fields, a pure function of (seed, ν, case), each (N,) or a number.

    u₀(x) = Σ aₖ sin(πkx + φₖ), aₖ normal with SD 1/k, φₖ uniform, scaled to max |u₀| = 1 over 4,096 places;
    its mean is 0.

    Raises:
        ValueError: for a seed or case that is negative or too large, a ν that is negative or not finite, or for
            viscosities and cases of several lengths.
    """
    seed = integer("seed", seed, most=2**63 - 1)
    nu, cases = np.atleast_1d(real_array("viscosity", viscosity, least=0.0), integer_array("case", case))
    if nu.ndim > 1 or cases.ndim > 1 or len({len(nu), len(cases)} - {1}) > 1:
        raise ValueError(
            f"viscosity has shape {np.shape(viscosity)} and case {np.shape(case)}; legal: numbers, or one of each a row"
        )
    nu, cases = np.broadcast_arrays(nu, cases)
    amplitude, phase = np.empty((2, len(nu), MODES))
    for row, (value, number_) in enumerate(zip(nu, cases.tolist(), strict=True)):
        key = np.array([seed, value.view(np.uint64)], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number_]))
        amplitude[row] = rng.standard_normal(MODES) / np.arange(1, MODES + 1)
        phase[row] = rng.uniform(0.0, 2.0 * np.pi, MODES)
    amplitude /= np.abs(field(amplitude, phase, grid(4096))).max(axis=1, keepdims=True)
    return amplitude, phase


def field(amplitude: Array, phase: Array, x: Array) -> Array:
    """u₀ (N, X) at places x (X,)."""
    u = np.zeros((len(amplitude), len(x)))
    for k in range(1, MODES + 1):
        u += amplitude[:, k - 1, None] * np.sin(np.pi * k * x + phase[:, k - 1, None])
    return u


def potential(amplitude: Array, phase: Array, x: Array) -> Array:
    """∫u₀ dx, (N, …) at places x (N, …) or (X,): periodic, for the exact solutions."""
    shape = (len(amplitude), *(1,) * max(1, x.ndim - 1))
    total = np.zeros(np.broadcast_shapes(shape, x.shape))
    for k in range(1, MODES + 1):
        a, p = amplitude[:, k - 1].reshape(shape), phase[:, k - 1].reshape(shape)
        total -= a / (np.pi * k) * np.cos(np.pi * k * x + p)
    return total


def solve(start: Array, viscosity: ArrayLike, *, frames: int = 101, duration: float = 5.0) -> Array:
    """Fields (N, frames, cells) at equal times 0 … `duration`, from `start` (N, cells) under ν (N,) or a number.

    Raises:
        ValueError: for a start that is not finite or of fewer than 8 cells, a ν that is negative or not finite, more or
            fewer ν than starts, fewer than 2 frames, or a duration that is not positive.
    """
    frames, duration = integer("frames", frames, least=2), number("duration", duration, above=0.0)
    u = np.array(start, np.float64, ndmin=2)
    if u.ndim != 2 or u.shape[1] < 8:
        raise ValueError(f"start has shape {np.shape(start)}; legal: (N, cells), 8 cells at least")
    if not np.isfinite(u).all():
        raise ValueError("start is not finite: it holds NaN or infinity; legal: finite numbers")
    nu = real_array("viscosity", viscosity, least=0.0)
    if nu.shape not in ((), (len(u),)):
        raise ValueError(f"viscosity has shape {nu.shape}; legal: a number, or one for each of {len(u)} fields")
    nu = np.broadcast_to(nu, len(u))
    n, cells = u.shape
    dx, each = LENGTH / cells, duration / (frames - 1)
    square = (2.0 * np.pi / LENGTH * np.arange(cells // 2 + 1)) ** 2
    out = np.empty((n, frames, cells))
    out[:, 0] = u
    for frame in range(1, frames):
        # |u| never grows, so the steps that suit the frame's beginning suit all of it.
        speed = np.abs(u).max(axis=1)
        count = np.ceil(each * np.maximum(speed / (COURANT * dx), 1.0 / LONGEST)).astype(np.int64)
        order = np.argsort(-count, kind="stable")
        u, counts, nus = u[order], count[order], nu[order]
        dt = (each / counts)[:, None]
        whole = np.exp(-nus[:, None] * square * dt)
        half = np.sqrt(whole)
        u = _diffuse(u, half)
        for k in range(int(counts[0])):
            active = int(np.searchsorted(-counts, -k, side="left"))  # rows with more than k steps come first
            last = counts[:active, None] == k + 1
            moved = _transport(u[:active], dt[:active] / dx)
            u[:active] = _diffuse(moved, np.where(last, half[:active], whole[:active]))
        u = u[np.argsort(order)]
        out[:, frame] = u
    return out


def _diffuse(u: Array, decay: Array) -> Array:
    """Exact diffusion; rows that do not diffuse keep their bits."""
    still = decay[:, -1] == 1.0
    if still.all():
        return u
    spectrum = np.fft.rfft(u, axis=1)
    spectrum *= decay
    diffused = np.fft.irfft(spectrum, u.shape[1], axis=1)
    diffused[still] = u[still]
    return diffused


def _transport(u: Array, ratio: Array) -> Array:
    """A step of SSP-RK2 of the inviscid equation; `ratio` is Δt/Δx (N, 1)."""
    first = u - ratio * _outflow(u)
    second = first - ratio * _outflow(first)
    second += u
    second *= 0.5
    return second


def _outflow(u: Array) -> Array:
    """Flux to the right minus flux from the left of every cell."""
    n, cells = u.shape
    wide = np.empty((n, cells + 4))
    wide[:, 2:-2], wide[:, :2], wide[:, -2:] = u, u[:, -2:], u[:, :2]
    step = wide[:, 1:] - wide[:, :-1]
    left, right = step[:, :-1], step[:, 1:]
    # Half of van Leer's slope: the harmonic mean where both differences agree in sign, else 0.
    slope = left * right
    np.maximum(slope, 0.0, out=slope)
    total = left + right
    np.copyto(total, 1.0, where=total == 0.0)
    slope /= total
    ahead = wide[:, 1:-2] + slope[:, :-1]
    behind = wide[:, 2:-1] - slope[:, 1:]
    np.maximum(ahead, 0.0, out=ahead)
    np.minimum(behind, 0.0, out=behind)
    ahead *= ahead
    behind *= behind
    flux = np.maximum(ahead, behind, out=ahead)
    flux *= 0.5
    return flux[:, 1:] - flux[:, :-1]


def stored(fields: Array, points: int = 401) -> NDArray[np.float32]:
    """What a bank keeps of fields (N, T, cells): every (cells / (points − 1))-th cell and the first again, float32."""
    every, rest = divmod(fields.shape[-1], integer("points", points, least=2) - 1)
    if rest or every < 1:
        raise ValueError(f"points is {points}; legal: one more than a divisor of the {fields.shape[-1]} cells")
    kept = fields[..., ::every]
    return np.concatenate((kept, kept[..., :1]), axis=-1).astype(np.float32)


def cole_hopf(amplitude: Array, phase: Array, viscosity: float, t: float, x: Array, *, places: int = 40_001) -> Array:
    """The exact solution (N, X) at time t > 0 and places x (X,), for ν > 0.

    The Cole–Hopf ratio of integrals over where the fluid came from, which lies within t·max|u₀| = t and a few diffusion
    lengths; exponents are shifted by their minimum, so that no ν is too small.
    """
    return _origins(amplitude, phase, t, x, places, 2.0 * viscosity)


def lax_oleinik(amplitude: Array, phase: Array, t: float, x: Array, *, places: int = 40_001) -> Array:
    """The entropy solution (N, X) of ν = 0 at time t > 0 and places x (X,): fluid is from where the action is least."""
    return _origins(amplitude, phase, t, x, places, 0.0)


def _origins(amplitude: Array, phase: Array, t: float, x: Array, places: int, spread: float) -> Array:
    reach = t + 8.0 * np.sqrt(spread * t)
    offset = np.linspace(-reach, reach, places)  # x − y
    out = np.empty((len(amplitude), len(x)))
    for i, place in enumerate(x):
        action = offset**2 / (2.0 * t) + potential(amplitude, phase, place - offset)
        least = action.argmin(axis=1)
        if spread == 0.0:
            out[:, i] = offset[least] / t
            continue
        weight = np.exp((action[np.arange(len(action)), least][:, None] - action) / spread)
        out[:, i] = (weight @ offset) / weight.sum(axis=1) / t
    return out
