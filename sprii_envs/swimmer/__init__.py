"""Short segments of Swimmer under fixed waveforms: the experience of the fixed-update study (`app:fixed-weight`)."""

from sprii_envs.swimmer.protocol import (
    ACTED,
    CANDIDATES,
    CLEAN,
    OBSERVED,
    SPLITS,
    WORLD,
    SegmentProtocol,
    build_segments,
    scales,
)
from sprii_envs.swimmer.waves import HISTORIES, QUERIES, torques

__all__ = [
    "ACTED",
    "CANDIDATES",
    "CLEAN",
    "HISTORIES",
    "OBSERVED",
    "QUERIES",
    "SPLITS",
    "WORLD",
    "SegmentProtocol",
    "build_segments",
    "scales",
    "torques",
]
