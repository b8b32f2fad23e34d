"""Use and Value of one source of any setting: readers, residual routes, and what another system's context does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.value.bases import fit_bases
from sprii_train.analysis.value.readers import fit_readers
from sprii_train.analysis.value.risks import Predictor
from sprii_train.analysis.value.routes import fit_routes
from sprii_train.analysis.value.slots import Arm
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.measures.value import (
    DONOR_SEED,
    amplitude_row,
    reader_config,
    route_config,
    specificity_row,
    system_errors,
)
from sprii_train.experiments.sources import Source

READERS: tuple[Arm, ...] = ("null", "persistent", "decode", "oracle")


def task(source: Source) -> dict[str, Any]:
    """Errors over validation systems, standardised by training cases (`app:conditional-value`).

    `value_*` of fresh readers and of residual routes M1 and M2 over their base; `wrong_*` of the Persistent reader and
    of M2 with another system's donor; own and cross curves of M2 as its context is scaled by s, and Δ_spec in its
    parts. Errors by reader and system (R, N, K) are kept beside the model.
    """
    cases = cases_of(source)
    train, held_out = cases.train, cases.development
    seeds = tuple(range(source.cell.readers.count))
    fitted: dict[str, tuple[Predictor, ...]] = {
        arm: fit_readers(train, arm, reader_config(source), seeds) for arm in READERS
    }
    config = route_config(source)
    bases = fit_bases(train, held_out, config, seeds)
    m1, m2 = (fit_routes(train, held_out, bases, kind) for kind in ("m1", "m2"))
    fitted |= {"r0": bases, "m1": m1, "m2": m2}
    wrong = held_out.mismatched(DONOR_SEED)
    kept: dict[str, NDArray[np.float64]] = {}
    row: dict[str, Any] = {}
    for name, readers in fitted.items():
        for prefix, of in (("value", held_out), ("wrong", wrong)):
            if prefix == "value" or name in ("persistent", "m2"):
                kept[f"{prefix}|{name}"] = grid = system_errors(readers, of)
                row[f"{prefix}_{name}"] = float(grid.mean())
                row |= {f"{prefix}_{name}_h{h}": float(e) for h, e in zip(of.horizons, grid.mean((0, 1)), strict=True)}
    source.keep(kept)
    return row | amplitude_row(m2, held_out) | specificity_row(m2, held_out)
