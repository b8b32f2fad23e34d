"""Errors of fixed weights under another donor: own, correct (same system), shuffled (another system)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer
from sprii_envs.relations import EpisodeTable, WindowSampler
from sprii_envs.relations.kernels import derangement
from sprii_train.analysis.formation.arrangement import group_means
from sprii_train.data import WindowReader
from sprii_train.protocol import Batch, Codes, MissingOperation, concatenated, encode, take

CHUNK = 1000  # windows encoded at a time by default
IMAGES = 100  # the same, of frames
PAIRS = 12_000  # predicted at a time

Rows = NDArray[np.int64]


class Encoded(NamedTuple):
    """One window for each episode of a split, encoded in evaluation mode."""

    table: EpisodeTable
    codes: Codes
    u: Any
    y: Any

    @property
    def targets(self) -> Tensor:
        """What errors by horizon are of, (E, K, D): `y`, or the first of its parts."""
        return self.y if isinstance(self.y, Tensor) else self.y[0]


class DonorErrors(NamedTuple):
    """Mean task loss at each horizon, or over all of them (K = 1), by the source of the persistent context.

    Each is (K,) over systems, or (N, K) by system in the order of their ids.
    """

    own: NDArray[np.float64]
    correct: NDArray[np.float64]
    shuffled: NDArray[np.float64]


@torch.no_grad()
def encode_split(
    learner: Any,
    reader: WindowReader,
    split: str | EpisodeTable,
    *,
    seed: int,
    unseal: bool = False,
    chunk: int | None = None,
) -> Encoded:
    """Encode one window an episode of a split, or of a table; its start is a uniform function of (seed, episode).

    `chunk` windows are encoded at a time: that bounds memory and changes nothing.
    """
    getattr(learner, "eval", lambda: None)()
    table = split if isinstance(split, EpisodeTable) else reader.bank.split(split, unseal=unseal)
    rows = np.arange(len(table))
    starts = WindowSampler(table, history=reader.history, horizon=reader.horizons[-1]).starts(rows, seed=seed)
    parts: list[Encoded] = []
    chunk = chunk or (IMAGES if reader.image else CHUNK)
    for i in range(0, len(rows), chunk):
        part = rows[i : i + chunk]
        batch: Batch = learner.prepare(reader.read(table["episode"][part], starts[part]))
        parts.append(Encoded(table, encode(learner, batch), batch.u, batch.y))
    return Encoded(table, *(concatenated([part[i] for part in parts]) for i in (1, 2, 3)))


def donor_errors(learner: Any, encoded: Encoded, *, seed: int) -> DonorErrors:
    """Means (K,) of `donor_errors_by_system`, in which systems weigh equally; arguments and errors are its own."""
    return DonorErrors(*(errors.mean(0) for errors in donor_errors_by_system(learner, encoded, seed=seed)))


@torch.no_grad()
def donor_errors_by_system(learner: Any, encoded: Encoded, *, seed: int) -> DonorErrors:
    """Errors (N, K) with the recipient's own context, every same-system donor's and another system's.

    Every episode is a recipient, and every other episode of its system its correct donor, once each. For a shuffled one
    the j-th donor of all of a system's recipients comes from one other system, by the j-th derangement of the systems,
    so recipients and, where systems have equally many episodes, donors are those of the correct pairs.

    Args:
        encoded: the population; contexts change, everything else of the recipient stays.
        seed: of the derangements.

    Raises:
        ValueError: for a single system, or a system of a single episode.
        MissingOperation: for a learner whose loss is of a batch and not of a window, which `without_errors` says.
    """
    if why := getattr(learner, "without_errors", ""):
        raise MissingOperation(f"errors by donor: {type(learner).__name__} {why}")
    systems = encoded.table["system"]
    recipient, correct, shuffled = donor_pairs(systems, seed)
    every = np.arange(len(systems))
    pairs = {"own": (every, every), "correct": (recipient, correct), "shuffled": (recipient, shuffled)}
    return DonorErrors(**{name: _errors(learner, encoded, *each) for name, each in pairs.items()})


def donor_pairs(systems: NDArray[Any], seed: int) -> tuple[Rows, Rows, Rows]:
    """Rows of recipients, of their correct donors and of shuffled ones, (n,) each, of episodes of `systems` (E,)."""
    ids, inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)
    if len(ids) < 2 or counts.min() < 2:
        raise ValueError(
            f"donors need >= 2 systems of >= 2 episodes each, got {len(ids)} systems of {counts.min()} and more"
        )
    rng = np.random.default_rng(integer("seed", seed))
    deranged = [derangement(rng, np.arange(len(ids))) for _ in range(int(counts.max()) - 1)]
    order = np.argsort(inverse, kind="stable")
    members = np.split(order, np.cumsum(counts)[:-1])
    found: list[tuple[Rows, Rows, Rows]] = []
    for system, own in enumerate(members):
        for j in range(1, len(own)):
            other = members[deranged[j - 1][system]]
            found.append((own, np.roll(own, -j), other[(np.arange(len(own)) + j) % len(other)]))
    recipient, correct, shuffled = (np.concatenate(column) for column in zip(*found, strict=True))
    return recipient, correct, shuffled


def _errors(learner: Any, e: Encoded, recipient: Rows, donor: Rows) -> NDArray[np.float64]:
    measure: Any = getattr(learner, "horizon_losses", None) or learner.task_loss
    parts = []
    for i in range(0, len(recipient), PAIRS):
        rows = torch.from_numpy(recipient[i : i + PAIRS])
        z_s, u, y = take((e.codes.z_s, e.u, e.y), rows)
        losses = measure(learner.predict(z_s, e.codes.z_p[torch.from_numpy(donor[i : i + PAIRS])], u), y)
        parts.append(losses.double().reshape(len(losses), -1).numpy())
    return group_means(np.concatenate(parts), e.table["system"][recipient])[0]
