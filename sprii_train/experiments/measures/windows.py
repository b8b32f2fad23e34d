"""What a network reads of the factors in the codes of single histories (`app:measurements`)."""

from typing import Any

from sprii_train.analysis.formation import POKE_FACTORS, probe_factors
from sprii_train.experiments.measures.formation import FACTORS, SEED, SYSTEMS
from sprii_train.experiments.sources import Source
from sprii_train.experiments.worlds import measured_windows, training_windows


def windows(source: Source) -> dict[str, Any]:
    """R² of MLP probes of the histories whose ridge probes are `formation`'s, on validation systems: `window_mlp_*`.

    A measure of its own: sixteen histories a system take the search of a network's penalty a minute.
    """
    world, bank, learner = source.world, source.bank, source.learner
    train = training_windows(world, learner, bank, SYSTEMS)
    held_out = measured_windows(world, learner, bank, "validation")
    found = probe_factors(train, held_out, FACTORS.get(world.name, POKE_FACTORS), seed=SEED, kinds=("mlp",))
    return {f"window_mlp_{factor}": scored.r2 for (_, factor), scored in found.items()}
