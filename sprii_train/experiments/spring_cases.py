"""SpringWorld's queries as reader cases: a present without motion history, an independent donor history, a future.

A query is an episode and an anchor. Its only observation is the frame at the anchor, whose difference is zero: the
recipient shows no transition (`app:horizon-conditions`). Its donor is another, forced episode of the system, seen
whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.populations import Development, Sealed, Training, population_of
from sprii_train.analysis.value.cases import Cases, Standardiser, fit_standardiser
from sprii_train.experiments.encoding import encode_histories, features
from sprii_train.experiments.sources import Source

HORIZONS = (1, 2, 4, 8, 16)
ANCHORS = {"cold": 1, "moving": 95, "forced": 79, "mass": 79, "free": 79, "glide": 79}
"""Kind of query → its anchor, with room for the last horizon. With the bank's 6 cold, 3 moving, 4 forced, 2 mass, 2
free and 1 glide episodes of a held-out system these are the 18 queries × 5 horizons = 90 cases of the full mixture."""

COLD_GROUPS = ("continuous", "combination")
"""The 100 systems of the cold-start panel: 64 continuous ones and 36 unseen combinations."""

PREFIX_KINDS = tuple(kind for kind in ANCHORS if kind != "cold")
"""Kinds of query with room for the longest recipient prefix before the anchor."""

DONOR_SEED = 20_262

P = TypeVar("P", Training, Development, Sealed)


@dataclass(frozen=True)
class SpringCases:
    """Cases of one source.

    Attributes:
        train, development: the full mixture, `kinds` is the kind of query and `strata` the group of systems.
        standardiser: of the targets, fitted on training cases.
    """

    train: Cases[Training]
    development: Cases[Development]
    standardiser: Standardiser

    @property
    def cold(self) -> Cases[Development]:
        """The development cold-start panel: 100 systems × 6 cases."""
        strata = self.development.strata
        assert strata is not None
        return self.development.take(np.isin(strata, COLD_GROUPS)).of_kind("cold")


def spring_cases(source: Source, split: str = "validation") -> SpringCases:
    """Queries of training systems and of a held-out split, with the frozen features of one source."""
    train, standardiser = training_cases(source)
    held_out = population_of(source.bank, split)
    assert isinstance(held_out, Development)
    return SpringCases(train, _cases(held_out, _raw(source, source.bank, split), standardiser), standardiser)


def training_cases(source: Source) -> tuple[Cases[Training], Standardiser]:
    """The queries of training systems, and the standardiser of their targets."""
    population, raw = population_of(source.bank, "train"), _raw(source, source.bank, "train")
    assert isinstance(population, Training)
    standardiser = fit_standardiser(population, raw["targets"])
    return _cases(population, raw, standardiser), standardiser


def sealed_cases(source: Source, bank: Bank, standardiser: Standardiser) -> Cases[Sealed]:
    """The cold queries of the sealed bank: 6 of each of 256 continuous systems and 36 unseen combinations."""
    population = population_of(bank, "sealed")
    assert isinstance(population, Sealed)
    return _cases(population, _raw(source, bank, "sealed"), standardiser).of_kind("cold")


def prefix_cases(source: Source, transitions: int) -> tuple[Cases[Training], Cases[Development]]:
    """Queries whose last `transitions` + 1 frames are all given, each without a difference, the present one last.

    The training cases are of all kinds with room for the longest prefix, the development cases the moving ones of the
    100 systems of the cold-start panel (`app:spring-recipient-evidence`). Targets are standardised by these training
    cases.
    """
    train, held_out = (population_of(source.bank, split) for split in ("train", "validation"))
    assert isinstance(train, Training)
    assert isinstance(held_out, Development)
    raw = _raw(source, source.bank, "train", PREFIX_KINDS, transitions)
    standardiser = fit_standardiser(train, raw["targets"])
    moving = _cases(held_out, _raw(source, source.bank, "validation", ("moving",), transitions), standardiser)
    assert moving.strata is not None
    return _cases(train, raw, standardiser), moving.take(np.isin(moving.strata, COLD_GROUPS))


def query_features(learner: Any, frames: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Features (n, d_q) of single frames (n, H, W) without a difference."""
    return features(learner, torch.from_numpy(np.ascontiguousarray(frames[:, None])))


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


def query_windows(
    bank: Bank, split: str, kinds: Sequence[str] = tuple(ANCHORS)
) -> tuple[EpisodeTable, NDArray[np.int64]]:
    """The episodes of the queries of a split, and the anchors (n,) of their presents."""
    whole = bank.split(split, unseal=True)
    queries = whole.select(np.isin(whole["kind"], list(kinds)))
    return queries, np.array([ANCHORS[kind] for kind in queries["kind"]])


def _cases(population: P, raw: dict[str, Any], standardiser: Standardiser) -> Cases[P]:
    return Cases(population, **raw | {"targets": standardiser(raw["targets"]), "horizons": HORIZONS})


def _raw(
    source: Source, bank: Bank, split: str, kinds: Sequence[str] = tuple(ANCHORS), transitions: int | None = None
) -> dict[str, Any]:
    """Fields of `Cases`; with `transitions`, features (n, transitions + 1, d_q) of the frames up to the present."""
    setting, learner = source.setting, source.learner
    queries, anchors = query_windows(bank, split, kinds)
    donors = setting.episodes(bank, split, unseal=True)
    reader = setting.reader(bank, learner.config)
    codes = encode_histories(learner, reader, donors, 0)
    episodes, last = queries["episode"], HORIZONS[-1]
    states = bank.windows("states", episodes, anchors, last + 1).astype(np.float64)
    seen = (transitions or 0) + 1
    frames = bank.frames(episodes, anchors - seen + 1, seen, learner.config.image)
    query = query_features(learner, frames.reshape(-1, *frames.shape[2:])).reshape(len(episodes), seen, -1)
    return {
        "systems": queries["system"],
        "query": query[:, 0] if transitions is None else query,
        "context": codes[donors_of(queries, donors, DONOR_SEED)],
        "factors": {name: queries[name].astype(np.float64) for name in setting.properties},
        "actions": bank.windows("actions", episodes, anchors, last).astype(np.float64),
        "targets": states[:, list(HORIZONS)] - states[:, :1],
        "strata": queries["group"],
        "kinds": queries["kind"],
    }
