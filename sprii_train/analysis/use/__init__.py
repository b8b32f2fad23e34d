"""Use: what fixed weights do with another donor's context (`app:landscape`, `app:poke-direction`).

queries        which recorded episodes are donors and recipients
simulated      counterfactual donor histories and query targets
landscape      donor–target grids, valley depth
response       centre and relative shares of a donor-induced displacement
direction      P(f, G) and its contrasts
donor_choice   matched, wrong and one-factor-wrong donors of a recorded bank
interventions  a fixed reader under substituted or scaled contexts
"""

from sprii_train.analysis.use.direction import Projection, along, contrasts, projection
from sprii_train.analysis.use.donor_choice import WRONG_SYSTEM, Choice, choices, choose, one_factor_wrong, paired
from sprii_train.analysis.use.interventions import (
    AMPLITUDES,
    Effect,
    Reader,
    amplitude_sweep,
    case_reader,
    effect,
    intervene,
    learner_reader,
    predict_under,
)
from sprii_train.analysis.use.landscape import Valley, grid_errors, rank_correlation, summary, valley, valley_depth
from sprii_train.analysis.use.queries import first_episodes, pulse_queries
from sprii_train.analysis.use.response import (
    TRANSFORMS,
    Response,
    Transform,
    centre_relative,
    donor_response,
    unstructured_share,
)
from sprii_train.analysis.use.simulated import (
    HORIZONS,
    Counterfactuals,
    Coverage,
    Queries,
    coverage,
    donor_histories,
    frames,
    increments,
    query_targets,
    training_levels,
)

__all__ = [
    "AMPLITUDES",
    "HORIZONS",
    "TRANSFORMS",
    "WRONG_SYSTEM",
    "Choice",
    "Counterfactuals",
    "Coverage",
    "Effect",
    "Projection",
    "Queries",
    "Reader",
    "Response",
    "Transform",
    "Valley",
    "along",
    "amplitude_sweep",
    "case_reader",
    "centre_relative",
    "choices",
    "choose",
    "contrasts",
    "coverage",
    "donor_histories",
    "donor_response",
    "effect",
    "first_episodes",
    "frames",
    "grid_errors",
    "increments",
    "intervene",
    "learner_reader",
    "one_factor_wrong",
    "paired",
    "predict_under",
    "projection",
    "pulse_queries",
    "query_targets",
    "rank_correlation",
    "summary",
    "training_levels",
    "unstructured_share",
    "valley",
    "valley_depth",
]
