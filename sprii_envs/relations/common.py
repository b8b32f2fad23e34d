"""The training bank that several kernels have in common."""

from collections.abc import Iterable

from sprii_envs.relations.index import build_index
from sprii_envs.relations.kernels import Kernel
from sprii_envs.relations.relation import NoLegalDonorError, Relation
from sprii_envs.relations.table import EpisodeTable


def with_legal_donors(table: EpisodeTable, relation: Relation, kernels: Iterable[Kernel]) -> EpisodeTable:
    """The part of a table in which every episode has a legal donor under every kernel (`app:structured-mismatch`).

    Samplers over it see the same recipients at equal seeds, whichever of the kernels they have. An episode that
    is left out is no donor either, so this repeats until none is left out. NoLegalDonorError if none remains.
    """
    kernels = tuple(kernels)
    while True:
        index = build_index(table, relation)
        legal = index.legal > 0
        for kernel in kernels:
            legal = legal & (kernel.bind(table, relation, index).legal > 0)
        if legal.all():
            return table
        if not legal.any():
            raise NoLegalDonorError(
                f"under the relation '{relation}' no episode has a legal donor under every one of "
                f"{', '.join(map(repr, kernels)) or 'no kernels'}"
            )
        table = table.select(legal)
