"""Errors of what predicts fields from first frames and codes, case by case; no learner is named."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.fields.windows import FieldWindows, Rows, following, read_fields
from sprii_train.protocol import evaluation_mode

Array = NDArray[np.float64]

CHUNK = 32
"""Cases at a time: bounds memory."""
BATCH = 8
"""Of the released evaluator, whose number is the mean of the means of such batches, the last one smaller."""


def codes_of(learner: Any, store: Store, table: EpisodeTable) -> Array:
    """Code of every case's trajectory, (n, d)."""
    found, device = [], _device(learner)
    with evaluation_mode(learner), torch.no_grad():
        for rows in _chunks(len(table)):
            episodes = table["episode"][rows]
            batch = learner.prepare(read_fields(store, episodes, episodes).to(device))
            found.append(learner.encode_history(batch.history).cpu().double().numpy())
    return np.concatenate(found)


def trajectories(learner: Any, windows: FieldWindows, codes: NDArray | Tensor) -> tuple[Array, Array]:
    """Predicted and true trajectories (n, T, *field) of windows whose codes (n, d) are given."""
    device = _device(learner)
    with evaluation_mode(learner), torch.no_grad():
        batch = learner.prepare(windows.to(device))
        z_p = torch.as_tensor(np.asarray(codes), dtype=torch.float32, device=device)
        predicted = learner.predict(learner.encode_current(batch.current), z_p, batch.u)
    shape = windows.fields.shape
    return predicted.cpu().double().numpy().reshape(shape), windows.fields.double().numpy()


def case_errors(
    learner: Any, store: Store, table: EpisodeTable, codes: NDArray, *, frame: int | None = None, relative: bool = False
) -> Array:
    """Mean squared error of every case (n,) predicted with its code (n, d).

    Args:
        frame: the error at one frame; by default over the whole trajectory, its first frame too.
        relative: ‖error‖ / ‖truth‖ in its place.
    """
    found = []
    at = slice(None) if frame is None else slice(frame, frame + 1)
    for rows in _chunks(len(table)):
        episodes = table["episode"][rows]
        predicted, truth = trajectories(learner, read_fields(store, episodes, episodes), codes[rows])
        error, size = (np.square(x[:, at]).reshape(len(rows), -1) for x in (predicted - truth, truth))
        found.append(np.sqrt(error.sum(1) / size.sum(1)) if relative else error.mean(1))
    return np.concatenate(found)


def still_errors(store: Store, table: EpisodeTable) -> Array:
    """Mean squared error of every case (n,) if its first frame stayed for ever: no learner."""
    found = []
    for rows in _chunks(len(table)):
        episodes = table["episode"][rows]
        truth = read_fields(store, episodes, episodes).fields.double().numpy()
        found.append(np.square(truth - truth[:, :1]).reshape(len(rows), -1).mean(1))
    return np.concatenate(found)


def batch_mean(errors: NDArray, batch: int = BATCH) -> float:
    """Unweighted mean of the means of consecutive batches of errors (n,), as the released evaluator has it."""
    return float(np.mean([errors[i : i + batch].mean() for i in range(0, len(errors), batch)]))


def conditioned_error(learner: Any, store: Store, table: EpisodeTable) -> float:
    """The released evaluation of a split: case i conditioned by the next case of its system."""
    return batch_mean(case_errors(learner, store, table, codes_of(learner, store, table)[following(table)]))


def wrong_donors(table: EpisodeTable, matched: Rows) -> Rows:
    """For every row the cases (n, S − 1) of all other systems that stand where its matched one does in its own.

    Raises:
        ValueError: for systems of unlike numbers of cases.
    """
    systems, group, counts = np.unique(table["system"], return_inverse=True, return_counts=True)
    if (counts != counts[0]).any():
        raise ValueError(f"wrong donors are of systems with as many cases; there are {counts.min()} to {counts.max()}")
    members = np.lexsort([table["case"], group]).reshape(len(systems), -1)
    place = np.empty(len(table), np.int64)
    place[members] = np.arange(members.shape[1])
    donors = members[:, place[matched]].T
    return donors[np.arange(len(systems)) != group[:, None]].reshape(len(table), -1)


def _chunks(n: int) -> Iterator[Rows]:
    return (np.arange(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK))


def _device(learner: Any) -> torch.device:
    return next(learner.parameters()).device
