"""Fresh readers, by component of the state (`tab:frozen-head`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.readers import Reader, fit_readers
from sprii_train.analysis.value.risks import by_system, squared_errors
from sprii_train.analysis.value.slots import Arm
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.donor_probes import (
    donor_networks,
    donor_probes,
    donor_transients,
    named_factors,
    query_probes,
)
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import Setting

READERS: tuple[Arm, ...] = ("null", "persistent", "shuffled", "oracle")
PROBED = "drag"


def components(source: Source) -> dict[str, Any]:
    """Standardised MSE at the last horizon of readers on validation systems, of all coordinates and by component.

    Also R² of drag, where it is a property, from the donors' codes (ridge and MLP) and from the recipients' present
    features, and AUROC of transients from the donors' codes. Errors by system and component, (R, N, C) a reader arm,
    are kept beside the model.
    """
    cases, setting = cases_of(source), source.setting
    seeds = tuple(range(source.cell.readers.count))
    config = reader_config(source)
    errors = {
        arm: component_errors(fit_readers(cases.train, arm, config, seeds), cases.development, setting)
        for arm in READERS
    }
    probed, row = named_factors(setting, PROBED), dict[str, Any]()
    for key, probes in (("donor", donor_probes), ("donor_mlp", donor_networks), ("query", query_probes)):
        row |= {f"{key}_{name}": scored.r2 for name, scored in probes(cases, probed).items()}
    row |= {f"donor_{name}": found.auroc for name, found in donor_transients(source, cases).items()}
    last = cases.development.horizons[-1]
    for arm, grid in errors.items():
        row[f"{arm}_h{last}"] = float(grid.mean())
        row |= {f"{arm}_{name}_h{last}": float(grid[..., i].mean()) for i, name in enumerate(setting.components)}
    source.keep(errors)
    return row


def component_errors(readers: tuple[Reader, ...], cases: Cases[Any], setting: Setting) -> NDArray[np.float64]:
    """Errors (R, N, C) at the last horizon by system and component; their mean over components is the state's MSE."""

    def of(reader: Reader) -> NDArray[np.float64]:
        last = squared_errors(reader, cases)[:, -1]
        by_component = [last[:, columns].mean(-1) for columns in setting.components.values()]
        return by_system(np.stack(by_component, axis=-1), cases.systems)

    return np.stack([of(reader) for reader in readers])
