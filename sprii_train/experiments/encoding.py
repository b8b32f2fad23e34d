"""Codes of a source's histories and presents, in evaluation mode, chunk by chunk."""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import sample_of
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.data import WindowReader
from sprii_train.protocol import concatenated, optional_operation, take
from sprii_train.settings.base import Setting

ENCODED = 256
"""Histories encoded at once: bounds memory, changes nothing."""

Rows = NDArray[np.int64]


def encode_histories(
    learner: Any, reader: WindowReader, table: EpisodeTable, start: int, chunk: int = ENCODED
) -> NDArray[np.float64]:
    """Contexts (n, d_p) of one history of every episode."""
    return encode_windows(learner, reader, table["episode"], np.full(len(table), start), chunk)


@torch.no_grad()
def encode_windows(
    learner: Any, reader: WindowReader, episodes: Rows, starts: Rows, chunk: int = ENCODED
) -> NDArray[np.float64]:
    """Contexts (n, d_p) of the histories of episodes (n,) from observations `starts` (n,), `chunk` at a time."""
    learner.eval()
    parts = []
    for first in range(0, len(episodes), chunk):
        part = slice(first, first + chunk)
        parts.append(learner.encode_history(learner.prepare(reader.histories(episodes[part], starts[part])).history))
    return torch.cat(parts).double().numpy()


def present_features(learner: Any, reader: WindowReader, episodes: Rows, times: Rows) -> NDArray[np.float64]:
    """Features (n, d_q) of what is observed at `times` (n,) of episodes (n,); a frame comes with its difference.

    Raises:
        MissingOperation: for a learner without `present`.
    """
    size = 20 * ENCODED
    return np.concatenate(
        [
            features(learner, reader.presents(episodes[first : first + size], times[first : first + size]))
            for first in range(0, len(episodes), size)
        ]
    )


@torch.no_grad()
def features(learner: Any, observations: Any) -> NDArray[np.float64]:
    """`present` of observations (n, …), states or frames as the learner takes them: (n, d_q).

    Raises:
        MissingOperation: for a learner without `present`.
    """
    learner.eval()
    present = optional_operation(learner, "present", "a reader of presents")
    size, count = 20 * ENCODED, _rows(observations)
    parts = [present(take(observations, slice(first, first + size))) for first in range(0, count, size)]
    return concatenated(parts).double().numpy()


def measured_windows(
    setting: Setting, learner: Any, store: Store, split: str, *, systems: int | None = None, unseal: bool = False
) -> Sample[Population]:
    """Codes of a split, one row for every anchor of every episode: `formation.rollout_means` averages the anchors."""
    reader = setting.reader(store, learner.config)
    table = setting.episodes(store, split, systems=systems, unseal=unseal)
    codes = np.stack([encode_histories(learner, reader, table, setting.starts(a)) for a in setting.anchors], axis=1)
    rows = np.repeat(np.arange(len(table)), len(setting.anchors))
    return sample_of(population_of(store, split), codes.reshape(len(rows), -1), table, setting.properties, rows)


def training_windows(setting: Setting, learner: Any, store: Store, systems: int) -> Sample[Training]:
    """The same of a fixed random choice of training systems."""
    windows = measured_windows(setting, learner, store, "train", systems=systems)
    assert isinstance(windows.population, Training)
    return cast(Sample[Training], windows)


def _rows(tree: Any) -> int:
    return len(next(iter(tree.values()))) if isinstance(tree, dict) else len(tree)
