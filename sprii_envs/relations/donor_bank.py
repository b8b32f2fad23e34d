"""The paper's frozen donor bank: three candidate systems for each system under G1 and under G2."""

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.relations.index import fold
from sprii_envs.relations.kernels.candidates import Candidates
from sprii_envs.relations.levels import level_column
from sprii_envs.relations.streams import CANDIDATES, stream
from sprii_envs.relations.table import EpisodeTable, Rows, few


def donor_bank(table: EpisodeTable, seed: int = 0, offsets: tuple[int, ...] = (1, 3, 7)) -> dict[str, Candidates]:
    """The candidate lists {"G1": …, "G2": …} of `app:donor-pool-control`, each of at most len(offsets) systems.

    G1: for each offset one system of the same mass, whose drag index is the recipient's plus the offset, modulo
    the number of drag levels that occur, and whose stiffness differs. G2: len(offsets) systems of the same
    mass and drag with another stiffness. Where fewer are eligible, all of them are candidates.

    Each choice is uniform among the eligible systems and independent of all others: the random numbers come
    from Philox keyed by `seed`, for the blocks of equal mass and drag in increasing order and the systems by
    id. Every split has its own lists, from its own systems and the same stream. Memory is quadratic in the
    systems of a block.

    Raises ValueError for a missing column, a property that varies within a system, a system of two splits, or
    offsets that coincide modulo the number of drag levels or are 0.
    """
    integer("seed", seed, most=WORD)
    if "split" in table and table.codes("split")[1] > 1:
        if fold(table, ("system", "split"))[1] > table.codes("system")[1]:
            raise ValueError("some systems have episodes in several splits; pass one split: table.select(name)")
        parts = [
            donor_bank(table.select(table["split"] == split), seed, offsets) for split in np.unique(table["split"])
        ]
        return {name: _joined([part[name] for part in parts]) for name in ("G1", "G2")}
    systems, first = np.unique(table["system"], return_index=True)
    codes = []
    for name in ("mass", "drag", "stiffness"):
        column = level_column(name, table)
        if fold(table, ("system", column))[1] != len(systems):
            raise ValueError(f"a donor bank needs systems of one {name} each, but {column!r} varies within a system")
        codes.append(table.codes(column)[0][first])
    drags = int(codes[1].max()) + 1
    turned = [integer("an offset", offset, least=-WORD) % drags for offset in offsets]
    if 0 in turned or len(set(turned)) != len(turned):
        raise ValueError(
            f"the offsets {few(offsets)} must be distinct and not 0 modulo the {drags} levels of drag that occur"
        )
    rng = stream(seed, 0, CANDIDATES)
    return {
        "G1": _lists(systems, codes, rng, turned, 1),
        "G2": _lists(systems, codes, rng, [0], len(offsets)),
    }


def _lists(
    systems: NDArray[np.generic], codes: list[Rows], rng: np.random.Generator, offsets: list[int], each: int
) -> Candidates:
    """`each` systems of other stiffness at each drag offset, for every system."""
    mass, drag, stiffness = codes
    drags = int(drag.max()) + 1
    block_of = mass * drags + drag
    ends = np.cumsum(np.bincount(block_of, minlength=(int(mass.max()) + 1) * drags))
    blocks = np.split(np.argsort(block_of, kind="stable"), ends[:-1])
    owner, chosen = [], []
    for block, members in enumerate(blocks):
        for offset in offsets:
            pool = blocks[block - block % drags + (block % drags + offset) % drags]
            key = rng.random((len(members), len(pool)))
            key[stiffness[members][:, None] == stiffness[pool]] = 2.0  # never chosen
            best = np.argsort(key, axis=1)[:, :each]
            legal = np.take_along_axis(key, best, axis=1) < 2.0
            owner.append(np.repeat(members, legal.sum(axis=1)))
            chosen.append(pool[best[legal]])
    owners, pools = np.concatenate(owner), np.concatenate(chosen)
    order = np.argsort(owners, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(systems)))])
    return Candidates(systems, systems[pools[order]], indptr)


def _joined(parts: list[Candidates]) -> Candidates:
    size = np.concatenate([np.diff(part.indptr) for part in parts])
    return Candidates(
        np.concatenate([part.systems for part in parts]),
        np.concatenate([part.candidates for part in parts]),
        np.concatenate([[0], np.cumsum(size)]),
    )
