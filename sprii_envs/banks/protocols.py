"""Protocols: everything that decides a bank's bytes, as one frozen value."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sprii_envs.banks import behaviours
from sprii_envs.banks.behaviours import Behaviour, ForceSegments


@dataclass(frozen=True, eq=False)
class BankProtocol:
    """The recipe of a bank.

    With the same NumPy on the same kind of processor it gives the same bytes, whatever the number of workers
    and interruptions.

    `systems` maps each split to its number of systems, in the order of the episodes; splits are drawn
    independently and share no system. `steps` counts observations, so an episode has `steps − 1` actions and
    rewards. `constants` are physical constants handed to the environment's world. `systems_per_chunk` is the
    unit of work and of resuming; it is part of the recipe because each chunk has its own random stream.
    """

    name: str
    version: int
    env_id: str
    systems: Mapping[str, int]
    rollouts: int
    steps: int
    behaviour: Behaviour
    constants: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    systems_per_chunk: int = 50

    def __post_init__(self) -> None:
        """ValueError naming the first illegal field."""
        object.__setattr__(self, "systems", dict(self.systems))
        object.__setattr__(self, "constants", dict(self.constants))
        counts = {
            "version": self.version,
            "rollouts": self.rollouts,
            "systems_per_chunk": self.systems_per_chunk,
        }
        counts |= {f"systems[{split!r}]": count for split, count in self.systems.items()}
        for name, value in counts.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not self.systems or not all(isinstance(split, str) and split for split in self.systems):
            raise ValueError(f"systems must name at least one split, got {self.systems!r}")
        if not isinstance(self.steps, int) or self.steps < 2:
            raise ValueError(f"steps must be a whole number of at least 2 observations, got {self.steps!r}")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be a whole number in [0, 2**64), got {self.seed!r}")

    @property
    def episodes(self) -> int:
        """Number of episodes over all splits."""
        return sum(self.systems.values()) * self.rollouts

    def replace(self, **changes: Any) -> "BankProtocol":
        """A copy with some fields changed, for instance `D_CLEAN.replace(seed=1)`."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` restores an equal protocol."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["systems"] = [list(item) for item in self.systems.items()]  # a list, because the order counts
        data["constants"] = dict(self.constants)
        data["behaviour"] = behaviours.to_dict(self.behaviour)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BankProtocol":
        """The protocol that `to_dict` wrote; ValueError for missing, surplus or illegal fields."""
        expected = {f.name for f in dataclasses.fields(cls)}
        if set(data) != expected:
            missing, surplus = sorted(expected - set(data)), sorted(set(data) - expected)
            raise ValueError(f"protocol has missing fields {missing} and unknown fields {surplus}")
        return cls(**{**data, "systems": dict(data["systems"]), "behaviour": behaviours.from_dict(data["behaviour"])})

    def __eq__(self, other: object) -> bool:
        """Equal in every field, the order of the splits included."""
        return isinstance(other, BankProtocol) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Hash of the contents."""
        return hash(json.dumps([self.name, self.version, self.env_id, self.seed, list(self.systems.items())]))

    def differences(self, other: "BankProtocol") -> str:
        """The fields in which `other` differs, as 'field: mine, not theirs'; empty when equal."""
        mine, theirs = self.to_dict(), other.to_dict()
        return "; ".join(f"{key}: {mine[key]!r}, not {theirs[key]!r}" for key in mine if mine[key] != theirs[key])


D_CLEAN = BankProtocol(
    name="d-clean",
    version=1,
    env_id="sprii/D-Clean-v0",
    systems={"train": 1000, "validation": 200, "test": 200},
    rollouts=8,
    steps=64,
    behaviour=ForceSegments(shortest=3, longest=8, rest=0.3, largest=1.0),
    constants={"dt": 0.05, "mass": 1.0, "force_limit": 4.0, "start_extent": 1.0, "start_speed": 2.0},
)
"""The D-Clean bank of the paper (`app:dclean-profile`): 11,200 episodes of 64 observations."""
