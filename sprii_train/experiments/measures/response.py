"""How a donor's level moves the output of one source's fixed reader (`app:physical-response`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.use.response import TRANSFORMS, donor_response
from sprii_train.experiments.measures.landscape import assays
from sprii_train.experiments.sources import Source

CASE = 0
"""The recipient whose course is kept: the first system, whatever the errors."""


def response(source: Source) -> dict[str, Any]:
    """Relative coordinates' share of the squared h16 response to five donor levels, reader's and simulator's.

    By factor, transform and system, (n,), `reader_centre`, `reader_relative` and the simulator's are kept beside the
    model, in physical units; and of one recipient every course: truth (L, T, D) and predictions (L, K, D), as
    increments.
    """
    kept: dict[str, NDArray[np.float64]] = {}
    row: dict[str, Any] = {}
    for factor, levels, predicted, truth, _, targets, standardiser in assays(source):
        outputs = predicted * standardiser.scale + standardiser.mean
        for who, moved in (("reader", outputs), ("simulator", truth)):
            for transform in TRANSFORMS:
                found, name = donor_response(moved[:, :, -1], transform), f"{factor}|{transform}|{who}"
                kept |= {f"{name}_centre": found.centre, f"{name}_relative": found.relative}
                row[f"{who}_share_{factor}_{transform}"] = found.relative_share
                row[f"{who}_relative_minus_centre_{factor}_{transform}"] = found.relative_minus_centre
        states = targets.states[CASE].astype(np.float64)
        kept |= {
            f"{factor}|levels": levels,
            f"{factor}|course": states - states[:, :1],
            f"{factor}|predicted": outputs[CASE],
        }
    source.keep(kept)
    return row
