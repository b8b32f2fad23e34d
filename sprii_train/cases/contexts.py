"""Queries with histories to train the supervised references on (`tab:spring-complete`): a data law of their own.

A step draws one context, one kind of query, and how many transitions of the recipient show; then systems, and for each
of them an episode of that kind and the context's windows, which begin anywhere in episodes of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.arguments import check, flag, integer, number
from sprii_envs.banks import Bank
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.streams import CONTEXTS, stream
from sprii_envs.standardiser import Standardiser
from sprii_train.cases.queries import QueryCases
from sprii_train.data import WindowReader
from sprii_train.learners.reference import ContextQueries

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Context:
    """Histories of one system.

    Attributes:
        share: how often it is drawn, as a share of all contexts.
        kinds: of the episodes, one a history; those of one kind are different ones where a system has enough.
        length: observations of each.
        twice: whether the one history comes twice.
    """

    share: float
    kinds: tuple[str, ...]
    length: int
    twice: bool = False

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, number, "share", above=0, most=1)
        check(self, integer, "length", least=2)
        check(self, flag, "twice")


MIXTURE = (
    Context(0.15, ("forced",), 24),
    Context(0.13, ("forced",), 48),
    Context(0.30, ("forced",), 96),
    Context(0.03, ("mass",), 48),
    Context(0.08, ("mass", "mass"), 48),
    Context(0.08, ("forced", "forced"), 48),
    Context(0.15, ("mass", "forced"), 48),
    Context(0.04, ("forced",), 48, twice=True),
    Context(0.04, ("mass",), 48, twice=True),
)
"""The references' contexts; shares add up to 1."""

SHOWN = {"cold": (0, 1), "moving": (0, 1, 3, 7, 15, 31, 63, 95)}
"""Kind of query → how many transitions of the recipient may show, all of them before its anchor."""


class QueriedContexts:
    """`ContextQueries` of a table's systems: call it with a step.

    Args:
        bank: of the episodes.
        table: those of the systems that are drawn, all kinds.
        law: of the queries, whose kinds and anchors are taken.
        config: of the learner, which says the size of frames and the horizons.
        standardiser: of the targets (K, S); by default that of the bank's training queries at these horizons.
        pairs: half the queries of a batch, as of all data of `fit`.
        mixture: of contexts.

    Raises:
        ValueError: for a system without an episode of a kind, or with another number of them than the others.
    """

    def __init__(
        self,
        bank: Bank,
        table: EpisodeTable,
        law: QueryCases,
        config: Any,
        *,
        pairs: int,
        seed: int,
        standardiser: Standardiser | None = None,
        mixture: Sequence[Context] = MIXTURE,
    ) -> None:
        self.bank, self.table, self.seed, self.count = bank, table, seed, 2 * pairs
        self.law = replace(law, horizons=config.horizons)
        self.image, self.mixture = config.image, tuple(mixture)
        self.standardiser = self.law.standardiser(bank) if standardiser is None else standardiser
        kinds = {*self.law.anchors, *(kind for context in self.mixture for kind in context.kinds)}
        self.episodes = {kind: episodes_of(table, kind) for kind in sorted(kinds)}
        self.lengths = {kind: int(table["length"][table["kind"] == kind].min()) for kind in self.episodes}

    def identity(self) -> dict[str, Any]:
        """What the queries depend on; `fit` keeps it with the run."""
        return {
            "bank": self.bank.fingerprint,
            "table": [self.table.fingerprint(), self.table.rows_fingerprint()],
            "law": repr(self.law),
            "mixture": repr(self.mixture),
            "image": self.image,
            "queries": self.count,
            "seed": self.seed,
        }

    def __call__(self, step: int) -> ContextQueries:
        """The queries of a step, a pure function of it."""
        rng = stream(self.seed, step, CONTEXTS)
        shares = np.array([context.share for context in self.mixture])
        context = self.mixture[rng.choice(len(shares), p=shares / shares.sum())]
        kind = str(rng.choice(sorted(self.law.anchors)))
        transitions = int(rng.choice(SHOWN[kind]))
        total = len(self.episodes[kind])
        systems = rng.choice(total, self.count, replace=self.count > total)
        queries = self._drawn(rng, kind, systems, 1)[:, 0]
        histories, actions = self._histories(rng, context, systems)
        anchors = np.full(self.count, self.law.anchors[kind])
        shown = self._frames(queries, anchors - transitions, transitions + 1)
        (_, future), increments = self.law.ahead(self.bank, queries, anchors)
        targets = self.standardiser(increments).astype(np.float32)
        return ContextQueries(
            histories, actions, shown, torch.from_numpy(future.astype(np.float32)), torch.from_numpy(targets)
        )

    def _histories(self, rng: np.random.Generator, context: Context, systems: Rows) -> Any:
        frames, actions, taken = [], [], dict.fromkeys(context.kinds, 0)
        drawn = {kind: self._drawn(rng, kind, systems, context.kinds.count(kind)) for kind in taken}
        for kind in context.kinds:
            episodes = drawn[kind][:, taken[kind]]
            taken[kind] += 1
            starts = rng.integers(self.lengths[kind] - context.length + 1, size=len(systems))
            frames.append(self._frames(episodes, starts, context.length))
            led = self.bank.windows("actions", episodes, starts, context.length - 1)
            actions.append(torch.from_numpy(led.astype(np.float32)))
        times = 2 if context.twice else 1
        return torch.stack(frames * times, dim=1), torch.stack(actions * times, dim=1)

    def _drawn(self, rng: np.random.Generator, kind: str, systems: Rows, count: int) -> Rows:
        """Episodes (n, count) of a kind, one row a system, different ones where there are as many."""
        of = self.episodes[kind][systems]
        if count > of.shape[1]:
            return np.take_along_axis(of, rng.integers(of.shape[1], size=(len(of), count)), axis=1)
        return np.take_along_axis(of, rng.random(of.shape).argsort(1)[:, :count], axis=1)

    def _frames(self, episodes: Rows, starts: Rows, length: int) -> torch.Tensor:
        reader = WindowReader(self.bank, length, self.law.horizons, image=self.image, still=True)
        return reader.histories(episodes, starts).observations


def episodes_of(table: EpisodeTable, kind: str) -> Rows:
    """Episodes (S, R) of a kind, a row for each system of a table in the order of their ids.

    Raises:
        ValueError: unless every system has as many of them, one at least.
    """
    own = table.select(table["kind"] == kind)
    systems, counts = np.unique(own["system"], return_counts=True)
    if len(systems) < len(np.unique(table["system"])) or counts.min() != counts.max():
        raise ValueError(f"contexts and queries need equally many episodes of the kind {kind!r} of every system")
    order = np.lexsort((own["episode"], own["system"]))
    return own["episode"][order].reshape(len(systems), -1)
