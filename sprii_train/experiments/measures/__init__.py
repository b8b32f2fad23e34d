"""What is measured of a trained source; each returns a JSON row."""

from sprii_train.experiments.measures.atlas import atlas
from sprii_train.experiments.measures.bottleneck import bottleneck
from sprii_train.experiments.measures.cost import cost
from sprii_train.experiments.measures.direction import direction
from sprii_train.experiments.measures.evidence import evidence
from sprii_train.experiments.measures.formation import formation
from sprii_train.experiments.measures.gradients import gradients
from sprii_train.experiments.measures.landscape import landscape
from sprii_train.experiments.measures.poke_value import poke_value
from sprii_train.experiments.measures.prefix import prefix
from sprii_train.experiments.measures.realization import realization
from sprii_train.experiments.measures.response import response
from sprii_train.experiments.measures.routes import object_routes, routes
from sprii_train.experiments.measures.sealed import sealed
from sprii_train.experiments.measures.targeted import targeted
from sprii_train.experiments.measures.value import value
from sprii_train.experiments.measures.windows import windows
from sprii_train.experiments.sources import Measure

MEASURES: dict[str, Measure] = {
    "atlas": atlas,
    "bottleneck": bottleneck,
    "cost": cost,
    "direction": direction,
    "evidence": evidence,
    "formation": formation,
    "gradients": gradients,
    "landscape": landscape,
    "object-routes": object_routes,
    "poke-value": poke_value,
    "prefix": prefix,
    "realization": realization,
    "response": response,
    "routes": routes,
    "sealed": sealed,
    "targeted": targeted,
    "value": value,
    "windows": windows,
}
