"""What a reference's own head predicts of the queries that others have readers for (`tab:spring-complete`)."""

from typing import Any

import numpy as np
import torch

from sprii_train.analysis.value.risks import by_system
from sprii_train.cases.encoding import encode_windows
from sprii_train.experiments.sources import Source

CHUNK = 1_024
"""Queries answered at once: bounds memory, changes nothing."""


def own_head(source: Source) -> dict[str, Any]:
    """Standardised errors of the same recipients, donors and horizons as readers have: `head_full` over all queries and
    horizons, `head_cold` of the setting's cold panel at the last one; `null_full` and `null_cold` without a history.

    Errors by system, (1, N, K), are kept beside the model under the readers' names, `head|cold`.
    """
    law: Any = source.setting.cases
    bank, learner = source.bank, source.learner
    queries, drawn = law.drawn(source, bank, "validation")
    (_, actions), increments = law.futures(bank, queries)
    truth = law.standardiser(bank)(increments)
    memory = encode_windows(learner, source.reader, drawn.donors, drawn.starts)
    donors = {"head": memory, "null": np.zeros_like(memory)}
    found: dict[str, list[Any]] = {name: [] for name in donors}
    for transitions in law.transitions:
        frames = bank.frames(drawn.episodes, drawn.anchors - transitions, 1 + transitions, learner.config.image)
        for name, codes in donors.items():
            predicted = answered(learner, frames, codes, actions, law.horizons)
            found[name].append(np.square(predicted - truth).mean(-1))
    systems = np.tile(queries["system"], len(law.transitions))
    weights = np.tile(law.weights(queries), len(law.transitions))
    cold = np.repeat(np.equal(law.transitions, 0), len(queries))
    cold &= np.tile((queries["kind"] == law.cold) & np.isin(queries["group"], law.groups), len(law.transitions))
    kept, row = {}, {}
    for name, parts in found.items():
        errors = np.concatenate(parts)
        for panel, rows in (("full", slice(None)), ("cold", cold)):
            kept[f"{name}|{panel}"] = grid = by_system(errors[rows], systems[rows], weights[rows])[None]
            row[f"{name}_{panel}"] = float(grid.mean() if panel == "full" else grid[..., -1].mean())
    source.keep(kept)
    systems, first = np.unique(queries["system"], return_index=True)
    return row | {"strata": queries["group"][first].tolist(), "systems": systems.tolist()}


@torch.no_grad()
def answered(learner: Any, frames: Any, memory: Any, actions: Any, horizons: tuple[int, ...]) -> Any:
    """Increments (n, K, S) that a learner predicts for frames (n, q + 1, H, W) and memories (n, d)."""
    learner.eval()
    parts = []
    for part in (slice(i, i + CHUNK) for i in range(0, len(frames), CHUNK)):
        z_s = learner.present(torch.from_numpy(frames[part]))
        z_p, u = (torch.from_numpy(np.asarray(each[part], np.float32)) for each in (memory, actions))
        parts.append(learner.answers(z_s, z_p, u, horizons).double().numpy())
    return np.concatenate(parts)
