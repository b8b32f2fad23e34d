"""Errors of fixed weights under another donor: own, correct (same system), shuffled (another system)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations import SAME_SYSTEM, Derangement, EpisodeTable, PairSampler, WindowSampler
from sprii_train.data import WindowReader
from sprii_train.protocol import Batch, Codes, concatenated, encode, take

CHUNK = 1000  # windows encoded at a time by default
IMAGES = 100  # the same, of frames


class Encoded(NamedTuple):
    """One window for each episode of a split, encoded in evaluation mode."""

    table: EpisodeTable
    codes: Codes
    u: Any
    y: Any


class DonorErrors(NamedTuple):
    """Mean task loss at each horizon (K,), or over all of them (1,), by the source of the persistent context."""

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


@torch.no_grad()
def donor_errors(learner: Any, encoded: Encoded, *, seed: int, rounds: int = 56) -> DonorErrors:
    """Errors with the recipient's own context, a same-system donor's and another system's.

    Every round draws one recipient a system, its correct donor (another rollout), and a derangement of the systems for
    the shuffled donor; correct and shuffled have the same recipients, and donors the same marginal.

    Args:
        encoded: the population; contexts change, everything else of the recipient stays.
        rounds: draws; 56 = 8 rollouts × 7 possible donors.

    Raises:
        ValueError: for rounds below 1.
    """
    rounds = integer("rounds", rounds, least=1)
    table = encoded.table
    systems = len(np.unique(table["system"]))
    samplers = {
        "correct": PairSampler(table, SAME_SYSTEM, seed=seed, distinct="system"),
        "shuffled": PairSampler(table, SAME_SYSTEM, Derangement(), seed=seed, distinct="system"),
    }
    errors = {"own": _errors(learner, encoded, slice(None), slice(None))}
    for name, sampler in samplers.items():
        drawn = [sampler.batch(step, systems) for step in range(rounds)]
        recipient = torch.from_numpy(np.concatenate([p.recipient for p in drawn]))
        donor = torch.from_numpy(np.concatenate([p.donor for p in drawn]))
        errors[name] = _errors(learner, encoded, recipient, donor)
    return DonorErrors(errors["own"], errors["correct"], errors["shuffled"])


def _errors(learner: Any, e: Encoded, recipient: Any, donor: Any) -> NDArray[np.float64]:
    z_s, u, y = take((e.codes.z_s, e.u, e.y), recipient)
    errors = getattr(learner, "horizon_losses", None) or learner.task_loss
    losses = errors(learner.predict(z_s, e.codes.z_p[donor], u), y)
    return losses.double().reshape(len(losses), -1).mean(0).numpy()
