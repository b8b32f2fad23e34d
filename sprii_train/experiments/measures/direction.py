"""Wrong-factor donors of one PokeWorld source: do predictions move as the physics would? (`app:poke-direction`)"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from sprii_envs.relations import SAME_SYSTEM
from sprii_envs.world import draw_states
from sprii_train.analysis.use.direction import projection
from sprii_train.analysis.use.donor_choice import choose, one_factor_wrong, paired
from sprii_train.analysis.use.interventions import effect, learner_reader, predict_under
from sprii_train.analysis.use.simulated import Queries, query_targets
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.sources import Source
from sprii_train.protocol import encode

FACTORS = ("mass", "drag")
ANCHORS = (32, 40, 47)  # three queries a system, of three of its rollouts


def direction(source: Source) -> dict[str, Any]:
    """P(f, G) for mass and drag at the last horizon, in the source's own embedding, on validation systems.

    The wrong donor differs in one factor; the counterfactual target is the recipient's own future re-simulated with
    that donor's value. Also wrong-minus-matched embedding errors, exactly decomposed. Sums by system are kept beside
    the model (`direction.safetensors`).
    """
    bank, world, learner = source.bank, source.world, source.learner
    table = world.episodes(bank, "validation")
    reader = world.reader(bank, learner.config)
    horizon = learner.config.horizons[-1]
    anchors = np.asarray(ANCHORS)[table["rollout"] % len(ANCHORS)]
    recipients = np.flatnonzero(table["rollout"] < len(ANCHORS))
    parts = []
    with torch.no_grad():
        for first in range(0, len(table), 256):
            rows = np.arange(first, min(first + 256, len(table)))
            batch = learner.prepare(reader.read(table["episode"][rows], anchors[rows] - world.history + 1))
            parts.append((encode(learner, batch), batch.u, batch.y[:, -1]))
    z_s, z_p = (torch.cat([getattr(codes, name) for codes, _, _ in parts]) for name in ("z_s", "z_p"))
    u, y = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    read = learner_reader(learner, horizon=-1)
    matched = choose(table, SAME_SYSTEM, recipients, seed=SEED)
    wrong = {f: choose(table, one_factor_wrong(f, world.factors), recipients, seed=SEED) for f in FACTORS}
    pairs = {f: paired(matched, wrong[f]) for f in FACTORS}
    first, second = (np.unique(table["system"][rows]) for rows, _, _ in pairs.values())
    both = np.intersect1d(first, second)  # projections of both factors are of the same systems
    row: dict[str, Any] = {"systems": len(both)}
    kept: dict[str, NDArray[Any]] = {}
    for factor, donors in pairs.items():
        rows, own, other = (each[np.isin(table["system"][donors[0]], both)] for each in donors)
        predicted = predict_under(read, z_s[rows], torch.stack([z_p[own], z_p[other]], dim=1), u[rows])
        levels = np.stack([table[factor][rows], table[factor][other]], axis=1)
        found = query_targets(bank, Queries(table["episode"][rows], anchors[rows]), factor, levels, steps=horizon)
        targets = _embed(source, found.states[:, :, horizon - 1 : horizon + 1])
        moved = projection(predicted[:, 1] - predicted[:, 0], targets[:, 1] - targets[:, 0], table["system"][rows])
        changed = effect(y[rows].double().numpy(), predicted[:, 0], predicted[:, 1], table["system"][rows])
        kept |= {
            f"{factor}|systems": moved.systems.astype(np.int64),
            f"{factor}|numerators": moved.numerators,
            f"{factor}|denominators": moved.denominators,
            f"{factor}|difference": changed.difference,
        }
        row |= {
            f"P_{factor}": float(moved.numerators.sum() / moved.denominators.sum()),
            f"wrong_minus_matched_{factor}": float(changed.difference.mean()),
            f"sensitivity_{factor}": changed.specificity.sensitivity,
            f"cross_{factor}": changed.specificity.cross,
            f"without_{factor}": len(wrong[factor].without),
        }
    save_file({name: np.ascontiguousarray(a) for name, a in kept.items()}, source.folder / source.cell.arrays)
    return row


@torch.no_grad()
def _embed(source: Source, states: NDArray[np.float32]) -> NDArray[np.float64]:
    """Embeddings (n, L, d) of the last of two consecutive states (n, L, 2, S)."""
    learner, size = source.learner.eval(), source.learner.config.image
    flat = states.reshape(-1, 2, states.shape[-1])
    if not size:
        last = torch.from_numpy(flat[:, 1:])
        return learner.embed(last, last[:, :0])[:, 0].double().numpy().reshape(*states.shape[:2], -1)
    parts = []
    for first in range(0, len(flat), 2048):
        drawn = torch.from_numpy(draw_states(source.bank.world, flat[first : first + 2048], size))
        parts.append(learner.embed(drawn, drawn.new_empty(len(drawn), 0, 2, size, size))[:, 0])
    return torch.cat(parts).double().numpy().reshape(*states.shape[:2], -1)
