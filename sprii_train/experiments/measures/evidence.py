"""What numerical states tell of the factors: a reference for what frames tell (`app:matched-control`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.formation import probe_factors, sample_of
from sprii_train.analysis.formation.probes import Kind
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.experiments.measures.formation import SEED, SYSTEMS
from sprii_train.experiments.sources import Source


def evidence(source: Source, kinds: Sequence[Kind] = ("ridge", "mlp")) -> dict[str, Any]:
    """R² of probes, ridge and MLP, of least-squares features of numerical histories, on validation systems.

    `one_*` reads single histories of the learner's length, those of `formation`'s windows; `all_*` all episodes of a
    system, whole. The source's learner is not read: its rows of one bank agree.
    """
    train, held_out = (_samples(source, split) for split in ("train", "validation"))
    row: dict[str, Any] = {}
    for name, fitted in train.items():
        assert isinstance(fitted.population, Training)
        found = probe_factors(fitted, held_out[name], source.setting.factors, seed=SEED, kinds=kinds)
        row |= {f"{name}_{kind}_{factor}": scored.r2 for (kind, factor), scored in found.items()}
    return row


def _samples(source: Source, split: str) -> dict[str, Sample[Any]]:
    """`one`: a row a history; `all`: a row a system."""
    bank, setting = source.bank, source.setting
    assert setting.evidence is not None
    table = setting.episodes(bank, split, systems=SYSTEMS if split == "train" else None)
    population: Population = population_of(bank, split)
    rows = np.repeat(np.arange(len(table)), len(setting.anchors))
    episodes = table["episode"][rows]
    starts = np.tile([setting.starts(anchor) for anchor in setting.anchors], len(table))
    states = bank.windows("states", episodes, starts, setting.history)
    actions = bank.windows("actions", episodes, starts, setting.history - 1)
    alone = setting.evidence(states, actions, world=bank.world)
    whole = int(table["length"].min())
    pooled = setting.evidence(
        bank.windows("states", table["episode"], 0, whole),
        bank.windows("actions", table["episode"], 0, whole - 1),
        table["system"],
        world=bank.world,
    )
    systems, first = np.unique(table["system"], return_index=True)
    return {
        "one": sample_of(population, alone, table, setting.properties, rows),
        "all": Sample(population, pooled, systems, {name: table[name][first] for name in setting.properties}),
    }
