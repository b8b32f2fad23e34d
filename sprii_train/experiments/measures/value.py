"""Value on SpringWorld: fresh readers and residual routes on one source's frozen features (`app:conditional-value`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.theory import Specificity
from sprii_train.analysis.use.interventions import effect
from sprii_train.analysis.value.bases import RouteConfig, fit_bases
from sprii_train.analysis.value.cases import Cases, other_system_rows
from sprii_train.analysis.value.fitting import FitConfig
from sprii_train.analysis.value.readers import ReaderConfig, fit_readers
from sprii_train.analysis.value.risks import Predictor, by_system, reader_errors
from sprii_train.analysis.value.routes import SCALES, Route, amplitude_errors, fit_routes
from sprii_train.analysis.value.slots import Arm
from sprii_train.experiments.sources import Source
from sprii_train.experiments.spring_cases import SpringCases, spring_cases

READERS: tuple[Arm, ...] = ("null", "persistent", "decode", "oracle")
DONOR_SEED = 20_263  # of cross-system donors in amplitude sweeps


def value(source: Source) -> dict[str, Any]:
    """Readers and routes, fitted on training queries; routes' checkpoints are selected on the development mixture.

    Errors of every reader by system are kept beside the model (`value-*.safetensors`, (R, N, K)); the row has their
    means: `full` over all cases and horizons of the 178 systems, `cold` the 100-system cold-start panel at h16.
    """
    cases = spring_cases(source)
    seeds = tuple(range(source.cell.readers.count))
    fitted: dict[str, tuple[Predictor, ...]] = {}
    config = reader_config(source)
    for arm in READERS:
        fitted[arm] = fit_readers(cases.train, arm, config, seeds)
    routes = RouteConfig(fit=FitConfig(updates=source.cell.readers.route_updates, batch=128))
    bases = fit_bases(cases.train, cases.development, routes, seeds)
    fitted["r0"] = bases
    fitted["m1"] = fit_routes(cases.train, cases.development, bases, "m1")
    fitted["m2"] = m2 = fit_routes(cases.train, cases.development, bases, "m2")
    fitted["m2-mismatched"] = fit_routes(cases.train, cases.development, bases, "m2", donors="mismatched")
    errors = {f"{name}|{panel}": grid for name, readers in fitted.items() for panel, grid in _panels(readers, cases)}
    row: dict[str, Any] = {}
    for name in fitted:
        row[f"full_{name}"] = float(errors[f"{name}|full"].mean())
        row[f"cold_{name}"] = float(errors[f"{name}|cold"][..., -1].mean())
    sweeps = [amplitude_errors(route, cases.development, seed=DONOR_SEED) for route in m2]
    for donor in ("own", "cross"):
        curve = np.mean([sweep[donor].mean((1, 2)) for sweep in sweeps], axis=0)
        row |= {f"{donor}_s{scale:g}": float(error) for scale, error in zip(SCALES, curve, strict=True)}
    row |= specificity_row(m2, cases.development)
    row["zero_context_gap"] = max(
        float(np.abs(route.predict(cases.development, np.zeros_like(route.persistent(cases.development)))
                     - base.predict(cases.development)).max())
        for route, base in zip(m2, bases, strict=True)
    )  # fmt: skip
    systems, first = np.unique(cases.development.systems, return_index=True)
    source.keep(errors)
    strata = cases.development.strata
    assert strata is not None
    return row | {"systems": systems.tolist(), "strata": strata[first].tolist()}


def specificity_row(routes: Sequence[Route], cases: Cases[Any]) -> dict[str, float]:
    """Δ_spec of fixed M2 routes under the sweep's cross-system contexts, means over readers.

    `spec_total` = `spec_sensitivity` + `spec_cross` (`eq:app-specificity-decomposition`).
    """
    other = other_system_rows(cases.systems, DONOR_SEED)
    found = []
    for route in routes:
        p = route.persistent(cases)
        found.append(effect(cases.targets, route.predict(cases, p), route.predict(cases, p[other]), cases.systems))
    parts = np.mean([each.specificity for each in found], axis=0)
    return {f"spec_{name}": float(part) for name, part in zip(Specificity._fields, parts, strict=True)}


def reader_config(source: Source) -> ReaderConfig:
    """The common reader at the cell's budget."""
    return ReaderConfig(fit=FitConfig(updates=source.cell.readers.updates))


def _panels(readers: tuple[Predictor, ...], cases: SpringCases) -> list[tuple[str, NDArray[np.float64]]]:
    """Errors (R, N, K) by system: full mixture, cold-start panel, and all systems' cold and moving queries."""
    chosen: dict[str, Cases[Any]] = {
        "full": cases.development,
        "cold": cases.cold,
        "cold_kind": cases.development.of_kind("cold"),
        "moving_kind": cases.development.of_kind("moving"),
    }
    return [
        (panel, np.stack([by_system(reader_errors(reader, c), c.systems) for reader in readers]))
        for panel, c in chosen.items()
    ]
