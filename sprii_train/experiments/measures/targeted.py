"""Does one source's context help where its factor matters? (`tab:poke-targeted-utility`)"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_train.analysis.formation import group_means
from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.physical import dominance, factor_sensitivity, sensitivities
from sprii_train.analysis.value.readers import fit_readers
from sprii_train.analysis.value.slots import Arm
from sprii_train.cases.base import Drawn, SourceCases
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.donor_probes import donor_networks, donor_probes, donor_transients
from sprii_train.experiments.measures.components import component_errors
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import Source

READERS: tuple[Arm, ...] = ("null", "persistent")
COMPARED = ("mass", "drag")


def targeted(source: Source) -> dict[str, Any]:
    """Null and Persistent errors at h16, how much more the cases depend on mass than on drag, and probes of donors.

    Errors by system (R, N) of each arm and the systems' `dominance` (N,), the same for all sources of a bank, are kept
    beside the model; the slope joins two recipes and is taken by the report.
    """
    cases, setting = cases_of(source), source.setting
    kept = gains(source, cases, cases.development, source.cell.readers.count)
    row: dict[str, Any] = {f"{arm}_h16": float(grid.mean()) for arm, grid in kept.items()}
    row |= {f"donor_{name}": scored.r2 for name, scored in donor_probes(cases, setting.donor_factors).items()}
    row |= {f"donor_mlp_{name}": scored.r2 for name, scored in donor_networks(cases, setting.donor_factors).items()}
    row |= {f"donor_{name}": found.auroc for name, found in donor_transients(source, cases).items()}
    kept["dominance"] = mass_dominance(source, cases)
    source.keep(kept)
    return row


def gains(source: Source, cases: SourceCases, held_out: Cases[Any], readers: int) -> dict[str, NDArray[np.float64]]:
    """Reader arm → errors (R, N) at h16 by system of held-out cases; readers are fitted on the training cases."""
    config, seeds = reader_config(source), tuple(range(readers))
    return {
        arm: component_errors(fit_readers(cases.train, arm, config, seeds), held_out, source.setting).mean(-1)
        for arm in READERS
    }


def mass_dominance(
    source: Source, cases: SourceCases, held_out: tuple[Bank, Cases[Any], Drawn] | None = None
) -> NDArray[np.float64]:
    """d = z_train(S_m) − z_train(S_γ) at h16, (N,) means over a held-out system's cases.

    Args:
        held_out: cases, and of which windows of which bank these are; by default those of validation.
    """
    bank, of, windows = held_out or (source.bank, cases.development, cases.drawn["validation"])
    names = bank.properties.names
    logs = np.log(np.stack([cases.train.factors[name] for name in names], axis=1))

    def sensitivity(bank: Bank, of: Cases[Any], drawn: Drawn) -> NDArray[np.float64]:
        values = np.stack([of.factors[name] for name in names], axis=1)
        states = bank.windows("states", drawn.episodes, drawn.anchors, 1)[:, 0]
        found = sensitivities(bank.world, values, states, of.actions, of.horizons[-1:])
        return factor_sensitivity(found, cases.standardiser.scale, logs.std(0))[
            :, 0, [names.index(n) for n in COMPARED]
        ]

    train = sensitivity(source.bank, cases.train, cases.drawn["train"])
    found = dominance(cases.train.population, train, sensitivity(bank, of, windows))
    return group_means(found[:, None], of.systems)[0][:, 0]
