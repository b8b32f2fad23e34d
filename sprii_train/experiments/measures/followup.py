"""Factor-targeted utility on systems that nothing was developed on (`app:records-poke-followup`)."""

from dataclasses import replace
from typing import Any

from sprii_train.analysis.populations import Sealed
from sprii_train.cases.windows import cases_of, windows_elsewhere
from sprii_train.experiments.measures.targeted import gains, mass_dominance
from sprii_train.experiments.sources import Source

READERS = 2
"""Of each arm at most: two pairs of each of six sources are the paper's twelve."""


def followup(source: Source) -> dict[str, Any]:
    """Null and Persistent errors at h16 on the setting's sealed systems, by readers fitted on training cases.

    Errors by system (R, N) of each arm and the systems' `dominance` (N,) are kept beside the model, as of `targeted`.
    """
    cases = cases_of(source)
    bank = source.setting.open_sealed(source.bank.path.parent)
    (split,) = bank.splits
    held_out, drawn = windows_elsewhere(replace(source, store=bank), split, Sealed, cases.standardiser)
    kept = gains(source, cases, held_out, min(READERS, source.cell.readers.count))
    row: dict[str, Any] = {f"new_{arm}_h16": float(grid.mean()) for arm, grid in kept.items()}
    source.keep(kept | {"dominance": mass_dominance(source, cases, (bank, held_out, drawn))})
    return row | {"sealed_bank": bank.fingerprint, "new_systems": kept["null"].shape[1]}
