"""Value: what a donor's code is worth to readers fitted on frozen features (`app:conditional-value`)."""

from sprii_train.analysis.value.bases import Base, RouteConfig, fit_base, fit_bases
from sprii_train.analysis.value.cases import Cases, Standardiser, fit_standardiser, other_system_rows
from sprii_train.analysis.value.curves import DECODE_MINUS_PERSISTENT, PREFIXES, horizon_curve, prefix_errors
from sprii_train.analysis.value.fitting import FitConfig
from sprii_train.analysis.value.physical import dominance, factor_sensitivity, output_weights, sensitivities
from sprii_train.analysis.value.readers import Reader, ReaderConfig, fit_reader, fit_readers
from sprii_train.analysis.value.realization import Realization, realization_row
from sprii_train.analysis.value.risks import by_system, grid_errors, reader_errors, squared_errors, strata_by_system
from sprii_train.analysis.value.routes import Route, amplitude_errors, fit_route, fit_routes
from sprii_train.analysis.value.slots import ARMS
from sprii_train.analysis.value.targeted import TargetedUtility, targeted_utility

__all__ = [
    "ARMS",
    "DECODE_MINUS_PERSISTENT",
    "PREFIXES",
    "Base",
    "Cases",
    "FitConfig",
    "Reader",
    "ReaderConfig",
    "Realization",
    "Route",
    "RouteConfig",
    "Standardiser",
    "TargetedUtility",
    "amplitude_errors",
    "by_system",
    "dominance",
    "factor_sensitivity",
    "fit_base",
    "fit_bases",
    "fit_reader",
    "fit_readers",
    "fit_route",
    "fit_routes",
    "fit_standardiser",
    "grid_errors",
    "horizon_curve",
    "other_system_rows",
    "output_weights",
    "prefix_errors",
    "reader_errors",
    "realization_row",
    "sensitivities",
    "squared_errors",
    "strata_by_system",
    "targeted_utility",
]
