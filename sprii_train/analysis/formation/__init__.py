"""Formation: is a property in the code, and is the code the same across a system's episodes? (`app:measurements`)

    factors      the coordinate in which a property is read, and what is controlled beside it
    arrangement  windows → rollout means → system centroids
    geometry     standardised codes, between/within, partial factor geometry
    intervals    their system-bootstrap intervals
    moments      variances as functions of means over systems, for such intervals
    probes       ridge and MLP regressions (`search` fits them)
    contact      a logistic probe and its AUROC
    evidence     features of numerical histories: what a privileged input tells of the factors
    atlas        principal components of system centroids
    row          all of one source's measures
    curves       a measure over pair reliability or history count

Pure functions of arrays. Probes are fitted and selected on training systems only.
"""

from sprii_train.analysis.formation.arrangement import (
    group_means,
    group_sums,
    rollout_means,
    sample_of,
    system_centroids,
    system_weights,
    with_codes,
)
from sprii_train.analysis.formation.atlas import Projection, project
from sprii_train.analysis.formation.contact import Detected, Detector, detect, fit_logistic
from sprii_train.analysis.formation.curves import Curve, curve
from sprii_train.analysis.formation.evidence import poke_evidence, spring_evidence
from sprii_train.analysis.formation.factors import POKE_FACTORS, SPRING_FACTORS, Factor
from sprii_train.analysis.formation.geometry import (
    Geometry,
    between_within,
    partial_distance_correlation,
    partial_geometry,
    partial_spearman,
    standardise,
)
from sprii_train.analysis.formation.intervals import partial_intervals, ratio_interval
from sprii_train.analysis.formation.moments import moments, total_variance
from sprii_train.analysis.formation.probes import (
    FIXED_PENALTY,
    MLP_PENALTIES,
    RIDGE_PENALTIES,
    Probe,
    Scored,
    fit_mlp,
    fit_ridge,
    probe_factors,
    ratio_score,
    score,
)
from sprii_train.analysis.formation.row import Formation, formation_row, measure_formation

__all__ = [
    "FIXED_PENALTY",
    "MLP_PENALTIES",
    "POKE_FACTORS",
    "RIDGE_PENALTIES",
    "SPRING_FACTORS",
    "Curve",
    "Detected",
    "Detector",
    "Factor",
    "Formation",
    "Geometry",
    "Probe",
    "Projection",
    "Scored",
    "between_within",
    "curve",
    "detect",
    "fit_logistic",
    "fit_mlp",
    "fit_ridge",
    "formation_row",
    "group_means",
    "group_sums",
    "measure_formation",
    "moments",
    "partial_distance_correlation",
    "partial_geometry",
    "partial_intervals",
    "partial_spearman",
    "poke_evidence",
    "probe_factors",
    "project",
    "ratio_interval",
    "ratio_score",
    "rollout_means",
    "sample_of",
    "score",
    "spring_evidence",
    "standardise",
    "system_centroids",
    "system_weights",
    "total_variance",
    "with_codes",
]
