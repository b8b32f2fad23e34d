"""What a network reads of the factors in the codes of single histories (`app:measurements`)."""

from typing import Any

from sprii_train.analysis.formation import probe_factors
from sprii_train.experiments.measures.formation import SEED, SYSTEMS, measured_windows, training_windows
from sprii_train.experiments.sources import Source


def windows(source: Source) -> dict[str, Any]:
    """R² of MLP probes of the histories whose ridge probes are `formation`'s, on validation systems: `window_mlp_*`.

    A measure of its own: sixteen histories a system take the search of a network's penalty a minute.
    """
    setting, store, learner = source.setting, source.store, source.learner
    train = training_windows(setting, learner, store, SYSTEMS)
    held_out = measured_windows(setting, learner, store, "validation")
    found = probe_factors(train, held_out, setting.factors, seed=SEED, kinds=("mlp",))
    return {f"window_mlp_{factor}": scored.r2 for (_, factor), scored in found.items()}
