"""Fresh Null, Matched and Fixed Wrong on a setting's first panel (`tab:v3-tds-spring`)."""

from typing import Any

from sprii_train.analysis.value.readers import fit_readers
from sprii_train.analysis.value.risks import strata_by_system
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.measures.value import reader_config, system_errors
from sprii_train.experiments.sources import Source

WRONG_SEED = 20_267  # of the map of systems


def fixed_wrong(source: Source) -> dict[str, Any]:
    """Errors at the last horizon: `null` of readers without a donor, `matched` of readers of same-system donors, and
    `wrong` of these same readers, given donors of another system.

    Errors by reader and system, (R, N), are kept beside the model.
    """
    cases = cases_of(source)
    held_out = cases.development
    if cases.panels:
        held_out = held_out.take(next(iter(cases.panels.values())))
    seeds, config = tuple(range(source.cell.readers.count)), reader_config(source)
    null = fit_readers(cases.train, "null", config, seeds)
    matched = fit_readers(cases.train, "persistent", config, seeds)
    errors = {
        name: system_errors(readers, of)[..., -1]
        for name, readers, of in (
            ("null", null, held_out),
            ("matched", matched, held_out),
            ("wrong", matched, held_out.mismatched(WRONG_SEED)),
        )
    }
    source.keep(errors)
    row: dict[str, Any] = {name: float(grid.mean()) for name, grid in errors.items()}
    if (strata := strata_by_system(held_out)) is not None:
        row["strata"] = strata.tolist()
    return row | {"reader_updates": source.cell.readers.updates, "readers": source.cell.readers.count}
