"""Fresh readers on one PokeWorld source, by component of the state (`tab:frozen-head`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.readers import Reader, fit_readers
from sprii_train.analysis.value.risks import by_system, squared_errors
from sprii_train.analysis.value.slots import Arm
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.poke_cases import (
    COMPONENTS,
    FACTORS,
    donor_contact,
    donor_networks,
    donor_probes,
    poke_cases,
    query_probe,
)
from sprii_train.experiments.sources import Source

READERS: tuple[Arm, ...] = ("null", "persistent", "shuffled", "oracle")


def poke_value(source: Source) -> dict[str, Any]:
    """Standardised MSE at h16 of readers on validation systems, all eight coordinates and by component.

    Also R² of log drag from the donors' codes (ridge and MLP) and from the recipients' present features, and AUROC of
    contact from the donors' codes. Errors by system and component, (R, N, 4) a reader arm, are kept beside the model.
    """
    cases = poke_cases(source)
    seeds = tuple(range(source.cell.readers.count))
    config = reader_config(source)
    errors = {arm: component_errors(fit_readers(cases.train, arm, config, seeds), cases.development) for arm in READERS}
    row: dict[str, Any] = {
        "donor_drag": donor_probes(cases)["drag"].r2,
        "donor_mlp_drag": donor_networks(cases, [f for f in FACTORS if f.name == "drag"])["drag"].r2,
        "donor_contact": donor_contact(source, cases).auroc,
        "query_drag": query_probe(cases, "drag").r2,
    }
    for arm, grid in errors.items():
        row[f"{arm}_h16"] = float(grid.mean())
        row |= {f"{arm}_{name}_h16": float(grid[..., i].mean()) for i, name in enumerate(COMPONENTS)}
    source.keep(errors)
    return row


def component_errors(readers: tuple[Reader, ...], cases: Cases[Any]) -> NDArray[np.float64]:
    """Errors (R, N, 4) at the last horizon by system and component; their mean over components is the state's MSE."""

    def of(reader: Reader) -> NDArray[np.float64]:
        last = squared_errors(reader, cases)[:, -1]
        return by_system(last.reshape(len(last), len(COMPONENTS), -1).mean(-1), cases.systems)

    return np.stack([of(reader) for reader in readers])
