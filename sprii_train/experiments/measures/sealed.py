"""Sealed systems, read once by readers fitted on training cases (`tab:v3-spring-sealed`)."""

from typing import Any

import numpy as np

from sprii_train.analysis.value.readers import fit_readers
from sprii_train.analysis.value.risks import strata_by_system
from sprii_train.experiments.measures.value import reader_config, system_errors
from sprii_train.experiments.sources import Source

POPULATIONS = {"primary": ("continuous",), "secondary": ("combination",), "pooled": ("continuous", "combination")}
"""Population → groups of systems: 256 continuous ones, 36 unseen combinations, and both."""


def sealed(source: Source) -> dict[str, Any]:
    """Persistent error of cold queries at h16, in every population; queries within a system, then readers, equal.

    Readers are fitted before the sealed bank is opened. Errors by system, (R, N) at h16, are kept beside the model.
    """
    cases: Any = source.setting.cases
    train, standardiser = cases.training(source)
    seeds = tuple(range(source.cell.readers.count))
    readers = fit_readers(train, "persistent", reader_config(source), seeds)
    bank = source.setting.open_sealed(source.bank.path.parent)
    cold = cases.sealed(source, bank, standardiser)
    errors = system_errors(readers, cold)[..., -1]
    strata = strata_by_system(cold)
    assert strata is not None
    source.keep({"persistent": errors})
    row = {name: float(errors[:, np.isin(strata, groups)].mean()) for name, groups in POPULATIONS.items()}
    return row | {"strata": strata.tolist(), "sealed_bank": bank.fingerprint}
