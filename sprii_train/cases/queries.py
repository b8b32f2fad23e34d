"""Queries as reader cases: a present without motion history, an independent donor history, a future.

A query is an episode and an anchor. Its only observation is the frame at the anchor, whose difference is zero: the
recipient shows no transition (`app:horizon-conditions`). Its donor is another episode of the system, of the kind that
histories come from, seen whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.populations import Development, Sealed, Training
from sprii_train.analysis.value.cases import Cases, Standardiser
from sprii_train.cases.base import Drawn, SourceCases, Trained, cases_from, training_from
from sprii_train.cases.encoding import encode_histories, features

DONOR_SEED = 20_262

Kinds = Iterable[str] | None


@dataclass(frozen=True)
class QueryCases:
    """The law of a setting's queries; called with a source, its cases.

    `kinds` of the cases are the kinds of query, `strata` the groups of systems.

    Attributes:
        anchors: kind of query → its anchor, with room for the last horizon; every episode of a kind is one.
        horizons: of all queries.
        groups: of the held-out systems that panels are of.
        cold: the kind whose anchor leaves no room for a recipient prefix.
        moving: the kind that prefixes are measured on.
    """

    anchors: Mapping[str, int]
    horizons: tuple[int, ...]
    groups: tuple[str, ...]
    cold: str = "cold"
    moving: str = "moving"

    def __call__(self, source: Trained) -> SourceCases:
        """Queries of training and validation systems, with the frozen features of one source.

        Panels: the cold queries of `groups`, and all systems' cold and moving ones.
        """
        bank = source.bank
        (train, standardiser), raw = self.training(source), self._raw(source, bank, "validation")
        development = cases_from(bank, "validation", Development, raw, standardiser)
        of_kind = {kind: raw["kinds"] == kind for kind in (self.cold, self.moving)}
        panels = {"cold": of_kind[self.cold] & np.isin(raw["strata"], self.groups)}
        panels |= {f"{kind}_kind": rows for kind, rows in of_kind.items()}
        drawn = {split: self._drawn(source, bank, split)[1] for split in ("train", "validation")}
        return SourceCases(train, development, standardiser, drawn, panels)

    def training(self, source: Trained) -> tuple[Cases[Training], Standardiser]:
        """The queries of training systems, and the standardiser of their targets."""
        return training_from(source.bank, self._raw(source, source.bank, "train"))

    def sealed(self, source: Trained, bank: Bank, standardiser: Standardiser) -> Cases[Sealed]:
        """The cold queries of a sealed bank."""
        return cases_from(bank, "sealed", Sealed, self._raw(source, bank, "sealed"), standardiser).of_kind(self.cold)

    def prefixes(self, source: Trained, transitions: int) -> tuple[Cases[Training], Cases[Development]]:
        """Queries whose last `transitions` + 1 frames are all given, each without a difference, the present one last.

        The training cases are of all kinds but the cold one, the development cases the moving ones of `groups`
        (`app:spring-recipient-evidence`). Targets are standardised by these training cases.
        """
        bank, kinds = source.bank, [kind for kind in self.anchors if kind != self.cold]
        train, standardiser = training_from(bank, self._raw(source, bank, "train", kinds, transitions))
        raw = self._raw(source, bank, "validation", (self.moving,), transitions)
        held_out = cases_from(bank, "validation", Development, raw, standardiser)
        return train, held_out.take(np.isin(raw["strata"], self.groups))

    @staticmethod
    def features(learner: Any, frames: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Features (n, d_q) of single frames (n, H, W) without a difference."""
        return features(learner, torch.from_numpy(np.ascontiguousarray(frames[:, None])))

    def _drawn(self, source: Trained, bank: Bank, split: str, kinds: Kinds = None) -> tuple[EpisodeTable, Drawn]:
        whole, donors = bank.split(split, unseal=True), source.setting.episodes(bank, split, unseal=True)
        queries = whole.select(np.isin(whole["kind"], list(kinds or self.anchors)))
        anchors = np.array([self.anchors[kind] for kind in queries["kind"]])
        rows = donors_of(queries, donors, DONOR_SEED)
        return queries, Drawn(queries["episode"], anchors, donors["episode"][rows], np.zeros(len(rows), np.int64))

    def _raw(
        self, source: Trained, bank: Bank, split: str, kinds: Kinds = None, transitions: int | None = None
    ) -> dict[str, Any]:
        """Fields of `Cases`; with `transitions`, features (n, transitions + 1, d_q) of the frames up to the present."""
        setting, learner = source.setting, source.learner
        queries, (episodes, anchors, donors, _) = self._drawn(source, bank, split, kinds)
        seen = setting.episodes(bank, split, unseal=True)
        codes = encode_histories(learner, setting.reader(bank, learner.config), seen, 0)
        order = seen.by_episode()
        last = self.horizons[-1]
        states = bank.windows("states", episodes, anchors, last + 1).astype(np.float64)
        length = (transitions or 0) + 1
        frames = bank.frames(episodes, anchors - length + 1, length, learner.config.image)
        query = self.features(learner, frames.reshape(-1, *frames.shape[2:])).reshape(len(episodes), length, -1)
        return {
            "systems": queries["system"],
            "query": query[:, 0] if transitions is None else query,
            "context": codes[order[np.searchsorted(seen["episode"][order], donors)]],
            "factors": {name: queries[name].astype(np.float64) for name in setting.properties},
            "actions": bank.windows("actions", episodes, anchors, last).astype(np.float64),
            "targets": states[:, list(self.horizons)] - states[:, :1],
            "strata": queries["group"],
            "kinds": queries["kind"],
            "horizons": self.horizons,
        }


def donors_of(queries: EpisodeTable, donors: EpisodeTable, seed: int) -> NDArray[np.int64]:
    """A row of `donors` for each query: an episode of its system that is not the query itself, uniformly.

    Raises:
        ValueError: for a system with no other episode among the donors.
    """
    order = np.argsort(donors["system"], kind="stable")
    ids, first, counts = np.unique(donors["system"][order], return_index=True, return_counts=True)
    at = np.searchsorted(ids, queries["system"]).clip(max=len(ids) - 1)
    itself = np.isin(queries["episode"], donors["episode"])
    if (ids[at] != queries["system"]).any() or (counts[at] <= itself).any():
        raise ValueError("every query needs a donor of its system in another episode")
    drawn = (np.random.default_rng(seed).random(len(queries)) * (counts[at] - itself)).astype(np.int64)
    row = order[first[at] + drawn]
    # The query's own episode is skipped: where it is drawn, the last one of its system stands in.
    own = itself & (donors["episode"][row] == queries["episode"])
    return np.where(own, order[first[at] + counts[at] - 1], row)
