"""What is measured of a trained source; each returns a JSON row."""

from sprii_train.experiments.measures.direction import direction
from sprii_train.experiments.measures.formation import formation
from sprii_train.experiments.measures.landscape import landscape
from sprii_train.experiments.measures.value import value
from sprii_train.experiments.sources import Measure

MEASURES: dict[str, Measure] = {
    "formation": formation,
    "direction": direction,
    "landscape": landscape,
    "value": value,
}
