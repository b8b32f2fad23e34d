"""From a store of CoPhy's features to what training and evaluation read: the objects of every pair, slot by slot."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Store
from sprii_envs.cophy.bank import slots, states
from sprii_envs.relations import EpisodeTable
from sprii_train.cophy.features import Features
from sprii_train.cophy.pairs import ObjectEpisodes, relation_units
from sprii_train.cophy.reader import Queries, queries
from sprii_train.cophy.supports import Objects

Rows = NDArray[np.int64]


class Truth(NamedTuple):
    """What is true of N pairs of O objects."""

    slot: Rows  # (N, O)
    kind: Rows  # (N, O)
    seen: NDArray[np.bool_]  # (N, O), in AB
    asked: NDArray[np.bool_]  # (N, O), in CD too, from which an intervention may have removed an object
    physics: NDArray[np.float64]  # (N, O, 3) mass, friction, restitution
    gravity: NDArray[np.float64]  # (N, 3)
    positions: NDArray[np.float32]  # (N, T, O, 3) in CD


def features_in(store: Store) -> Features:
    """The store, where it is one of features.

    Raises:
        ValueError: where it is not.
    """
    if not isinstance(store, Features):
        raise ValueError(f"{store.name} holds no features of CoPhy; legal: a store that `Perceived` makes")
    return store


def truth(store: Features, rows: Rows) -> Truth:
    """Of pairs in some rows (N,) of a store."""
    slot, kind, found = store.slot[rows], store.kind[rows], slots(store, rows)
    of = [np.take_along_axis(values, slot, 1) for values in (found.mass, found.friction, found.restitution)]
    place = slot[:, None, :, None]
    times = np.arange(store.features.shape[2])
    positions = np.take_along_axis(states(store, rows, "cd", times)[..., :3], place, 2)
    seen = kind >= 0
    asked = seen & (positions[:, 0] != 0).any(-1)
    return Truth(slot, kind, seen, asked, np.stack(of, axis=-1), found.gravity, positions)


def training(store: Features, table: EpisodeTable) -> ObjectEpisodes:
    """The episodes of a table of the store, with their relation units."""
    rows = rows_of(store, table)
    t = truth(store, rows)
    unit, stratum = relation_units(t.slot, t.kind, t.gravity, t.physics)
    return ObjectEpisodes(
        store.features, store.poses, rows, t.positions, t.slot, t.kind, t.asked, unit, stratum,
        f"{store.fingerprint} {table.rows_fingerprint()}",
    )  # fmt: skip


def rows_of(store: Store, table: EpisodeTable) -> Rows:
    """Where the episodes of a table stand in the store's."""
    order = store.table.by_episode()
    return order[np.searchsorted(store.table["episode"], table["episode"], sorter=order)]


def evaluated(store: Features) -> tuple[Objects, Queries]:
    """The objects and queries of all splits, for readers and measures."""
    t = truth(store, np.arange(len(store.table)))
    objects = Objects(t.slot, t.kind, t.seen, t.physics, t.gravity, store.table["split"].astype(str), t.asked)
    return objects, queries(np.array(store.poses[:, 1]), t.positions, objects.active, t.kind)
