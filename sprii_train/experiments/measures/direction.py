"""Wrong-factor donors: do predictions move as the physics would? (`app:poke-direction`)"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from sprii_train.analysis.use.direction import Projection, projection
from sprii_train.analysis.use.interventions import Effect, effect
from sprii_train.experiments.factor_swaps import embed_states, factor_swaps
from sprii_train.experiments.sources import Source
from sprii_train.experiments.state_decoder import fit_state_decoder
from sprii_train.settings.base import MEASURED_SEED

FACTORS = ("mass", "drag")
PHYSICAL = ("confirmation", 96)
"""Split and number of systems of the physical-risk assay, apart from those of P(f, G)."""


def direction(source: Source) -> dict[str, Any]:
    """P(f, G) for mass and drag at the last horizon, and wrong-minus-matched errors, exactly decomposed.

    The wrong donor differs in one factor; the counterfactual target is the recipient's own future re-simulated with
    that donor's value. On validation systems: P in the source's own embedding, and of decoded object states along the
    simulated ones (`P_state_*`); errors in the embedding. On 96 confirmation systems: errors of the object's four
    coordinates, read from predicted embeddings by a frozen ridge decoder and standardised by training states
    (`object_*`). Sums and differences by system are kept beside the model (`direction.safetensors`).
    """
    decoder = fit_state_decoder(source)
    row: dict[str, Any] = {}
    kept: dict[str, NDArray[Any]] = {}
    for factor, swap in factor_swaps(source, "validation", FACTORS).items():
        wanted = np.diff(embed_states(source, swap.states), axis=1)[:, 0]
        moved = projection(swap.wrong - swap.matched, wanted, swap.systems)
        simulated = decoder.standardise(swap.states[:, :, 1])
        decoded = decoder(swap.wrong) - decoder(swap.matched)
        in_state = projection(decoded, simulated[:, 1] - simulated[:, 0], swap.systems)
        changed = effect(swap.target, swap.matched, swap.wrong, swap.systems)
        kept |= _sums(factor, moved) | _sums(f"state|{factor}", in_state)
        kept[f"{factor}|difference"] = changed.difference
        row |= {f"P_{factor}": _along(moved), f"P_state_{factor}": _along(in_state), f"without_{factor}": swap.without}
        row |= _told("", factor, changed)
        row["systems"] = len(moved.systems)
        row["decoder_r2"] = float(r2_score(simulated[:, 0], decoder(swap.target)))
    split, count = PHYSICAL
    for factor, swap in factor_swaps(source, split, FACTORS, unseal=True).items():
        ids = np.random.default_rng(MEASURED_SEED).permutation(np.unique(swap.systems))[:count]
        rows = np.isin(swap.systems, ids)
        target = decoder.standardise(swap.states[rows, 0, 1])
        changed = effect(target, decoder(swap.matched[rows]), decoder(swap.wrong[rows]), swap.systems[rows])
        kept[f"object|{factor}|difference"] = changed.difference
        row |= _told("object_", factor, changed)
        row |= {f"object_matched_{factor}": float(changed.matched.mean()), "object_systems": len(ids)}
    source.keep(kept)
    return row


def _along(found: Projection) -> float:
    if not found.denominators.any():
        raise ValueError("P(f, G) is undefined: the counterfactual target moves in none of the systems")
    return float(found.numerators.sum() / found.denominators.sum())


def _sums(prefix: str, found: Projection) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}|systems": found.systems.astype(np.int64),
        f"{prefix}|numerators": found.numerators,
        f"{prefix}|denominators": found.denominators,
    }


def _told(prefix: str, factor: str, changed: Effect) -> dict[str, float]:
    return {
        f"{prefix}wrong_minus_matched_{factor}": float(changed.difference.mean()),
        f"{prefix}sensitivity_{factor}": changed.specificity.sensitivity,
        f"{prefix}cross_{factor}": changed.specificity.cross,
    }
