"""Counterfactual donors and targets: recorded interactions re-simulated under other levels of one property.

    donor histories   an episode's initial state and actions, the system under each level (`app:landscape`)
    query targets     the state at the query's anchor and the actions after it, the system under each level

One rollout of n systems × L levels a call, through the world of the bank, whatever the world. A cell at the level that
the system has repeats the bank bit for bit. Nothing is drawn again: what ends early is kept and reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer
from sprii_envs.banks import Bank
from sprii_envs.properties import PersistentProperty
from sprii_envs.rendering import Frame
from sprii_envs.world import World, draw_states, rollout

Array = NDArray[np.float64]

HORIZONS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Counterfactuals:
    """n recorded interactions under L levels of one property, the other properties as they are.

    Attributes:
        factor: the property's name.
        levels: (n, L) float64 its values.
        own: (n,) float64 the value in the recorded system.
        states: (n, L, T, S) float32, rounded as a bank rounds; they run on past an ending.
        actions: (n, T − 1, A) float32, the same under every level.
        lengths: (n, L) int64 states before the world ended the episode, T where it did not.
        reasons: (n, L) why it did, None where it did not or gave no reason.
        extrapolated: (n, L) whether a property of the system lies beyond its training range.
    """

    factor: str
    levels: Array
    own: Array
    states: NDArray[np.float32]
    actions: NDArray[np.float32]
    lengths: NDArray[np.int64]
    reasons: NDArray[np.object_]
    extrapolated: NDArray[np.bool_]

    @property
    def complete(self) -> NDArray[np.bool_]:
        """(n, L): no ending within these states."""
        return self.lengths == self.states.shape[2]


class Coverage(NamedTuple):
    """How much of a counterfactual grid is what it was asked to be."""

    cells: int
    complete: int
    extrapolated: int
    endings: dict[str, int]  # reason → cells
    systems: NDArray[np.int64]  # rows with a cell that ended early


class Queries(NamedTuple):
    """Recipients: episode ids (n,) and the last observed state of each, (n,)."""

    episodes: NDArray[np.int64]
    anchors: NDArray[np.int64]


def training_levels(prop: PersistentProperty, count: int = 5) -> Array:
    """`count` values (count,) evenly spaced on the property's scale over its training range, both ends included.

    Raises:
        ValueError: for fewer than two.
    """
    spaced = prop.from_uniform(np.linspace(0.0, 1.0, integer(f"the number of levels of {prop.name!r}", count, least=2)))
    spaced[-1] = prop.high  # not one rounding error off it
    return spaced


def donor_histories(
    bank: Bank,
    episodes: ArrayLike,
    factor: str,
    levels: ArrayLike,
    *,
    length: int,
    starts: ArrayLike = 0,
) -> Counterfactuals:
    """Histories of the same starts and forced actions under each level.

    Episodes begin in their recorded initial state under every level; the history is states start…start + length − 1.

    Args:
        episodes: (n,) ids of the bank.
        levels: (L,) for all, or (n, L).
        starts: first state of each history, (n,) or one for all.

    Raises:
        ValueError: for a level that is not physical, or a history that an episode has no room for.
    """
    length, (ids, first) = integer("length", length, least=1), _pairs(episodes, starts)
    last = first + length - 1
    _check_room(bank, ids, first, last, f"a history of {length}")
    steps = int(last.max())
    begin = _Begin(bank["states"][ids, 0].astype(np.float64), np.zeros(len(ids), np.bool_), np.full(len(ids), None))
    return _under_levels(bank, ids, factor, levels, begin, bank["actions"][ids, :steps], first)


def query_targets(
    bank: Bank, queries: Queries, factor: str, levels: ArrayLike, *, steps: int = HORIZONS[-1]
) -> Counterfactuals:
    """Futures of the same present and actions under each level; `states[:, :, 0]` is the state at the anchor.

    Up to the anchor the system is as recorded, so that the recipient observes the same whatever the level.

    Args:
        levels: (L,) for all, or (n, L).
        steps: simulated after the anchor.

    Raises:
        ValueError: as `donor_histories`.
    """
    steps, (ids, anchors) = integer("steps", steps, least=1), _pairs(*queries)
    _check_room(bank, ids, anchors, anchors + steps, f"a future of {steps} steps")
    actions = bank["actions"][ids[:, None], anchors[:, None] + np.arange(steps)]
    return _under_levels(bank, ids, factor, levels, _at(bank, ids, anchors), actions, np.zeros_like(anchors))


def increments(found: Counterfactuals, horizons: Sequence[int] = HORIZONS) -> Array:
    """State increments (n, L, K, S) float64 from the first state to each horizon.

    Raises:
        ValueError: for a horizon beyond the states.
    """
    steps = found.states.shape[2] - 1
    if not horizons or min(horizons) < 1 or max(horizons) > steps:
        raise ValueError(f"horizons must lie in 1…{steps}, the steps simulated, got {tuple(horizons)}")
    states = found.states.astype(np.float64)
    return states[:, :, list(horizons)] - states[:, :, :1]


def frames(world: World, found: Counterfactuals, size: int | Sequence[int], rows: ArrayLike | None = None) -> Frame:
    """Grayscale frames (k, L, T, H, W) uint8 of some rows (k,), all by default; the pixels that a bank would hold."""
    chosen = found.states if rows is None else found.states[np.asarray(rows)]
    drawn = draw_states(world, chosen.reshape(-1, *chosen.shape[2:]), size)
    return drawn.reshape(*chosen.shape[:2], *drawn.shape[1:])


def coverage(found: Counterfactuals) -> Coverage:
    """Counts of complete, extrapolated and ended cells, and the systems (k,) that have an ended one."""
    over = ~found.complete
    reasons, counts = np.unique([str(reason or "ended") for reason in found.reasons[over]], return_counts=True)
    return Coverage(
        over.size,
        int(found.complete.sum()),
        int(found.extrapolated.sum()),
        dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        np.flatnonzero(over.any(1)),
    )


def _pairs(episodes: ArrayLike, starts: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ids = np.asarray(episodes)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise ValueError(f"episodes must be ids (n,) of at least one episode, got shape {ids.shape} of {ids.dtype}")
    first = np.asarray(starts)
    if first.dtype.kind not in "iu" or first.shape not in ((), ids.shape):
        raise ValueError(f"starts and anchors are one integer or {ids.shape}, got shape {first.shape} of {first.dtype}")
    return ids.astype(np.int64), np.broadcast_to(first, ids.shape).astype(np.int64)


def _check_room(bank: Bank, ids: NDArray[np.int64], first: Any, last: Any, what: str) -> None:
    """An episode's planned length must hold states first…last; whether the world ends it before is reported instead."""
    if ids.min() < 0 or ids.max() >= len(bank):
        raise ValueError(f"episode ids are 0 to {len(bank) - 1}, got {ids.min()} to {ids.max()}")
    planned = np.full(len(ids), bank.protocol.steps)
    for kind, length in bank.protocol.lengths.items():
        planned[bank.table["kind"][ids] == kind] = length
    wrong = (first < 0) | (last < first) | (last >= planned)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{what} from state {first[row]} does not fit into episode {ids[row]} of {planned[row]} planned states"
        )


class _Begin(NamedTuple):
    """Where a rollout begins: unrounded states (n, S), whether the episode had ended by then, and why."""

    states: Array
    over: NDArray[np.bool_]
    reasons: NDArray[np.object_]


def _at(bank: Bank, ids: NDArray[np.int64], anchors: NDArray[np.int64]) -> _Begin:
    """The recorded systems at the anchors."""
    start = bank["states"][ids, 0].astype(np.float64)
    steps = int(anchors.max())
    if not steps:
        return _Begin(start, np.zeros(len(ids), np.bool_), np.full(len(ids), None))
    done = rollout(bank.world, _values(bank, ids), start, bank["actions"][ids, :steps])
    rows = np.arange(len(ids))
    over = done.ended[rows, np.maximum(anchors - 1, 0)] & (anchors > 0)
    return _Begin(done.states[rows, anchors], over, done.reasons)


def _values(bank: Bank, ids: NDArray[np.int64]) -> Array:
    return np.stack([bank.table[name][ids] for name in bank.properties.names], axis=1)


def _under_levels(
    bank: Bank,
    ids: NDArray[np.int64],
    factor: str,
    levels: ArrayLike,
    begin: _Begin,
    actions: NDArray[np.float32],
    first: NDArray[np.int64],
) -> Counterfactuals:
    """All levels in one rollout, of which T states from `first` (n,) are kept; the latest first leaves T."""
    n, column = len(ids), bank.properties.index(factor)
    chosen = _levels(bank.properties[factor], levels, n)
    count, length = chosen.shape[1], actions.shape[1] + 1 - int(first.max())
    own = _values(bank, ids)
    values = np.repeat(own, count, axis=0)
    values[:, column] = chosen.reshape(-1)
    done = rollout(bank.world, values, np.repeat(begin.states, count, axis=0), np.repeat(actions, count, axis=0))
    over = np.concatenate([np.repeat(begin.over, count)[:, None], done.ended], axis=1)
    over[np.repeat(begin.over, count)] = True
    lengths = np.clip((~over).sum(1).reshape(n, count) - first[:, None], 0, length)
    reasons = np.where(np.repeat(begin.over, count), np.repeat(begin.reasons, count), done.reasons).reshape(n, count)
    reasons[lengths == length] = None
    states = np.take_along_axis(done.states, (np.repeat(first, count)[:, None] + np.arange(length))[..., None], axis=1)
    return Counterfactuals(
        factor,
        chosen,
        own[:, column],
        states.astype(np.float32).reshape(n, count, length, -1),
        np.take_along_axis(actions, (first[:, None] + np.arange(length - 1))[..., None], axis=1),
        lengths,
        reasons,
        bank.properties.extrapolated(values).reshape(n, count),
    )


def _levels(prop: PersistentProperty, levels: ArrayLike, n: int) -> Array:
    given = np.asarray(levels, np.float64)
    if given.ndim not in (1, 2) or not given.size or (given.ndim == 2 and len(given) != n):
        raise ValueError(f"levels of {prop.name!r} must be (L,), or ({n}, L) for {n} systems, got shape {given.shape}")
    wrong = ~np.atleast_1d(prop.is_physical(given))
    if wrong.any():
        raise ValueError(
            f"level {float(given[wrong].flat[0])!r} of {prop.name!r} is not physical: it must be {prop.domain}"
        )
    return np.broadcast_to(given, (n, given.shape[-1])).copy()
