"""Value: fresh readers and residual routes on one source's frozen features (`app:conditional-value`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.theory import Specificity
from sprii_train.analysis.use.interventions import effect
from sprii_train.analysis.value.bases import RouteConfig, fit_bases
from sprii_train.analysis.value.cases import Cases, other_system_rows
from sprii_train.analysis.value.readers import ReaderConfig, fit_readers
from sprii_train.analysis.value.risks import Predictor, by_system, reader_errors, strata_by_system
from sprii_train.analysis.value.routes import SCALES, Route, amplitude_errors, fit_routes
from sprii_train.analysis.value.slots import Arm
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.sources import Source

READERS: tuple[Arm, ...] = ("null", "persistent", "decode", "oracle")
MISMATCHED_BATCH = 256
"""Of the route of mismatched donors (`app:reader-capacity-control`); the others have the setting's."""
DONOR_SEED = 20_263  # of cross-system donors in amplitude sweeps


def value(source: Source) -> dict[str, Any]:
    """Readers and routes, fitted on training cases; routes' checkpoints are selected on the development cases.

    Errors of every reader by system are kept beside the model (`value-*.safetensors`, (R, N, K)); the row has their
    means: `full` over all cases and horizons, and at the last one those of the setting's first panel; `reader0_…` are
    of the readers of seed 0 alone.
    """
    cases = cases_of(source)
    seeds = tuple(range(source.cell.readers.count))
    fitted: dict[str, tuple[Predictor, ...]] = {}
    config = reader_config(source)
    for arm in READERS:
        fitted[arm] = fit_readers(cases.train, arm, config, seeds)
    routes = route_config(source)
    bases = fit_bases(cases.train, cases.development, routes, seeds)
    fitted["r0"] = bases
    fitted["m1"] = fit_routes(cases.train, cases.development, bases, "m1")
    fitted["m2"] = m2 = fit_routes(cases.train, cases.development, bases, "m2")
    fitted["m2-mismatched"] = fit_routes(
        cases.train, cases.development, bases, "m2", donors="mismatched", batch=MISMATCHED_BATCH
    )
    chosen: dict[str, Cases[Any]] = {"full": cases.development}
    chosen |= {panel: cases.development.take(rows) for panel, rows in cases.panels.items()}
    errors = {f"{name}|{panel}": system_errors(f, c) for name, f in fitted.items() for panel, c in chosen.items()}
    row: dict[str, Any] = {}
    for name in fitted:
        told = {"full": errors[f"{name}|full"]}
        told |= {panel: errors[f"{name}|{panel}"][..., -1] for panel in [*cases.panels][:1]}
        row |= {f"{panel}_{name}": float(grid.mean()) for panel, grid in told.items()}
        row |= {f"reader0_{panel}_{name}": float(grid[0].mean()) for panel, grid in told.items()}
    row |= amplitude_row(m2, cases.development) | specificity_row(m2, cases.development)
    row["zero_context_gap"] = max(
        float(np.abs(route.predict(cases.development, np.zeros_like(route.persistent(cases.development)))
                     - base.predict(cases.development)).max())
        for route, base in zip(m2, bases, strict=True)
    )  # fmt: skip
    source.keep(errors)
    if (strata := strata_by_system(cases.development)) is not None:
        row["strata"] = strata.tolist()
    return row | {"systems": np.unique(cases.development.systems).tolist()}


def system_errors(
    readers: Sequence[Predictor], cases: Cases[Any], scale: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Errors (R, N, K) of readers by system, see `reader_errors`."""
    return np.stack(
        [by_system(reader_errors(reader, cases, scale=scale), cases.systems, cases.weights) for reader in readers]
    )


def amplitude_row(routes: Sequence[Route], cases: Cases[Any], variant: str = "") -> dict[str, float]:
    """`own_s0.5`, `cross_s0.5`: errors of M2 routes as their context is scaled, means over readers."""
    sweeps = [amplitude_errors(route, cases, seed=DONOR_SEED) for route in routes]
    return {
        f"{donor}{variant}_s{scale:g}": float(
            np.mean([by_system(sweep[donor][i], cases.systems, cases.weights) for sweep in sweeps])
        )
        for donor in ("own", "cross")
        for i, scale in enumerate(SCALES)
    }


def specificity_row(routes: Sequence[Route], cases: Cases[Any]) -> dict[str, float]:
    """Δ_spec of fixed M2 routes under the sweep's cross-system contexts, means over readers.

    `spec_total` = `spec_sensitivity` + `spec_cross` (`eq:app-specificity-decomposition`).
    """
    other = other_system_rows(cases.systems, DONOR_SEED, cases.strata)
    found = []
    for route in routes:
        p = route.persistent(cases)
        own, crossed = route.predict(cases, p), route.predict(cases, p[other])
        found.append(effect(cases.targets, own, crossed, cases.systems, cases.weights))
    parts = np.mean([each.specificity for each in found], axis=0)
    return {f"spec_{name}": float(part) for name, part in zip(Specificity._fields, parts, strict=True)}


def reader_config(source: Source) -> ReaderConfig:
    """The setting's reader at the cell's budget; a warm-up is the same share of fewer updates."""
    given, updates = source.setting.readout, source.cell.readers.updates
    warmup = min(given.fit.warmup, given.fit.warmup * updates // given.fit.updates)
    return replace(given, fit=replace(given.fit, updates=updates, warmup=warmup))


def route_config(source: Source, updates: int | None = None) -> RouteConfig:
    """The setting's routes at the cell's budget, or of so many updates."""
    given = source.setting.routes
    return replace(given, fit=replace(given.fit, updates=updates or source.cell.readers.route_updates))
