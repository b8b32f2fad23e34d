"""Standard and physically weighted residual routes on one source (`tab:realization-complete-grid`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_train.analysis.populations import Training
from sprii_train.analysis.value.bases import fit_bases
from sprii_train.analysis.value.cases import Cases, Standardiser
from sprii_train.analysis.value.physical import output_weights, sensitivities
from sprii_train.analysis.value.routes import fit_routes
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.measures.value import amplitude_row, route_config, specificity_row, system_errors
from sprii_train.experiments.sources import Source

VARIANTS = ("", "-phys")

Rows = NDArray[np.int64]


def realization(source: Source) -> dict[str, Any]:
    """Errors of M1 and M2 of both variants over the development mixture, and of M2 as its context is scaled by s.

    Errors by reader (R,) are kept beside the model.
    """
    of = cases_of(source)
    config = route_config(source)
    bases = fit_bases(of.train, of.development, config, tuple(range(source.cell.readers.count)))
    drawn = of.drawn["train"]
    weights = physical_weights(source.bank, drawn.episodes, drawn.anchors, of.train, of.standardiser)
    kept: dict[str, NDArray[np.float64]] = {}
    row: dict[str, Any] = {}
    for variant in VARIANTS:
        given = weights if variant else None
        m1, m2 = (fit_routes(of.train, of.development, bases, kind, weights=given) for kind in ("m1", "m2"))
        for name, routes in ((f"m1{variant}", m1), (f"m2{variant}", m2)):
            kept[name] = np.array([grid.mean() for grid in system_errors(routes, of.development)])
            row[f"mean_{name}"] = float(kept[name].mean())
        row |= {f"{name}{variant}": part for name, part in specificity_row(m2, of.development).items()}
        row |= amplitude_row(m2, of.development, variant)
    source.keep(kept)
    return row


def physical_weights(
    bank: Bank, episodes: Rows, anchors: Rows, train: Cases[Training], standardiser: Standardiser
) -> NDArray[np.float64]:
    """`output_weights` (D,) of training cases whose presents are at these anchors (n,) of episodes (n,)."""
    states = bank.windows("states", episodes, anchors, 1)[:, 0]
    values = np.stack([train.factors[name] for name in bank.properties.names], axis=1)
    found = sensitivities(bank.world, values, states, train.actions, train.horizons)
    return output_weights(found, standardiser.scale)
