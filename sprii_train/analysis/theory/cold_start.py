"""Proposition 4 in closed form: a recipient without evidence gains most from a donor."""

from typing import NamedTuple

import numpy as np

from sprii_envs.arguments import integer
from sprii_train.analysis.theory.arrays import number


class ColdStart(NamedTuple):
    """The Gaussian example (`eq:app-cold-start-benefit`)."""

    recipient_variance: float  # v_x, variance of θ given X
    donor_variance: float  # variance of θ given X and D
    value: float  # Δ*_sq


def cold_start(
    prior_variance: float,
    recipient_noise: float,
    donor_noise: float,
    sensitivity: float = 1.0,
    repetitions: int = 1,
) -> ColdStart:
    """θ ~ N(0, prior), X = θ + ε_x, D = θ + ε_d, Y = a_h θ + ε_y: what D saves of the squared risk.

    It grows with v_x, what the recipient does not know yet, and levels off in the repetitions at a_h² v_x.

    Args:
        prior_variance: σ_θ².
        recipient_noise: σ_x², the variance of ε_x. It falls as the recipient gathers evidence.
        donor_noise: σ_d², the variance of ε_d.
        sensitivity: a_h.
        repetitions: R; D is the average of R independent measurements, σ_d²/R.
    """
    prior = number("prior_variance", prior_variance, above=True)
    recipient = number("recipient_noise", recipient_noise, above=True)
    donor = number("donor_noise", donor_noise, above=True)
    donor /= integer("repetitions", repetitions, least=1)
    a = number("sensitivity", sensitivity, -np.inf)
    v = 1.0 / (1.0 / prior + 1.0 / recipient)
    return ColdStart(v, 1.0 / (1.0 / v + 1.0 / donor), a**2 * v**2 / (v + donor))
