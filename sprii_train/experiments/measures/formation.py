"""Formation of one source on every held-out population of its world (`app:measurements`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.formation import POKE_FACTORS, SPRING_FACTORS, Factor, measure_formation
from sprii_train.experiments.sources import Source
from sprii_train.experiments.worlds import measured_windows, training_windows

SYSTEMS = 400  # training systems that codes are standardised by and probes fitted on, as in the paper's atlas
SEED = 20_261  # of evaluation windows, donors and MLP probes; shared by all sources
DRAWS = 10_000  # of the held-out systems, for intervals of the geometry
ROUNDS = 12  # of donors drawn for a recipient system
FACTORS: dict[str, tuple[Factor, ...]] = {"d-clean": (Factor("drag"),), "spring": SPRING_FACTORS}


def formation(source: Source) -> dict[str, Any]:
    """`{split: measures}` of every held-out split of the bank, the held-back ones included.

    Measures are those of `formation.formation_row` (ridge and MLP probes of centroids, ridge probes of single
    histories), with the errors of `prediction` where windows have a future. `intervals` are [low, high] of the geometry
    by a bootstrap of the systems, conditional on the source. The probes' squared errors are kept beside the model.
    """
    world, bank, learner = source.world, source.bank, source.learner
    factors = FACTORS.get(world.name, POKE_FACTORS)
    train = training_windows(world, learner, bank, SYSTEMS)
    row: dict[str, Any] = {}
    kept: dict[str, NDArray[np.float64]] = {}
    for split in bank.protocol.systems:
        if split == "train":
            continue
        held_out = measured_windows(world, learner, bank, split, unseal=True)
        found = measure_formation(train, held_out, factors, seed=SEED, draws=DRAWS)
        single = measure_formation(train, held_out, factors, seed=SEED, probes=("ridge",), levels=("window",))
        row[split] = single.row() | found.row()
        row[split]["intervals"] = {name: [each.low, each.high] for name, each in found.intervals.items()}
        kept |= {f"{split}|{'_'.join(key)}": scored.squared_errors for key, scored in found.scores.items()}
        if world.shortest is None:
            row[split] |= prediction(source, split)
    source.keep(kept)
    return row


def prediction(source: Source, split: str) -> dict[str, float]:
    """Embedding errors at every horizon by the source of the context, and the variance of the targets."""
    learner, horizons = source.learner, source.learner.config.horizons
    encoded = encode_split(learner, source.world.reader(source.bank, learner.config), split, seed=SEED, unseal=True)
    errors = donor_errors(learner, encoded, seed=SEED, rounds=ROUNDS)
    row = {}
    for i, h in enumerate(horizons):
        row[f"variance_h{h}"] = float(encoded.y[:, i].double().var(0).mean())
        row[f"self_h{h}"] = float(errors.own[i])
        if learner.config.context != "monolithic":
            row |= {f"correct_h{h}": float(errors.correct[i]), f"shuffled_h{h}": float(errors.shuffled[i])}
    return row
