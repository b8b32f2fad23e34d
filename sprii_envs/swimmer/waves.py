"""Waveforms of two joints over one segment: deterministic, of one energy (`app:fixed-weight`)."""

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import choice, integer, number

HISTORIES = ("joint_1_slow", "joint_1_chirp", "joint_2_slow", "joint_2_chirp", "in_phase", "quadrature")
"""What a history is driven by."""
QUERIES = (
    "joint_1_triangle", "joint_1_chirp", "joint_2_triangle", "joint_2_chirp", "in_phase_chirp", "anti_phase_chirp",
)  # fmt: skip
"""What a query is driven by."""
RMS = 0.42
"""Root of the mean over the steps of a₁² + a₂²."""


def torques(kind: str, *, steps: int = 40, dt: float = 0.01, rms: float = RMS) -> NDArray[np.float32]:
    """Actions (steps, 2) of a waveform at t = 0, dt, …, with T = steps·dt and φ = t / T.

    `slow` is sin 2πφ, `chirp` sin 2π(0.75 t + 1.75 t²/T), `triangle` the triangle wave of the phase of `slow`. They
    drive the joint that is named, the other rests; `in_phase` is (slow, slow), `quadrature` (sin 2πφ, cos 2πφ),
    `in_phase_chirp` (chirp, chirp) and `anti_phase_chirp` (chirp, −chirp).

    Raises:
        ValueError: for an unknown waveform, fewer than two steps, or an energy that takes an action beyond ±1.
    """
    choice("waveform", kind, legal=dict.fromkeys((*HISTORIES, *QUERIES)))
    steps, dt, rms = integer("steps", steps, least=2), number("dt", dt, above=0), number("rms", rms, above=0)
    time, whole = dt * np.arange(steps), dt * steps
    angle = 2.0 * np.pi * time / whole
    waves = {
        "slow": np.sin(angle),
        "chirp": np.sin(2.0 * np.pi * (0.75 * time + 1.75 * time**2 / whole)),
        "triangle": np.arcsin(np.sin(angle)),
    }
    rest = np.zeros(steps)
    match kind.split("_"):
        case ["joint", joint, form]:
            pair = (waves[form], rest) if joint == "1" else (rest, waves[form])
        case ["quadrature"]:
            pair = (np.sin(angle), np.cos(angle))
        case [_, _, *form]:
            wave = waves[form[0] if form else "slow"]
            pair = (wave, -wave if kind.startswith("anti") else wave)
        case _:
            raise AssertionError(kind)
    found = np.stack(pair, axis=1)
    found *= rms / np.sqrt((found**2).sum(1).mean())
    if (peak := float(np.abs(found).max())) > 1.0:
        raise ValueError(f"rms is {rms}, which takes {kind} to {peak:.3f}; legal: an energy that keeps actions in ±1")
    return found.astype(np.float32)
