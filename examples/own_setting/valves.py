"""Recorded data: logs of valves that fill and drain a tank, each with its own flow and its own leak.

Stands for whatever lies on your disk: arrays of unequal length, with labels of every episode, made a bank by `record`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import RecordedBank, Recording, StreamSpec

VALVES, LOGS = 96, 6


def log(flow: float, leak: float, length: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """One log: level and measured pressure (length, 2), and the opening of the valve (length − 1, 1)."""
    opening = np.repeat(rng.random(length // 8 + 1), 8)[: length - 1, None]
    level = np.empty(length)
    level[0] = rng.uniform(0.2, 1.5)
    for t in range(length - 1):
        level[t + 1] = level[t] + 0.1 * (flow * opening[t, 0] - leak * np.sqrt(max(level[t], 0.0)))
    pressure = level + 0.01 * rng.standard_normal(length)
    return {"signals": np.stack([level, pressure], axis=1), "opening": opening}


def record(folder: Path) -> RecordedBank:
    """The bank in a folder; recorded if it is not there, taken up where it was stopped."""
    if not folder.exists():
        streams = {"signals": StreamSpec((2,)), "opening": StreamSpec((1,), per="transition")}
        with Recording(folder, streams, origin={"source": "examples/own_setting", "seed": 0}) as recording:
            for episode in range(recording.done, VALVES * LOGS):
                valve, number = divmod(episode, LOGS)
                flow, leak = np.random.default_rng([0, valve]).uniform([0.3, 0.2], [1.5, 1.0])
                rng = np.random.default_rng([1, episode])
                split = "train" if valve < 64 else "validation" if valve < 80 else "test"
                recording.append(
                    log(flow, leak, int(rng.integers(48, 80)), rng),
                    episode=f"valve{valve}-{number}", system=f"valve{valve}", split=split, flow=flow, leak=leak,
                )  # fmt: skip
    return RecordedBank(folder)
