"""What an update is worth to its own system: own against wrong, through the same weights (`app:fixed-weight`).

Of every system one context is assayed, a draw and an anchor, with all its candidates and queries. A wrong update is of
the next system in a cell of systems with the same anchor, candidate and query, whose waveforms are therefore the same.
Errors are means over the 32 numbers of a target, in units of the training targets' SD.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.mujoco.swimmer import Swimmer
from sprii_envs.swimmer import QUERIES, WORLD, torques
from sprii_envs.world import rollout
from sprii_train.learners.segments import TARGET, Adapter, SegmentLearner
from sprii_train.swimmer.rows import C, H, Q, SegmentTable, Standards
from sprii_train.swimmer.updates import FrozenCodes

CONTEXT_SALT, DONOR_SALT = 89501, 89511

Rows = NDArray[np.int64]
Array = NDArray[np.float64]


class Contexts(NamedTuple):
    """The draw and the anchor of each system, (S,) each."""

    draw: Rows
    anchor: Rows


class Errors(NamedTuple):
    """Errors (S, Q, C) with the own update, with the wrong one and without any."""

    own: Array
    wrong: Array
    none: Array


def _rank(*parts: object) -> str:
    return hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()


def contexts(systems: Rows, draws: int) -> Contexts:
    """Of each system the pair of draw and anchor whose hash is the lowest."""
    pairs = [(n, h) for n in range(draws) for h in range(H)]
    found = [min(pairs, key=lambda pair: _rank(CONTEXT_SALT, system, *pair)) for system in systems.tolist()]
    draw, anchor = np.array(found, np.int64).T
    return Contexts(draw, anchor)


def donors(systems: Rows, anchors: Rows) -> Rows:
    """Rows (S, Q, C) of each system's donor: the next of its cell, in an order of the cell's own.

    Raises:
        ValueError: for an anchor that one system has.
    """
    found = np.empty((len(systems), Q, C), np.int64)
    for h in np.unique(anchors):
        members = np.flatnonzero(anchors == h)
        if len(members) < 2:
            raise ValueError(
                f"system {systems[members[0]]} has no other with the anchor {h}; legal: more prospective systems"
            )
        for q, c in np.ndindex(Q, C):
            cell = np.array(sorted(members, key=lambda row: _rank(DONOR_SALT, h, q, c, systems[row])))
            found[cell, q, c] = np.roll(cell, -1)
    return found


@torch.no_grad()
def errors(
    base: SegmentLearner, adapter: Adapter, codes: FrozenCodes, at: Contexts, donor: Rows, targets: torch.Tensor
) -> Errors:
    """Errors of all rows; query, latent and target are the recipient's in each.

    Args:
        codes: of the assayed split.
        donor: (S, Q, C), see `donors`.
        targets: (S, N, Q, 32), with noise or without.
    """
    rows = np.arange(len(at.draw))
    s, q, c = np.meshgrid(rows, np.arange(Q), np.arange(C), indexing="ij")
    n, h = at.draw[s], at.anchor[s]
    query = codes.query[s, n, q]
    latent = base.latent(query, codes.both[s, n, h, c])
    y = targets[s, n, q].double()

    def error(delta: torch.Tensor) -> Array:
        return (adapter.predict(query, delta, latent).double() - y).square().mean(-1).numpy()

    own, wrong = codes.delta[s, n, h, c], codes.delta[donor, at.draw[donor], h, c]
    return Errors(error(own), error(wrong), error(torch.zeros_like(own)))


@torch.no_grad()
def base_errors(base: SegmentLearner, table: SegmentTable, at: Contexts) -> dict[str, float]:
    """Mean error of the base with no segment, the anchor, and both."""
    rows = np.arange(len(at.draw))
    s, q, c = np.meshgrid(rows, np.arange(Q), np.arange(C), indexing="ij")
    n, h = at.draw[s], at.anchor[s]
    segments = torch.stack([table.anchors[s, n, h], table.candidates[s, n, c]], dim=-2).flatten(0, 2)
    embedded, query = base.segment(segments), base.query(table.queries[s, n, q]).flatten(0, 2)
    y = table.targets[s, n, q].flatten(0, 2)
    found = {}
    for k in range(3):
        mask = (torch.arange(2) < k).float().expand(len(embedded), 2)
        losses = base.task_loss(base.predict(query, base.aggregate(embedded, mask)), y)
        found[f"k{k}"] = float(losses.double().mean())
    return found


def true_cost(table: SegmentTable, at: Contexts, donor: Rows, standards: Standards, *, steps: int, rms: float) -> float:
    """How far a query ends from its target if it is the donor's scales that move it: what knowing the system is worth.

    Of one donor for each query of a system, in the units of errors.

    Args:
        steps, rms: of the torques, see `sprii_envs.swimmer.torques`.
    """
    values = standards.scales.mean + standards.scales.scale * table.scales.double().numpy()
    rows = np.arange(len(values))
    s, q = (grid.ravel() for grid in np.meshgrid(rows, np.arange(Q), indexing="ij"))
    starts = np.zeros((len(s), 10))
    starts[:, 2:] = table.starts[s, at.draw[s], q]
    acted = np.stack([torques(kind, steps=steps, rms=rms) for kind in QUERIES])[q]
    landmarks = np.linspace(0, steps, 5).astype(int)[1:]
    ends = [
        rollout(Swimmer(**WORLD), scales, starts, acted).states[:, landmarks, 2:].reshape(-1, TARGET)
        for scales in (values[s], values[donor[s, q, 0]])
    ]
    return float(np.square((ends[0] - ends[1]) / standards.targets.scale).mean())
