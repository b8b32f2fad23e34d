"""Queries as reader cases: a present, an independent donor history, a future (`app:horizon-conditions`).

A query is an episode, an anchor, and how much of its recipient shows: the frame at the anchor alone, its difference
zero (q = 0), or with the one before it (q = 1). Its donor is the first window of an episode of its system, of the kind
that histories come from. Kinds, and episodes within a kind, weigh the same in a system; so do q and horizons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.relations import EpisodeTable
from sprii_envs.world import World, rollout
from sprii_train.analysis.populations import Development, Sealed, Training
from sprii_train.analysis.value.cases import Cases, DonorPool, Standardiser, fit_standardiser
from sprii_train.cases.base import Drawn, SourceCases, Trained, cases_from, training_from
from sprii_train.cases.encoding import encode_histories, features

DONOR_SEED = 20_262
SHOWN = 1_024
"""Recipients whose frames are drawn at once: bounds memory, changes nothing."""

Kinds = Iterable[str] | None
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class QueryCases:
    """The law of a setting's queries; called with a source, its cases.

    `kinds` of the cases are the kinds of query, `strata` the groups of systems. Cases come once for each number of
    transitions, in that order.

    Attributes:
        anchors: kind of query → its anchor, with room for the last horizon; every episode of a kind is one.
        horizons: of all queries.
        groups: of the held-out systems that panels are of.
        floors: least SDs of the targets' coordinates.
        transitions: how many of a recipient's show.
        cold: the kind whose anchor leaves no room for a recipient prefix.
        moving: the kind that prefixes are measured on.
    """

    anchors: Mapping[str, int]
    horizons: tuple[int, ...]
    groups: tuple[str, ...]
    floors: tuple[float, ...]
    transitions: tuple[int, ...] = (0, 1)
    cold: str = "cold"
    moving: str = "moving"

    def __post_init__(self) -> None:
        """ValueError for transitions that one frame and its difference cannot show."""
        if not self.transitions or not {0, 1} >= set(self.transitions):
            raise ValueError(f"QueryCases.transitions are {self.transitions}; legal: 0, 1 or both")

    def __call__(self, source: Trained) -> SourceCases:
        """Queries of training and validation systems, with the frozen features of one source.

        Panels are of queries that show no transition: the cold ones of `groups`, and all systems' cold and moving ones.
        """
        bank = source.bank
        (train, standardiser), raw = self.training(source), self._raw(source, bank, "validation", self.transitions)
        development = cases_from(bank, "validation", Development, raw, standardiser)
        blind = np.repeat(np.equal(self.transitions, 0), len(development) // len(self.transitions))
        of_kind = {kind: blind & (raw["kinds"] == kind) for kind in (self.cold, self.moving)}
        panels = {"cold": of_kind[self.cold] & np.isin(raw["strata"], self.groups)}
        panels |= {f"{kind}_kind": rows for kind, rows in of_kind.items()}
        drawn = {split: self._repeated(self.drawn(source, bank, split)[1]) for split in ("train", "validation")}
        return SourceCases(train, development, standardiser, drawn, panels)

    def training(self, source: Trained) -> tuple[Cases[Training], Standardiser]:
        """The queries of training systems, and the standardiser of their targets, of each horizon by itself."""
        return training_from(source.bank, self._raw(source, source.bank, "train", self.transitions), self.floors)

    def standardiser(self, bank: Bank) -> Standardiser:
        """That of `training`, which no source has a part in."""
        return fit_standardiser(Training("train"), self.futures(bank, bank.split("train"))[1], self.floors)

    def sealed(self, source: Trained, bank: Bank, standardiser: Standardiser) -> Cases[Sealed]:
        """The cold queries of a sealed bank that show no transition."""
        return cases_from(bank, "sealed", Sealed, self._raw(source, bank, "sealed", (0,), (self.cold,)), standardiser)

    def prefixes(self, source: Trained, transitions: int) -> tuple[Cases[Training], Cases[Development]]:
        """Queries whose last `transitions` + 1 frames are all given, each without a difference, the present one last.

        All are of the moving kind, the development cases of `groups` (`app:spring-recipient-evidence`). Targets are
        standardised by these training cases.
        """
        bank, kinds = source.bank, (self.moving,)
        raw = self._raw(source, bank, "train", (0,), kinds, transitions)
        train, standardiser = training_from(bank, raw, self.floors)
        raw = self._raw(source, bank, "validation", (0,), kinds, transitions)
        held_out = cases_from(bank, "validation", Development, raw, standardiser)
        return train, held_out.take(np.isin(raw["strata"], self.groups))

    def unexplained(self, bank: Bank) -> NDArray[np.float64]:
        """What the best prediction that knows all of a recipient but its system leaves of a cold query, (K,).

        That prediction is the mean over training systems of what the simulator makes of the recipient's state and
        actions. Standardised squared errors, means over coordinates and the cold queries of `groups`: no reader without
        a donor can do better in expectation, if systems are drawn as the training ones.
        """
        train = bank.split("train")
        scale = self.standardiser(bank).scale
        first = np.unique(train["system"], return_index=True)[1]
        systems = np.stack([train[name][first] for name in bank.properties.names], axis=1)
        held_out = bank.split("validation")
        held_out = held_out.select((held_out["kind"] == self.cold) & np.isin(held_out["group"], self.groups))
        (states, actions), truth = self.futures(bank, held_out)
        best = np.mean([self._simulated(bank.world, one, states, actions) for one in systems], axis=0)
        return np.square((best - truth) / scale).mean((0, 2))

    @staticmethod
    def weights(queries: EpisodeTable) -> NDArray[np.float64]:
        """Weights (n,) under which every kind of a system counts the same."""
        _, inverse, counts = np.unique([queries["system"].astype(str), queries["kind"]], axis=1, return_inverse=True,
                                       return_counts=True)  # fmt: skip
        return 1.0 / counts[inverse]

    @staticmethod
    def features(learner: Any, frames: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Embeddings (n, d_q) of frames (n, H, W) without a difference, or (n, 2, H, W) after the ones before them.

        They are what the source's frame encoder gives; of a learner without `target`, its present.
        """
        seen = torch.from_numpy(np.ascontiguousarray(frames[:, None] if frames.ndim == 3 else frames))
        return features(learner, seen, "target" if callable(getattr(learner, "target", None)) else "present")

    def futures(self, bank: Bank, table: EpisodeTable) -> tuple[tuple[NDArray[Any], NDArray[Any]], NDArray[np.float64]]:
        """Presents (n, S), actions (n, H, A) and raw increments (n, K, S) of the queries in a table, in its order."""
        table = table.select(np.isin(table["kind"], list(self.anchors)))
        return self.ahead(bank, table["episode"], np.array([self.anchors[kind] for kind in table["kind"]]))

    def ahead(
        self, bank: Bank, episodes: Rows, anchors: Rows
    ) -> tuple[tuple[NDArray[Any], NDArray[Any]], NDArray[np.float64]]:
        """The same from `anchors` (n,) of episodes (n,)."""
        last = self.horizons[-1]
        states = bank.windows("states", episodes, anchors, last + 1).astype(np.float64)
        actions = bank.windows("actions", episodes, anchors, last)
        return (states[:, 0], actions), states[:, list(self.horizons)] - states[:, :1]

    def _simulated(self, world: World, system: NDArray[Any], states: NDArray[Any], actions: NDArray[Any]) -> Any:
        found = rollout(world, np.tile(system, (len(states), 1)), states, actions).states
        return found[:, list(self.horizons)] - found[:, :1]

    def _repeated(self, drawn: Drawn) -> Drawn:
        """Once for each number of transitions."""
        return Drawn(*(np.tile(column, len(self.transitions)) for column in drawn))

    def drawn(self, source: Trained, bank: Bank, split: str, kinds: Kinds = None) -> tuple[EpisodeTable, Drawn]:
        """The queries of a split, and where their presents and donors are."""
        whole, donors = bank.split(split, unseal=True), source.setting.episodes(bank, split, unseal=True)
        queries = whole.select(np.isin(whole["kind"], list(kinds or self.anchors)))
        anchors = np.array([self.anchors[kind] for kind in queries["kind"]])
        rows = donors_of(queries, donors, DONOR_SEED)
        return queries, Drawn(queries["episode"], anchors, donors["episode"][rows], np.zeros(len(rows), np.int64))

    def _raw(
        self,
        source: Trained,
        bank: Bank,
        split: str,
        transitions: tuple[int, ...],
        kinds: Kinds = None,
        prefix: int | None = None,
    ) -> dict[str, Any]:
        """Fields of `Cases`; with a prefix, features (n, prefix + 1, d_q) of the frames up to the present."""
        setting, learner = source.setting, source.learner
        queries, (episodes, anchors, donors, _) = self.drawn(source, bank, split, kinds)
        seen = setting.episodes(bank, split, unseal=True)
        # Donors by system, then episode.
        seen = seen.select(np.lexsort((seen["episode"], seen["system"])))
        systems, per_system = np.unique(seen["system"], return_counts=True)
        codes = encode_histories(learner, setting.reader(bank, learner.config), seen, 0)
        codes = codes.reshape(len(systems), per_system[0], -1)
        of = np.searchsorted(systems, queries["system"])
        order = seen.by_episode()
        rank = order[np.searchsorted(seen["episode"][order], donors)] - of * per_system[0]
        (_, actions), targets = self.futures(bank, queries)
        if prefix is None:
            shown = [self._shown(source, bank, episodes, anchors, q) for q in transitions]
        else:
            frames = bank.frames(episodes, anchors - prefix, prefix + 1, learner.config.image)
            single = self.features(learner, frames.reshape(-1, *frames.shape[2:]))
            shown = [single.reshape(len(episodes), prefix + 1, -1)]
        raw = {
            "systems": queries["system"],
            "context": codes[of, rank],
            "actions": actions.astype(np.float64),
            "targets": targets,
            "strata": queries["group"],
            "kinds": queries["kind"],
            "weights": self.weights(queries),
        }
        raw = {name: np.concatenate([column] * len(shown)) for name, column in raw.items()}
        factors = {name: np.tile(queries[name].astype(np.float64), len(shown)) for name in setting.properties}
        pool = DonorPool(codes, np.tile(of, len(shown)))
        return raw | {"query": np.concatenate(shown), "factors": factors, "pool": pool, "horizons": self.horizons}

    def _shown(self, source: Trained, bank: Bank, episodes: Any, anchors: Any, transitions: int) -> NDArray[np.float64]:
        """Features (n, d_q) of recipients that show so many transitions, some frames at a time."""
        size, parts = source.learner.config.image, []
        for part in (slice(i, i + SHOWN) for i in range(0, len(episodes), SHOWN)):
            frames = bank.frames(episodes[part], anchors[part] - transitions, 1 + transitions, size)
            parts.append(self.features(source.learner, frames if transitions else frames[:, 0]))
        return np.concatenate(parts)


def donors_of(queries: EpisodeTable, donors: EpisodeTable, seed: int) -> NDArray[np.int64]:
    """A row of `donors` for each query: an episode of its system, of one rank for all systems of a group.

    The rank is uniform for each group, kind of query and replicate, so that a query's counterpart in another system of
    its group has the counterpart of its donor.

    Raises:
        ValueError: for queries of systems that have no donors, as many as the others, or that are donors themselves.
    """
    order = np.lexsort((donors["episode"], donors["system"]))
    ids, first, counts = np.unique(donors["system"][order], return_index=True, return_counts=True)
    at = np.searchsorted(ids, queries["system"]).clip(max=len(ids) - 1)
    if (ids[at] != queries["system"]).any() or counts.min() != counts.max():
        raise ValueError("every query needs a donor of its system, and all systems equally many")
    if np.isin(queries["episode"], donors["episode"]).any():
        raise ValueError("a query is a donor itself; legal: donors of other kinds of episode than the queries")
    names = [queries["group"].astype(str), queries["kind"].astype(str), queries["rollout"].astype(str)]
    alike = np.unique(names, axis=1, return_inverse=True)[1]
    rank = np.random.default_rng(seed).integers(counts[0], size=alike.max() + 1)[alike]
    return order[first[at] + rank]
