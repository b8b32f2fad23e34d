"""Gymnasium environments with persistent properties, relation samplers and episode banks."""

from sprii_envs.properties import (
    PersistentProperties,
    PersistentProperty,
    System,
    SystemDistribution,
    SystemSet,
    vary,
)
from sprii_envs.registration import register, register_all

__version__ = "0.1.0"

__all__ = [
    "PersistentProperties",
    "PersistentProperty",
    "System",
    "SystemDistribution",
    "SystemSet",
    "register",
    "vary",
]

register_all()
