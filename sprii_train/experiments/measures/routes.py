"""Residual routes at two budgets (`tab:external-alpha`), and of the object alone."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.value.bases import RouteConfig, fit_bases
from sprii_train.analysis.value.cases import Cases, Standardiser
from sprii_train.analysis.value.fitting import FitConfig
from sprii_train.analysis.value.risks import Predictor, by_system, reader_errors
from sprii_train.analysis.value.routes import fit_routes
from sprii_train.cases.base import SourceCases
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.donor_probes import donor_probes, named_factors
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import Setting

LONG = 5  # times the updates of the short budget
PROBED = "drag"
WRONG_SEED = 20_265  # of the map of systems behind wrong donors

Array = NDArray[np.float64]


def routes(source: Source) -> dict[str, Any]:
    """E(M1) − E(M2) at h16 on validation systems after `route_updates` and five times as many, base included.

    The row has `gain_short` and `gain_long`, the error of every route, wrong − matched of M2 and R² of drag, where it
    is a property, in the donors' codes; errors by system, (R, N) at h16, are kept beside the model.
    """
    cases = cases_of(source)
    found = donor_probes(cases, named_factors(source.setting, PROBED))
    row: dict[str, Any] = {f"donor_{name}": scored.r2 for name, scored in found.items()}
    kept: dict[str, Array] = {}
    for name, times in (("short", 1), ("long", LONG)):
        updates = times * source.cell.readers.route_updates
        errors = route_errors(cases, updates, source.cell.readers.count)
        kept |= {f"{route}|{name}": grid for route, grid in errors.items()}
        means = {route: float(grid.mean()) for route, grid in errors.items()}
        row |= {f"updates_{name}": updates, f"gain_{name}": means["m1"] - means["m2"]}
        row |= {f"{route}_{name}": mean for route, mean in means.items()}
        row[f"wrong_minus_matched_{name}"] = means["m2-wrong"] - means["m2"]
    source.keep(kept)
    return row


def object_routes(source: Source) -> dict[str, Any]:
    """Errors at h16 of the base, M1 and M2 that predict the object's coordinates alone."""
    cases = object_only(cases_of(source), source.setting)
    errors = route_errors(cases, source.cell.readers.route_updates, source.cell.readers.count)
    source.keep(errors)
    return {f"{route}_h16": float(grid.mean()) for route, grid in errors.items()}


def object_only(cases: SourceCases, setting: Setting) -> SourceCases:
    """The same cases with the object's position and velocity as targets."""
    of = setting.pushed
    kept = Standardiser(cases.standardiser.mean[of], cases.standardiser.scale[of])
    train, development = (replace(c, targets=c.targets[..., of]) for c in (cases.train, cases.development))
    return replace(cases, train=train, development=development, standardiser=kept)


def route_errors(cases: SourceCases, updates: int, readers: int) -> dict[str, Array]:
    """Errors (R, N) at the last horizon of the bases `r0`, `m1`, `m2`, and `m2-wrong` with another system's donors."""
    config = RouteConfig(fit=FitConfig(updates=updates, batch=128))
    held_out = cases.development
    bases = fit_bases(cases.train, held_out, config, tuple(range(readers)))
    m1, m2 = (fit_routes(cases.train, held_out, bases, kind) for kind in ("m1", "m2"))
    fitted: dict[str, tuple[tuple[Predictor, ...], Cases[Any]]] = {
        "r0": (bases, held_out),
        "m1": (m1, held_out),
        "m2": (m2, held_out),
        "m2-wrong": (m2, held_out.mismatched(WRONG_SEED)),
    }
    return {
        name: np.stack([by_system(reader_errors(each, c)[:, -1:], c.systems)[:, 0] for each in routes])
        for name, (routes, c) in fitted.items()
    }
