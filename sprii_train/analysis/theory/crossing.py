"""The crossing of Proposition 3: a broader relation selects another direction (`eq:app-crossing-example`)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sprii_train.analysis.theory.selection import Selection, select, shared_disagreement

SCORES: Mapping[str, float] = MappingProxyType({"mass": 3.0, "drag": 4.0, "stiffness": 2.0})


class Crossing(NamedTuple):
    """Scores by factor, before and after the relation's penalty, and the factor that one dimension keeps."""

    predictive: dict[str, float]  # diagonal of KᵀK
    penalised: dict[str, float]  # diagonal of M_G
    selected: str
    selection: Selection


def crossing(
    shared: tuple[str, ...] = ("mass",), *, scores: Mapping[str, float] = SCORES, beta: float = 1.0
) -> Crossing:
    """Independent standard factors as the history, d = 1: what pairs that share `shared` make of predictive scores.

    >>> crossing(("mass",)).selected, crossing(("mass", "drag")).selected
    ('mass', 'drag')

    Args:
        shared: factors that pairs share; the others are redrawn.
        scores: predictive score of each factor, its diagonal entry of KᵀK.
        beta: weight of the relation, at least 0.

    Raises:
        ValueError: for an unknown factor, a negative score, or a tie between the two best factors.
    """
    unknown = set(shared) - set(scores)
    if unknown or any(score < 0 for score in scores.values()):
        raise ValueError(
            f"shared must name factors of scores, and scores be at least 0; got {shared} and {dict(scores)}"
        )
    k = np.diag(np.sqrt(list(scores.values())))
    penalty = shared_disagreement([name in shared for name in scores])
    best = select(k, penalty, d=1, beta=beta)
    if not best.unique:
        raise ValueError(f"two factors tie at {best.reward:g} under shared={shared}, beta={beta:g}: no one is selected")
    penalised = {
        name: score - beta * float(d) for (name, score), d in zip(scores.items(), np.diag(penalty), strict=True)
    }
    return Crossing(dict(scores), penalised, list(scores)[int(np.abs(best.encoder[0]).argmax())], best)
