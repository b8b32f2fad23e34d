"""What a source predicts of the object, in units of its state (`app:dclean-acquisition`)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_train.analysis.formation import group_means
from sprii_train.experiments.sources import Source
from sprii_train.experiments.state_decoder import StateDecoder, fit_state_decoder
from sprii_train.protocol import encode

CHUNK = 250  # windows predicted at a time


def decoded(source: Source) -> dict[str, Any]:
    """`object_SPLIT`: MSE at the last horizon, of predictions by the window's own context, on held-out splits.

    Object states are read from predicted embeddings by a frozen ridge decoder and standardised by training states. The
    windows are those of `formation`. Errors by system are kept beside the model, under the name of the split.
    """
    decoder = fit_state_decoder(source)
    kept = {
        split: _errors(source, decoder, split)
        for split in source.store.splits
        if split != "train" and (split not in source.store.sealed_splits or source.setting.unsealed)
    }
    source.keep(kept)
    return {f"object_{split}": float(errors.mean()) for split, errors in kept.items()}


@torch.no_grad()
def _errors(source: Source, decoder: StateDecoder, split: str) -> NDArray[np.float64]:
    setting, bank, learner, reader = source.setting, source.bank, source.learner.eval(), source.reader
    table = setting.episodes(bank, split, unseal=True)
    rows = np.repeat(np.arange(len(table)), len(setting.anchors))
    anchors, episodes = np.tile(setting.anchors, len(table)), table["episode"][rows]
    starts = np.tile([setting.starts(anchor) for anchor in setting.anchors], len(table))
    parts = []
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        batch = learner.prepare(reader.read(episodes[part], starts[part]))
        codes = encode(learner, batch)
        parts.append(learner.predict(codes.z_s, codes.z_p, batch.u)[:, -1])
    predicted = decoder(torch.cat(parts).double().numpy())
    future = bank.windows("states", episodes, anchors + reader.horizons[-1], 1)[:, 0]
    errors = np.square(predicted - decoder.standardise(future)).mean(1)
    return group_means(errors[:, None], table["system"][rows])[0][:, 0]
