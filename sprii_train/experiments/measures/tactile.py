"""What codes of grasps tell of hardness and shape, beside the input and codes that say nothing (`app:baxter`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.store import origin_of
from sprii_train.cases.encoding import encode_histories
from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source
from sprii_train.robots.probes import EARLY, Grasped, probed, readout, shuffled

SPLITS = ("validation", "confirmation")
DEALS, SEED = 20, 20_261
"""Of shuffled labels, and what they are dealt by; shared by all sources."""


def tactile(source: Source) -> dict[str, Any]:
    """Probes by split: of codes, of the first weights' codes, of dealt labels, of the raw history and its last sample.

    `readout` has the accuracies of a network fitted on the first 8 samples and on whole grasps, by the source's seed.
    The figures' sensor changes, and the codes of confirmation grasps, are kept.
    """
    store, blank = source.store, first_weights(source)
    reader = source.reader
    whole = {split: grasps(source, split) for split in ("train", *SPLITS)}
    features = {
        "probe": {split: _coded(source, source.learner, split) for split in whole},
        "untrained": {split: _coded(source, blank, split) for split in whole},
        "raw": {s: own.features[:, : reader.history].reshape(len(own.shape), -1) for s, own in whole.items()},
        "last": {s: own.features[:, reader.history - 1] for s, own in whole.items()},
    }
    row: dict[str, Any] = {"data": str(origin_of(store).get("kind", "recorded"))}
    for name, by_split in features.items():
        given = {split: own._replace(features=by_split[split]) for split, own in whole.items()}
        row[name] = {split: probed(given["train"], given[split]) for split in SPLITS}
        if name == "probe":
            row["shuffled"] = {s: shuffled(given["train"], given[s], seed=SEED, times=DEALS) for s in SPLITS}
    told: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
    for name, length in (("early", EARLY), ("full", None)):
        cut = {split: own._replace(features=own.features[:, :length]) for split, own in whole.items()}
        for split, found in zip(SPLITS, readout(cut["train"], [cut[s] for s in SPLITS], seed=source.seed), strict=True):
            told[split][name] = found
    row["readout"] = told
    source.keep({"codes": features["probe"]["confirmation"], "changes": changes(source)})
    return row


def grasps(source: Source, split: str) -> Grasped:
    """Standardised samples (N, T, taxels) and labels of a split's grasps."""
    table = source.setting.episodes(source.store, split)
    begin = np.zeros(len(table), np.int64)
    samples = source.reader.columns(table["episode"], begin, int(table["length"].min())).numpy().astype(np.float64)
    return Grasped(samples, table["shape"].astype(str), table["level"], np.asarray(table["hardness"], np.float64))


def changes(source: Source) -> NDArray[np.float32]:
    """Change of every taxel since the first sample, (shapes, levels, T, taxels), as recorded: of the first confirmation
    grasp that all configurations have, or of the first of each."""
    table = source.setting.episodes(source.store, "confirmation")
    shapes, levels = np.unique(table["shape"].astype(str)), np.unique(table["level"])
    ids = [
        [table.select((table["shape"].astype(str) == shape) & (table["level"] == level)) for level in levels]
        for shape in shapes
    ]
    common = set.intersection(*(set(own["grasp"].tolist()) for row in ids for own in row))
    chosen = [[own["episode"][np.argmax(own["grasp"] == min(common)) if common else 0] for own in row] for row in ids]
    episodes = np.array(chosen, np.int64).ravel()
    observed = str(source.setting.observation)
    read = source.store.windows(observed, episodes, np.zeros_like(episodes), int(table["length"].min()))
    return (read - read[:, :1]).reshape(len(shapes), len(levels), *read.shape[1:]).astype(np.float32)


def _coded(source: Source, learner: Any, split: str) -> NDArray[np.float64]:
    return encode_histories(learner, source.reader, source.setting.episodes(source.store, split), 0)
