"""Codes of a learner's histories and presents, in evaluation mode, chunk by chunk."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable
from sprii_train.data import WindowReader
from sprii_train.protocol import concatenated, optional_operation, take

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
def features(learner: Any, observations: Any, operation: str = "present") -> NDArray[np.float64]:
    """`present`, or another operation, of observations (n, …), states or frames as the learner takes them: (n, d_q).

    Raises:
        MissingOperation: for a learner without it.
    """
    learner.eval()
    present = optional_operation(learner, operation, "a reader of presents")
    size, count = 20 * ENCODED, _rows(observations)
    parts = [present(take(observations, slice(first, first + size))) for first in range(0, count, size)]
    return concatenated(parts).double().numpy()


def _rows(tree: Any) -> int:
    return len(next(iter(tree.values()))) if isinstance(tree, dict) else len(tree)
