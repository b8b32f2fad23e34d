"""What the network of a source measures before it has learned anything: the floor of every Formation number."""

from dataclasses import replace
from typing import Any

import torch

from sprii_train.experiments.measures.formation import formation
from sprii_train.experiments.sources import Source


def untrained(source: Source) -> dict[str, Any]:
    """`{"untrained": …}`: `formation` of the same config and seed with its first weights."""
    return {"untrained": formation(replace(source, learner=first_weights(source)))}


def first_weights(source: Source) -> Any:
    """The learner of a source as it began."""
    with torch.random.fork_rng():
        torch.manual_seed(source.seed)
        return source.setting.fresh(source.store, source.learner.config).eval()
