"""Does one PokeWorld source's context help where its factor matters? (`tab:poke-targeted-utility`)"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import group_means
from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.physical import dominance, factor_sensitivity, sensitivities
from sprii_train.analysis.value.readers import fit_readers
from sprii_train.analysis.value.slots import Arm
from sprii_train.experiments.measures.poke_value import component_errors
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.poke_cases import HORIZONS, donor_contact, donor_networks, donor_probes, poke_cases
from sprii_train.experiments.sources import Source
from sprii_train.experiments.window_cases import Drawn, WindowCases

READERS: tuple[Arm, ...] = ("null", "persistent")
COMPARED = ("mass", "drag")


def targeted(source: Source) -> dict[str, Any]:
    """Null and Persistent errors at h16, how much more the cases depend on mass than on drag, and probes of donors.

    Errors by system (R, N) of each arm and the systems' `dominance` (N,), the same for all sources of a bank, are kept
    beside the model; the slope joins two recipes and is taken by the report.
    """
    cases = poke_cases(source)
    seeds = tuple(range(source.cell.readers.count))
    config = reader_config(source)
    kept = {
        arm: component_errors(fit_readers(cases.train, arm, config, seeds), cases.development).mean(-1)
        for arm in READERS
    }
    row: dict[str, Any] = {f"{arm}_h16": float(grid.mean()) for arm, grid in kept.items()}
    row |= {f"donor_{name}": scored.r2 for name, scored in donor_probes(cases).items()}
    row |= {f"donor_mlp_{name}": scored.r2 for name, scored in donor_networks(cases).items()}
    row["donor_contact"] = donor_contact(source, cases).auroc
    kept["dominance"] = mass_dominance(source, cases)
    source.keep(kept)
    return row


def mass_dominance(source: Source, cases: WindowCases) -> NDArray[np.float64]:
    """d = z_train(S_m) − z_train(S_γ) at h16, (N,) means over a validation system's cases."""
    names = source.bank.properties.names
    logs = np.log(np.stack([cases.train.factors[name] for name in names], axis=1))

    def sensitivity(of: Cases[Any], drawn: Drawn) -> NDArray[np.float64]:
        values = np.stack([of.factors[name] for name in names], axis=1)
        states = source.bank.windows("states", drawn.episodes, drawn.anchors, 1)[:, 0]
        found = sensitivities(source.bank.world, values, states, of.actions, HORIZONS[-1:])
        return factor_sensitivity(found, cases.standardiser.scale, logs.std(0))[:, 0]

    train, held_out = (sensitivity(*pair)[:, [names.index(name) for name in COMPARED]] for pair in cases.populations)
    found = dominance(cases.train.population, train, held_out)
    return group_means(found[:, None], cases.development.systems)[0][:, 0]
