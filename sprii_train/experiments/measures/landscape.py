"""Donor–target landscapes of one source and its fitted reader (`app:landscape`)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.use.landscape import grid_errors, valley
from sprii_train.analysis.use.queries import first_episodes, pulse_queries
from sprii_train.analysis.use.simulated import (
    Counterfactuals,
    coverage,
    donor_histories,
    frames,
    increments,
    query_targets,
    training_levels,
)
from sprii_train.analysis.value.cases import Standardiser
from sprii_train.analysis.value.readers import fit_reader
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import Source
from sprii_train.protocol import Windows

LEVELS = 5
GROUP = "continuous"  # the 64 development systems off the levels


class Assay(NamedTuple):
    """One factor's donors through the fixed reader, and the simulator's targets, n systems × L levels."""

    factor: str
    levels: NDArray[np.float64]  # (L,)
    predicted: NDArray[np.float64]  # (n, L, K, D) standardised increments under each donor level
    truth: NDArray[np.float64]  # (n, L, K, D) simulated increments
    donors: Counterfactuals
    targets: Counterfactuals
    standardiser: Standardiser


def assays(source: Source) -> Iterator[Assay]:
    """The assay of every factor, through one Persistent reader (seed 0) that is fitted first.

    Donor histories and targets are simulated under five levels of one factor; query, actions and every weight stay.
    """
    bank, setting = source.bank, source.setting
    law: Any = setting.cases
    cases = cases_of(source)
    reader = fit_reader(cases.train, "persistent", reader_config(source), 0)
    table = continuous(source)
    queries = pulse_queries(bank, table)
    histories = first_episodes(table, setting.kind)
    shown = bank.frames(queries.episodes, queries.anchors, 1, source.reader.image)[:, 0]
    query = law.features(source.learner, shown)
    n, horizons = len(query), cases.train.horizons
    actions = bank.windows("actions", queries.episodes, queries.anchors, horizons[-1]).astype(np.float64)
    for factor in setting.properties:
        levels = training_levels(bank.properties[factor], LEVELS)
        donors = donor_histories(bank, histories, factor, levels, length=setting.history)
        targets = query_targets(bank, queries, factor, levels, steps=horizons[-1])
        recipients = replace(
            cases.development.take(np.zeros(n * LEVELS, np.int64)),
            query=np.repeat(query, LEVELS, axis=0),
            actions=np.repeat(actions, LEVELS, axis=0),
            context=_encode(source, donors).reshape(n * LEVELS, -1),
        )
        predicted = reader.predict(recipients).astype(np.float64).reshape(n, LEVELS, len(horizons), -1)
        truth = increments(targets, horizons)
        yield Assay(factor, levels, predicted, truth, donors, targets, cases.standardiser)


def continuous(source: Source) -> EpisodeTable:
    """Episodes of the development systems that the assay is of."""
    table = source.bank.split("validation")
    return table.select(table["group"] == GROUP)


def landscape(source: Source) -> dict[str, Any]:
    """Valley depths of mass, drag and stiffness at h16; see `assays`.

    The grids of every system are kept beside the model (`landscape-*.safetensors`).
    """
    kept: dict[str, NDArray[np.float64]] = {}
    row: dict[str, Any] = {"systems": np.unique(continuous(source)["system"]).tolist()}
    for factor, levels, predicted, truth, donors, targets, standardiser in assays(source):
        grids = grid_errors(predicted[:, :, -1], standardiser(truth)[:, :, -1])
        found = valley(grids)
        kept |= {f"{factor}|grids": grids, f"{factor}|levels": levels}
        told = [coverage(donors), coverage(targets)]
        row |= {
            f"depth_{factor}": found.depth,
            f"rho_{factor}": found.rho,
            f"ended_{factor}": sum(c.cells - c.complete for c in told),
        }
    source.keep(kept)
    return row


@torch.no_grad()
def _encode(source: Source, donors: Counterfactuals) -> NDArray[np.float64]:
    """Codes (n, L, d_p) of simulated histories that begin an episode."""
    learner = source.learner.eval()
    parts = []
    for row in range(len(donors.states)):
        drawn = frames(source.bank.world, donors, source.reader.image, rows=[row])[0]
        seen = torch.from_numpy(np.concatenate([drawn[:, :1], drawn], axis=1))
        actions = torch.from_numpy(np.repeat(donors.actions[row][None], len(drawn), axis=0))
        empty = seen.new_empty(len(seen), 0, 2, *seen.shape[2:])
        batch = learner.prepare(Windows(seen, actions, empty, actions[:, :0]))
        parts.append(learner.encode_history(batch.history))
    return torch.stack(parts).double().numpy()
