"""Protocols: everything that decides a bank's bytes, as one frozen value. The paper's are in `PROTOCOLS`."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from sprii_envs import rendering
from sprii_envs.arguments import MANY, check, flag, instance, integer
from sprii_envs.banks import behaviours, populations
from sprii_envs.banks.behaviours import Behaviour, ForceSegments, PokeModes, SpringEpisodes, SwimmerWaves
from sprii_envs.banks.populations import (
    Combinations,
    Extrapolated,
    FactorialBlocks,
    Interpolated,
    Population,
    Uniform,
    Union,
)


class Part(NamedTuple):
    """Episodes of one kind that every system of a split has."""

    kind: str | None
    episodes: int
    length: int
    """Planned observations of an episode."""


@dataclass(frozen=True, eq=False)
class BankProtocol:
    """The recipe of a bank.

    With the same NumPy on the same kind of processor it gives the same bytes, whatever the number of workers
    and interruptions.

    Args:
        systems: split → its systems, in the order of the episodes: a number of them, drawn from the declared ranges,
            or a population. Splits are drawn independently and share no system.
        rollouts: episodes of every system, of each kind if the behaviour has `episode_kinds`; or split → kind →
            episodes
        steps: observations, so that an episode has `steps − 1` actions and rewards; the environment's time
            limit does not bound them
        lengths: kind → planned observations where they are fewer than `steps`; the rest of the row is 0
        constants: physical constants handed to the environment's world, numbers or names such as a fluid's
        systems_per_chunk: the unit of work and of resuming; part of the recipe because each chunk has its own streams
        nested: the n-th episode of a kind does not depend on how many follow, so that the bank of fewer rollouts holds
            the first episodes of the bank of more
        frames: image size of the grayscale frames that the bank stores; None stores none
        sealed_splits: splits kept for a last evaluation, which `Bank.split` opens on request only
    """

    name: str
    version: int
    env_id: str
    systems: Mapping[str, int | Population]
    rollouts: int | Mapping[str, Mapping[str, int]]
    steps: int
    behaviour: Behaviour
    constants: Mapping[str, float | str] = field(default_factory=dict)
    seed: int = 0
    systems_per_chunk: int = 50
    lengths: Mapping[str, int] = field(default_factory=dict)
    nested: bool = False
    frames: int | None = None
    sealed_splits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ValueError naming the first illegal field."""
        object.__setattr__(self, "constants", dict(self.constants))
        object.__setattr__(self, "sealed_splits", tuple(self.sealed_splits))
        check(self, instance, "name", "env_id", of=str)
        check(self, integer, "version", "systems_per_chunk", least=1, most=MANY)
        check(self, integer, "steps", least=2, most=MANY)
        check(self, integer, "seed", most=2**64 - 1)
        check(self, flag, "nested")
        systems: dict[str, int | Population] = {}
        behaviours.KINDS.check(self.behaviour)
        for split, given in dict(self.systems).items():
            if hasattr(given, "count"):
                populations.KINDS.check(given)
            count = integer(f"BankProtocol.systems[{split!r}]", getattr(given, "count", given), least=1, most=MANY)
            systems[split] = given if hasattr(given, "count") else count
        object.__setattr__(self, "systems", systems)
        if not self.systems or not all(isinstance(split, str) and split for split in self.systems):
            raise ValueError(f"systems must name at least one split, got {self.systems!r}")
        self._check_kinds()
        if self.frames is not None:
            rendering.image_size(self.frames)
        if surplus := [split for split in self.sealed_splits if split not in self.systems]:
            raise ValueError(f"sealed_splits names {surplus[0]!r}; splits: {', '.join(self.systems)}")

    def _check_kinds(self) -> None:
        kinds = self.behaviour.episode_kinds
        _check_names("lengths", self.lengths, kinds)
        lengths = {kind: self.lengths[kind] for kind in kinds if kind in self.lengths}
        for kind, length in lengths.items():
            lengths[kind] = integer(f"BankProtocol.lengths[{kind!r}]", length, least=2, most=self.steps)
        object.__setattr__(self, "lengths", lengths)
        if not isinstance(self.rollouts, Mapping):
            check(self, integer, "rollouts", least=1, most=MANY)
            return
        if set(self.rollouts) != set(self.systems):
            raise ValueError(f"rollouts must name the splits {list(self.systems)}, got {list(self.rollouts)}")
        ordered: dict[str, dict[str, int]] = {}
        for split in self.systems:
            given = self.rollouts[split]
            _check_names(f"rollouts[{split!r}]", given, kinds)
            ordered[split] = {kind: given[kind] for kind in kinds if kind in given}
            if not ordered[split]:
                raise ValueError(f"rollouts[{split!r}] must name at least one kind of episode")
            for kind, count in ordered[split].items():
                ordered[split][kind] = integer(f"BankProtocol.rollouts[{split!r}][{kind!r}]", count, least=1, most=MANY)
        object.__setattr__(self, "rollouts", ordered)

    @property
    def counts(self) -> dict[str, int]:
        """Split → number of systems."""
        return {split: p if isinstance(p, int) else p.count for split, p in self.systems.items()}

    def population(self, split: str) -> Population:
        """The population of a split."""
        given = self.systems[split]
        return Uniform(given) if isinstance(given, int) else given

    def parts(self, split: str) -> tuple[Part, ...]:
        """The episodes of each system of a split, in their order."""
        kinds = self.behaviour.episode_kinds
        if isinstance(self.rollouts, Mapping):
            counts: Mapping[Any, int] = self.rollouts[split]
        else:
            counts = dict.fromkeys(kinds or (None,), self.rollouts)
        return tuple(Part(kind, count, self.lengths.get(kind, self.steps)) for kind, count in counts.items())

    def episodes_per_system(self, split: str) -> int:
        """Episodes of each system of a split."""
        return sum(part.episodes for part in self.parts(split))

    @property
    def episodes(self) -> int:
        """Number of episodes over all splits."""
        return sum(count * self.episodes_per_system(split) for split, count in self.counts.items())

    def replace(self, **changes: Any) -> "BankProtocol":
        """A copy with some fields changed, for instance `D_CLEAN.replace(seed=1)`."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` restores an equal protocol."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["systems"] = [  # a list, because the order counts
            [split, given if isinstance(given, int) else populations.to_dict(given)]
            for split, given in self.systems.items()
        ]
        data["behaviour"] = behaviours.to_dict(self.behaviour)
        return json.loads(json.dumps(data))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, unknown: bool = False) -> "BankProtocol":
        """The protocol that `to_dict` wrote; ValueError for missing, surplus or illegal fields.

        A behaviour or population of a class that is not registered here is illegal too, or with `unknown` becomes a
        stand-in, good for reading a bank.
        """
        expected = {f.name for f in dataclasses.fields(cls)}
        if set(data) != expected:
            missing, surplus = sorted(expected - set(data)), sorted(set(data) - expected)
            raise ValueError(f"protocol has missing fields {missing} and unknown fields {surplus}")
        systems = {
            split: populations.from_dict(given, unknown=unknown) if isinstance(given, Mapping) else given
            for split, given in data["systems"]
        }
        behaviour = behaviours.from_dict(data["behaviour"], unknown=unknown)
        return cls(**{**data, "systems": systems, "behaviour": behaviour})

    def check_recorded(self) -> None:
        """ValueError unless a reader could make this protocol again from its JSON: what a build asks first."""
        try:
            again = BankProtocol.from_dict(json.loads(json.dumps(self.to_dict(), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"protocol {self.name!r} cannot be recorded: {error}") from error
        for mine, theirs in zip(self.recorded, again.recorded, strict=True):
            if type(mine) is not type(theirs):
                name, theirs = type(mine).__name__, f"{type(theirs).__module__}.{type(theirs).__qualname__}"
                raise ValueError(
                    f"protocol {self.name!r} cannot be recorded: the kind {mine.kind!r} of {name} is that of {theirs}; "
                    f"give {name} a kind of its own and register it with sprii_envs.banks.register"
                )
        if again != self:
            raise ValueError(f"protocol {self.name!r} cannot be recorded: read again, {self.differences(again)}")

    @property
    def recorded(self) -> list[Any]:
        """Behaviour and populations: what is recorded by the name of its kind."""
        populated = [given for given in self.systems.values() if not isinstance(given, int)]
        groups = [group for given in populated if isinstance(given, Union) for group in given.groups.values()]
        return [self.behaviour, *populated, *groups]

    def __eq__(self, other: object) -> bool:
        """Equal in every field, the order of the splits included."""
        return isinstance(other, BankProtocol) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Hash of the contents."""
        return hash((self.name, self.version, self.env_id, self.seed, tuple(self.counts.items())))

    def differences(self, other: "BankProtocol") -> str:
        """The fields in which `other` differs, as 'field: mine, not theirs'; empty when equal."""
        mine, theirs = self.to_dict(), other.to_dict()
        return "; ".join(f"{key}: {mine[key]!r}, not {theirs[key]!r}" for key in mine if mine[key] != theirs[key])


Kind = TypeVar("Kind", bound=type[Any])


def register(cls: Kind) -> Kind:
    """Make a behaviour or population of one's own known by its `kind`; also a class decorator.

    Protocols with it can then be built, and who has registered it opens their banks with it. Others open them for
    reading. Raises ValueError for a class that is neither, that cannot be recorded, or whose kind is another's.
    """
    for kinds in (behaviours.KINDS, populations.KINDS):
        if hasattr(cls, kinds.method):
            kinds.register(cls)
            return cls
    raise ValueError(f"{cls.__name__} is no behaviour, which has a `policy`, and no population, which can `draw`")


def _check_names(name: str, given: object, kinds: tuple[str, ...]) -> None:
    """ValueError unless `given` maps kinds of episode of the behaviour."""
    legal = ", ".join(kinds) or "there are none"
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must map kinds of episode ({legal}) to numbers, got {given!r}")
    for kind in given:
        if kind not in kinds:
            raise ValueError(f"{name} names the kind of episode {kind!r}; the behaviour's kinds: {legal}")


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

_SPRING_LEVELS = {"mass": 6, "drag": 6, "stiffness": 6}
_SPRING_CONSTANTS = {
    **{"dt": 0.05, "rest_length": 0.35, "force_limit": 1.0, "view_margin": 0.05, "closest": 0.12},
    **{"view_width": 2.0, "disc_radius": 0.05, "line_radius": 0.0078},
    **{"first_grey": 96, "second_grey": 224, "line_grey": 40},
}
_SPRING_TRAIN = {"forced": 24, "mass": 8, "free": 8, "glide": 4, "static": 4, "cold": 48, "moving": 24}
_SPRING_HELD_OUT = {"forced": 4, "mass": 2, "free": 2, "glide": 1, "static": 1, "cold": 6, "moving": 3}

SPRING = BankProtocol(
    name="spring",
    version=2,
    env_id="sprii/SpringWorld-v0",
    systems={
        "train": Combinations(_SPRING_LEVELS, modulus=6, residues=(0, 1, 2, 3)),
        "validation": Union(
            {
                "continuous": Uniform(64),
                "combination": Combinations(_SPRING_LEVELS, modulus=6, residues=(4,)),
                "interpolated": Interpolated(_SPRING_LEVELS, each=2),
                "extrapolated": Extrapolated(
                    _SPRING_LEVELS, {"mass": (0.4, 2.2), "drag": (0.2, 1.8), "stiffness": (3.5, 28.0)}, each=8
                ),
            }
        ),
    },
    rollouts={"train": _SPRING_TRAIN, "validation": _SPRING_HELD_OUT},
    steps=193,
    behaviour=SpringEpisodes(),
    constants=_SPRING_CONSTANTS,
    systems_per_chunk=24,
    lengths={"mass": 97, "free": 97, "cold": 34, "moving": 128},
)
"""The SpringWorld bank of the paper (`app:spring-profile`): every level and every pair of levels is in training.

Version 2 has the paper's forces, starts and lengths. In version 1, 96 observations long, the two pulses of a unit had a
pause between them, queries were pushed for 4 steps in random directions, and `moving` and `glide` drifted anywhere.
"""

SPRING_SEALED = SPRING.replace(
    name="spring-sealed",
    systems={
        "sealed": Union(
            {
                "continuous": Uniform(256),
                "combination": Combinations(_SPRING_LEVELS, modulus=6, residues=(5,)),
            }
        )
    },
    rollouts={"sealed": _SPRING_HELD_OUT},
    seed=1,
    sealed_splits=("sealed",),
)
"""Systems of SpringWorld for a last evaluation, and the third of the unseen combinations that `SPRING` leaves out."""

_POKE_LEVELS = {"mass": 10, "drag": 10, "stiffness": 28}

POKE_FACTORIAL = BankProtocol(
    name="poke-factorial",
    version=1,
    env_id="sprii/PokeWorld-v0",
    systems={
        "train": FactorialBlocks(_POKE_LEVELS, first=0, last=20),
        "validation": FactorialBlocks(_POKE_LEVELS, first=20, last=24),
        "confirmation": FactorialBlocks(_POKE_LEVELS, first=24, last=28),
    },
    rollouts=4,
    steps=64,
    behaviour=PokeModes(),
    constants={
        **{"dt": 0.05, "substeps": 20, "force_limit": 20.0, "damping_ratio": 0.25, "restitution": 0.5, "arena": 1.0},
        **{"finger_mass": 1.0, "finger_radius": 0.06, "object_radius": 0.09},
        **{"start_extent": 0.35, "start_near": 0.35, "start_far": 0.6},
        **{"launch_chance": 0.25, "launch_slow": 0.5, "launch_fast": 2.0, "goal_x": 0.6, "goal_y": 0.0},
        **{"view_width": 2.0, "goal_radius": 0.04, "finger_grey": 240, "object_grey": 144, "goal_grey": 64},
    },
    frames=64,
    sealed_splits=("confirmation",),
)
"""The factorial PokeWorld bank of the paper (`app:poke-profile`): 11,200 episodes of 64 frames."""

POKE_ORIGINAL = POKE_FACTORIAL.replace(
    name="poke-original",
    systems={"train": 2000, "validation": 400, "test": 400},
    systems_per_chunk=200,
    nested=True,
    sealed_splits=(),
)
"""The original PokeWorld bank; R2 and R8 are `POKE_ORIGINAL.replace(rollouts=2)` and 8, which nest."""

POKE_FRESH = POKE_ORIGINAL.replace(
    name="poke-fresh", systems={"fresh": 100}, seed=1, nested=False, sealed_splits=("fresh",)
)
"""A hundred new systems, off the factorial bank's levels (`app:records-poke-followup`)."""

SWIMMER = BankProtocol(
    name="swimmer",
    version=1,
    env_id="sprii/Swimmer-v0",
    systems={"train": 2048, "selection": 256, "prospective": 512},
    rollouts=1,
    steps=64,
    behaviour=SwimmerWaves(),
    constants={
        **{"dt": 0.04, "torque_limit": 0.8, "density": 900.0, "joint_damping": 0.18, "joint_limit": 1.75},
        **{"fluid_density": 0.35, "fluid_viscosity": 0.08, "control_cost": 1e-4, "start_noise": 0.1},
        **{"view_width": 4.0, "link_grey": 144, "joint_grey": 224},
    },
    systems_per_chunk=128,
)
"""The Swimmer bank (`app:swimmer-profile`): an episode of every waveform for every system, in `fluid="bank"`."""

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (D_CLEAN, SPRING, SPRING_SEALED, POKE_FACTORIAL, POKE_ORIGINAL, POKE_FRESH, SWIMMER)
}
"""Name → protocol."""

_OURS = frozenset(PROTOCOLS)


def register_protocol(protocol: BankProtocol) -> BankProtocol:
    """Make a protocol of one's own known by its name, for `sprii bank build NAME PATH --plugin MODULE`.

    The same one may be registered again. ValueError for another under a name that is held, and for what is no protocol.
    """
    instance("protocol", protocol, of=BankProtocol)
    if protocol.name in _OURS:
        raise ValueError(f"the protocol {protocol.name!r} is one of this package; choose another name")
    held = PROTOCOLS.setdefault(protocol.name, protocol)
    if held != protocol:
        raise ValueError(
            f"the protocol {protocol.name!r} is registered already with other contents "
            f"({held.differences(protocol)}); choose another name, or `del PROTOCOLS[{protocol.name!r}]` before"
        )
    PROTOCOLS[protocol.name] = protocol  # of a behaviour whose class was loaded anew
    return protocol
