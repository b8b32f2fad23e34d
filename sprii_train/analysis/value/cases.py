"""Prediction cases of fresh readers: a recipient's frozen feature, a donor's frozen code, actions and targets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer
from sprii_envs.relations.kernels import derangement
from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.populations import P_co, Population, Training, check_fit

Floats = NDArray[np.floating]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cases(Generic[P_co]):
    """n prediction cases of one population (`app:reader-interfaces`).

    Attributes:
        population: whose they are.
        systems: (n,) ids of the recipients' systems.
        query: frozen recipient features, (n, d_q), or (n, T, d_q) at the last T observations, the present one last.
        context: (n, d_p) frozen persistent codes of the cases' donors; None where only recipients are read.
        factors: name → (n,) persistent properties, positive; read by Decode and Oracle alone.
        actions: (n, H, A) future actions, H = the last horizon.
        targets: (n, K, D) increments over each horizon, standardised by training statistics (`fit_standardiser`).
        horizons: K increasing steps.
        strata: (n,) labels of the groups that a bootstrap keeps, one a system.
        kinds: (n,) kinds of query, such as cold and moving.

    Raises:
        ValueError: for arrays of another shape or length, or that are not finite.
    """

    population: P_co
    systems: NDArray[Any]
    query: Floats
    context: Floats | None
    factors: Mapping[str, NDArray[np.float64]]
    actions: Floats
    targets: Floats
    horizons: tuple[int, ...]
    strata: NDArray[Any] | None = None
    kinds: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        h = self.horizons
        if not h or list(h) != sorted(set(h)) or h[0] < 1:
            raise ValueError(f"Cases.horizons are {h}; legal: increasing steps >= 1, such as (1, 4, 16)")
        n = len(self.systems)
        _check("query", self.query, n, (2, 3), "(n, d_q) or (n, T, d_q)")
        _check("actions", self.actions, n, (3,), "(n, H, A)")
        _check("targets", self.targets, n, (3,), "(n, K, D)")
        if self.context is not None:
            _check("context", self.context, n, (2,), "(n, d_p)")
        if self.actions.shape[1] != h[-1]:
            raise ValueError(f"Cases.actions has {self.actions.shape[1]} steps; the last horizon is {h[-1]}")
        if self.targets.shape[1] != len(h):
            raise ValueError(f"Cases.targets has {self.targets.shape[1]} horizons; Cases.horizons are {h}")
        for name, column in self.factors.items():
            _check(f"factors[{name!r}]", column, n, (1,), "(n,)")
        for name in ("strata", "kinds"):
            column = getattr(self, name)
            if column is not None and np.shape(column) != (n,):
                raise ValueError(f"Cases.{name} must have shape ({n},), got {np.shape(column)}")

    def __len__(self) -> int:
        return len(self.systems)

    def take(self, rows: NDArray[Any]) -> "Cases[P_co]":
        """The cases of these rows, or where this mask (n,) holds."""
        arrays = ("systems", "query", "context", "actions", "targets", "strata", "kinds")
        kept = {name: getattr(self, name) for name in arrays}
        kept = {name: None if array is None else array[rows] for name, array in kept.items()}
        return replace(self, factors={name: column[rows] for name, column in self.factors.items()}, **kept)

    def of_kind(self, kind: Any) -> "Cases[P_co]":
        """The cases of one kind of query.

        Raises:
            ValueError: if there are none.
        """
        kinds = [] if self.kinds is None else np.unique(self.kinds).tolist()
        if self.kinds is None or kind not in kinds:
            raise ValueError(f"no cases of kind {kind!r} in {self.population.name!r}; kinds: {kinds}")
        return self.take(self.kinds == kind)

    def with_context(self, rows: NDArray[Any]) -> "Cases[P_co]":
        """The same recipients with the donors of other rows (n,), for Fixed Wrong (`tab:dclean-fixed-wrong`)."""
        if np.shape(rows) != (len(self),):
            raise ValueError(f"donor rows must have shape ({len(self)},), got {np.shape(rows)}")
        return replace(self, context=codes(self)[rows])

    def mismatched(self, seed: int) -> "Cases[P_co]":
        """The same recipients with donors of other systems, a fixed map for each seed."""
        return self.with_context(other_system_rows(self.systems, seed))


def other_system_rows(systems: NDArray[Any], seed: int) -> Rows:
    """For each case a row (n,) of another system, by one derangement of the systems.

    A system takes all its donors from one other system: its j-th case the j-th donor there, counted around.

    Args:
        systems: (n,) ids.
        seed: of the derangement, uniform over those of the distinct systems.

    Raises:
        ValueError: for a single system.
    """
    ids, codes = np.unique(systems, return_inverse=True)
    if len(ids) < 2:
        raise ValueError(f"donors of other systems need at least 2 systems, got {len(ids)}")
    counts = np.bincount(codes)
    first = np.cumsum(counts) - counts
    order = np.argsort(codes, kind="stable")
    position = np.empty(len(codes), np.int64)
    position[order] = np.arange(len(codes)) - first[codes[order]]
    donor = derangement(np.random.default_rng(integer("seed", seed)), np.arange(len(ids)))[codes]
    return order[first[donor] + position % counts[donor]]


def fit_standardiser(population: Training, targets: Floats) -> Standardiser:
    """The standardiser of training targets (n, K, D), "standardised using training statistics" (`app:spring-profile`).

    One mean and SD a coordinate for all horizons, so that errors keep growing with the horizon as motion does.

    Raises:
        PopulationError: for targets of another population.
        ValueError: for targets of another shape or that are not finite.
    """
    check_fit(population, "a target standardiser")
    _check("targets", targets, len(targets), (3,), "(n, K, D)")
    # An increment at rest is the rounding of a difference of states, not a motion.
    return Standardiser.fit(np.reshape(targets, (-1, targets.shape[-1])), floor=1e-12)


def codes(cases: Cases[Any]) -> NDArray[np.float64]:
    """The donors' codes (n, d_p); ValueError for cases without."""
    if cases.context is None:
        raise ValueError(f"donor codes are needed, but the cases of {cases.population.name!r} have no context")
    return np.asarray(cases.context, np.float64)


def tensor(array: NDArray[Any]) -> Tensor:
    """A float32 tensor of its own."""
    return torch.from_numpy(np.array(array, np.float32, order="C"))


def check_horizons(what: str, fitted: tuple[int, ...], cases: Cases[Population]) -> None:
    """ValueError unless the cases have the horizons that something was fitted for."""
    if cases.horizons != fitted:
        raise ValueError(f"{what} was fitted for horizons {fitted}; the cases have {cases.horizons}")


def _check(name: str, array: Any, n: int, dims: tuple[int, ...], shape: str) -> None:
    a = np.asarray(array)
    if a.ndim not in dims or len(a) != n or not n:
        raise ValueError(f"Cases.{name} must have shape {shape} with n = {n} >= 1, got {a.shape}")
    if not np.isfinite(a).all():
        raise ValueError(f"Cases.{name} must be finite; {int((~np.isfinite(a)).sum())} entries are not")
