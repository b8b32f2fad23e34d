"""The paper's relations (`eq:refinement-keys`) and donor kernels by name, over a table's own columns."""

from sprii_envs.properties import unknown_name
from sprii_envs.relations.donor_bank import donor_bank
from sprii_envs.relations.kernels import Derangement, Kernel, Mismatch, Mixture, Uniform
from sprii_envs.relations.levels import check_levels, level_column
from sprii_envs.relations.relation import SAME_ROLLOUT, SAME_SYSTEM, Relation
from sprii_envs.relations.table import EpisodeTable

NAMED_RELATIONS = {
    "G1": "the same mass, another drag and another stiffness",
    "G2": "the same mass and drag, another stiffness",
    "G3": "the same mass, drag and stiffness, another episode",
    "same-system": "another episode of the same system",
    "same-rollout": "another, earlier window of the same episode",
    "label:COLUMN": "another episode with the same label in a column (a task, partner, hardness, shape …)",
}
"""Name → what two episodes share."""

NAMED_KERNELS = {
    "uniform": "every legal donor alike",
    "candidates": "a uniform one of three frozen candidate systems, then of its episodes (G1 and G2)",
    "derangement": "wrong: the batch's own donors, dealt so that none meets its own system",
    "derangement:COLUMN": "the same with the groups of a column that the relation shares",
    "mismatch:FACTOR": "wrong: the relation with one of its factors different",
}
"""Name → which donor is drawn."""

_REFINED = {"G1": (("mass",), ("drag", "stiffness")), "G2": (("mass", "drag"), ("stiffness",))}
_REFINED["G3"] = (("mass", "drag", "stiffness"), ())


def named_relation(name: str, table: EpisodeTable, *, other_system: bool = False) -> Relation:
    """One of `NAMED_RELATIONS` over the columns of `table`.

    G1, G2 and G3 read the columns mass, drag and stiffness: the levels (`mass_level` …) where the table has
    them. `other_system=True`, for a label, asks for a donor of another system.

    Raises ValueError for an unknown name (and says the nearest), a missing column, a label that is NaN, or
    episodes off the levels (−1), which cannot be compared by level.
    """
    kind, _, label = name.partition(":")
    if other_system and kind != "label":
        raise ValueError(f"other_system=True goes with 'label:COLUMN' only, got {name!r}")
    if kind == "label" and label:
        table.codes(label)
        check_levels(label, table)
        return Relation((label,), ("system",) if other_system else (), name=name)
    if name in _REFINED:
        shared, differ = (tuple(level_column(each, table) for each in part) for part in _REFINED[name])
        return Relation(shared, differ, name=name)
    if name in ("same-system", "same-rollout"):
        return SAME_SYSTEM if name == "same-system" else SAME_ROLLOUT
    raise unknown_name("relation", name, NAMED_RELATIONS)


def named_kernel(
    name: str, table: EpisodeTable, relation: Relation, *, alpha: float | None = None, seed: int = 0
) -> Kernel:
    """One of `NAMED_KERNELS`; with `alpha`, a `Mixture` of that share of correct pairs with a wrong kernel.

    Candidate lists are those of `donor_bank(table, seed)`, for the named relations G1 and G2. Raises ValueError
    for an unknown name, other candidate lists, or α with a kernel of right pairs.
    """
    kind, _, column = name.partition(":")
    if name == "uniform":
        kernel = Uniform()
    elif name == "candidates":
        if relation.name not in ("G1", "G2"):
            raise ValueError(f"candidate lists are made for the relations G1 and G2, not for '{relation}'")
        kernel = donor_bank(table, seed)[relation.name]
    elif kind == "derangement" and (column or name == kind):
        kernel = Derangement(by=column or "system")
    elif kind == "mismatch" and column:
        if not {column, f"{column}_level"} & set(relation.shared):
            raise ValueError(
                f"{name!r} makes one column wrong that the relation shares, and '{relation}' shares "
                f"{', '.join(map(repr, relation.shared)) or 'none'}: take a relation over the factors, such as G3"
            )
        kernel = Mismatch(column)
    else:
        raise unknown_name("kernel", name, NAMED_KERNELS)
    if alpha is None:
        return kernel
    if not isinstance(kernel, Derangement | Mismatch):
        raise ValueError(
            f"alpha mixes wrong pairs in: it needs the kernel derangement or mismatch:FACTOR, not {name!r}"
        )
    return Mixture(alpha, wrong=kernel)
