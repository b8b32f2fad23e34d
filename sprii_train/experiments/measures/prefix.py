"""Readers that see r transitions of the recipient, on one source (`app:spring-recipient-evidence`)."""

from typing import Any

from sprii_train.analysis.value.curves import PREFIXES, prefix_errors
from sprii_train.analysis.value.risks import strata_by_system
from sprii_train.analysis.value.slots import Arm
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import Source

READERS: tuple[Arm, ...] = ("null", "persistent", "oracle")


def prefix(source: Source) -> dict[str, Any]:
    """Errors at h16 of Null, Persistent and Oracle readers by prefix, `null_r8`; every reader is fitted afresh.

    Errors of every reader by system, (P, R, N, K), are kept beside the model.
    """
    cases: Any = source.setting.cases
    train, moving = cases.prefixes(source, max(PREFIXES))
    seeds = tuple(range(source.cell.readers.count))
    found = prefix_errors(train, moving, reader_config(source), seeds, arms=READERS)
    source.keep({**found})
    strata = strata_by_system(moving)
    assert strata is not None
    errors = {
        f"{arm}_r{r}": float(grid[..., -1].mean())
        for arm, grids in found.items()
        for r, grid in zip(PREFIXES, grids, strict=True)
    }
    return errors | {"prefix_strata": strata.tolist()}
