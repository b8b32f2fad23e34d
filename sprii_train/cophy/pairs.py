"""Batches of objects for Cross: recipients in epochs, and for each of their objects a donor of the same physics.

A relation unit is a slot, a visible type, a gravity and a physical tuple: two episodes are related by an object, not by
their whole scenes (learner zoo of CoPhy). Everything that is drawn is a pure function of (seed, epoch).
"""

import copy
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import check, choice, instance, integer, shown
from sprii_envs.checks import whole as whole_numbers
from sprii_envs.relations.streams import CANDIDATES, PAIRS, WINDOWS, below, stream
from sprii_train.cophy.supports import distinct
from sprii_train.cophy.windows import ObjectWindows

Array = NDArray[Any]
Rows = NDArray[np.int64]

DONORS = ("none", "related", "random")
RESTS = 0.01
"""m: an object that moved less since the frame before rests."""
REPAIRS = 64
"""Rounds of swaps that mend a deal."""


@dataclass(frozen=True)
class ObjectEpisodes:
    """Episodes of one split, their O objects in the order of their slots.

    Attributes:
        features, poses: (E, 2, T, O, F) and (E, 2, T, O, 3) of videos AB and CD, of all episodes of the store.
        rows: (N,) of them, the split's.
        positions: (N, T, O, 3) true, of CD.
        slot, kind: (N, O); a kind of −1 is of no object.
        active: (N, O) objects of both videos.
        unit, stratum: (N, O), see `relation_units`.
        fingerprint: of the data behind it.

    Raises:
        ValueError: for other shapes, rows that are not there, and poses, positions or features that are not finite; the
            features of a memory map, which may be larger than the memory, are not read for it.
    """

    features: Array
    poses: Array
    rows: Rows
    positions: Array
    slot: Rows
    kind: Rows
    active: NDArray[np.bool_]
    unit: Rows
    stratum: Rows
    fingerprint: str

    def __post_init__(self) -> None:
        """ValueError, see above."""
        if self.features.ndim != 5 or self.features.shape[1] != 2:
            raise ValueError(f"features have shape {self.features.shape}; legal: (E, 2, T, O, F)")
        e, _, t, o, _ = self.features.shape
        n = len(self.rows)
        legal = {"poses": (e, 2, t, o, 3), "rows": (n,), "positions": (n, t, o, 3)}
        legal |= {name: (n, o) for name in ("slot", "kind", "active", "unit", "stratum")}
        for name, shape in legal.items():
            if (found := getattr(self, name).shape) != shape:
                raise ValueError(f"{name} has shape {found}; legal: {shape}")
        if n and not 0 <= self.rows.min() <= self.rows.max() < e:
            raise ValueError(f"rows are {self.rows.min()} to {self.rows.max()}; legal: 0 to {e - 1}")
        for name in ("poses", "positions", *(() if isinstance(self.features, np.memmap) else ("features",))):
            _check_finite(name, getattr(self, name))


def relation_units(slot: Array, kind: Array, gravity: Array, physics: Array) -> tuple[Rows, Rows]:
    """Which objects may give each other their codes.

    Args:
        slot, kind: (N, O).
        gravity: (N, g) of the scene.
        physics: (N, O, k) mass, friction, restitution, or what of them varies.

    Returns:
        (N, O) numbers of units, equal slot, kind, gravity and physics; and of strata, equal slot, kind and gravity.

    Raises:
        ValueError: for other shapes, a slot or kind that is no integer, and gravity or physics that is not finite.
    """
    for name, values in (("slot", slot), ("kind", kind)):
        try:
            whole_numbers(values)
        except TypeError as error:
            raise ValueError(f"{name} is {shown(values)}; legal: integers, (N, O)") from error
    if np.ndim(slot) != 2:
        raise ValueError(f"slot has shape {np.shape(slot)}; legal: (N, O)")
    n, o = np.shape(slot)
    for name, values, inner in (("kind", kind, (n, o)), ("gravity", gravity, (n,)), ("physics", physics, (n, o))):
        ndim = 2 if name != "physics" else 3
        if np.ndim(values) != ndim or np.shape(values)[: len(inner)] != inner:
            legal = {"kind": f"({n}, {o})", "gravity": f"({n}, g)", "physics": f"({n}, {o}, k)"}[name]
            raise ValueError(f"{name} has shape {np.shape(values)}; legal: {legal}")
    _check_finite("gravity", gravity)
    _check_finite("physics", physics)
    public = np.concatenate(
        [np.stack([slot, kind], axis=-1), np.broadcast_to(np.asarray(gravity)[:, None], (n, o, np.shape(gravity)[1]))],
        axis=-1,
    )  # fmt: skip
    whole = np.concatenate([public, physics], axis=-1)
    return _numbered(whole), _numbered(public)


def _check_finite(name: str, values: Array) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} hold NaN or infinity; legal: finite numbers")


def _numbered(cells: Array) -> Rows:
    flat = np.round(cells.reshape(-1, cells.shape[-1]).astype(np.float64), 6)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(cells.shape[:-1]).astype(np.int64)


def resting(positions: Array) -> NDArray[np.bool_]:
    """Whether objects (…, T, O, 3) rest: (…, T, O); of the first frame, whether they do in the second."""
    moved = np.linalg.norm(np.diff(positions, axis=-3), axis=-1) >= RESTS
    return ~np.concatenate([moved[..., :1, :], moved], axis=-2)


class Members:
    """Objects by unit: for each one, the others of its unit."""

    def __init__(self, episodes: ObjectEpisodes) -> None:
        unit = np.where(episodes.active, episodes.unit, -1).ravel()
        self.objects = episodes.unit.shape[1]
        self._order = np.argsort(unit, kind="stable")
        _, group, counts = np.unique(unit, return_inverse=True, return_counts=True)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.unit, self._first, self.counts = group, first[group], counts[group]
        self._place = np.empty(len(unit), np.int64)
        self._place[self._order] = np.arange(len(unit)) - self._first[self._order]

    def others(self, cells: Rows) -> Rows:
        """How many other episodes have an object of a cell's unit; a cell is row · O + object."""
        return self.counts[cells] - 1

    def other(self, cells: Rows, drawn: Rows) -> Rows:
        """The cell of the other that is drawn, 0 … others − 1."""
        return self._order[self._first[cells] + drawn + (drawn >= self._place[cells])]

    def apart(self, cells: Rows, uniform: Array) -> Rows:
        """Distinct cells (n, k) of a unit, none of those given, by uniform numbers (k, n) in [0, 1).

        Args:
            cells: (n, m), of one unit each, −1 behind the last.
        """
        given = cells >= 0
        drawn = distinct(uniform, self.counts[cells[:, 0]] - given.sum(1)).T
        far = np.iinfo(np.int64).max
        for place in np.sort(np.where(given, self._place[cells], far), axis=1).T:
            drawn = drawn + (drawn >= place[:, None])
        return self._order[self._first[cells[:, :1]] + drawn]


@dataclass(frozen=True)
class Groups:
    """Recipients whose focal objects share donors; the defaults are the paper's S1 of CoPhyNet.

    Attributes:
        supports: episodes whose codes' mean an object gets.
        recipients: at most, that get those of one group, drawn once.
        batch: groups of a batch, where all are full.
    """

    supports: int = 5
    recipients: int = 3
    batch: int = 10

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "supports", "recipients", "batch", least=1)


class Epoch(NamedTuple):
    """What an epoch gives: n recipients in order, their focal objects, and donors by object (−1: no object).

    With `Groups` an object has several donors, along a last axis.
    """

    recipient: Rows  # (n,) rows of the split
    focal: Rows  # (n,) objects
    donor: Rows  # (n, O) or (n, O, supports) rows of the split
    place: Rows  # as many objects of these


class PairedObjects:
    """Stacked donor and recipient rows, or recipients alone: call it with a step.

    Args:
        episodes: of the training split.
        donors: `related`: of the recipient's unit, each object's drawn by itself; `random`: these, permuted over the
            epoch within a slot, kind and gravity, and never the recipient itself; `none`: 2 · pairs recipients.
        pairs: recipients of a batch with donors.
        groups: of related donors; None is one donor for each object.

    Epochs follow one another without a gap, so a batch may end one and begin the next. Members of a group follow one
    another; it has fewer than `Groups.recipients` where an epoch leaves a unit with fewer, or the unit has too few
    others to be their supports.

    Raises:
        ValueError: for other donors, groups of donors that are not related, or where no episode has donors for all of
            its objects.
    """

    def __init__(
        self,
        episodes: ObjectEpisodes,
        *,
        donors: str = "none",
        pairs: int = 32,
        seed: int = 0,
        groups: Groups | None = None,
    ) -> None:
        self.episodes, self.donors = episodes, choice("donors", donors, legal=DONORS)
        self.pairs, self.seed = integer("pairs", pairs, least=1), integer("seed", seed)
        self.groups = None if groups is None else instance("groups", groups, of=Groups)
        if groups is not None and donors != "related":
            raise ValueError(f"donors are {donors!r} with groups; legal: related")
        self._members = Members(episodes)
        lone = self._members.counts.reshape(episodes.unit.shape) <= (1 if groups is None else groups.supports)
        self.eligible = np.flatnonzero(~(lone & episodes.active).any(axis=1) & episodes.active.any(axis=1))
        if not len(self.eligible):
            each = "a donor" if groups is None else f"{groups.supports} donors"
            raise ValueError(f"none of {len(lone):,} episodes has {each} for each of its objects; legal: more of them")
        self._own = slice(None)
        self._epoch = lru_cache(maxsize=2)(self._drawn)

    @property
    def recipients(self) -> int:
        """Of a batch."""
        return self.pairs if self.donors != "none" else 2 * self.pairs

    def identity(self) -> dict[str, Any]:
        """What the batches depend on; `fit` keeps it with the run."""
        told = {
            "episodes": self.episodes.fingerprint,
            "donors": self.donors,
            "recipients": len(self.eligible),
            "pairs": self.pairs,
            "seed": self.seed,
        }
        return told if self.groups is None else told | {"groups": asdict(self.groups)}

    def shard(self, rank: int, world: int) -> "PairedObjects":
        """The same batches, of which one rank's share of the recipients is read."""
        if self.pairs % world:
            raise ValueError(f"{self.pairs} pairs cannot be shared by {world} ranks; legal: a multiple of {world}")
        part, share = copy.copy(self), self.recipients // world
        part._own = slice(rank * share, (rank + 1) * share)
        return part

    def epoch(self, epoch: int) -> Epoch:
        """Everything that an epoch draws."""
        return self._epoch(integer("epoch", epoch))

    def _drawn(self, epoch: int) -> Epoch:
        active, o = self.episodes.active, self._members.objects
        rng = stream(self.seed, epoch, PAIRS)
        recipient = rng.permutation(self.eligible)
        chance = np.where(active[recipient], rng.random((len(recipient), o)), -1.0)
        focal = chance.argmax(axis=1)
        if self.groups is not None:
            return self._grouped(self.groups, recipient, focal, epoch)
        n, at = np.nonzero(active[recipient])  # by recipient, then by object
        cells = recipient[n] * o + at
        donor = self._members.other(cells, below(stream(self.seed, epoch, WINDOWS), self._members.others(cells)))
        if self.donors == "random":
            stratum = self.episodes.stratum.ravel()[cells]
            donor = permuted(donor, donor // o, cells // o, stratum, stream(self.seed, epoch, CANDIDATES))
        rows, places = (np.full((len(recipient), o), -1, np.int64) for _ in range(2))
        rows[n, at], places[n, at] = donor // o, donor % o
        return Epoch(recipient, focal, rows, places)

    def _grouped(self, groups: Groups, recipient: Rows, focal: Rows, epoch: int) -> Epoch:
        """Recipients in order of their groups, whose focal objects share supports; other objects have their own."""
        members, o, rng = self._members, self._members.objects, stream(self.seed, epoch, CANDIDATES)
        run = _runs(members, recipient * o + focal, groups)
        order = np.argsort(rng.permutation(run.max() + 1)[run], kind="stable")  # members of a group together
        recipient, focal, run = recipient[order], focal[order], run[order]
        begins = np.r_[True, run[1:] != run[:-1]]
        group = np.cumsum(begins) - 1
        own = np.full((group[-1] + 1, groups.recipients), -1)
        own[group, np.arange(len(group)) - np.flatnonzero(begins)[group]] = recipient * o + focal
        active = self.episodes.active[recipient]
        n, at = np.nonzero(active)
        cells, shared = recipient[n] * o + at, at == focal[n]
        drawn = stream(self.seed, epoch, WINDOWS).random((groups.supports, len(cells)))
        donors = members.apart(cells[:, None], drawn)
        donors[shared] = members.apart(own, drawn[:, shared][:, begins])[group]
        rows, places = (np.full((*active.shape, groups.supports), -1, np.int64) for _ in range(2))
        rows[n, at], places[n, at] = donors // o, donors % o
        return Epoch(recipient, focal, rows, places)

    def batch(self, step: int) -> Epoch:
        """Recipients and donors of a step; ValueError for one that is no integer from 0 on."""
        step = integer("step", step)
        total, first = len(self.eligible), step * self.recipients
        at = first + np.arange(self.recipients)[self._own]
        parts = [
            Epoch(*(field[at[at // total == e] % total] for field in self.epoch(int(e))))
            for e in np.unique(at // total)
        ]
        return Epoch(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))

    def __call__(self, step: int) -> ObjectWindows:
        """Rows 0 … n − 1 are the donors of rows n … 2n − 1; without donors all are recipients."""
        drawn = self.batch(step)
        own = self.read(drawn)
        if self.donors == "none":
            return own
        given = self.given(drawn, own)
        if self.groups is not None:  # a recipient's mean is of its own code
            own = own._replace(video=_same(own.video, self.groups), place=_same(own.place, self.groups))
        empty = given.features.shape[1] - 1  # of recipients, who have their own video alone
        padded = own._replace(
            **{name: _padded(getattr(own, name), empty) for name in ("features", "poses", "seen")}
        )  # fmt: skip
        return ObjectWindows(*(torch.cat(pair) for pair in zip(given, padded, strict=True)))

    def windows(self, rows: Rows) -> ObjectWindows:
        """Episodes (n,) with their own videos, each with its first object for the focal one."""
        return self.read(Epoch(rows, self.episodes.active[rows].argmax(1), *(np.empty((0, 0), np.int64),) * 2))

    def read(self, drawn: Epoch) -> ObjectWindows:
        """Recipients with their own video AB."""
        e, rows = self.episodes, drawn.recipient
        n, o = len(rows), self._members.objects
        videos, poses = e.features[e.rows[rows]], e.poses[e.rows[rows]]
        active, positions = e.active[rows], e.positions[rows]
        return ObjectWindows(
            features=_tensor(videos[:, :1]),
            poses=_tensor(poses[:, :1], np.float32),
            seen=_tensor(e.kind[rows][:, None] >= 0),
            video=torch.zeros(n, o, dtype=torch.int64),
            place=torch.arange(o).expand(n, o).clone(),
            query_features=_tensor(videos[:, 1]),
            query_poses=_tensor(poses[:, 1], np.float32),
            active=_tensor(active),
            slot=_tensor(e.slot[rows]),
            kind=_tensor(e.kind[rows]),
            focal=_tensor(drawn.focal),
            positions=_tensor(positions, np.float32),
            still=_tensor(resting(positions)),
        )

    def given(self, drawn: Epoch, own: ObjectWindows) -> ObjectWindows:
        """The recipients' queries with each object's code from its donor's video."""
        e, n, shape = self.episodes, len(drawn.donor), drawn.donor.shape[1:]
        donor = drawn.donor.reshape(n, -1)
        there, videos = donor >= 0, np.maximum(donor, 0)
        seen = (e.kind[videos] >= 0) & there[..., None]
        blank = ~there[..., None, None, None]
        return own._replace(
            features=_tensor(np.where(blank, 0, e.features[e.rows[videos], 0])),
            poses=_tensor(np.where(blank, 0, e.poses[e.rows[videos], 0]), np.float32),
            seen=_tensor(seen),
            video=torch.arange(donor.shape[1]).view(shape).expand(n, *shape).clone(),
            place=_tensor(np.maximum(drawn.place, 0)),
        )


def _runs(members: Members, cells: Rows, groups: Groups) -> Rows:
    """Groups (n,) of focal cells (n,), numbered from 0: as many of a unit as it has others for, in the given order."""
    unit, counts = members.unit[cells], members.counts[cells]
    most = np.minimum(groups.recipients, counts - groups.supports)
    order = np.argsort(unit, kind="stable")
    _, first, sizes = np.unique(unit[order], return_index=True, return_counts=True)
    within = np.empty(len(cells), np.int64)
    within[order] = np.arange(len(cells)) - np.repeat(first, sizes)
    return np.unique(np.column_stack([unit, within // most]), axis=0, return_inverse=True)[1].ravel()


def permuted(donor: Array, source: Rows, recipient: Rows, stratum: Rows, rng: np.random.Generator) -> Rows:
    """Donors (n,) dealt anew within strata, none to the episode that it is of.

    A deal that gives an episode itself is mended by swaps with donors of the same stratum; where these do not help,
    which takes a stratum of two or three episodes, the stratum keeps the donors that it had.

    Args:
        donor: what is dealt.
        source: (n,) the episode of each donor.
        recipient: (n,) the episodes that they are dealt to.
    """
    order = np.argsort(stratum, kind="stable")
    _, first, counts = np.unique(stratum[order], return_index=True, return_counts=True)
    begins, sizes = np.repeat(first, counts), np.repeat(counts, counts)
    takers, dealt = recipient[order], order[np.lexsort([rng.random(len(order)), stratum[order]])]
    for _ in range(REPAIRS):
        wrong = np.flatnonzero(source[dealt] == takers)
        if not len(wrong):
            break
        other = begins[wrong] + below(rng, sizes[wrong])
        mends = (source[dealt[other]] != takers[wrong]) & (source[dealt[wrong]] != takers[other])
        a, b = wrong[mends], other[mends]
        # A place takes part in one swap of a round.
        once = np.unique(np.concatenate([a, b]), return_counts=True)
        free = ~np.isin(a, once[0][once[1] > 1]) & ~np.isin(b, once[0][once[1] > 1])
        a, b = a[free], b[free]
        dealt[a], dealt[b] = dealt[b], dealt[a]
    left = np.isin(stratum[order], stratum[order][source[dealt] == takers])
    dealt[left] = order[left]
    found = np.empty_like(donor)
    found[order] = donor[dealt]
    return found


def _same(values: Tensor, groups: Groups) -> Tensor:
    return values.unsqueeze(-1).expand(*values.shape, groups.supports).clone()


def _padded(values: Tensor, videos: int) -> Tensor:
    return torch.cat([values, values.new_zeros(len(values), videos, *values.shape[2:])], dim=1)


def _tensor(array: Array, dtype: Any = None) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
