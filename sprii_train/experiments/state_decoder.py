"""An object's state from a source's embeddings: a ridge reader fitted on training systems (`app:poke-fixed`)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.formation import RIDGE_PENALTIES, sample_of
from sprii_train.analysis.formation.search import grouped_fit, scaled
from sprii_train.analysis.populations import Training, population_of
from sprii_train.experiments.factor_swaps import ANCHORS, embed_states
from sprii_train.experiments.sources import Source

SYSTEMS = 400  # training systems, those of `measures.formation`

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StateDecoder:
    """Embeddings → position and velocity of the object, standardised by training states, which all sources share."""

    model: Any
    standardiser: Standardiser
    coordinates: slice

    def __call__(self, embeddings: Array) -> Array:
        """Embeddings (r, D) → object states (r, C)."""
        return np.asarray(self.model.predict(embeddings), np.float64)

    def standardise(self, states: NDArray[Any]) -> Array:
        """States (..., S) → object states (..., C) in the decoder's coordinates."""
        return self.standardiser(states[..., self.coordinates])


def fit_state_decoder(source: Source) -> StateDecoder:
    """Ridge regression on the embeddings of what recipients' futures are: the last horizon after each anchor.

    The penalty is selected in 5-fold cross-validation in which a system is never split.
    """
    bank, setting = source.bank, source.setting
    assert setting.pushed is not None
    population = population_of(bank, "train")
    assert isinstance(population, Training)
    table = setting.episodes(bank, "train", systems=SYSTEMS)
    rows = np.repeat(np.arange(len(table)), len(ANCHORS))
    last = np.tile(np.asarray(ANCHORS) + source.reader.horizons[-1], len(table))
    states = bank.windows("states", table["episode"][rows], last - 1, 2)
    target = states[:, 1, setting.pushed].astype(np.float64)
    standardiser = Standardiser.fit(target)
    train = sample_of(population, embed_states(source, states), table, (), rows)
    model = grouped_fit(
        lambda: scaled(Ridge()),
        {"model__alpha": RIDGE_PENALTIES},
        train,
        standardiser(target),
        "a state decoder",
    )
    return StateDecoder(model, standardiser, setting.pushed)
