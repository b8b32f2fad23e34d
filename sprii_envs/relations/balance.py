"""law="balanced": every eligible episode as often recipient as donor, and all equally often.

Within a group of equal `shared` labels the joint law of two episodes is w_e·w_f where the pair is legal, 0 where
not: the symmetric scaling of the legal pairs. It needs one number an episode, and a donor is drawn in proportion
to w among the legal ones.
"""

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations.index import PairIndex, overlaps, runs
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.table import EpisodeTable, Rows, factorize
from sprii_envs.relations.weights import weigh

_BISECTIONS = 80  # a root in [0, 2] to the last bit, down to 1e-8
_SWEEPS = 3000
_SOLVED, _EVEN = 1e-13, 1e-6  # relative error of a donor probability: aimed at; at most


def balance(table: EpisodeTable, relation: Relation, index: PairIndex) -> PairIndex:
    """The index whose donors, for recipients uniform over the rows with a legal one, are uniform over these too.

    Where every group is made of equal excluded blocks it is the index as given. With one `differ` column or none
    the scaling is the root of a scalar equation; it exists unless a block is more than half of its group. With
    more it is found by iteration, in time and memory linear in the number of label cells. ValueError naming the
    group, the block and the shares where there is none.
    """
    eligible = index.legal > 0
    if relation.same_episode or not eligible.any():
        return index
    _refuse_majorities(table, relation, index)
    balanced = index
    if index.further:
        balanced = weigh(index, _iterated(index))
    else:
        ordered = index.span[index.order]
        start, block = ordered[:, 0], ordered[:, 3]
        if (np.maximum.reduceat(block, np.unique(start)) != np.minimum.reduceat(block, np.unique(start))).any():
            balanced = weigh(index, _scalar(index))
    uneven = np.abs(balanced.donor_marginal(eligible / eligible.sum()) * eligible.sum() - eligible)
    if uneven.max() > _EVEN:
        row = int(uneven.argmax())
        raise ValueError(
            f"law='balanced' was not found under the relation '{relation}' for "
            f"{_named(table, relation.shared, row, 'the table')}: no law over its legal pairs has even recipients and "
            f"donors, or nearly none; in the closest found, episode {table['episode'][row]} "
            f"({_named(table, relation.differ, row, 'alone')}) is off by {uneven[row]:.1%} as donor"
        )
    return balanced


def _refuse_majorities(table: EpisodeTable, relation: Relation, index: PairIndex) -> None:
    """ValueError if a label of a `differ` column holds more than half of its group: its donors are too few."""
    group = index.span[:, 0]
    eligible = index.legal > 0
    size = np.bincount(group, eligible, minlength=len(table))[group]
    for name in relation.differ:
        codes, count = table.codes(name)
        block, _ = factorize(group * count + codes)
        held = np.bincount(block, eligible)[block]
        over = np.flatnonzero(eligible & (2 * held > size))
        if len(over):
            row = over[(held[over] / size[over]).argmax()]
            raise ValueError(
                f"law='balanced' is impossible under the relation '{relation}': of the {int(size[row])} episodes of "
                f"{_named(table, relation.shared, row, 'the table')}, {int(held[row])} have {name} "
                f"{table[name][row]} ({held[row] / size[row]:.1%}, at most half can be), so the others are too few to "
                f"be their donors; law='pair' gives donors and recipients equal, uneven marginals"
            )


def _named(table: EpisodeTable, columns: tuple[str, ...], row: int, otherwise: str) -> str:
    return ", ".join(f"{name} {table[name][row]}" for name in columns) or otherwise


def _scalar(index: PairIndex) -> NDArray[np.float64]:
    """w (N,) for blocks of masses m_i: shares p_i ∝ m_i·w_i with p_i(1 − p_i) ∝ m_i and Σ p_i = 1.

    All p_i are the smaller root of their equation, but the largest block may have the larger one. With
    p = 1 − e/2 for the largest and b_i = m_i/max m, the others have p_i = e·h_i(e)/2 where
    h_i = (2 − e)·b_i/(1 + √(1 − e(2 − e)·b_i)), and Σ h_i(e) = 1 over the others. The left side is Σ b_i at
    e = 0, at least 1 unless the largest block is more than half, and 0 at e = 2.
    """
    group, block = index.span[:, 0], index.span[:, 3]
    # Blocks of equal size in a group are alike: one entry for each (group, size), with how many there are.
    kind, kinds = factorize(group * (len(group) + 1) + block)
    _, first = np.unique(kind, return_index=True)
    number = np.bincount(kind, minlength=kinds) // block[first]
    start, length = runs(group[first])
    begins = np.unique(start)
    most = np.maximum.reduceat(block[first], begins).repeat(length[begins])
    largest = block[first] == most
    b, others = block[first] / most, number - largest
    low, high = np.zeros(len(begins)), np.full(len(begins), 2.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        over = np.add.reduceat(others * _smaller(middle.repeat(length[begins]), b), begins) > 1
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    e = high.repeat(length[begins])  # high > 0: where the root is 0, the others keep a weight
    w = e * _smaller(e, b) / b / 2
    # Only one block has the larger root, and only if it is alone at its size.
    w = np.where(largest & (number == 1), 1.0 - e / 2, w)
    return w[kind]


def _smaller(e: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return (2 - e) * b / (1 + np.sqrt((1 - e * (2 - e) * b).clip(0.0)))


def _iterated(index: PairIndex) -> NDArray[np.float64]:
    """w (N,) for two or more `differ` columns: w ← √(w·/(A·w)) over label cells, A·w by inclusion–exclusion."""
    cell = index.span[:, 0] + index.span[:, 2]
    for codes in index.further:
        cell, _ = factorize(cell * (int(codes.max()) + 1) + codes)
    _, first = np.unique(cell, return_index=True)
    mass = np.bincount(cell).astype(float)
    terms = list(overlaps(index.span[first], tuple(codes[first] for codes in index.further)))
    eligible = index.legal[first] > 0
    w = eligible / np.sqrt(np.maximum(_legal_mass(terms, mass), 1.0))
    for _ in range(_SWEEPS):
        reached = w * _legal_mass(terms, mass * w)
        if np.abs(reached - eligible).max() < _SOLVED:
            break
        w = np.divide(w, np.sqrt(reached), out=np.zeros(len(w)), where=eligible & (reached > 0))
    return w[cell]


def _legal_mass(terms: list[tuple[int, Rows]], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """`legal_sums` over cells, with their joint labels computed once."""
    total = sum(sign * np.bincount(joint, mass)[joint] for sign, joint in terms)
    return np.asarray(total, np.float64).clip(0.0)
