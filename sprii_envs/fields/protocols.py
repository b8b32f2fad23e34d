"""What banks of fields hold: which systems, which cases, how fine; frozen, so that a protocol identifies its bank."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, choice, instance, integer, integers, number, numbers
from sprii_envs.banks import StreamSpec
from sprii_envs.banks.generated import Arrays, GeneratedProtocol, Labels
from sprii_envs.fields import burgers, fhn

Systems = tuple[tuple[float, float], ...]

FIELD = "field"
"""The column of every bank of fields: one entry a frame."""

VISCOSITIES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
"""Of Burgers' training systems, as the paper has them."""
OUTER_VISCOSITIES = (3e-4, 7e-4, 3e-3, 7e-3, 3e-2)
"""Of its viscous OOD systems: ours, between those of training; the paper tells their number only."""


def burgers_labels(viscosity: float, case: int, split: str) -> Labels:
    """Of an episode of Burgers' equation."""
    return {"system": f"nu={viscosity:g}", "case": case, "split": split, "viscosity": float(viscosity)}


def fhn_labels(k: float, beta: float, case: int, split: str) -> Labels:
    """Of an episode of FitzHugh–Nagumo's equations."""
    return {"system": f"k={k:.2f} beta={beta:.2f}", "case": case, "split": split, "k": float(k), "beta": float(beta)}


@dataclass(frozen=True)
class FieldProtocol(GeneratedProtocol):
    """What `build_fields` asks of a protocol.

    Attributes:
        seed: of the initial fields.
        frames: of an episode.
    """

    frames: int = 101

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the field of a frame."""

    @abstractmethod
    def fields(self, labels: Sequence[Labels]) -> NDArray[np.float32]:
        """Episodes (N, frames, *shape): each depends on the protocol and its own labels only."""

    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Rows as they are, and their fields."""
        return list(rows), {FIELD: self.fields(rows)}

    @property
    def length(self) -> int:
        """As many as frames."""
        return self.frames

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """The column `field`."""
        return {FIELD: StreamSpec(self.shape)}


@dataclass(frozen=True)
class BurgersProtocol(FieldProtocol):
    """Burgers' equation: viscous systems for training, others between them, and the inviscid one.

    Splits: `train`, `validation` and `id_test` are the cases 0 … of each training viscosity, one after another;
    `viscous_ood` and `inviscid_ood` the cases 0 … of theirs. An initial field is a pure function of (seed, ν, case).

    Attributes:
        seed: of the initial fields.
        cells: of the solver; points: of a stored field, one more than a divisor of the cells, both ends of the ring.
        frames: stored, at equal times 0 … `duration`.
        train, validation, id_test: cases of each training viscosity.
        viscous_ood: cases of each outer viscosity; inviscid_ood: of ν = 0.
        viscosities, outer: ν of training and of `viscous_ood`.

    Raises:
        ValueError: for a value that no bank has, naming it.
    """

    cells: int = 1600
    points: int = 401
    duration: float = 5.0
    train: int = 40
    validation: int = 5
    id_test: int = 5
    viscous_ood: int = 100
    inviscid_ood: int = 100
    viscosities: tuple[float, ...] = VISCOSITIES
    outer: tuple[float, ...] = OUTER_VISCOSITIES

    name: ClassVar[str] = "burgers"
    together: ClassVar[int] = 8

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, integer, "seed", most=2**63 - 1)
        check(self, integer, "cells", least=8, most=10**6)
        check(self, integer, "points", least=3, most=self.cells + 1)
        if self.cells % (self.points - 1):
            raise ValueError(
                f"BurgersProtocol.points is {self.points}; legal: one more than a divisor of the {self.cells} cells"
            )
        check(self, integer, "frames", least=2)
        check(self, number, "duration", above=0.0)
        check(self, integer, "train", least=1)
        check(self, integer, "validation", "id_test", "viscous_ood", "inviscid_ood")
        check(self, numbers, "viscosities", some=True, above=0.0)
        check(self, numbers, "outer", above=0.0)
        names = [burgers_labels(nu, 0, "")["system"] for nu in (*self.viscosities, *self.outer)]
        _differ("viscosities and outer, named by six digits,", names)

    @property
    def shape(self) -> tuple[int, ...]:
        """(points,)."""
        return (self.points,)

    def plan(self) -> list[Labels]:
        """The labels of every episode, split by split, system by system."""
        plan: list[Labels] = []
        first = 0
        for split in ("train", "validation", "id_test"):
            cases = range(first, first + getattr(self, split))
            plan += [burgers_labels(nu, case, split) for nu in self.viscosities for case in cases]
            first = cases.stop
        plan += [burgers_labels(nu, case, "viscous_ood") for nu in self.outer for case in range(self.viscous_ood)]
        return plan + [burgers_labels(0.0, case, "inviscid_ood") for case in range(self.inviscid_ood)]

    def fields(self, labels: Sequence[Labels]) -> NDArray[np.float32]:
        """(N, frames, points)."""
        nu = np.array([each["viscosity"] for each in labels])
        modes = burgers.modes(self.seed, nu, [each["case"] for each in labels])
        start = burgers.field(*modes, burgers.grid(self.cells))
        solved = burgers.solve(start, nu, frames=self.frames, duration=self.duration)
        return burgers.stored(solved, self.points)

    @property
    def origin(self) -> dict[str, Any]:
        """Told in the manifest."""
        return {
            "kind": "generated",
            "equation": "burgers",
            "protocol": asdict(self),
            "solver": "Strang splitting: diffusion in Fourier space, MUSCL (van Leer, Godunov) with SSP-RK2; float64",
            "ours": ["domain and boundary", "law of the initial fields", "solver", "viscosities of viscous_ood"],
        }


@dataclass(frozen=True)
class FHNProtocol(FieldProtocol):
    """FitzHugh–Nagumo's equations on a grid of (k, β): nine systems for training, four inside of them, twelve outside.

    Splits: `train` holds `train_cases` of the training systems; `validation` and `id` hold `validation_cases` and
    `test_cases` of them; `intra` and `extra` hold both of the systems inside and outside. A case has the same initial
    fields in every system: a pure function of (seed, case).

    Attributes:
        seed: of the initial fields.
        side: of the square, even; 128 is the paper's, and coarser ones do not resolve all that u does.
        frames: stored, at equal times 0 … `duration`.
        solver, step: of `fhn.solve`; a step divides the time between frames, and None is the solver's own, shortened
            where it does not.
        systems, inside, outside: (k, β) of each.

    Raises:
        ValueError: for a value that no bank has, naming it.
    """

    side: int = fhn.SIDE
    duration: float = 10.0
    solver: fhn.Solver = "split"
    step: float | None = None
    train_cases: tuple[int, ...] = tuple(range(50, 90))
    validation_cases: tuple[int, ...] = (5,)
    test_cases: tuple[int, ...] = (15, 24, 36, 45)
    systems: Systems = fhn.TRAIN
    inside: Systems = fhn.INSIDE
    outside: Systems = fhn.OUTSIDE

    name: ClassVar[str] = "fhn"
    together: ClassVar[int] = 4

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, integer, "seed", most=2**64 - 1)
        check(self, integer, "side", least=8, most=4 * fhn.SIDE)
        if self.side % 2:
            raise ValueError(f"FHNProtocol.side is {self.side}; legal: even numbers")
        check(self, integer, "frames", least=2)
        check(self, number, "duration", above=0.0)
        check(self, choice, "solver", legal=fhn.STEPS)
        check(self, number, "step", above=0.0, optional=True)
        if self.step is not None:
            each = self.duration / (self.frames - 1)
            if round(each / self.step) < 1 or abs(each / self.step - round(each / self.step)) > 1e-9:
                raise ValueError(
                    f"FHNProtocol.step is {self.step}; legal: what divides the {each:g} between frames, or None"
                )
        check(self, integers, "train_cases", some=True)
        check(self, integers, "validation_cases", "test_cases")
        cases = (*self.train_cases, *self.validation_cases, *self.test_cases)
        _differ("cases", cases)
        for name in ("systems", "inside", "outside"):
            given = instance(f"FHNProtocol.{name}", getattr(self, name), of=(tuple, list))
            pairs = tuple(numbers(f"FHNProtocol.{name}[{i}]", pair) for i, pair in enumerate(given))
            if (name == "systems" and not pairs) or any(len(pair) != 2 for pair in pairs):
                raise ValueError(f"FHNProtocol.{name} is {given}; legal: pairs (k, beta)")
            if negative := [pair for pair in pairs if pair[1] < 0.0]:
                raise ValueError(f"FHNProtocol.{name} holds {negative[0]}; legal: pairs (k, beta), beta >= 0")
            object.__setattr__(self, name, pairs)
        _differ("systems", [fhn_labels(*s, 0, "")["system"] for s in (*self.systems, *self.inside, *self.outside)])

    @property
    def shape(self) -> tuple[int, ...]:
        """(2, side, side): u and v."""
        return (2, self.side, self.side)

    def plan(self) -> list[Labels]:
        """The labels of every episode, split by split, system by system."""
        both = tuple(sorted((*self.validation_cases, *self.test_cases)))
        parts = (
            ("train", self.systems, self.train_cases),
            ("validation", self.systems, self.validation_cases),
            ("id", self.systems, self.test_cases),
            ("intra", self.inside, both),
            ("extra", self.outside, both),
        )
        return [fhn_labels(*s, case, split) for split, systems, cases in parts for s in systems for case in cases]

    def fields(self, labels: Sequence[Labels]) -> NDArray[np.float32]:
        """(N, frames, 2, side, side)."""
        start = fhn.initial(self.seed, [each["case"] for each in labels], self.side)
        told = np.array([(each["k"], each["beta"]) for each in labels])
        solved = fhn.solve(start, told, frames=self.frames, duration=self.duration, solver=self.solver, step=self.step)
        return solved.astype(np.float32)

    @property
    def _step(self) -> float:
        """What `fhn.solve` takes."""
        return fhn.step_of(self.duration / (self.frames - 1), self.solver, self.step)

    @property
    def origin(self) -> dict[str, Any]:
        """Told in the manifest."""
        return {
            "kind": "generated",
            "equation": "fhn",
            "protocol": asdict(self),
            "solver": f"{self.solver}, step {self._step:.4g}, stencil of nine points; float64",
            "ours": ["random numbers of the initial fields", *(["solver"] if self.solver != "rk4" else [])],
        }


def _differ(what: str, values: Sequence[Any]) -> None:
    if twice := sorted({value for value in values if values.count(value) > 1}):
        raise ValueError(f"{what} hold {twice[0]} twice; legal: each once")


BURGERS, FHN = BurgersProtocol(), FHNProtocol()
"""The paper's systems and cases."""
PROTOCOLS: dict[str, FieldProtocol] = {
    "burgers": BURGERS,
    "burgers-quick": BurgersProtocol(
        cells=400, points=101, train=8, validation=2, id_test=2, viscous_ood=4, inviscid_ood=4
    ),
    "fhn": FHN,
    "fhn-quick": FHNProtocol(side=64, step=0.05, train_cases=tuple(range(50, 58)), test_cases=(15, 24)),
}
"""By the name of `sprii bank build`."""
