"""Which recorded episode replaces a recipient's own context: drawn once, by relations, under a fixed seed.

matched      another episode of the recipient's system
wrong        an episode of another system
wrong <f>    an episode whose system differs in the factor f and in no other (`app:poke-fixed`)
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, Relation
from sprii_envs.relations.index import build_index

Rows = NDArray[np.int64]

WRONG_SYSTEM = Relation(differ=("system",), name="another system")


class Choice(NamedTuple):
    """Recipients, distinct, with one donor each, as rows of the table, and those that have no legal donor."""

    recipient: Rows  # (m,)
    donor: Rows  # (m,)
    without: Rows  # (k,)


def one_factor_wrong(factor: str, factors: Sequence[str]) -> Relation:
    """Donors that differ in one factor and equal the recipient in the others, by their exact values.

    Raises:
        ValueError: if `factor` is not among `factors`.
    """
    if factor not in factors:
        raise ValueError(f"{factor!r} is none of the factors {tuple(factors)}")
    others = tuple(name for name in factors if name != factor)
    return Relation(shared=others, differ=(factor,), name=f"another {factor} only")


def choose(table: EpisodeTable, relation: Relation, recipients: ArrayLike | None = None, *, seed: int) -> Choice:
    """A uniform legal donor for each recipient, drawn once.

    Args:
        table: of one split; donors come from all its rows.
        relation: which rows are legal; the recipient itself never is.
        recipients: distinct rows (r,) of the table, all by default.

    Raises:
        ValueError: for a table of several splits, rows that are not its rows, one row twice, or another seed.
    """
    seed = integer("seed", seed, most=2**64 - 1)
    if "split" in table and table.codes("split")[1] > 1:
        raise ValueError(
            f"donors come from the recipients' own split; the table has {np.unique(table['split']).tolist()}"
        )
    rows = np.arange(len(table)) if recipients is None else np.asarray(recipients)
    if rows.ndim != 1 or not rows.size or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(table):
        raise ValueError(f"recipients must be rows (r,) in [0, {len(table)}), got {recipients!r}")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("recipients must be distinct rows: one donor is drawn for each")
    index = build_index(table, relation)
    legal = index.legal[rows] > 0
    chosen = rows[legal].astype(np.int64)
    return Choice(chosen, index.draw(np.random.default_rng(seed), chosen), rows[~legal].astype(np.int64))


def choices(
    table: EpisodeTable,
    factors: Sequence[str],
    recipients: ArrayLike | None = None,
    *,
    seed: int,
    apart: Sequence[str] = (),
) -> dict[str, Choice]:
    """`matched`, `wrong`, and `wrong <factor>` for every factor.

    Args:
        apart: columns in which donors must differ from recipients too, such as `kind` in a table of SpringWorld's cold
            queries and forced histories.
    """
    relations = {"matched": SAME_SYSTEM, "wrong": WRONG_SYSTEM}
    relations |= {f"wrong {factor}": one_factor_wrong(factor, factors) for factor in factors}
    return {
        name: choose(table, dataclasses.replace(law, differ=(*law.differ, *apart)), recipients, seed=seed)
        for name, law in relations.items()
    }


def paired(first: Choice, second: Choice) -> tuple[Rows, Rows, Rows]:
    """Recipients (m,) that have both donors, and the two donors (m,) of each."""
    recipient, a, b = np.intersect1d(first.recipient, second.recipient, assume_unique=True, return_indices=True)
    return recipient, first.donor[a], second.donor[b]
