"""The training bank that several kernels have in common."""

from collections.abc import Iterable

from sprii_envs.relations.index import build_index
from sprii_envs.relations.kernels import Kernel
from sprii_envs.relations.relation import NoLegalDonorError, Relation
from sprii_envs.relations.table import EpisodeTable


def with_legal_donors(table: EpisodeTable, relation: Relation, kernels: Kernel | Iterable[Kernel]) -> EpisodeTable:
    """The part of a table in which every episode has a legal donor under every kernel (`app:structured-mismatch`).

    `kernels` are several or one.

    Samplers over it see the same recipients at equal seeds, whichever of the kernels they have. An episode that
    is left out is no donor either, so this repeats until none is left out. NoLegalDonorError if none remains;
    ValueError if `Candidates` or a `Graph`, which are frozen, list a donor that is left out.
    """
    kernels = tuple(kernels) if isinstance(kernels, Iterable) else (kernels,)
    whole = table
    while True:
        index = build_index(table, relation)
        legal = index.legal > 0
        for kernel in kernels:
            try:
                legal = legal & (kernel.bind(table, relation, index).legal > 0)
            except ValueError as error:
                if table is whole:
                    raise
                raise ValueError(
                    f"{len(whole) - len(table)} of {len(whole)} episodes have no legal donor under the relation "
                    f"'{relation}' and every kernel, and without them {kernel!r} cannot draw: {error}"
                ) from error
        if legal.all():
            return table
        if not legal.any():
            raise NoLegalDonorError(
                f"under the relation '{relation}' no episode has a legal donor under every one of "
                f"{', '.join(map(repr, kernels)) or 'no kernels'}"
            )
        table = table.select(legal)
