"""Small banks of coloured discs, with pictures of their own: what a front end learns of CoPhy in a second."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import RecordedBank, Recording, StreamSpec
from sprii_train.cophy.frontend import FrontEndConfig

SIZE, FRAMES, SLOTS = 28, 4, 4
COLOURS = np.array([(240, 220, 50), (30, 130, 50), (40, 80, 220), (214, 39, 40)], np.uint8)

SMALL = FrontEndConfig(
    trunk="narrow", size=SIZE, width=8, hidden=32, steps=200, batch=32, judged=100, checkpoint_every=20, log_every=20
)
"""Learns them in two seconds."""


def discs(position: NDArray[np.float64], there: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """A picture, and the boxes in pixels of 224, of discs at positions (K, 3); the third is how large they are."""
    picture = np.full((SIZE, SIZE, 3), 90, np.uint8)
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    boxes = np.zeros((SLOTS, 4), np.float32)
    for slot in np.flatnonzero(there):
        cx, cy = SIZE / 2 + 5 * position[slot, :2]
        radius = 3 + position[slot, 2]
        picture[(x - cx) ** 2 + (y - cy) ** 2 < radius**2] = COLOURS[slot]
        boxes[slot] = np.array([cx - radius, cy - radius, cx + radius, cy + radius]) * 224 / SIZE
    return picture, boxes


def drawn_bank(path: Path, train: int = 30, validation: int = 10, *, seed: int = 0) -> RecordedBank:
    """Pairs of two discs in two of four slots, anywhere in every frame; in the first pair's CD only one is left."""
    rng = np.random.default_rng(seed)
    streams = {}
    for video in ("ab", "cd"):
        streams[f"{video}_states"] = StreamSpec((SLOTS, 13))
        streams[f"{video}_boxes"] = StreamSpec((SLOTS, 4))
        streams[f"{video}_frames"] = StreamSpec((SIZE, SIZE, 3), "uint8")
    with Recording(path, streams) as recording:
        for pair in range(train + validation):
            there = np.isin(np.arange(SLOTS), rng.choice(SLOTS, 2, replace=False))
            arrays = {}
            for video in ("ab", "cd"):
                left = there & (np.cumsum(there) < 2) if video == "cd" and pair == 0 else there
                states = np.zeros((FRAMES, SLOTS, 13), np.float32)
                states[:, left, :3] = rng.uniform([-2, -2, -1], [2, 2, 1], (FRAMES, left.sum(), 3))
                states[:, left, 6] = 1.0
                drawn = [discs(state[:, :3], left) for state in states]
                arrays[f"{video}_states"] = states
                arrays[f"{video}_frames"], arrays[f"{video}_boxes"] = map(np.stack, zip(*drawn, strict=True))
            labels = {f"kind_{slot}": 0 if there[slot] else -1 for slot in range(SLOTS)}
            labels |= {f"{p}_{slot}": 1.0 for p in ("mass", "friction", "restitution") for slot in range(SLOTS)}
            split = "train" if pair < train else "validation"
            recording.append(
                arrays, system=str(pair % 5), scene="collision", split=split, gravity_x=0.0, gravity_y=0.0, **labels
            )
    return RecordedBank(path)
