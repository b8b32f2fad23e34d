"""Seconds of an update of one source's recipe on this machine (`tab:spring-cost`)."""

import copy
import time
from typing import Any

import numpy as np
import torch

from sprii_train.experiments.sources import Source
from sprii_train.fit import build_optimizer, resolve_precision, train_step

WARM, TIMED = 2, 5  # updates


def cost(source: Source) -> dict[str, Any]:
    """Median seconds of an update, of its computation alone and of its batch; the source's weights stay.

    Both are measured in the process that measures the source, with whatever else the machine does.
    """
    cell = source.cell
    arm, config = cell.recipe, cell.train
    data = source.setting.data(source.store, source.learner.config, arm, pairs=config.pairs, seed=config.seed)
    learner = copy.deepcopy(source.learner).to(config.device).train()
    optimizer, precision = build_optimizer(learner, config), resolve_precision(config)
    marks = []
    with torch.random.fork_rng():
        for step in range(WARM + TIMED):
            began = time.perf_counter()
            windows = data(step).to(config.device)
            read = time.perf_counter()
            train_step(learner, windows, arm.objective, optimizer, config, step, precision)
            marks.append((read - began, time.perf_counter() - read))
    batch, update = np.median(marks[WARM:], axis=0)
    return {
        "update_seconds": float(update),
        "batch_seconds": float(batch),
        "pairs": config.pairs,
        "reader_updates": cell.readers.updates,
    }
