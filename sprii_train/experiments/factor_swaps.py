"""Donors of recipients that differ in exactly one factor, and the futures that such a factor would give.

A recipient is one window of an episode. Its matched donor is another episode of its system, its wrong donor one whose
system differs in one factor; query, actions and every weight stay (`app:poke-fixed`).
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.relations import SAME_SYSTEM
from sprii_envs.world import draw_states
from sprii_train.analysis.use.donor_choice import choose, one_factor_wrong, paired
from sprii_train.analysis.use.interventions import learner_reader, predict_under
from sprii_train.analysis.use.simulated import Queries, query_targets
from sprii_train.experiments.sources import Source
from sprii_train.protocol import encode, optional_operation

ANCHORS = (32, 40, 47)
"""Last observations of the three recipients of a system, each of another rollout."""

SEED = 20_261  # of donors

Array = NDArray[np.float64]


class Swap(NamedTuple):
    """r recipients under a wrong value of one factor, at the learner's last horizon."""

    systems: NDArray[np.int64]  # (r,) of the recipients
    matched: Array  # (r, D) predicted embeddings
    wrong: Array  # (r, D)
    target: Array  # (r, D) embedding of the recipient's own future
    states: NDArray[np.float32]  # (r, 2, 2, S) simulated, with the own and the donor's value: the last two states
    without: int  # recipients without such a donor


def factor_swaps(source: Source, split: str, factors: tuple[str, ...], *, unseal: bool = False) -> dict[str, Swap]:
    """Factor → its swap, on the systems (at most three recipients each) that have donors of every factor."""
    bank, setting, learner = source.bank, source.setting, source.learner
    table = setting.episodes(bank, split, unseal=unseal)
    reader = source.reader
    horizon = reader.horizons[-1]
    anchors = np.asarray(ANCHORS)[table["rollout"] % len(ANCHORS)]
    recipients = np.flatnonzero(table["rollout"] < len(ANCHORS))
    parts = []
    with torch.no_grad():
        for first in range(0, len(table), 256):
            rows = np.arange(first, min(first + 256, len(table)))
            batch = learner.prepare(reader.read(table["episode"][rows], anchors[rows] - setting.history + 1))
            parts.append((encode(learner, batch), batch.u, batch.y[:, -1]))
    z_s, z_p = (torch.cat([getattr(codes, name) for codes, _, _ in parts]) for name in ("z_s", "z_p"))
    u, y = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    read = learner_reader(learner, horizon=-1)
    matched = choose(table, SAME_SYSTEM, recipients, seed=SEED)
    wrong = {f: choose(table, one_factor_wrong(f, setting.properties), recipients, seed=SEED) for f in factors}
    pairs = {f: paired(matched, wrong[f]) for f in factors}
    common = table["system"][recipients]
    for rows, _, _ in pairs.values():
        common = np.intersect1d(common, table["system"][rows])
    found = {}
    for factor, donors in pairs.items():
        rows, own, other = (each[np.isin(table["system"][donors[0]], common)] for each in donors)
        predicted = predict_under(read, z_s[rows], torch.stack([z_p[own], z_p[other]], dim=1), u[rows])
        levels = np.stack([table[factor][rows], table[factor][other]], axis=1)
        futures = query_targets(bank, Queries(table["episode"][rows], anchors[rows]), factor, levels, steps=horizon)
        found[factor] = Swap(
            table["system"][rows],
            predicted[:, 0],
            predicted[:, 1],
            y[rows].double().numpy(),
            futures.states[:, :, horizon - 1 : horizon + 1],
            len(wrong[factor].without),
        )
    return found


@torch.no_grad()
def embed_states(source: Source, states: NDArray[np.float32]) -> Array:
    """Embeddings (..., D) of the last of two consecutive states (..., 2, S)."""
    target = optional_operation(source.learner.eval(), "target", "a counterfactual future")
    size = source.reader.image
    flat = states.reshape(-1, 2, states.shape[-1])
    if not size:
        return target(torch.from_numpy(flat[:, 1])).double().numpy().reshape(*states.shape[:-2], -1)
    parts = []
    for first in range(0, len(flat), 2048):
        drawn = torch.from_numpy(draw_states(source.bank.world, flat[first : first + 2048], size))
        parts.append(target(drawn))
    return torch.cat(parts).double().numpy().reshape(*states.shape[:-2], -1)
