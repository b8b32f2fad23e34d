"""The paper's reference models (`sec:analysis`) as pure NumPy functions; `docs/theory.md` says what for."""

from sprii_train.analysis.theory.bank import expected_disagreement
from sprii_train.analysis.theory.cold_start import ColdStart, cold_start
from sprii_train.analysis.theory.crossing import Crossing, crossing
from sprii_train.analysis.theory.moments import (
    Covariances,
    PairMoments,
    covariances,
    cross_covariances,
    matched_second_moment,
    pair_moments,
    pair_second_moment,
    variance_components,
)
from sprii_train.analysis.theory.pressure import corrupted_pressure, factor_pressure, forced_gap, mean_code_error
from sprii_train.analysis.theory.refinement import refinement
from sprii_train.analysis.theory.selection import (
    Reference,
    Selection,
    disagreement,
    fit_reference,
    select,
    selection_matrix,
    selection_objective,
    shared_disagreement,
)
from sprii_train.analysis.theory.specificity import Specificity, specificity
from sprii_train.analysis.theory.value import (
    ReaderGain,
    categorical_readers,
    log_gain,
    squared_gain,
)

__all__ = [
    "ColdStart",
    "Covariances",
    "Crossing",
    "PairMoments",
    "ReaderGain",
    "Reference",
    "Selection",
    "Specificity",
    "categorical_readers",
    "cold_start",
    "corrupted_pressure",
    "covariances",
    "cross_covariances",
    "crossing",
    "disagreement",
    "expected_disagreement",
    "factor_pressure",
    "fit_reference",
    "forced_gap",
    "log_gain",
    "matched_second_moment",
    "mean_code_error",
    "pair_moments",
    "pair_second_moment",
    "refinement",
    "select",
    "selection_matrix",
    "selection_objective",
    "shared_disagreement",
    "specificity",
    "squared_gain",
    "variance_components",
]
