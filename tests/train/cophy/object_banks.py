"""A small bank of two objects in four colours: mass tells how far they move. The front end has its first weights."""

from pathlib import Path

import numpy as np
import torch

from sprii_envs.banks import RecordedBank, Recording, StreamSpec
from sprii_train.cophy.features import Features, features_of
from sprii_train.cophy.frontend import FrontEnd, FrontEndConfig

FRAMES, SLOTS, MASSES = 6, 4, (1.0, 5.0)
COUNTS = {"train": 60, "validation": 30, "test": 30}
FRONTEND = FrontEndConfig("narrow", size=28, width=4, hidden=8)


def object_features(folder: Path, *, seed: int = 0) -> Features:
    """Pairs of spheres; in the first pair of validation an object is missing in CD."""
    rng, side = np.random.default_rng(seed), 28
    streams = {}
    for video in ("ab", "cd"):
        streams[f"{video}_states"] = StreamSpec((SLOTS, 13))
        streams[f"{video}_boxes"] = StreamSpec((SLOTS, 4))
        streams[f"{video}_frames"] = StreamSpec((side, side, 3), "uint8")
    with Recording(folder / "bank", streams) as recording:
        for split, count in COUNTS.items():
            for pair in range(count):
                there = np.isin(np.arange(SLOTS), rng.choice(SLOTS, 2, replace=False))
                mass = np.where(there, rng.choice(MASSES, SLOTS), 0.0)
                arrays = {}
                for video in ("ab", "cd"):
                    left = there & (np.cumsum(there) < 2) if (split, pair, video) == ("validation", 0, "cd") else there
                    states = np.zeros((FRAMES, SLOTS, 13), np.float32)
                    begin, rate = rng.uniform(-1, 1, (SLOTS, 3)), rng.uniform(0.1, 0.3, (SLOTS, 3))
                    gone = np.arange(FRAMES)[:, None, None] / np.maximum(mass, 1.0)[:, None]
                    states[:, left, :3] = (begin + rate * gone)[:, left]
                    arrays[f"{video}_states"] = states
                    arrays[f"{video}_boxes"] = np.zeros((FRAMES, SLOTS, 4), np.float32)
                    pictures = np.full((FRAMES, side, side, 3), 90, np.uint8)
                    pictures[:, 0, :SLOTS, 0] = np.round(50 * states[..., 0] + 100)
                    arrays[f"{video}_frames"] = pictures
                labels = {f"kind_{slot}": 0 if there[slot] else -1 for slot in range(SLOTS)}
                labels |= {f"mass_{slot}": float(mass[slot]) for slot in range(SLOTS)}
                labels |= {f"{p}_{slot}": 0.5 for p in ("friction", "restitution") for slot in range(SLOTS)}
                recording.append(
                    arrays, system=" ".join(map(str, mass)), scene="collision", split=split, gravity_x=0.0,
                    gravity_y=0.0, **labels,
                )  # fmt: skip

    torch.manual_seed(0)
    return features_of(RecordedBank(folder / "bank"), FrontEnd(FRONTEND, SLOTS).eval(), folder / "features")
