"""What is measured of a trained source; each returns a JSON row."""

from sprii_train.experiments.measures.adaptive import adaptive
from sprii_train.experiments.measures.atlas import atlas
from sprii_train.experiments.measures.bottleneck import HORIZONS, WINDOWS, bottleneck
from sprii_train.experiments.measures.common import common_reader
from sprii_train.experiments.measures.components import components
from sprii_train.experiments.measures.context_control import context_control
from sprii_train.experiments.measures.control import control
from sprii_train.experiments.measures.cophy import cophy, cophy_baselines, cophy_readers
from sprii_train.experiments.measures.cost import cost
from sprii_train.experiments.measures.decoded import decoded
from sprii_train.experiments.measures.direction import FACTORS, direction
from sprii_train.experiments.measures.evidence import evidence
from sprii_train.experiments.measures.fhn import fhn
from sprii_train.experiments.measures.fixed_weight import fixed_weight
from sprii_train.experiments.measures.fixed_wrong import fixed_wrong
from sprii_train.experiments.measures.followup import followup
from sprii_train.experiments.measures.formation import development, formation, validation
from sprii_train.experiments.measures.gradients import gradients
from sprii_train.experiments.measures.held_out import held_out
from sprii_train.experiments.measures.landscape import landscape
from sprii_train.experiments.measures.native_decoder import native_decoder
from sprii_train.experiments.measures.operator import operator
from sprii_train.experiments.measures.own_head import own_head
from sprii_train.experiments.measures.partners import partners
from sprii_train.experiments.measures.prefix import prefix
from sprii_train.experiments.measures.push import push
from sprii_train.experiments.measures.realization import realization
from sprii_train.experiments.measures.response import response
from sprii_train.experiments.measures.routes import object_routes, routes
from sprii_train.experiments.measures.scenes import scenes
from sprii_train.experiments.measures.sealed import sealed
from sprii_train.experiments.measures.selection import selection
from sprii_train.experiments.measures.sight import sight
from sprii_train.experiments.measures.tactile import tactile
from sprii_train.experiments.measures.targeted import COMPARED, targeted
from sprii_train.experiments.measures.task import task
from sprii_train.experiments.measures.untrained import untrained
from sprii_train.experiments.measures.value import value
from sprii_train.experiments.measures.windows import windows
from sprii_train.experiments.sources import Measure

OBJECT_READER = ("object_memory", "object_query", "object_state")
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("adaptive", adaptive, ("adapt",), readers=False, seconds=70.0),
        Measure("atlas", atlas, readers=False, seconds=20.0),
        # An update of six horizons takes three times as long.
        Measure("bottleneck", bottleneck, ("present",), windows=(WINDOWS, HORIZONS), reader_fits=4 * 3),
        # Three stacks of twice the updates, each of which takes two thirds as long, and a third of those of no learner.
        Measure("common-reader", common_reader, properties=("drag",), seconds=60.0, reader_fits=2 * 3 * 0.67),
        Measure("components", components, ("present",), asks=("components",), reader_fits=4),
        Measure("context-control", context_control, readers=False, trials=True, seconds=2.0),
        Measure("control", control, readers=False, trials=True, seconds=0.5),
        # An update of the head rolls 27 frames out, which takes 20 times as long as one of a reader.
        Measure("cophy", cophy, OBJECT_READER, seconds=30.0, reader_fits=20),
        Measure("cophy-baselines", cophy_baselines, OBJECT_READER, seconds=30.0, reader_fits=2 * 20),
        Measure("cophy-readers", cophy_readers, OBJECT_READER, seconds=30.0, reader_fits=5 * 20),
        Measure("cost", cost, readers=False, seconds=0.0),
        Measure("decoded", decoded, ("target",), ("pushed",), simulated=True, readers=False, seconds=30.0),
        Measure("development", development, readers=False, seconds=30.0),
        Measure("direction", direction, ("target",), ("pushed",), FACTORS, simulated=True, readers=False, seconds=40.0),
        Measure("evidence", evidence, asks=("evidence",), simulated=True, readers=False, seconds=30.0),
        Measure("fhn", fhn, ("rollout",), properties=("k", "beta"), readers=False, seconds=40.0),
        # Three adapters of the base, and one of each of three references.
        Measure("fixed-weight", fixed_weight, ("aggregate", "latent"), seconds=60.0, reader_fits=3),
        Measure("fixed-wrong", fixed_wrong, ("present",), reader_fits=2),
        Measure("followup", followup, ("present",), ("components", "sealed"), COMPARED, simulated=True, reader_fits=2),
        Measure("formation", formation, readers=False),
        # The diagnostic is of the submodule of that name.
        Measure("gradients", gradients, ("history",), readers=False, seconds=0.0),
        Measure("held-out", held_out, ("horizon_losses",), readers=False, population=True, seconds=10.0),
        Measure("landscape", landscape, ("present",), ("cases.features",), simulated=True, reader_fits=1, once=True),
        Measure("native-decoder", native_decoder, ("forecast",), readers=False, seconds=10.0),
        Measure("object-routes", object_routes, ("present",), ("pushed",), route_fits=3),
        Measure("operator", operator, readers=False, seconds=60.0),
        Measure("own-head", own_head, ("answers",), ("cases.transitions",), readers=False, seconds=30.0),
        Measure(
            "partners", partners, ("act", "tokens", "token_at"), ("roster",), readers=False, trials=True, seconds=0.0
        ),
        # An update of a recurrent reader takes half as long again.
        Measure("prefix", prefix, ("present",), ("cases.prefixes",), reader_fits=3 * 5 * 1.5),
        Measure("push", push, readers=False, trials=True, seconds=0.5),
        Measure("realization", realization, ("present",), simulated=True, route_fits=5),
        Measure("response", response, ("present",), ("cases.features",), simulated=True, reader_fits=1, once=True),
        Measure("routes", routes, ("present",), route_fits=18),
        Measure("scenes", scenes, readers=False, seconds=30.0),
        Measure("sealed", sealed, ("present",), ("cases.sealed", "sealed"), reader_fits=1),
        Measure("selection", selection, ("horizon_losses",), readers=False, seconds=10.0),
        Measure("sight", sight, ("target",), ("components",), readers=False, seconds=20.0),
        Measure("tactile", tactile, properties=("hardness",), readers=False, seconds=20.0),
        Measure("targeted", targeted, ("present",), ("components",), COMPARED, simulated=True, reader_fits=2),
        Measure("task", task, ("present",), reader_fits=4, route_fits=3),
        Measure("untrained", untrained, readers=False),
        Measure("validation", validation, readers=False, seconds=30.0),
        Measure("value", value, ("present",), reader_fits=4, route_fits=4),
        Measure("windows", windows, readers=False),
    )
}
