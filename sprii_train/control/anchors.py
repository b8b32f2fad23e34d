"""Which times of stored episodes are trained on: anchors, their (window, offset) rows, and those held out.

An anchor is a time t of an episode: the context of the transitions before it predicts those at t, …, t + M − 1, if the
episode goes that far.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer, number
from sprii_train.control.experience import Rows

_VALIDATION, _ORDER, _BOOTSTRAP = 1, 2, 3


class Anchors(NamedTuple):
    """W times, ordered by episode and time; all (W,) int64.

    Attributes:
        episode, time: the transitions before `time` are the history.
        transition: number of the transition at `time` among all of the store.
        reach: how many of the M transitions from there on are trained, at least 1.
    """

    episode: Rows
    time: Rows
    transition: Rows
    reach: Rows


def anchors(lengths: Rows, *, window: int, first: int = 1, dropped: int = 1) -> Anchors:
    """All anchors of episodes of `lengths` (E,) transitions.

    Args:
        window: M.
        first: the earliest time. The published code never trains t = 0, although planning begins there; 0 does.
        dropped: transitions left out at the end of every episode. The published code loses the last one; 0 keeps it.

    Raises:
        ValueError: for a window below 1, or other numbers below 0.
    """
    window, first, dropped = integer("window", window, least=1), integer("first", first), integer("dropped", dropped)
    kept = np.maximum(lengths - dropped, 0)
    counts = np.maximum(kept - first, 0)
    episode = np.repeat(np.arange(len(lengths)), counts)
    time = _ranges(counts) + first
    begin = np.cumsum(lengths) - lengths
    return Anchors(episode, time, begin[episode] + time, np.minimum(window, kept[episode] - time))


def split(
    count: int, *, share: float = 0.1, limit: int = 5000, seed: int, iteration: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Anchors (numbers below `count`, increasing) to train on and to validate on: min(⌊share·count⌋, limit) of them.

    Drawn anew at every iteration, as published: a pure function of (seed, iteration, count).

    Raises:
        ValueError: for a share outside [0, 1], or numbers below 0.
    """
    share, limit = number("share", share, least=0, most=1), integer("limit", limit)
    held = min(int(share * count), limit)
    shuffled = np.random.default_rng((_VALIDATION, seed, iteration)).permutation(count)
    return np.sort(shuffled[held:]), np.sort(shuffled[:held])


class TrainingRows(NamedTuple):
    """(window, offset) rows, (R,) int64 each: the context of `anchor` predicts `transition`.

    Both are numbers, of an anchor and of a transition of the store; the offset is their distance in time.
    """

    anchor: Rows
    transition: Rows


def rows(at: Anchors, which: Rows) -> TrainingRows:
    """All rows of the anchors `which` (numbers)."""
    counts = at.reach[which]
    return TrainingRows(np.repeat(which, counts), np.repeat(at.transition[which], counts) + _ranges(counts))


def epoch_order(count: int, members: int, *, seed: int, iteration: int, epoch: int) -> Rows:
    """Row numbers (members, count) of one epoch, a pure function of its arguments.

    One member sees every row once. Each of several has a bootstrap sample of its own, the same in every epoch of an
    iteration, and its own order.
    """
    shuffle = np.random.default_rng((_ORDER, seed, iteration, epoch))
    if members == 1:
        return shuffle.permutation(count)[None]
    sample = np.random.default_rng((_BOOTSTRAP, seed, iteration)).integers(count, size=(members, count))
    return shuffle.permuted(sample, axis=1)


def _ranges(counts: Rows) -> Rows:
    """0 … c − 1 for each count c, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
