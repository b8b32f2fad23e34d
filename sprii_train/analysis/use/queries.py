"""Which recorded episodes serve as donors and recipients: rules of the table, which never look at a model's error."""

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.banks.behaviours import SpringEpisodes
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.table import few
from sprii_train.analysis.use.simulated import Queries


def first_episodes(table: EpisodeTable, kind: str | None = None) -> NDArray[np.int64]:
    """The id of the first rollout of each system of the table, or its first of one kind, (n,) by increasing system.

    Raises:
        ValueError: naming the systems without one.
    """
    return _first(table, np.ones(len(table), np.bool_) if kind is None else table["kind"] == kind, f"kind {kind!r}")


def pulse_queries(bank: Bank, table: EpisodeTable, kind: str = "cold", pulse: float = 0.5) -> Queries:
    """SpringWorld's query of each system: its first episode of `kind` whose force at the anchor is `pulse`.

    Args:
        table: episodes of the bank to choose from, such as the continuous systems of its validation split.
        kind: `cold` or `moving`.
        pulse: a fraction of the force bound, one of the protocol's templates.

    Raises:
        ValueError: for a bank without such templates, and for systems without such an episode.
    """
    behaviour = bank.protocol.behaviour
    if not isinstance(behaviour, SpringEpisodes):
        raise ValueError(f"the bank {bank.protocol.name!r} has no pulses; queries are of banks of SpringEpisodes")
    anchors = {"cold": behaviour.cold_anchor, "moving": behaviour.moving_anchor}
    if kind not in anchors or pulse not in behaviour.templates:
        raise ValueError(
            f"no query of kind {kind!r} with a pulse of {pulse}; legal kinds: {', '.join(anchors)}; "
            f"pulses: {', '.join(map(str, behaviour.templates))}"
        )
    force = np.linalg.norm(bank["actions"][table["episode"], anchors[kind]], axis=-1)
    chosen = (table["kind"] == kind) & (np.abs(force - pulse) < 1e-6)
    episodes = _first(table, chosen, f"kind {kind!r} with a pulse of {pulse}")
    return Queries(episodes, np.full(len(episodes), anchors[kind]))


def _first(table: EpisodeTable, chosen: NDArray[np.bool_], what: str) -> NDArray[np.int64]:
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((table["rollout"][rows], table["system"][rows]))]
    systems, first = np.unique(table["system"][rows], return_index=True)
    lacking = np.setdiff1d(table["system"], systems)
    if len(lacking):
        raise ValueError(f"{len(lacking)} systems have no episode of {what}: {few(lacking)}")
    return table["episode"][rows[first]]
