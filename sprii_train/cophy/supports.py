"""Whose histories an object of CoPhy may be told by: objects of other episodes, of one split with its own.

A *group* is of one split, slot (colour), kind and gravity; a *class* is of one mass, friction and restitution in it.
Matched supports are of the object's own class, wrong ones of another class of its group, drawn uniformly among those
that are legal, all of one class: histories of one other system. Draws are functions of (seed, epoch): they know no arm.
Objects are named by their flat number, episode · O + object; −1 is none.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import choice, integer

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

FACTORS = ("mass", "friction", "restitution")
MATCHED, WRONG = 0, 1
"""Streams of random numbers; those of a wrong factor follow."""


class Objects(NamedTuple):
    """Objects of E episodes, O of each, absent ones marked."""

    slot: Ids  # (E, O)
    kind: Ids  # (E, O)
    seen: Mask  # (E, O), whether it is there in AB, of which histories are
    physics: Array  # (E, O, 3): mass, friction, restitution
    gravity: Array  # (E, 3)
    split: NDArray[Any]  # (E,) names
    asked: Mask | None = None  # (E, O), whether it is in the query too, where an intervention may remove it

    @property
    def active(self) -> Mask:
        """(E, O), objects of both: those that are told of and asked about."""
        return self.seen if self.asked is None else self.seen & self.asked


class Supports:
    """The classes of all objects, and draws of supports from them.

    Args:
        objects: of all splits.

    Attributes:
        classes: (E·O,) class of every object, −1 where there is none.
        sizes, groups: (classes,) objects of each class, and the group that it is in.

    Raises:
        ValueError: for arrays of other shapes, or an episode with two objects of one slot.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = o = objects
        episodes, count = _checked(o)
        flat = np.flatnonzero(o.seen.ravel())
        episode, each = np.divmod(flat, count)
        group = np.column_stack([
            np.unique(o.split, return_inverse=True)[1][episode], o.slot[episode, each], o.kind[episode, each],
            o.gravity[episode],
        ])  # fmt: skip
        key = np.column_stack([group, o.physics[episode, each]])
        rows, of = np.unique(key, axis=0, return_inverse=True)
        of = of.ravel()
        self.order = flat[np.argsort(of, kind="stable")]
        self.sizes = np.bincount(of, minlength=len(rows))
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.classes = np.full(episodes * count, -1)
        self.classes[flat] = of
        self.places = np.full(episodes * count, -1)
        self.places[self.order] = np.arange(len(flat)) - np.repeat(self.starts, self.sizes)
        self.groups = np.unique(rows[:, :-3], axis=0, return_inverse=True)[1].ravel()
        self._differs = rows[:, None, -3:] != rows[None, :, -3:]

    def matched(self, count: int, *, seed: int, epoch: int = 0) -> Ids:
        """Distinct objects (E, O, count) of each object's class, never itself; −1 for all where there are too few.

        The first of a larger count are those of a smaller one.
        """
        drawn, own = _uniform(integer("count", count, least=1), self.classes.size, seed, epoch, MATCHED), self.classes
        sizes = np.where(own >= 0, self.sizes[own] - 1, 0)
        legal = sizes >= count
        chosen = distinct(drawn, np.maximum(sizes, count))
        chosen += chosen >= self.places
        return self._named(own, chosen, legal)

    def wrong(self, count: int, *, seed: int, epoch: int = 0, factor: str | None = None) -> Ids:
        """Distinct objects (E, O, count) of one other class of the group; −1 for all where there is no such class.

        Args:
            factor: the only one of mass, friction and restitution that differs; None: any differ.

        Raises:
            ValueError: for another factor.
        """
        count, own = integer("count", count, least=1), self.classes
        stream = WRONG if factor is None else WRONG + 1 + FACTORS.index(choice("factor", factor, legal=FACTORS))
        drawn = _uniform(1 + count, own.size, seed, epoch, stream)
        open_ = self.others(factor) & (self.sizes >= count)
        ranked, among = np.argsort(~open_, axis=1, kind="stable"), open_.sum(1)[own]
        other = ranked[own, (drawn[0] * among).astype(np.int64)]
        legal = (own >= 0) & (among > 0)
        return self._named(other, distinct(drawn[1:], np.maximum(self.sizes[other], count)), legal)

    def others(self, factor: str | None) -> Mask:
        """(classes, classes): whether the second is of the first's group and differs, in the named factor alone."""
        same = self.groups[:, None] == self.groups
        if factor is None:
            return same & self._differs.any(-1)
        return same & (self._differs == (np.array(FACTORS) == factor)).all(-1)

    def eligible(self, ids: Ids) -> Mask:
        """Episodes (E,) of which every object that is asked about has supports in a draw (E, O, count)."""
        active = self.objects.active
        return np.asarray(active.any(1) & ((ids >= 0).all(-1) | ~active).all(1))

    def rows(self, split: str, count: int = 3) -> Ids:
        """Episodes of a split of which every object has so many matched supports.

        Raises:
            ValueError: if there are none.
        """
        found = np.flatnonzero((self.objects.split == split) & self.eligible(self.matched(count, seed=0)))
        if not len(found):
            raise ValueError(
                f"no episode of the split {split!r} has {count} supports for each of its objects: others of the same "
                "slot, kind, gravity and physics; take more episodes"
            )
        return found

    def _named(self, classes: Ids, members: Ids, legal: Mask) -> Ids:
        places = np.where(legal, self.starts[classes] + members, 0)
        found = np.where(legal, self.order[places], -1)
        return np.moveaxis(found, 0, -1).reshape(*self.objects.seen.shape, -1)


def distinct(uniform: Array, sizes: Ids) -> Ids:
    """Distinct numbers below sizes (N,) from uniform ones (k, N) in [0, 1): every order of k of them equally likely."""
    drawn: list[Ids] = []
    for j, u in enumerate(uniform):
        number = (u * (sizes - j)).astype(np.int64)
        for taken in np.sort(np.array(drawn), axis=0) if drawn else ():
            number += number >= taken
        drawn.append(number)
    return np.array(drawn)


def _uniform(count: int, size: int, seed: int, epoch: int, stream: int) -> Array:
    return np.random.default_rng([integer("seed", seed), integer("epoch", epoch), stream]).random((count, size))


def _checked(o: Objects) -> tuple[int, int]:
    if np.ndim(o.slot) != 2:
        raise ValueError(f"slot has shape {np.shape(o.slot)}; legal: (E, O)")
    e, n = o.slot.shape
    legal = {"kind": (e, n), "seen": (e, n), "physics": (e, n, 3), "gravity": (e, 3), "split": (e,)}
    for name, shape in (legal if o.asked is None else legal | {"asked": (e, n)}).items():
        if (found := np.shape(getattr(o, name))) != shape:
            raise ValueError(f"{name} has shape {found}; legal: {shape}")
    apart = np.sort(np.where(o.seen, o.slot, -1 - np.arange(n)), axis=1)
    if (twice := (np.diff(apart, axis=1) == 0).any(1)).any():
        row = int(twice.argmax())
        raise ValueError(f"episode {row} has the slots {o.slot[row].tolist()}; legal: distinct ones")
    return e, n
