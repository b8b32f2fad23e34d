"""Prediction cases of fresh readers: a recipient's frozen feature, a donor's frozen code, actions and targets."""

from collections.abc import Mapping, Sequence
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
class DonorPool:
    """All donors that cases may have.

    Attributes:
        codes: (S, R, d_p) frozen persistent codes of R donors of each of S systems.
        of: (n,) the system of each case, a row of `codes`.
    """

    codes: Floats
    of: Rows

    def __post_init__(self) -> None:
        """ValueError for codes of another shape or systems outside them."""
        _check_finite("DonorPool.codes", self.codes)
        if np.ndim(self.codes) != 3 or np.ndim(self.of) != 1:
            raise ValueError(
                f"DonorPool takes codes (S, R, d_p) and systems (n,), got {np.shape(self.codes)}, {np.shape(self.of)}"
            )
        if len(self.of) and not 0 <= self.of.min() <= self.of.max() < len(self.codes):
            raise ValueError(f"DonorPool.of must be rows of {len(self.codes)} systems, got up to {self.of.max()}")


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
        weights: (n,) positive: how often fits draw a case, and what it weighs among those of its system; None is
            equally.
        pool: donors that fits draw from anew in every batch, in place of `context`; None keeps that.

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
    weights: Floats | None = None
    pool: DonorPool | None = None

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
        if self.weights is not None and not (np.asarray(self.weights) > 0).all():
            raise ValueError("Cases.weights must be positive")
        for name in ("strata", "kinds", "weights", "pool"):
            column = getattr(self, name) if name != "pool" or self.pool is None else self.pool.of
            if column is not None and np.shape(column) != (n,):
                raise ValueError(f"Cases.{name} must have shape ({n},), got {np.shape(column)}")

    def __len__(self) -> int:
        return len(self.systems)

    def take(self, rows: NDArray[Any]) -> "Cases[P_co]":
        """The cases of these rows, or where this mask (n,) holds."""
        arrays = ("systems", "query", "context", "actions", "targets", "strata", "kinds", "weights")
        kept = {name: getattr(self, name) for name in arrays}
        kept = {name: None if array is None else array[rows] for name, array in kept.items()}
        pool = None if self.pool is None else replace(self.pool, of=self.pool.of[rows])
        return replace(self, factors={name: column[rows] for name, column in self.factors.items()}, pool=pool, **kept)

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
        """The same recipients with donors of other systems of their stratum, a fixed map for each seed."""
        return self.with_context(other_system_rows(self.systems, seed, self.strata))

    def of_donors(self) -> tuple["Cases[P_co]", Rows]:
        """One case a donor of the pool, each system's in order, with that donor's code, and where (n,) each case's
        first donor stands among them; ValueError for cases without a pool."""
        if self.pool is None:
            raise ValueError(f"the cases of {self.population.name!r} have no pool of donors")
        used, first, code = np.unique(self.pool.of, return_index=True, return_inverse=True)
        count = self.pool.codes.shape[1]
        one_each = replace(self.take(np.repeat(first, count)), pool=None)
        return replace(one_each, context=self.pool.codes[used].reshape(len(used) * count, -1)), code * count


def other_system_rows(systems: NDArray[Any], seed: int, strata: NDArray[Any] | None = None) -> Rows:
    """For each case a row (n,) of another system, by one derangement of the systems.

    A system takes all its donors from one other system: its j-th case the j-th donor there, counted around. With strata
    that system is of the same stratum, by one cyclic shift in each.

    Args:
        systems: (n,) ids.
        seed: of the derangement, uniform over those of the distinct systems, or of the shifts.
        strata: (n,) labels, one a system.

    Raises:
        ValueError: for a single system, in all or in a stratum.
    """
    ids, at, codes = np.unique(systems, return_index=True, return_inverse=True)
    groups = np.zeros(len(ids)) if strata is None else np.unique(np.asarray(strata)[at], return_inverse=True)[1]
    if np.bincount(groups.astype(np.int64)).min() < 2:
        where = "" if strata is None else " in each stratum"
        raise ValueError(f"donors of other systems need at least 2 systems{where}, got {len(ids)}")
    counts = np.bincount(codes)
    first = np.cumsum(counts) - counts
    order = np.argsort(codes, kind="stable")
    position = np.empty(len(codes), np.int64)
    position[order] = np.arange(len(codes)) - first[codes[order]]
    rng = np.random.default_rng(integer("seed", seed))
    donor = derangement(rng, np.arange(len(ids))) if strata is None else _shifted(rng, groups)
    donor = donor[codes]
    return order[first[donor] + position % counts[donor]]


def _shifted(rng: np.random.Generator, groups: NDArray[Any]) -> Rows:
    """For each system (N,) the one so many places on in its group, around; no place is its own."""
    donor = np.empty(len(groups), np.int64)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        donor[rows] = np.roll(rows, -int(rng.integers(1, len(rows))))
    return donor


def fit_standardiser(population: Training, targets: Floats, floors: Sequence[float] | None = None) -> Standardiser:
    """The standardiser of training targets (n, K, D), "standardised using training statistics" (`app:spring-profile`).

    One mean and SD a coordinate for all horizons, so that errors keep growing with the horizon as motion does.

    Args:
        floors: (D,) least SDs of the coordinates; each horizon then has a mean and an SD of its own, (K, D).

    Raises:
        PopulationError: for targets of another population.
        ValueError: for targets of another shape or that are not finite.
    """
    check_fit(population, "a target standardiser")
    _check("targets", targets, len(targets), (3,), "(n, K, D)")
    if floors is not None:
        return Standardiser(np.mean(targets, axis=0), np.maximum(np.std(targets, axis=0), floors))
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
    _check_finite(f"Cases.{name}", a)


def _check_finite(name: str, a: Any) -> None:
    if not np.isfinite(a).all():
        raise ValueError(f"{name} must be finite; {int((~np.isfinite(a)).sum())} entries are not")
