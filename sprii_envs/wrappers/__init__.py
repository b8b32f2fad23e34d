"""Observation wrappers: persistent context, the causal frame difference, the state beside the pixels; systems that last
for several episodes; and systems for any environment, `PersistentEnv`.

Each of the others comes for one environment and, named `Vector…`, for a vector environment in any autoreset mode, where
the `final_obs` of ended slots are transformed like every other observation.
"""

from sprii_envs.wrappers.common import autoreset_mode
from sprii_envs.wrappers.context import ContextObservation, VectorContextObservation
from sprii_envs.wrappers.effects import without_effect
from sprii_envs.wrappers.persistent import PersistentEnv
from sprii_envs.wrappers.pixels import (
    StateObservation,
    TemporalDifference,
    VectorStateObservation,
    VectorTemporalDifference,
    temporal_difference,
)
from sprii_envs.wrappers.repeat import RepeatSystem, VectorRepeatSystem

__all__ = [
    "ContextObservation",
    "PersistentEnv",
    "RepeatSystem",
    "StateObservation",
    "TemporalDifference",
    "VectorContextObservation",
    "VectorRepeatSystem",
    "VectorStateObservation",
    "VectorTemporalDifference",
    "autoreset_mode",
    "temporal_difference",
    "without_effect",
]
